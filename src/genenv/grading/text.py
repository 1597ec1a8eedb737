"""Does a short answer equal its target? Numbers by value, text by normalisation.

Short answers (`exact_match`): if both are numbers they match by value; a number never matches a text; two texts match if
their normal forms are equal and not empty. Numbers (`parse_number`):

- Digits with an optional sign, decimal point and exponent. Commas only group whole thousands: 1,250 but not 12,50. A
  code with leading zeros (007) is text.
- By value, as exact fractions: 1 = 1.0, 1/2 = 0.5, 50% = 0.5, `\\frac{3}{4}` = 0.75; 9007199254740993 is not ...992.
- One of the marks $ EUR GBP JPY (as signs) may stand before or after and is ignored, but two different marks do not match.
- nan, inf and numbers too large to write out (an exponent beyond 308, more than 1,000 characters) match nothing.

Text (`normalize_text`): compatibility characters unified (NFKC), case folded, invisible characters dropped, punctuation
made a space, articles dropped before another word, white space collapsed. What carries a value stays: decimal points, a
minus sign before a number or name, symbols such as + and %, and accents. Points and apostrophes between letters vanish
(U.S. = US), grouping commas too.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

MAX_NUMBER_CHARACTERS = 1000
MAX_EXPONENT = 308
_MARKS = "$\u20ac\u00a3\u00a5"
_NUMBER = re.compile(
    rf"""(?P<before>[{_MARKS}]?)[ ]?(?P<sign>[+-]?)[ ]?(?P<mark>[{_MARKS}]?)[ ]?
    (?:(?P<whole>[1-9][0-9]{{0,2}}(?:,[0-9]{{3}})+|0|[1-9][0-9]*)?(?P<point>\.[0-9]*)?(?:e(?P<exponent>[+-]?[0-9]+))?
      |(?P<over>0|[1-9][0-9]*)/(?P<under>[1-9][0-9]*)
      |\\[dt]?frac\{{(?P<texover>0|[1-9][0-9]*)\}}\{{(?P<texunder>[1-9][0-9]*)\}})
    [ ]?(?P<after>[{_MARKS}%]?)""",
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)
_NOT_FINITE = re.compile(r"[+-]?(?:nan|inf|infinity)", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True)
class _Number:
    """A text that reads as a number; `value` is None if it is not finite or too large to write out."""

    value: Fraction | None
    mark: str = ""


def _read_number(text: str) -> _Number | None:
    if not text.isascii():
        text = _compatible(text)
    text = text.strip()
    if _NOT_FINITE.fullmatch(text):
        return _Number(None)
    found = _NUMBER.fullmatch(text)
    if found is None or (not (over := found["over"] or found["texover"]) and not _has_digits(found)):
        return None
    marks = [m for m in (found["before"], found["mark"], found["after"]) if m]
    if len(marks) > 1:
        return None
    mark = marks[0] if marks else ""
    exponent = found["exponent"] or "0"
    if len(text) > MAX_NUMBER_CHARACTERS or abs(int(exponent)) > MAX_EXPONENT:
        return _Number(None)
    if over:
        value = Fraction(int(over), int(found["under"] or found["texunder"]))
    else:
        digits = (found["whole"] or "0").replace(",", "") + (found["point"] or "")
        value = Fraction(digits.rstrip(".")) * Fraction(10) ** int(exponent)
    if found["sign"] == "-":
        value = -value
    return _Number(value / 100) if mark == "%" else _Number(value, mark)


def _has_digits(found: re.Match[str]) -> bool:
    return bool(found["whole"]) or len(found["point"] or "") > 1


def parse_number(text: str) -> Fraction | None:
    """The exact value of a text that is a number and nothing else, or None. See the module's rules."""
    number = _read_number(text)
    return number.value if number else None


_ARTICLES = frozenset({"a", "an", "the"})
_GROUPED = re.compile(r"(?<![\w.,])[1-9][0-9]{0,2}(?:,[0-9]{3})+(?![\w,])")
_RAISED = re.compile(r"(?<=\d)(?=[^\W\d_a-z])")
_SIGNS = re.compile(r"[^\w\s]|_")
_MAX_MARKS = 30
"""Combining marks in a row, the limit of Unicode's stream-safe format: sorting a longer run takes quadratic time."""


def _compatible(text: str) -> str:
    """NFKC with one kind of minus and apostrophe, without invisible characters; in linear time."""
    kept, run = [], 0
    for c in text:
        run = run + 1 if unicodedata.combining(c) else 0
        if run <= _MAX_MARKS and unicodedata.category(c) != "Cf":
            kept.append(c)
    # 10 with a raised 2 must not become 102, nor 1 with a half 11/2
    apart = _RAISED.sub(lambda m: " " if unicodedata.category(m.string[m.start()]) == "No" else "", "".join(kept))
    return unicodedata.normalize("NFKC", apart).replace("\u2212", "-").replace("\u2019", "'")


def _sign(found: re.Match[str]) -> str:
    """What becomes of one character that is no letter, digit or space."""
    c, text = found[0], found.string
    before, after = text[max(0, found.start() - 1) : found.start()], text[found.end() : found.end() + 1]
    if c == "." and after.isdecimal() and not before.isalpha():
        return c
    if c in ".'" and before.isalpha() and after.isalpha():
        return ""
    if c == "-" and after and not after.isspace() and not before.isalnum():
        return c
    if c in "%#" or unicodedata.category(c)[0] not in "PC":
        return c
    return " "


def normalize_text(text: str) -> str:
    """The normal form of a text answer. See the module's rules."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", _compatible(text).casefold())
    text = text.casefold()
    text = _GROUPED.sub(lambda m: m[0].replace(",", ""), text)
    words = _SIGNS.sub(_sign, text).split()
    return " ".join(w for i, w in enumerate(words) if w not in _ARTICLES or i == len(words) - 1)


def _as_numbers(target: str, answer: str) -> bool | None:
    """Whether the two match as numbers; None if neither is one."""
    left, right = _read_number(target), _read_number(answer)
    if left is None and right is None:
        return None
    if left is None or right is None or left.value is None:
        return False
    return left.value == right.value and (not left.mark or not right.mark or left.mark == right.mark)


def exact_match(target: str, answer: str) -> bool:
    """Whether a short answer is the target: as numbers by value, else as normalised text."""
    numbers = _as_numbers(target, answer)
    if numbers is not None:
        return numbers
    normal = normalize_text(target)
    return bool(normal) and normal == normalize_text(answer)


def token_f1(target: str, answer: str) -> float:
    """2PR / (P + R) over the words of both normal forms, as multisets; two numbers score 1 or 0 by value.

    P is the share of the answer's words that are in the target, R the share of the target's that are in the answer.
    """
    if _read_number(target) and _read_number(answer):
        return float(exact_match(target, answer))
    wanted, got = Counter(normalize_text(target).split()), Counter(normalize_text(answer).split())
    common = (wanted & got).total()
    return 2 * common / (wanted.total() + got.total()) if common else 0.0


def contains_words(text: str, words: str) -> bool:
    """Whether `words` stands in `text` as it is and is not a part of a longer word or number."""
    at = text.find(words) if words else -1
    while at >= 0:
        before, after = text[at - 1 : at], text[at + len(words) : at + len(words) + 1]
        if not (before.isalnum() or before == "_" or after.isalnum() or after == "_"):
            return True
        at = text.find(words, at + 1)
    return False
