"""What must hold for every text and every value: parsers never raise, equality is an equivalence, no damage is right."""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from strategies import ANY_TEXT, CALLS, VALUES, examples

from genenv.domains.tool_use.domain import ToolUse
from genenv.grading.calls import CallMatcher, equal_arguments, equal_values
from genenv.grading.text import exact_match, normalize_text, parse_number, token_f1
from genenv.reading.parsing import (
    Call,
    Parsed,
    boxed_answer,
    decode_json,
    format_tool_calls,
    parse_json_object,
    parse_tool_calls,
    plain_answer,
)

# values and schemas that often meet: few keys, few numbers, in several types
SMALL = st.recursive(
    st.sampled_from([None, True, False, 0, 1, 0.0, 1.0, -0.0, "1", "a", ""]),
    lambda v: st.lists(v, max_size=2) | st.dictionaries(st.sampled_from("ab"), v, max_size=2),
    max_leaves=4,
)
TYPES = st.sampled_from(["number", "integer", "string", "boolean", "null", ["number", "null"], ["array", "integer"]])
SCHEMAS = st.recursive(
    st.one_of(
        st.just({}),
        TYPES.map(lambda t: {"type": t}),
        SMALL.map(lambda v: {"default": v}),
        SMALL.map(lambda v: {"const": v}),
        st.builds(lambda t, v: {"type": t, "default": v}, TYPES, SMALL),
        st.just({"$ref": "#"}),
        st.just({"$ref": "#/properties/a", "default": {}}),
    ),
    lambda s: st.one_of(
        st.builds(
            lambda p, r: {"type": "object", "properties": p, "required": r},
            st.dictionaries(st.sampled_from("ab"), s, max_size=2),
            st.lists(st.sampled_from("ab"), max_size=1),
        ),
        s.map(lambda x: {"items": x}),
        st.lists(s, max_size=2).map(lambda x: {"prefixItems": x}),
        st.lists(s, max_size=2).map(lambda x: {"anyOf": x}),
        st.lists(s, max_size=2).map(lambda x: {"allOf": x}),
        s.map(lambda x: {"additionalProperties": x}),
    ),
    max_leaves=4,
)


# -- parsers -------------------------------------------------------------------------------------------------------


@examples(1000)
@given(CALLS, st.text("ab\n<>{}\"'\\", max_size=6))
def test_calls_survive_writing_and_reading(calls: list[Call], prose: str) -> None:
    text = format_tool_calls(calls)
    assert parse_tool_calls(prose + text + prose) == Parsed(tuple(calls))
    again = parse_tool_calls(text).calls
    assert format_tool_calls(again) == text  # == alone would take 1 for True
    assert CallMatcher(calls, {}).difference(again) == ""


@examples(1500)
@given(ANY_TEXT)
def test_no_text_makes_a_reader_raise(text: str) -> None:
    for written in (
        text,
        f"<tool_call>{text}</tool_call>",
        f'<tool_call>{{"name": "f", "arguments": {text}}}</tool_call>',
    ):
        parsed = parse_tool_calls(written)
        assert not (parsed.error and parsed.calls)
        # whatever is accepted can be written, and is the same when read again
        assert parse_tool_calls(format_tool_calls(parsed.calls)).calls == parsed.calls
    for answer in (boxed_answer(text), plain_answer(text)):
        assert answer is None or answer in text


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len({k for k, _ in pairs}) == len(pairs)
    return dict(pairs)


@examples(1200)
@given(ANY_TEXT, VALUES, st.integers(0, 60), st.text('"{}[],:0123456789.eE-+\\unatrfls', max_size=2))
def test_only_strict_json_is_accepted(text: str, value: Any, cut: int, put: str) -> None:
    valid = json.dumps({"a": value})
    for written in (text, valid, valid[:cut] + put + valid[cut:], valid[:cut] + put + valid[cut + 1 :]):
        try:
            decoded = parse_json_object(written)
        except ValueError:
            assert written != valid
            continue
        exact = json.loads(written, parse_float=Decimal, object_pairs_hook=_no_repeats)
        assert exactly(decoded) == exactly(exact)
        assert decode_json(written.strip())[1] == len(written.strip())


@examples(1000)
@given(st.text("ab\\{}$ \n", max_size=12), st.text("7{}\\x ", max_size=12), st.text("ab}$ \n", max_size=8))
def test_a_box_ends_where_its_braces_balance(before: str, inside: str, after: str) -> None:
    tail, expected = inside + "}" + after, None
    depth, at = 1, 0
    while at < len(tail) and expected is None:
        if tail[at] == "\\":
            at += 1  # the next character is escaped
        elif tail[at] in "{}":
            depth += 1 if tail[at] == "{" else -1
            expected = tail[:at].strip() if depth == 0 else None
        at += 1
    assert boxed_answer(before + "\\boxed{" + tail) == expected


# -- structured values ---------------------------------------------------------------------------------------------


@examples(1500)
@given(SMALL, SMALL, SMALL, SCHEMAS)
def test_equality_is_an_equivalence_under_any_schema(a: Any, b: Any, c: Any, schema: Mapping[str, Any]) -> None:
    assert equal_values(a, a, schema)
    assert equal_values(a, json.loads(json.dumps(a)), schema)
    ab, bc, ac = equal_values(a, b, schema), equal_values(b, c, schema), equal_values(a, c, schema)
    assert ab == equal_values(b, a, schema)
    assert not (ab and bc) or ac


def exactly(value: Any) -> Any:
    """A comparable form that keeps bool, integer and other numbers apart, by exact value."""
    if isinstance(value, dict):
        return ("object", {k: exactly(v) for k, v in value.items()})
    if isinstance(value, list):
        return ("list", [exactly(v) for v in value])
    if isinstance(value, (float, Decimal)):
        return ("float", Decimal(repr(value)) if isinstance(value, float) else value)
    return (type(value).__name__, value)


@examples(1000)
@given(VALUES, VALUES)
def test_without_a_schema_equal_is_identical_json(a: Any, b: Any) -> None:
    assert equal_values(a, b) == (exactly(a) == exactly(b))
    assert equal_values(a, json.loads(json.dumps(a)))


@examples(800)
@given(
    st.dictionaries(st.sampled_from("abcd"), SMALL, max_size=4),
    st.dictionaries(st.sampled_from("abcd"), SMALL, max_size=4),
    st.sets(st.sampled_from("abcd")),
)
def test_only_optional_arguments_at_their_default_may_be_left_out(
    arguments: dict[str, Any], defaults: dict[str, Any], required: set[str]
) -> None:
    schema = {"properties": {k: {"default": v} for k, v in defaults.items()}, "required": sorted(required)}
    for key, value in arguments.items():
        fewer = {k: v for k, v in arguments.items() if k != key}
        free = key in defaults and key not in required and exactly(defaults[key]) == exactly(value)
        assert equal_arguments(arguments, fewer, schema) == free
        assert equal_arguments(fewer, arguments, schema) == free


SMALL_CALLS = st.lists(
    st.builds(Call, st.sampled_from("fg"), st.dictionaries(st.sampled_from("ab"), SMALL, max_size=2)),
    min_size=1,
    max_size=4,
)


@examples(600)
@given(SMALL_CALLS, SMALL_CALLS, SCHEMAS, st.randoms(use_true_random=False))
def test_the_order_of_calls_does_not_matter(
    target: list[Call], other: list[Call], schema: Mapping[str, Any], rng: random.Random
) -> None:
    schemas = {"f": schema, "g": {}}
    shuffled = rng.sample(target, len(target))
    assert CallMatcher(target, schemas).difference(shuffled) == ""
    verdict = CallMatcher(target, schemas).difference(other) == ""
    assert verdict == (CallMatcher(shuffled, schemas).difference(rng.sample(other, len(other))) == "")
    assert verdict == (CallMatcher(other, schemas).difference(target) == "")


@examples(1000)
@given(SMALL_CALLS, st.integers(0, 3), SMALL)
def test_no_damage_to_calls_is_right(calls: list[Call], position: int, value: Any) -> None:
    schema = {"properties": {"a": {"type": "number"}, "b": {"items": {"type": "number"}}}}
    schemas = {"f": schema, "g": schema}
    position %= len(calls)
    before, call, after = calls[:position], calls[position], calls[position + 1 :]
    damaged = [
        [*before, *after],
        [*before, call, call, *after],
        [*before, Call(call.name + "_", call.arguments), *after],
        [*before, Call(call.name, {**call.arguments, "c": value}), *after],
    ]
    for key in call.arguments:
        damaged.append([*before, Call(call.name, {k: v for k, v in call.arguments.items() if k != key}), *after])
        damaged.append([*before, Call(call.name, {**call.arguments, key: [value, "damage"]}), *after])
        damaged.append([*before, Call(call.name, {**call.arguments, key: f"{value}damage"}), *after])
    for answer in damaged:
        assert CallMatcher(calls, schemas).difference(answer) != ""
        assert parse_tool_calls(format_tool_calls(answer)) == Parsed(tuple(answer))


# -- short answers -------------------------------------------------------------------------------------------------

NO_FINITE_NUMBER = re.compile(r"[\W_]*([+-]?(nan|inf(inity)?)|[0-9.,/]*(e[+-]?[0-9]{3,})?)[\W_]*", re.IGNORECASE)
WHOLE = st.one_of(st.integers(0, 20), st.integers(0, 10**7), st.integers(0, 10**40))


@examples(1500)
@given(WHOLE, st.text("0123456789", max_size=6), st.sampled_from(["", "-", "+"]), st.integers(-40, 40), WHOLE)
def test_numbers_have_their_exact_value(whole: int, decimals: str, sign: str, exponent: int, other: int) -> None:
    plain = f"{sign}{whole}.{decimals}" if decimals else f"{sign}{whole}"
    value = Fraction(plain)
    spellings = {
        plain: value,
        plain + "0" if decimals else plain + ".0": value,
        f"{sign}{whole:,}" + (f".{decimals}" if decimals else ""): value,
        f"{plain}e{exponent}": value * Fraction(10) ** exponent,
        f"{plain}%": value / 100,
        f"\u00a3{plain}": value,
        f"{sign}{whole}/{other + 1}": Fraction(f"{sign}{whole}") / (other + 1),
    }
    for text, expected in spellings.items():
        assert parse_number(text) == expected
        assert exact_match(plain, text) == (expected == value)
        assert exact_match(str(other), text) == (expected == other)


@examples(1000)
@given(st.text("0123456789.,-+eE%$/ ", max_size=10))
def test_what_is_not_written_like_a_number_is_none(text: str) -> None:
    value = parse_number(text)
    if value is None:
        return
    # an independent reading: remove what carries no value, then let Fraction read the rest
    bare = text.replace(",", "").replace("$", "").replace("%", "").replace(" ", "")
    assert value == Fraction(bare.removesuffix(".")) / (100 if "%" in text else 1)
    head = text.split(".")[0].strip(" $+-%")
    groups = head.split(",")
    assert len(groups) == 1 or (len(groups[0]) in (1, 2, 3) and all(len(g.split("e")[0]) == 3 for g in groups[1:]))


@examples(800)
@given(ANY_TEXT, ANY_TEXT)
def test_short_answers_are_compared_without_raising(a: str, b: str) -> None:
    assert exact_match(a, b) == exact_match(b, a)
    score = token_f1(a, b)
    assert 0.0 <= score <= 1.0
    assert score == token_f1(b, a)
    for text in (a, b):
        same = exact_match(text, text)
        # what does not even match itself has no words, or is a number that is not finite or too large
        assert same or not normalize_text(text) or NO_FINITE_NUMBER.fullmatch(text)
        assert token_f1(text, text) in ((1.0,) if same else (0.0, 1.0))
    if exact_match(a, b):
        assert score == 1.0


@examples(500)
@given(st.lists(st.text("abc\u00e9\u0416\u4e2d", min_size=1, max_size=4), min_size=1, max_size=4), st.data())
def test_wording_that_carries_nothing_does_not_matter(words: list[str], data: st.DataObject) -> None:
    target = " ".join(words)
    space = st.sampled_from([" ", "  ", "\t", "\n", ", ", "; ", " (", ") ", "\u00a0", " the ", " \u2014 "])
    answer = (
        words[0] + "".join(data.draw(space) + word for word in words[1:]) + data.draw(st.sampled_from(["", ".", "!?"]))
    )
    assert exact_match(target, answer.upper())
    assert token_f1(target, answer.upper()) == 1.0
    assert not exact_match(target, answer + " x")
    assert not exact_match(target, "x" + answer)


# -- mangled model output through a whole episode ------------------------------------------------------------------


def independent_calls(text: str) -> list[Any] | None:
    """The calls in `text` by another route than the parser's: try every closing tag until the JSON is whole."""
    calls = []
    while "<tool_call>" in text:
        block, rest = None, text.split("<tool_call>", 1)[1]
        pieces = rest.split("</tool_call>")
        for count in range(1, len(pieces)):
            try:
                block = json.loads(
                    "</tool_call>".join(pieces[:count]),
                    parse_float=Decimal,
                    parse_constant=lambda _: 1 / 0,
                    object_pairs_hook=_no_repeats,
                )
            except json.JSONDecodeError:
                continue
            text = "</tool_call>".join(pieces[count:])
            break
        if block is None:
            return None
        calls.append(block)
    return calls


def loosely(value: Any) -> str:
    """JSON text that is equal where the built-in catalogue's schemas call two values equal: 1 and 1.0 are one number."""
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, (int, float, Decimal)):
        return str(Fraction(repr(value) if isinstance(value, float) else value))
    if isinstance(value, dict):
        return "{" + ",".join(f"{k!r}:{loosely(v)}" for k, v in sorted(value.items())) + "}"
    return "[" + ",".join(map(loosely, value)) + "]" if isinstance(value, list) else repr(value)


PIECES = (
    b"</tool_call>",
    b"<tool_call>",
    b'"',
    b"\\",
    b"{",
    b"}",
    b"\xff",
    b"\x00",
    b"\\ud800",
    b"0",
    b".0",
    b" ",
    b"e9",
)


def mangle(data: bytes, rng: random.Random) -> bytes:
    """One to three small damages: replaced, dropped, inserted, doubled, swapped or cut bytes."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        at = rng.randrange(len(data) + 1)
        to = min(len(data), at + rng.randint(1, 6))
        match rng.randrange(6):
            case 0:
                data = data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
            case 1:
                data = data[:at] + data[to:]
            case 2:
                data = data[:at] + rng.choice(PIECES) + data[at:]
            case 3:
                data = data[:at] + data[at:to] + data[at:]
            case 4:
                data = data[:at] + data[at + 1 : at + 2] + data[at : at + 1] + data[at + 2 :]
            case _:
                data = data[:at] if rng.random() < 0.3 else data
    return data


def test_ten_thousand_mangled_outputs_are_scored_by_their_strict_content() -> None:
    domain, rng = ToolUse(), random.Random(20260)
    tasks = [domain.build(seed.spec) for seed in domain.seeds(100, 7)]
    outcomes = {"right": 0, "wrong": 0, "malformed": 0}
    for number in range(10_000):
        task = tasks[number % len(tasks)]
        output = "Sure. " + domain.reference(task)[0] + "\nDone."
        if number % 2:  # spread over lines, as models write it
            output = output.replace('","', '",\n "').replace("><", ">\n<")
        text = mangle(output.encode(), rng).decode(errors="replace")
        step = domain.episode(task).step(text)
        assert step.score is not None
        if step.score.value == 1.0:
            outcomes["right"] += 1
            found = independent_calls(text)
            assert found is not None, text
            assert sorted(map(loosely, found)) == sorted(map(loosely, task.target)), text
        else:
            assert step.score.value == 0.0
            outcomes["malformed" if step.score.reason.startswith("malformed: ") else "wrong"] += 1
    # the damage is neither always fatal nor always harmless
    assert min(outcomes.values()) > 500, outcomes
    assert math.fsum(outcomes.values()) == 10_000
