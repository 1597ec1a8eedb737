"""Reading calls and short answers out of text that a model wrote."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from genenv.grading.calls import CallMatcher
from genenv.grading.text import exact_match
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

ONE = '{"name": "f", "arguments": {"x": 1}}'
MEGABYTE = 1_000_000


def called(body: str) -> str:
    return f"<tool_call>{body}</tool_call>"


def with_argument(value: str) -> str:
    return called(f'{{"name": "f", "arguments": {{"x": {value}}}}}')


def assert_malformed(text: str, error: str) -> None:
    """`error` is the whole reason, but for JSON errors: Python words those, and not always in the same way."""
    parsed = parse_tool_calls(text)
    assert parsed.calls == ()
    assert parsed.error == error or (error == "not JSON" and parsed.error.startswith("not JSON: "))


# -- the end of a call ---------------------------------------------------------------------------------------------

NOTE = {"title": "tags", "body": "write </tool_call> { here"}
NOTE_ON_ONE_LINE = """Saving it now.
<tool_call>
{"name": "save_note", "arguments": {"title": "tags", "body": "write </tool_call> { here"}}
</tool_call>
"""
NOTE_ON_FIVE_LINES = """Saving it now.
<tool_call>
{
  "name": "save_note",
  "arguments": {"title": "tags",
                "body": "write </tool_call> { here"}
}
</tool_call>
"""


@pytest.mark.parametrize("text", [NOTE_ON_ONE_LINE, NOTE_ON_FIVE_LINES])
def test_a_closing_tag_inside_a_string_is_data(text: str) -> None:
    parsed = parse_tool_calls(text)
    assert parsed == Parsed((Call("save_note", NOTE),))
    assert parsed.calls[0].arguments["body"] == "write </tool_call> { here"
    assert CallMatcher([Call("save_note", NOTE)], {}).difference(parsed.calls) == ""


def test_an_opening_tag_inside_a_string_is_data() -> None:
    assert parse_tool_calls(with_argument('"a <tool_call> b"')).calls == (Call("f", {"x": "a <tool_call> b"}),)


def test_calls_keep_their_order_across_and_inside_blocks() -> None:
    text = f'First {called(ONE)} then <tool_call>\n{ONE}\n{{"name": "g", "arguments": {{}}}}\n</tool_call> done'
    assert parse_tool_calls(text).calls == (Call("f", {"x": 1}), Call("f", {"x": 1}), Call("g", {}))


def test_text_without_tags_has_no_calls_and_no_error() -> None:
    assert parse_tool_calls("") == Parsed()
    assert parse_tool_calls(ONE) == Parsed()
    assert parse_tool_calls(f"<TOOL_CALL>{ONE}</TOOL_CALL>") == Parsed()


# -- JSON and nothing else -----------------------------------------------------------------------------------------

SHOP = {"query": "mother's day flowers", "open_now": True}


def test_an_apostrophe_in_valid_json_stays() -> None:
    parsed = parse_tool_calls(
        '<tool_call>{"name": "find_shop", "arguments": {"query": "mother\'s day flowers", "open_now": true}}</tool_call>'
    )
    assert parsed == Parsed((Call("find_shop", SHOP),))
    assert CallMatcher([Call("find_shop", SHOP)], {}).difference(parsed.calls) == ""


def test_python_literals_are_malformed() -> None:
    parsed = parse_tool_calls(
        "<tool_call>{'name': 'find_shop', 'arguments': {'query': \"mother's day flowers\", 'open_now': True}}</tool_call>"
    )
    assert parsed.calls == ()
    assert parsed.error.startswith("not JSON: ")
    assert parse_tool_calls(with_argument("True")).error.startswith("not JSON")
    assert parse_tool_calls(with_argument("None")).error.startswith("not JSON")


def test_text_is_never_evaluated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    body = "{'name': 'find_shop', 'arguments': {'query': open('x', 'w').write('y'), 'open_now': True}}"
    assert parse_tool_calls(called(body)).error.startswith("not JSON")
    with pytest.raises(ValueError, match="not JSON"):
        parse_json_object(body)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "text", ['{"a": 1, "a": 2}', '{"a": 1, "a": 1}', '{"a": 1, "\\u0061": 1}', '{"b": [{"a": 1, "a": 2}]}']
)
def test_a_repeated_key_is_malformed_at_any_depth(text: str) -> None:
    with pytest.raises(ValueError, match="repeated key"):
        parse_json_object(text)
    assert parse_tool_calls(with_argument(text)).error == "repeated key"


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ("NaN", "NaN is not JSON"),
        ("Infinity", "Infinity is not JSON"),
        ("-Infinity", "-Infinity is not JSON"),
        ("1e999", "number that a double does not hold"),
        ("-1e999", "number that a double does not hold"),
        ("1e-999", "number that a double does not hold"),
        ("1e-99999999999999999999", "number that a double does not hold"),
        ("1e99999999999999999999", "number that a double does not hold"),
        ("9007199254740993.0", "number that a double does not hold"),
        ("0.100000000000000000001", "number that a double does not hold"),
        ("1" * 5000, "integer of too many digits"),
        (r'"\ud800"', "lone surrogate in a string"),
        ('"\udfff"', "lone surrogate in a string"),
        (r'{"\udc00": 1}', "lone surrogate in a string"),
        ('"a\nb"', "not JSON"),
        ('"a\x00b"', "not JSON"),
        ("01", "not JSON"),
        ("\u0663", "not JSON"),
        ("[" * 31 + "]" * 31, "nested too deeply"),
        ("[" * 10_000, "nested too deeply"),
        ('{"a":' * 10_000, "nested too deeply"),
    ],
)
def test_values_that_two_readers_could_read_differently_are_malformed(value: str, error: str) -> None:
    assert_malformed(with_argument(value), error)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2.5000000000000000000000000", 2.5),
        ("0.1", 0.1),
        ("1E23", 1e23),
        ("-0.0e-99999999999999999999", 0.0),
        ("5e-324", 5e-324),
        ("9007199254740993", 9007199254740993),
        (r'"\ud83d\ude00"', "\U0001f600"),
        ('"]}"', "]}"),
        (r'"\"[[["', '"[[['),
    ],
)
def test_values_that_are_what_they_say_are_read(value: str, expected: object) -> None:
    assert parse_tool_calls(with_argument(value)).calls == (Call("f", {"x": expected}),)


def test_brackets_inside_strings_are_no_nesting() -> None:
    assert parse_tool_calls(with_argument(json.dumps("[" * 10_000))).error == ""
    deepest = "[" * 30 + "]" * 30  # the call and its arguments are two more levels
    assert parse_tool_calls(with_argument(deepest)).error == ""


def test_deep_nesting_cannot_end_the_process() -> None:
    """Libraries raise the recursion limit, and the decoder's own recursion would then overflow the stack."""
    code = (
        "import sys; sys.setrecursionlimit(10**6)\n"
        "from genenv.reading.parsing import parse_tool_calls\n"
        "print(parse_tool_calls('<tool_call>' + '[' * 10**6).error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "nested too deeply\n")


# -- the shape of a call -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("", "empty call"),
        (" \n ", "empty call"),
        ("7", "a call needs a name"),
        ("null", "a call needs a name"),
        (f"[{ONE}]", "a call needs a name"),
        ("{}", "a call needs a name"),
        ('{"name": "", "arguments": {}}', "a call needs a name"),
        ('{"name": 7, "arguments": {}}', "a call needs a name"),
        ('{"name": "f"}', "a call needs an arguments object"),
        ('{"name": "f", "arguments": null}', "a call needs an arguments object"),
        ('{"name": "f", "arguments": "{}"}', "a call needs an arguments object"),
        ('{"name": "f", "arguments": []}', "a call needs an arguments object"),
        ('{"name": "f", "arguments": {}, "id": 3}', "unknown key 'id' in a call"),
        (ONE + "x", "not JSON"),
        (ONE[:-1], "not JSON"),
    ],
)
def test_a_malformed_call_has_a_reason(body: str, error: str) -> None:
    assert_malformed(called(body), error)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("<tool_call>", "unclosed call"),
        ("<tool_call>" + ONE, "unclosed call"),
        (called(ONE) + "<tool_call>" + ONE + " ", "unclosed call"),
        ("<tool_call>" + called(ONE), "not JSON"),
        ("</tool_call>", "closing tag without a call"),
        (called(ONE) + "</tool_call>", "closing tag without a call"),
        ("</tool_call>" + called(ONE), "closing tag without a call"),
        (called(ONE) + "</tool_call>" + called(ONE), "closing tag without a call"),
        (called(ONE) + called("{}"), "a call needs a name"),
    ],
)
def test_one_malformed_call_makes_the_whole_answer_malformed(text: str, error: str) -> None:
    assert_malformed(text, error)


def test_a_reason_stays_short_whatever_was_written() -> None:
    long_key = '{"name": "f", "arguments": {}, "' + "k" * MEGABYTE + '": 1}'
    assert parse_tool_calls(called(long_key)).error == f"unknown key '{'k' * 57}...' in a call"


# -- one JSON object -----------------------------------------------------------------------------------------------


def test_a_json_object_may_only_be_surrounded_by_white_space_of_json() -> None:
    assert parse_json_object(' \t\r\n{"a": [1, 2.5, null]}\n') == {"a": [1, 2.5, None]}
    for text in ['{"a": 1} {}', '{"a": 1}.', "[1]", "7", "", "\ufeff{}", "\xa0{}", "{}\x1c"]:
        with pytest.raises(ValueError, match=r"not JSON|text after the JSON object|not a JSON object"):
            parse_json_object(text)


def test_decoding_tells_where_a_value_ends() -> None:
    assert decode_json('ab{"x": [1]}c', 2) == ({"x": [1]}, 12)


# -- writing calls -------------------------------------------------------------------------------------------------


def test_calls_are_written_as_they_are_read() -> None:
    calls = (Call("f", {"s": '</tool_call>é\n"', "n": [1, 2.0, None, True]}), Call("g", {}))
    text = format_tool_calls(calls)
    assert text == (
        '<tool_call>{"name":"f","arguments":{"s":"</tool_call>é\\n\\"","n":[1,2.0,null,true]}}</tool_call>'
        '<tool_call>{"name":"g","arguments":{}}</tool_call>'
    )
    assert parse_tool_calls(text) == Parsed(calls)


def test_what_json_cannot_say_is_not_written() -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        format_tool_calls([Call("f", {"x": float("nan")})])


# -- boxed and plain answers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"I first read \boxed 7, but the value is \boxed{\frac{3}{4}}.", r"\frac{3}{4}"),
        (r"So it is \boxed{\frac{3}{4}", None),
        (r"\boxed{4} is half of it; the total is \boxed{8}", "8"),
        (r"\boxed{4} is half of it; the total is \boxed{8", None),
        (r"\boxed{4} or \boxed", "4"),
        (r"\boxed{4} or \boxed 8", "4"),
        (r"\boxed {7}", None),
        (r"\fbox{42}", None),
        (r"\boxed{{a}{b}}{c}", "{a}{b}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\{}", r"\{"),
        (r"\boxed{a\\}", r"a\\"),
        (r"\boxed{a\}", None),
        (r"\boxed{a" + "\\", None),
        (r"\boxed{ 7 }", "7"),
        (r"\boxed{}", ""),
        (r"\boxed{2\n\boxed{3}}", "3"),
        ("\\boxed{a\nb}", "a\nb"),
        ("I do not know", None),
        ("", None),
    ],
)
def test_the_last_box_is_the_answer(text: str, answer: str | None) -> None:
    assert boxed_answer(text) == answer


@pytest.mark.parametrize(
    ("text", "target", "right"),
    [
        (r"I first read \boxed 7, but the value is \boxed{\frac{3}{4}}.", r"\frac{3}{4}", True),
        (r"So it is \boxed{\frac{3}{4}", r"\frac{3}{4}", False),
        (r"\boxed{4} is half of it; the total is \boxed{8}", "8", True),
        (r"\boxed{4} is half of it; the total is \boxed{8}", "4", False),
        ("I do not know", "42", False),
    ],
)
def test_a_boxed_answer_is_scored(text: str, target: str, right: bool) -> None:
    answer = boxed_answer(text)
    assert (answer is not None and exact_match(target, answer)) is right


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Answer: Paris", "Paris"),
        ("It is in France.\nANSWER : Paris \n\n", "Paris"),
        ("Answer: Rome\nNo.\nFinal answer: Paris\nI am sure.", "Paris"),
        ("**Answer:** Paris", "Paris"),
        ("- **Final Answer: Paris**", "Paris"),
        ("> **Final Answer: Paris**", "Paris"),
        ("Answer: 3:15 pm", "3:15 pm"),
        ("Paris", "Paris"),
        ("\n  Paris.\n", "Paris."),
        ("My answer: Paris", "My answer: Paris"),
        ("Let me think.\nParis", None),
        ("Answer:\nParis", None),
        ("Answer: Paris\nAnswer:", None),
        ("  \n", None),
        ("", None),
    ],
)
def test_the_last_marked_line_is_the_plain_answer(text: str, answer: str | None) -> None:
    assert plain_answer(text) == answer


# -- hostile text --------------------------------------------------------------------------------------------------

HOSTILE = {
    "opening tags": "<tool_call>" * (MEGABYTE // 11),
    "closing tags": "</tool_call>" * (MEGABYTE // 12),
    "one block of many calls": "<tool_call>" + '{"name":"a","arguments":{}}\n' * (MEGABYTE // 28) + "</tool_call>",
    "many blocks": called('{"name":"a","arguments":{}}') * (MEGABYTE // 50),
    "brackets": "<tool_call>" + "[" * MEGABYTE,
    "braces": "<tool_call>" + "{" * MEGABYTE,
    "objects": "<tool_call>" + '{"a":' * (MEGABYTE // 5),
    "digits": "<tool_call>" + "1" * MEGABYTE,
    "decimals": "<tool_call>0." + "1" * MEGABYTE,
    "spaces": "<tool_call>" + " " * MEGABYTE,
    "quotes": "<tool_call>" + '"' * MEGABYTE,
    "escapes": '<tool_call>"' + "\\" * MEGABYTE,
    "nul": "<tool_call>" + "\0" * MEGABYTE,
    "surrogates": '<tool_call>"' + "\ud800" * MEGABYTE + '"</tool_call>',
    "wide list": with_argument("[" + "0," * (MEGABYTE // 2) + "0]"),
    "open boxes": r"\boxed{" * (MEGABYTE // 7),
    "nested boxes": r"\boxed{" * (MEGABYTE // 8) + "}" * (MEGABYTE // 8),
    "backslashes in a box": r"\boxed{" + "\\" * MEGABYTE,
    "markers": "answer " * (MEGABYTE // 7),
    "lines of markers": "answer\n" * (MEGABYTE // 7),
    "emphasis": "*" * MEGABYTE + "answer" + "*" * MEGABYTE,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_megabyte_of_anything_is_read_in_linear_time(name: str) -> None:
    text = HOSTILE[name]
    start = time.process_time()
    parsed = parse_tool_calls(text)
    boxed_answer(text)
    plain_answer(text)
    assert time.process_time() - start < 20
    assert len(parsed.error) < 120
    assert not (parsed.error and parsed.calls)
