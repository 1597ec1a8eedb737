"""BFCL without its package: conversion, validation, the course of an episode. All samples here are invented."""

from __future__ import annotations

import ast
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genenv.benchmarks.base import Result
from genenv.benchmarks.bfcl import benchmark as bfcl
from genenv.benchmarks.bfcl.benchmark import (
    AGENT_INSTRUCTIONS,
    CATEGORIES,
    DOCUMENTS,
    Bfcl,
    Turns,
    call_text,
    json_schema,
    load,
)
from genenv.benchmarks.bfcl.worker import literal_call
from genenv.contracts.errors import InputError
from genenv.contracts.types import Json, Message, Score, Task
from genenv.reading.parsing import Call, format_tool_calls

LAMP = {
    "name": "lamp",
    "description": "Switch a lamp",
    "parameters": {
        "type": "dict",
        "properties": {
            "level": {"type": "float", "description": "0 to 1", "default": 1.0},
            "rooms": {"type": "array", "items": {"type": "tuple", "items": {"type": "integer"}}},
        },
        "required": ["level"],
    },
    "response": {"type": "dict", "properties": {"ok": {"type": "boolean"}}},
}
LAMP_TOOL = {
    "type": "function",
    "function": {
        "name": "lamp",
        "description": "Switch a lamp",
        "parameters": {
            "type": "object",
            "properties": {
                "level": {"type": "number", "description": "0 to 1", "default": 1.0},
                "rooms": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
            },
            "required": ["level"],
        },
        "response": {"type": "object", "properties": {"ok": {"type": "boolean"}}},
    },
}
BELL = {**LAMP, "name": "bell", "description": "Ring a bell"}


def said(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def write(path: Path, *records: Json) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(r) + "\n" for r in records))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One sample in each category: light first, then the bell."""
    for name in DOCUMENTS.values():
        write(tmp_path / "multi_turn_func_doc" / f"{name}.json", *([LAMP, BELL] if name == "math_api" else [{**LAMP}]))
    for category in CATEGORIES:
        sample: Json = {
            "id": f"{category}_0",
            "question": [said("Light, please."), said("Now the bell.")],
            "initial_config": {},
            "involved_classes": ["MathAPI"],
            "path": ["MathAPI.lamp"],
            "excluded_function": ["bell"],
        }
        if category == "multi_turn_miss_func":
            sample |= {"question": [said("Light, please."), []], "missed_function": {"1": ["bell"]}}
        write(tmp_path / f"BFCL_v4_{category}.json", sample)
        gold = {"id": f"{category}_0", "ground_truth": [["lamp(level=0.5)"], ["bell(1)", "lamp(level=-1)"]]}
        write(tmp_path / "possible_answer" / f"BFCL_v4_{category}.json", gold)
    return tmp_path


@pytest.fixture
def prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stands for the sentence of the package."""
    module = ModuleType("bfcl_eval.constants.default_prompts")
    module.DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_FC = "More functions."  # type: ignore[attr-defined]
    for name in ("bfcl_eval", "bfcl_eval.constants"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, module.__name__, module)


class Offline(Bfcl):
    """Answers with the number of the step, and keeps what it is asked to judge."""

    def __init__(self) -> None:
        self.judged: tuple[Turns, list[str]] | None = None

    def results(self, task: Task, turns: Turns) -> list[str]:
        return [f"step {len(turns[-1])}: {call}" for call in turns[-1][-1]]

    def verdict(self, task: Task, turns: Turns, malformed: object) -> Score:
        self.judged = (turns, list(malformed))  # type: ignore[call-overload]
        return Score(1.0, "judged")


def test_types_become_those_of_json_schema() -> None:
    assert json_schema(LAMP["parameters"]) == LAMP_TOOL["function"]["parameters"]
    assert json_schema({"type": "any"}) == {"type": "string"}


def test_samples_become_tasks(folder: Path) -> None:
    base, held, *_ = tasks = load(folder)
    assert [t.family for t in tasks] == list(CATEGORIES)
    assert [t.spec["id"] for t in tasks] == [f"{c}_0" for c in CATEGORIES]
    assert len({t.id for t in tasks}) == 4, "samples that differ in their scenario alone are different tasks"
    assert base.messages == (Message("system", AGENT_INSTRUCTIONS), Message("user", "Light, please."))
    assert base.tools[0] == LAMP_TOOL
    assert [t["function"]["name"] for t in base.tools] == ["lamp", "bell"], (
        "excluded_function is declared, as officially"
    )
    assert base.target["ground_truth"] == [["lamp(level=0.5)"], ["bell(1)", "lamp(level=-1)"]]
    assert [t["function"]["name"] for t in held.tools] == ["lamp"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"involved_classes": ["Nobody"]}, "unknown class 'Nobody'"),
        ({"question": [said("x")]}, "expected an answer to each turn"),
        ({"id": "multi_turn_base_7"}, "expected an answer to each turn"),
        ({"question": []}, "question"),
        ({"missed_function": {"1": ["horn"]}}, "no function 'horn'"),
        ({"question": "x"}, "json:1: question"),
    ],
)
def test_damaged_samples_are_named(folder: Path, change: Json, message: str) -> None:
    path = folder / "BFCL_v4_multi_turn_base.json"
    write(path, json.loads(path.read_text()) | change)
    with pytest.raises(InputError, match=message):
        load(folder)


def test_gold_answers_are_read_before_anybody_evaluates_them(folder: Path) -> None:
    gold = {"id": "multi_turn_base_0", "ground_truth": [["lamp(level=1)"], ["lamp(level=bell())"]]}
    write(folder / "possible_answer" / "BFCL_v4_multi_turn_base.json", gold)
    with pytest.raises(InputError, match="literal"):
        load(folder)


def test_missing_files_are_named(folder: Path) -> None:
    (folder / "possible_answer" / "BFCL_v4_multi_turn_base.json").unlink()
    with pytest.raises(InputError, match=r"possible_answer/BFCL_v4_multi_turn_base\.json"):
        load(folder)


def test_a_missing_package_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install --no-deps bfcl-eval==2026\.3\.23 mpmath==1\.3\.0"):
        Bfcl(None)


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("lamp()", "lamp()"),
        (" lamp( level = 0.5 )\n", "lamp(level=0.5)"),
        ("lamp('a', \"it's\", -3, -0.5)", "lamp('a', \"it's\", -3, -0.5)"),
        ("lamp(x=[1, (2,), ()], y={'a': None, 'b': [True]})", "lamp(x=[1, (2, ), ()], y={'a': None, 'b': [True]})"),
        (r"lamp(x='\x41\n(')", r"lamp(x='A\n(')"),
    ],
)
def test_calls_with_literal_arguments_are_written_anew(text: str, call: str) -> None:
    assert literal_call(text, {"lamp"}) == call
    assert literal_call(call, {"lamp"}) == call


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "invalid syntax"),
        ("lamp(", "invalid syntax"),
        ("lamp(); lamp()", "invalid syntax"),
        ("x = lamp()", "invalid syntax"),
        ("lamp(x='\0')", "invalid syntax"),
        ("lamp(x=" + "[" * 1000 + "]" * 1000 + ")", "invalid syntax"),
        ("lamp(x=" + "9" * 5000 + ")", "invalid syntax"),
        ("lamp(x='" + "a" * 200_000 + "')", "characters"),
        ("lamp", "not a function call"),
        ("[lamp()]", "not a function call"),
        ("lamp() or lamp()", "not a function call"),
        ("(lambda: 1)()", "not defined"),
        ("horn(x=1)", "name 'horn' is not defined"),
        ("print('x')", "name 'print' is not defined"),
        ("__import__('os').system('true')", "not defined"),
        ("MathAPI.lamp()", "name 'MathAPI.lamp' is not defined"),
        ("lamp()()", "not defined"),
        ("lamp(x=lamp())", "literal"),
        ("lamp(x=y)", "literal"),
        ("lamp(x=1 + 1)", "literal"),
        ("lamp(x=[y for y in 'ab'])", "literal"),
        ("lamp(x=f'{1}')", "literal"),
        ("lamp(x=b'a')", "literal"),
        ("lamp(x=...)", "literal"),
        ("lamp(x=2j)", "literal"),
        ("lamp(x={1, 2})", "literal"),
        ("lamp(x={**{}})", "literal"),
        ("lamp(x=1e999)", "literal"),
        ("lamp(x=-True)", "literal"),
        ("lamp(x=-'a')", "literal"),
        ("lamp(x=(y := 1))", "literal"),
        ("lamp(*[1])", "literal"),
        ("lamp(**{'x': 1})", "no identifier"),
    ],
)
def test_anything_else_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        literal_call(text, {"lamp"})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(json_values)
def test_json_arguments_arrive_unchanged(value: Json) -> None:
    text = literal_call(call_text(Call("lamp", {"x": value})), {"lamp"})
    call = ast.parse(text, mode="eval").body
    assert isinstance(call, ast.Call)
    assert repr(ast.literal_eval(call.keywords[0].value)) == repr(value)


@pytest.mark.parametrize("key", ["a b", "", "x=1, y", "x=1), horn(y", "**y", "1", "x.y", "from"])
def test_argument_names_cannot_smuggle(key: str) -> None:
    with pytest.raises(ValueError, match=r"no identifier|invalid syntax"):
        literal_call(call_text(Call("lamp", {key: 1})), {"lamp"})


@pytest.fixture
def offline() -> Offline:
    return Offline()


def test_an_episode_goes_turn_by_turn(offline: Offline, folder: Path) -> None:
    episode = offline.episode(load(folder)[0])
    two = format_tool_calls([Call("lamp", {"level": 0.5}), Call("bell", {"name": "a'b"})])
    step = episode.step(two)
    assert step.messages == (
        Message("tool", "step 1: lamp(level=0.5)"),
        Message("tool", 'step 1: bell(name="a\'b")'),
    )
    assert episode.step(format_tool_calls([Call("lamp", {})])).messages == (Message("tool", "step 2: lamp()"),)
    assert episode.step("There is light.").messages == (Message("user", "Now the bell."),)
    assert episode.step("<tool_call>{bell}</tool_call>").score == Score(1.0, "judged")
    assert offline.judged is not None
    turns, malformed = offline.judged
    assert turns == [[["lamp(level=0.5)", 'bell(name="a\'b")'], ["lamp()"]], []]
    assert len(malformed) == 1
    assert malformed[0].startswith("turn 2: not JSON")


@pytest.mark.usefixtures("prompts")
def test_functions_held_back_are_handed_over(offline: Offline, folder: Path) -> None:
    (message,) = offline.episode(load(folder)[1]).step("I cannot ring.").messages
    first, second = message.content.split("\n")
    assert message.role == "user"
    assert json.loads(first) == {**LAMP_TOOL["function"], "name": "bell", "description": "Ring a bell"}
    assert second == "More functions."


def test_the_step_after_the_twentieth_ends_the_conversation(offline: Offline, folder: Path) -> None:
    episode = offline.episode(load(folder)[0])
    call = format_tool_calls([Call("lamp", {})])
    assert all(episode.step(call).score is None for _ in range(20))
    assert episode.step(call).score is not None
    assert offline.judged == ([[["lamp()"]] * 21], [])


def test_a_turn_of_twenty_steps_may_end_by_itself(offline: Offline, folder: Path) -> None:
    episode = offline.episode(load(folder)[0])
    for _ in range(20):
        episode.step(format_tool_calls([Call("lamp", {})]))
    assert episode.step("done").messages == (Message("user", "Now the bell."),)


def test_predictions_are_text_or_call_strings(offline: Offline, folder: Path) -> None:
    text = format_tool_calls([Call("lamp", {"level": 1})])
    output = [[text, ["bell(1)", "lamp()"], [], "Done."], ["<tool_call>"]]
    assert offline.replay(load(folder)[0], output) == Score(1.0, "judged")
    assert offline.judged == ([[["lamp(level=1)"], ["bell(1)", "lamp()"]], []], ["turn 2: unclosed call"])


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (None, "malformed: expected a list of turns"),
        ("lamp()", "malformed: expected a list of turns"),
        ({"a": 1}, "malformed: expected a list of turns"),
        ([[], "lamp()"], "malformed: turn 2: expected a list of steps"),
        ([[["lamp()"], 3]], "malformed: turn 1: expected text or lists of call strings"),
        ([[["lamp()", None]]], "malformed: turn 1: expected text or lists of call strings"),
        ([[{"name": "lamp"}]], "malformed: turn 1: expected text or lists of call strings"),
    ],
)
def test_predictions_of_another_form_are_wrong_with_a_reason(
    offline: Offline, folder: Path, output: Json, reason: str
) -> None:
    assert offline.replay(load(folder)[0], output) == Score(0.0, reason)


def test_the_score_is_the_plain_mean_of_the_categories(offline: Offline) -> None:
    def result(category: str, value: float | None) -> Result:
        return Result("x", category, Score(value, "x"))

    results = [result("a", 1.0), result("a", None), result("a", 0.0), result("a", 0.0), result("b", 1.0)]
    assert offline.summarize(results) == {"score": 0.625, "a": 0.25, "b": 1.0}


def test_limits_are_the_official_ones() -> None:
    assert bfcl.MAX_STEPS == 20
    assert Bfcl.max_turns == 8 * 21
