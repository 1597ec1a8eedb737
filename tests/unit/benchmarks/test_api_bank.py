"""API-Bank's two rules on records of our own, and on the official files where they are."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from genenv.benchmarks.api_bank import ApiBank, read_bracketed, read_calls
from genenv.benchmarks.base import Result
from genenv.contracts.errors import InputError
from genenv.contracts.types import Score, Task

ALARM = {"name": "SetTimer", "parameters": {"minutes": "5", "label": "tea"}}
AGENDA = {"name": "AddAgenda", "parameters": {"content": "meet the new team", "time": "2023-01-02 10:00:00"}}
PLACES = {"name": "Find", "parameters": {"names": "['Ann', 'Bo']"}}


def write(folder: Path, *levels: list) -> Path:
    for i, records in enumerate(levels, 1):
        (folder / f"level-{i}-api_processed.json").write_text(json.dumps(records))
    return folder


def record(answer: object) -> dict:
    return {"system": "You have tools.", "user": "Five minutes for tea.", "answer": answer, "other": {"id": 0}}


@pytest.fixture
def small(tmp_path: Path) -> ApiBank:
    """Level 2 answers are bare objects, those of the other levels lists of one."""
    return ApiBank(write(tmp_path, [record([ALARM]), record([AGENDA])], [record(PLACES)], [record([ALARM])]))


def said(*calls: object, before: str = "<think>so</think>\n") -> str:
    return before + "<tool_call>\n" + "\n".join(json.dumps(c) for c in calls) + "\n</tool_call>"


def test_samples(small: ApiBank) -> None:
    tasks = small.tasks()
    assert [t.spec["id"] for t in tasks] == ["Level1_0", "Level1_1", "Level2_0", "Level3_0"]
    assert [t.family for t in tasks] == ["level-1", "level-1", "level-2", "level-3"]
    assert [(m.role, m.content) for m in tasks[0].messages] == [
        ("system", "You have tools."),
        ("user", "Five minutes for tea."),
    ]
    assert tasks[2].target == PLACES


OTHER = {"name": "StopTimer", "parameters": {"minutes": "5", "label": "tea"}}


@pytest.mark.parametrize(
    ("text", "value", "strict", "reason"),
    [
        (said(ALARM), 1.0, True, "right"),
        (said(ALARM).removesuffix("\n</tool_call>"), 1.0, True, "right"),  # the rule asks for no closing tag
        (json.dumps(ALARM), 1.0, True, "right"),  # nor for an opening one
        (said(OTHER, ALARM), 1.0, False, "right"),  # soft: any call; strict: one call
        (said(ALARM, OTHER), 1.0, False, "right"),
        (said(ALARM, before=said(OTHER)), 1.0, True, "right"),  # only the last block is read
        (said(OTHER, before=said(ALARM)), 0.0, False, "calls StopTimer instead of SetTimer"),
        (said(ALARM["parameters"]), 1.0, False, "right"),  # soft: without a name it is the parameters
        (said({"parameters": ALARM["parameters"]}), 0.0, False, "wrong parameters of SetTimer"),
        (said({"name": "SetTimer", "parameters": {"minutes": "5"}}), 0.0, False, "wrong parameters of SetTimer"),
        (said({"name": "SetTimer", "parameters": {"minutes": 5, "label": "tea"}}), 0.0, False,
         "wrong parameters of SetTimer"),
        (said({"name": "SetTimer", "parameters": {"minutes": "5", "label": "tea", "x": ""}}), 0.0, False,
         "wrong parameters of SetTimer"),
        (said({"name": "settimer", "parameters": ALARM["parameters"]}), 0.0, False,
         "calls settimer instead of SetTimer"),
        ("", 0.0, False, "malformed: no call"),
        ("I set the timer.", 0.0, False, "malformed: not JSON: Expecting value at character 0"),
        (f"<tool_call>\n{ALARM}\n</tool_call>", 0.0, False,
         "malformed: not JSON: Expecting property name enclosed in double quotes at character 1"),
        (f"<tool_call>\n{json.dumps([ALARM])}\n</tool_call>", 0.0, False, "malformed: not a JSON object"),
        (f"<tool_call>\nSure!\n{json.dumps(ALARM)}\n</tool_call>", 1.0, True, "right"),  # other lines are passed over
        ("[SetTimer(minutes='5', label='tea')]", 0.0, True, "malformed: not JSON: Expecting value at character 1"),
        ("[StopTimer(minutes='5', label='tea')]", 0.0, False, "malformed: not JSON: Expecting value at character 1"),
    ],
)  # fmt: skip
def test_rules(small: ApiBank, text: str, value: float, strict: bool, reason: str) -> None:
    task = small.tasks()[0]
    score = small.replay(task, text)
    assert (score.value, score.checks["strict"], score.reason) == (value, strict, reason)
    step = small.episode(task).step(text)
    assert step.score == score


@pytest.mark.parametrize(
    ("content", "strict"),
    [
        ("meet the new team", True),
        ("meet the new group", True),  # 3 of 5 words
        ("meet the team", True),  # 3 of 4
        ("meet them new team", True),  # 3 of 5
        ("meet the", False),  # 2 of 4: not more than half
    ],
)
def test_the_content_of_an_agenda_may_differ_in_words(small: ApiBank, content: str, strict: bool) -> None:
    task = small.tasks()[1]
    call = {"name": "AddAgenda", "parameters": AGENDA["parameters"] | {"content": content}}
    score = small.replay(task, said(call))
    assert (score.value, score.checks["strict"]) == (float(content == "meet the new team"), strict)
    late = {"name": "AddAgenda", "parameters": call["parameters"] | {"time": "2023-01-02 11:00:00"}}
    assert not small.replay(task, said(late)).checks["strict"]
    assert not small.replay(task, said({"name": "AddAgenda", "parameters": {"content": content}})).checks["strict"]


def test_level_3_has_no_strict_check(small: ApiBank) -> None:
    assert small.replay(small.tasks()[3], said(ALARM)).checks == {}


@pytest.mark.parametrize("output", [None, 7, ["a"], {"name": "SetTimer"}])
def test_an_output_of_another_form_is_wrong(small: ApiBank, output: object) -> None:
    score = small.replay(small.tasks()[0], output)
    assert score.value == 0.0
    assert score.reason.startswith("malformed: expected the model's text, found ")


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("Sure: [Add(a='x y', b=\"2\")] done", {"a": "x y", "b": "2"}),
        ("[Add(a=['p', 'q'])]", {"a": "['p', 'q']"}),
        ("[Add(a=12, b = off)]", {"a": "12", "b": "off"}),
        ("[Add(a='it's')]", {"a": "it"}),  # a value ends at the next quote
        ("[Add(a='')]", {}),  # and is never empty
        ("[Add()]", {}),
        ("[Add(a='1')\n]", None),
        ("Add(a='1')", None),
        ("[Add(" + "a" * 9000 + ")]", None),
    ],
)
def test_bracketed_calls(text: str, call: dict | None) -> None:
    assert read_bracketed(text) == (None if call is None else {"name": "Add", "parameters": call})


@pytest.mark.parametrize("text", ["[a(" * 100_000, "[" * 300_000, "a=[" * 100_000, "[f(" + "a=[" * 3000 + ")]"])
def test_hostile_text_is_read_in_time(text: str) -> None:
    """Each of these takes minutes if a pattern is tried from every position."""
    read_bracketed(text)
    assert read_calls(text)[0] == []


def test_figures(small: ApiBank) -> None:
    tasks = small.tasks()
    scores = [Score(1.0, "", checks={"strict": False}), Score(0.0, "", checks={"strict": True}), Score(None, "lost"),
              Score(1.0, "")]  # fmt: skip
    results = [Result(t.spec["id"], t.family, s) for t, s in zip(tasks, scores, strict=True)]
    assert small.summarize(results) == {
        "score": 0.5,
        "level-1": 0.5,
        "level-2": 0.0,
        "level-3": 1.0,
        "strict": 1 / 3,
        "strict level-1": 0.5,
        "strict level-2": 0.0,
    }


def test_data_that_is_missing_or_damaged_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GENENV_DATA", raising=False)
    with pytest.raises(InputError, match="no data: clone"):
        ApiBank(None)
    with pytest.raises(InputError, match=r"level-1-api_processed.json: No such file"):
        ApiBank(tmp_path).tasks()
    broken = record([ALARM | {"parameters": {"minutes": 5}}])
    with pytest.raises(InputError, match=r"level-2-api_processed.json: 0.answer.*parameters.minutes: Input should be"):
        ApiBank(write(tmp_path, [record([ALARM])], [broken], [])).tasks()


def bracketed(call: dict) -> str:
    values = [f"{k}={v}" if v.startswith("[") else f"{k}='{v}'" for k, v in call["parameters"].items()]
    return f"[{call['name']}({', '.join(values)})]"


def damaged(gold: dict, rng: random.Random) -> list[dict]:
    """Calls next to the gold one, none equal to it."""
    name, parameters = gold["name"], gold["parameters"]
    calls = [{"name": name + "s", "parameters": parameters}, {"name": name, "parameters": parameters | {"extra": "1"}}]
    if parameters:
        key = rng.choice(sorted(parameters))
        calls.append({"name": name, "parameters": {k: v for k, v in parameters.items() if k != key}})
        calls.append({"name": name, "parameters": parameters | {key: parameters[key] + "x"}})
    return calls


def replayed(bench: ApiBank, tasks: list[Task], outputs: list[str]) -> dict:
    scores = [bench.replay(t, o) for t, o in zip(tasks, outputs, strict=True)]
    return bench.summarize([Result(t.spec["id"], t.family, s) for t, s in zip(tasks, scores, strict=True)])


def test_official_gold_answers_are_right(official: Callable[[str], Path]) -> None:
    bench = ApiBank(official("api-bank"))
    tasks = bench.tasks()
    assert [sum(t.family == f"level-{i}" for t in tasks) for i in (1, 2, 3)] == [399, 67, 131]
    assert set(replayed(bench, tasks, [said(t.target) for t in tasks]).values()) == {1.0}
    figures = replayed(bench, tasks, [bracketed(t.target) for t in tasks])
    # five BookHotel answers of level 1 are mangled in the data and cannot be said in brackets
    assert (figures["strict level-1"], figures["strict level-2"]) == (394 / 399, 1.0)
    assert figures["score"] == 0.0


def test_official_gold_answers_damaged_are_wrong(official: Callable[[str], Path]) -> None:
    bench = ApiBank(official("api-bank"))
    rng = random.Random(0)
    for task in bench.tasks():
        for call in damaged(task.target, rng):
            assert bench.replay(task, said(call)).value == 0.0, call
            assert bench.replay(task, said(call, task.target)).value == 1.0
