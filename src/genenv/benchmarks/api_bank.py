"""API-Bank: 597 single calls over three levels, in the form that papers on tool learning use (qiancheng0/ToolRL).

Two rules, both applied to every output; neither executes anything:

- soft, the score: of the lines after the last `<tool_call>`, any JSON object whose name and parameters equal the gold's
  makes the answer right. An object without a name or without parameters is taken as the parameters themselves. Rule of
  ToolRL's `benchmarks/API-Bank/evaluate.py`, under which the published figures are multiples of 1/597.
- strict, a sub-score of levels 1 and 2: one call only, as `[Name(key='value', ...)]` (the prompt of API-Bank's authors) or
  as the one JSON object in the block; name and parameters equal the gold's, but of AddAgenda's content more than half of
  the words (intersection over union). The authors' own evaluator executes the calls and compares results.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from genenv.benchmarks.base import Result, data_folder, mean_by
from genenv.contracts.domain import Step
from genenv.contracts.errors import InputError
from genenv.contracts.types import Json, Message, Score, Task
from genenv.reading.parsing import CLOSE, OPEN, parse_json_object, shorten

HOW = "clone https://github.com/qiancheng0/ToolRL and take its folder benchmarks/API-Bank"
STRICT_LEVELS = ("level-1", "level-2")
LONGEST = 8192
"""Characters of a bracketed call that are read: matching its parameters may take quadratic time."""

_START = re.compile(r"\[(\w+)\(")
_PARAMETER = re.compile(r"""(\w+)\s*=\s*(?:['"](.+?)['"]|(\[.*\]|\w+))""")


class _Call(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    name: str
    parameters: dict[str, str]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)
    system: str
    user: str
    answer: Annotated[list[_Call], Field(min_length=1, max_length=1)] | _Call


_RECORDS = TypeAdapter(list[_Record])


class ApiBank:
    """Samples are named as ToolRL names them: `Level1_0` is the first record of level 1."""

    name = "api-bank"
    protocol = (
        "soft match over 597 (ToolRL rule): name and parameters of any call equal the gold's; one turn; not executed"
    )
    max_turns = 1
    max_tokens = 512

    def __init__(self, data: Path | None) -> None:
        folder = data_folder(self.name, data, HOW)
        nested = folder / "toolrl_processed"
        self._folder = nested if nested.is_dir() else folder

    def tasks(self) -> list[Task]:
        return [task for level in (1, 2, 3) for task in self._level(level)]

    def _level(self, level: int) -> list[Task]:
        path = self._folder / f"level-{level}-api_processed.json"
        try:
            records = _RECORDS.validate_json(path.read_bytes())
        except OSError as error:
            raise InputError(f"api-bank: cannot read {path}: {error.strerror}; {HOW}") from None
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise InputError(f"api-bank: {path}: {where}: {first['msg']}; expected ToolRL's file") from None
        return [
            Task(
                family=f"level-{level}",
                messages=(Message("system", record.system), Message("user", record.user)),
                tools=(),  # the system text lists them
                target=(record.answer[0] if isinstance(record.answer, list) else record.answer).model_dump(),
                spec={"id": f"Level{level}_{i}"},
                origin="user",
            )
            for i, record in enumerate(records)
        ]

    def episode(self, task: Task) -> _Episode:
        return _Episode(task)

    def replay(self, task: Task, output: Json) -> Score:
        """`output` is the text that the model wrote."""
        if not isinstance(output, str):
            return Score(0.0, f"malformed: expected the model's text, found {type(output).__name__}")
        return score(task, output)

    def summarize(self, results: Sequence[Result]) -> dict[str, Json]:
        strict = [
            Result(r.id, f"strict {r.category}", Score(float(r.score.checks.get("strict", False)), ""))
            for r in results
            if r.category in STRICT_LEVELS
        ]
        overall = {"strict": sum(r.value for r in strict) / len(strict)} if strict else {}
        return {"score": sum(r.value for r in results) / len(results), **mean_by(results), **overall, **mean_by(strict)}

    def close(self) -> None:
        """Nothing to end."""


class _Episode:
    def __init__(self, task: Task) -> None:
        self._task = task

    def step(self, text: str) -> Step:
        return Step(score=score(self._task, text))

    def close(self) -> None:
        pass


def score(task: Task, text: str) -> Score:
    """Both rules on what the model wrote: the soft one is the value, the strict one a check of levels 1 and 2."""
    calls, error = read_calls(text)
    bracketed = read_bracketed(text)
    checks = {"strict": _strict(task.target, calls, bracketed)} if task.family in STRICT_LEVELS else {}
    answer = calls or ([bracketed] if bracketed else None)
    if any(_fits(call, task.target) for call in calls):
        return Score(1.0, "right", answer, checks)
    if not calls:
        return Score(0.0, f"malformed: {error}", answer, checks)
    last = calls[-1]
    name = last.get("name")
    if isinstance(name, str) and name != task.target["name"]:
        return Score(0.0, f"calls {shorten(name)} instead of {task.target['name']}", answer, checks)
    return Score(0.0, f"wrong parameters of {task.target['name']}", answer, checks)


def read_calls(text: str) -> tuple[list[dict[str, Json]], str]:
    """The JSON objects on the lines after the last `<tool_call>` (of the whole text if there is none).

    Lines that are no JSON object are passed over; the second value says what was wrong with the first of them.
    """
    block = text.rpartition(OPEN)[2].partition(CLOSE)[0]
    calls: list[dict[str, Json]] = []
    error = "no call"
    for line in block.split("\n"):
        if line.strip():
            try:
                calls.append(parse_json_object(line))
            except ValueError as reason:
                error = str(reason) if error == "no call" else error
    return calls, error


def read_bracketed(text: str) -> dict[str, Json] | None:
    """The first `[Name(key='value', ...)]` in `text`, which stands on one line and reaches to that line's last `)]`.

    A value is in quotes of either kind, up to the next quote, or a list in brackets, or a word: always text.
    """
    for line in text.split("\n"):
        end = line.rfind(")]")
        start = _START.search(line, 0, end) if end >= 0 else None
        if start is not None:
            if end - start.end() > LONGEST:
                return None
            found = _PARAMETER.finditer(line, start.end(), end)
            return {"name": start[1], "parameters": {m[1]: m[2] or m[3] for m in found}}
    return None


def _fits(call: Mapping[str, Json], gold: Mapping[str, Json]) -> bool:
    if "name" not in call or "parameters" not in call:
        return bool(call == gold["parameters"])
    return bool(call["name"] == gold["name"] and call["parameters"] == gold["parameters"])


def _strict(gold: Mapping[str, Json], calls: Sequence[Mapping[str, Json]], bracketed: Json) -> bool:
    if bracketed is None and len(calls) != 1:
        return False
    call = bracketed or calls[0]
    parameters = call.get("parameters")
    if call.get("name") != gold["name"] or not isinstance(parameters, dict):
        return False
    if gold["name"] != "AddAgenda" or not isinstance(content := parameters.get("content"), str):
        return bool(parameters == gold["parameters"])
    said, meant = set(content.split(" ")), set(gold["parameters"].get("content", "").split(" "))
    alike = len(said & meant) / len(said | meant) > 0.5
    return alike and bool(parameters | {"content": ""} == gold["parameters"] | {"content": ""})
