"""Reading structured answers out of model text. Nothing here evaluates or rewrites that text.

Malformed output is an outcome with a reason (`Parsed.error`), never an exception. Every reader takes time linear in the
length of the text, and the text must be what the agent wrote and nothing else: a prompt or a tool result may hold the
answer. Decisions on tool calls:

- A call is `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, JSON only. A real JSON decoder decides where an
  object ends, so a closing tag inside a string is data. Several objects may stand in one block, a list of them may not.
  `arguments` is an object, never a string that holds one. Python literals (single quotes, True, None) and raw line
  breaks inside strings are malformed, not guessed at.
- Malformed, because two readers could see two answers: a repeated key, NaN, a lone surrogate, an integer of more than
  4,300 digits, and a number with a point or exponent that a double does not hold (`1e999`, `1e-999`, `0.1` followed by
  twenty more digits). So a decoded number is always the number that was written.
- More than 32 levels of nesting are malformed.
- One malformed or unclosed call, or a closing tag without a call, makes the whole answer malformed. Other text around
  the calls is ignored.

Decisions on short answers:

- Boxed: the content of the last `\\boxed{...}`, braces nested, `\\{` and `\\}` not counted. `\\boxed 7`, `\\boxed {7}` and
  `\\fbox{7}` are no boxes. If the last box is cut off there is no answer, even after a complete one: the agent was
  about to say something else, and what that was is not guessed. Of boxes inside a box the last one opened counts.
- Plain: the rest of the last line that begins with `Answer:` or `Final answer:` (any case, Markdown marks allowed);
  without such a line, the text itself if it is a single line. A marker with nothing after it is no answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from genenv.contracts.types import Json

OPEN, CLOSE = "<tool_call>", "</tool_call>"
MAX_DEPTH = 32
SHOWN = 60
"""Characters of the agent's text that a reason may quote: a reason stays a line, whatever was written."""

_SHORT = 4096
"""Characters among which counting brackets is cheaper than following them."""
_BOX = "\\boxed{"
_BRACES = re.compile(r"\\.|[{}]", re.DOTALL)
_MARKER = re.compile(r"[\s*_#>-]*(?:final )?answer[\s*_]*:[\s*_]*(.*)", re.IGNORECASE | re.DOTALL)
_STRUCTURE = re.compile(r'\\.|["\[\]{}]', re.DOTALL)
_SPACES = re.compile(r"[ \t\r\n]*")
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Call:
    """One function call: a name and keyword arguments."""

    name: str
    arguments: Mapping[str, Json]

    def as_json(self) -> dict[str, Json]:
        return {"name": self.name, "arguments": dict(self.arguments)}


@dataclass(frozen=True)
class Parsed:
    """The calls found in a text, or the reason why it is malformed (then `calls` is empty)."""

    calls: tuple[Call, ...] = ()
    error: str = ""


class _Malformed(ValueError):
    pass


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise _Malformed("repeated key")
    return result


def _float(text: str) -> float:
    value = float(text)
    if value == 0.0:  # Decimal refuses exponents of more than 18 digits, so an underflow is told by its digits
        exact = not text.lower().partition("e")[0].strip("-0.")
    else:
        exact = abs(value) != float("inf") and Decimal(text) == Decimal(repr(value))
    if not exact:
        raise _Malformed("number that a double does not hold")
    return value


def _constant(text: str) -> Any:
    raise _Malformed(f"{text} is not JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_float=_float, parse_constant=_constant)
_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _check_depth(text: str, start: int) -> None:
    """Refuse deep nesting before it is decoded: the decoder recurses in C, where a deep text can end the process."""
    if len(text) - start <= _SHORT and text.count("{", start) + text.count("[", start) <= MAX_DEPTH:
        return
    depth, in_string = 0, False
    for found in _STRUCTURE.finditer(text, start):
        mark = found[0]
        if mark == '"':
            in_string = not in_string
        elif in_string:
            continue
        elif mark in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise _Malformed("nested too deeply")
        elif mark in "]}":
            depth -= 1
            if depth <= 0:
                return


def _check_strings(value: Json) -> None:
    if isinstance(value, str):
        if _SURROGATE.search(value):
            raise _Malformed("lone surrogate in a string")
    elif isinstance(value, dict):
        for key, item in value.items():
            _check_strings(key)
            _check_strings(item)
    elif isinstance(value, list):
        for item in value:
            _check_strings(item)


def decode_json(text: str, start: int = 0) -> tuple[Json, int]:
    """Decode one JSON value at `start`; returns it and the index after it.

    Raises ValueError with a short reason. Strict: see the module's decisions.
    """
    _check_depth(text, start)
    try:
        value, end = _DECODER.raw_decode(text, start)
    except _Malformed:
        raise
    except json.JSONDecodeError as error:
        raise _Malformed(f"not JSON: {error.msg} at character {error.pos}") from None
    except ValueError:  # an integer of more digits than Python converts
        raise _Malformed("integer of too many digits") from None
    if text.find("\\u", start, end) >= 0 or (not text.isascii() and _SURROGATE.search(text, start, end)):
        _check_strings(value)
    return value, end


def parse_json_object(text: str) -> dict[str, Json]:
    """The one JSON object that `text` consists of. Raises ValueError with a short reason."""
    stripped = text.strip(" \t\r\n")  # the white space of JSON, not of Unicode
    value, end = decode_json(stripped)
    if end != len(stripped):
        raise _Malformed("text after the JSON object")
    if not isinstance(value, dict):
        raise _Malformed("not a JSON object")
    return value


def _call(value: Json) -> Call:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str) or not value["name"]:
        raise _Malformed("a call needs a name")
    if not isinstance(value.get("arguments"), dict):
        raise _Malformed("a call needs an arguments object")
    if len(value) > 2:
        raise _Malformed(f"unknown key {shorten(min(set(value) - {'name', 'arguments'}))!r} in a call")
    return Call(value["name"], value["arguments"])


def parse_tool_calls(text: str) -> Parsed:
    """All calls in `text`, in order. `text` must be what the agent wrote and nothing else."""
    calls: list[Call] = []
    position = 0
    while (found := text.find(OPEN, position)) >= 0:
        if text.find(CLOSE, position, found) >= 0:
            break
        position = _skip(text, found + len(OPEN))
        block: list[Call] = []
        while not text.startswith(CLOSE, position):
            if position >= len(text):
                return Parsed(error="unclosed call")
            try:
                value, position = decode_json(text, position)
                block.append(_call(value))
            except ValueError as error:
                return Parsed(error=str(error))
            position = _skip(text, position)
        if not block:
            return Parsed(error="empty call")
        calls += block
        position += len(CLOSE)
    if text.find(CLOSE, position) >= 0:
        return Parsed(error="closing tag without a call")
    return Parsed(tuple(calls))


def _skip(text: str, position: int) -> int:
    if text[position : position + 1] in ("{", "<"):
        return position
    found = _SPACES.match(text, position)
    return found.end() if found else position


def format_tool_calls(calls: Sequence[Call]) -> str:
    """The inverse of `parse_tool_calls`: the answer text of a reference solution.

    Raises ValueError for NaN and infinity, which JSON cannot say.
    """
    return "".join(OPEN + _ENCODER.encode(c.as_json()) + CLOSE for c in calls)


def shorten(text: str) -> str:
    """`text`, or its beginning if it is too long to be quoted in a reason."""
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


def boxed_answer(text: str) -> str | None:
    """The content of the last `\\boxed{...}` in `text`, or None. See the module's decisions."""
    start = text.rfind(_BOX)
    if start < 0:
        return None
    start += len(_BOX)
    depth = 1
    for found in _BRACES.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(found[0], 0)
        if depth == 0:
            return text[start : found.start()].strip()
    return None


def plain_answer(text: str) -> str | None:
    """The answer that `text` states in words, or None. See the module's decisions."""
    lines = [line for line in text.splitlines() if line.strip()]
    for line in reversed(lines):
        if found := _MARKER.fullmatch(line):
            return found[1].rstrip().rstrip("*_").rstrip() or None
    return lines[0].strip() if len(lines) == 1 else None
