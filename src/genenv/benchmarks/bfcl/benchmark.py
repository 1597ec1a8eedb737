"""BFCL multi-turn: official data, simulated APIs and verdict, all from the package `bfcl-eval`.

A sample is a conversation of 1 to 8 user turns. In each the agent calls functions, step by step, until it writes no call.
The verdict (`multi_turn_checker`) runs its calls and the gold ones side by side: after each turn the state of the
APIs must be equal, and what the gold calls returned must be among what the agent's calls have returned so far.

docs/benchmarks/bfcl.md has the protocol, the form of predictions and what differs from the official harness.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import json
import threading
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from genenv.benchmarks.base import Result, mean_by
from genenv.benchmarks.bfcl.worker import literal_call
from genenv.contracts.domain import Step
from genenv.contracts.errors import InputError
from genenv.contracts.types import Json, Message, Role, Score, Task
from genenv.reading.parsing import Call, parse_tool_calls
from genenv.reading.records import read_lines
from genenv.sandbox.processes import Worker, WorkerError

INSTALL = "pip install --no-deps bfcl-eval==2026.3.23 mpmath==1.3.0"
CATEGORIES = ("multi_turn_base", "multi_turn_miss_func", "multi_turn_miss_param", "multi_turn_long_context")
DOCUMENTS = {
    "GorillaFileSystem": "gorilla_file_system",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "TwitterAPI": "posting_api",
    "VehicleControlAPI": "vehicle_control",
}
"""The file of function documents of each class."""
TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": "string"}
"""BFCL's names of types that JSON Schema calls otherwise, as in the package's `type_mappings`."""
MAX_STEPS = 20
"""Steps with calls in one turn. One more, and the conversation ends."""
LONGEST = 8
"""User turns of the longest sample."""
TIMEOUT = 30.0
"""Seconds for one question to the official code, which usually answers in milliseconds."""

AGENT_INSTRUCTIONS = (
    'You help a user by calling functions. Write a call as <tool_call>{"name": ..., "arguments": {...}}</tool_call>; one '
    "message may hold several. You are told what they return. Go on until the user's last message is dealt with, then "
    "write a message without a call: it ends your turn. If no function can do it, or a value that it needs is unknown, "
    "say so and make no call."
)

Turns = list[list[list[str]]]
"""For each user turn the steps, for each step the call strings."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True)


class _Said(_Record):
    role: Role
    content: str


class _Sample(_Record):
    id: str
    question: list[list[_Said]] = Field(min_length=1)
    initial_config: dict[str, Json]
    involved_classes: list[str]
    missed_function: dict[int, list[str]] = Field(default_factory=dict)


class _Gold(_Record):
    id: str
    ground_truth: list[list[str]]


class _Document(_Record):
    name: str
    description: str
    parameters: dict[str, Json]
    response: dict[str, Json]

    def tool(self) -> Json:
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": json_schema(self.parameters),
                "response": json_schema(self.response),
            },
        }


R = TypeVar("R", bound=_Record)


def _read(path: Path, kind: type[R]) -> list[tuple[str, R]]:
    """The records of a file, each with where it stands."""
    records = []
    for number, line in read_lines(path):
        try:
            records.append((f"{path}:{number}", kind.model_validate_json(line)))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "record"
            raise InputError(f"{path}:{number}: {where}: {first['msg']}: expected the file of bfcl-eval") from None
    return records


def json_schema(document: Json) -> Json:
    """A schema of BFCL as JSON Schema: the types by their other names, everything else as it is."""
    schema = dict(document)
    if "type" in schema:
        schema["type"] = TYPES.get(schema["type"], schema["type"])
    if "items" in schema:
        schema["items"] = json_schema(schema["items"])
    if "properties" in schema:
        schema["properties"] = {name: json_schema(value) for name, value in schema["properties"].items()}
    return schema


def call_text(call: Call) -> str:
    """A call as the official harness writes it. A name that is no identifier goes into `**{...}`, and is refused later."""
    named = [f"{k}={v!r}" if k.isidentifier() else f"**{{{k!r}: {v!r}}}" for k, v in call.arguments.items()]
    return f"{call.name}({', '.join(named)})"


def load(folder: Path) -> list[Task]:
    """The samples in a folder with the files of `bfcl_eval/data`, in the official order. Raises InputError."""
    tools = {
        name: {d.name: d.tool() for _, d in _read(folder / "multi_turn_func_doc" / f"{file}.json", _Document)}
        for name, file in DOCUMENTS.items()
    }
    return [task for category in CATEGORIES for task in _category(folder, category, tools)]


def _category(folder: Path, category: str, tools: Mapping[str, Mapping[str, Json]]) -> list[Task]:
    name = f"BFCL_v4_{category}.json"
    gold = {g.id: g.ground_truth for _, g in _read(folder / "possible_answer" / name, _Gold)}
    tasks = []
    for where, sample in _read(folder / name, _Sample):
        if unknown := set(sample.involved_classes) - set(tools):
            raise InputError(f"{where}: unknown class {min(unknown)!r}: expected one of {', '.join(tools)}")
        declared = {n: tool for c in sample.involved_classes for n, tool in tools[c].items()}
        if len(gold.get(sample.id, ())) != len(sample.question):
            raise InputError(f"{where}: expected an answer to each turn of {sample.id} in possible_answer/{name}")
        _check_gold(where, gold[sample.id], declared)
        if absent := {n for names in sample.missed_function.values() for n in names} - set(declared):
            raise InputError(f"{where}: missed_function: no function {min(absent)!r} in the sample's classes")
        held = {turn: [declared.pop(n) for n in names] for turn, names in sample.missed_function.items()}
        turns = [
            {"messages": [m.model_dump() for m in said], "functions": [t["function"] for t in held.get(i, ())]}
            for i, said in enumerate(sample.question)
        ]
        tasks.append(
            Task(
                family=category,
                messages=(Message("system", AGENT_INSTRUCTIONS), *_said(turns[0])),
                tools=tuple(declared.values()),
                target={
                    "id": sample.id,
                    "initial_config": sample.initial_config,
                    "involved_classes": sample.involved_classes,
                    "ground_truth": gold[sample.id],
                },
                spec={"id": sample.id, "turns": turns},
                origin="heldout",
            )
        )
    return tasks


def _check_gold(where: str, gold: Sequence[Sequence[str]], names: Collection[str]) -> None:
    for text in (text for turn in gold for text in turn):
        try:
            literal_call(text, names)
        except ValueError as error:
            raise InputError(f"{where}: answer {text!r}: {error}: expected the file of bfcl-eval") from None


def _said(turn: Json) -> tuple[Message, ...]:
    """The messages that open a turn. Functions that were held back are handed over in the official words."""
    if turn["functions"]:
        from bfcl_eval.constants.default_prompts import DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_FC

        declarations = [json.dumps(f, ensure_ascii=False) for f in turn["functions"]]
        return (Message("user", "\n".join([*declarations, DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_FC])),)
    return tuple(Message(m["role"], m["content"]) for m in turn["messages"])


class Bfcl:
    """The benchmark. `data` is a folder with the files of `bfcl_eval/data` (None: those of the installed package).

    May be used by several threads, which wait for each other: there is one worker. Raises InputError if the package is
    missing.
    """

    name = "bfcl"
    max_turns = LONGEST * (MAX_STEPS + 1)
    max_tokens = 4096

    def __init__(self, data: Path | None) -> None:
        package = importlib.util.find_spec("bfcl_eval")
        if package is None or not package.submodule_search_locations:
            raise InputError(f"bfcl needs the package bfcl-eval, which brings data and checker: {INSTALL}")
        self._folder = data or Path(package.submodule_search_locations[0]) / "data"
        if not self._folder.is_dir():
            raise InputError(f"bfcl: {self._folder} is no folder: expected the files of bfcl_eval/data, or no --data")
        version = importlib.metadata.version("bfcl-eval")
        self.protocol = (
            f"BFCL multi-turn, data and checker of bfcl-eval {version}; calls as JSON in <tool_call>, "
            f"at most {MAX_STEPS} steps a turn"
        )
        self._worker: Worker | None = None
        self._lock = threading.Lock()

    @functools.cached_property
    def _samples(self) -> Sequence[Task]:
        return load(self._folder)

    def tasks(self) -> Sequence[Task]:
        return self._samples

    def episode(self, task: Task) -> BfclEpisode:
        return BfclEpisode(self, task)

    def replay(self, task: Task, output: Json) -> Score:
        """`output` is a list of turns, a turn a list of steps, a step the agent's text or a list of call strings."""
        turns: Turns = []
        malformed: list[str] = []
        if not isinstance(output, list):
            return Score(0.0, "malformed: expected a list of turns")
        for number, steps in enumerate(output, 1):
            if not isinstance(steps, list):
                return Score(0.0, f"malformed: turn {number}: expected a list of steps")
            turns.append([])
            for step in steps:
                if isinstance(step, str):
                    parsed = parse_tool_calls(step)
                    if parsed.error:
                        malformed.append(f"turn {number}: {parsed.error}")
                    calls = [call_text(call) for call in parsed.calls]
                elif isinstance(step, list) and all(isinstance(text, str) for text in step):
                    calls = step
                else:
                    return Score(0.0, f"malformed: turn {number}: expected text or lists of call strings")
                if calls:
                    turns[-1].append(calls)
        return self.verdict(task, turns, malformed)

    def verdict(self, task: Task, turns: Turns, malformed: Sequence[str]) -> Score:
        """The official verdict. `malformed` says which steps could not be read: they count as steps without a call."""
        checks: dict[str, Json] = {"steps": sum(map(len, turns)), "malformed": list(malformed)}
        gold = task.target["ground_truth"]
        if len(turns) != len(gold):
            checks["message"] = f"{len(turns)} turns, expected {len(gold)}"
            return Score(0.0, "force terminated", turns, checks)
        try:
            answer = self._ask({"entry": task.target, "turns": turns, "gold": gold})
        except WorkerError as error:
            return Score(None, f"unscored: {error}", turns, checks)
        checks |= {"refused": answer["refused"], "message": answer["message"]}
        reason = answer["error"].removeprefix("multi_turn:").replace("_", " ") or "right"
        return Score(float(answer["valid"]), reason, turns, checks)

    def results(self, task: Task, turns: Turns) -> list[str]:
        """What the calls of the last step return, all before it made first. Raises WorkerError."""
        answer = self._ask({"entry": task.target, "turns": turns})
        return list(answer["results"])

    def _ask(self, question: Json) -> Json:
        with self._lock:
            if self._worker is None:
                self._worker = Worker("genenv.benchmarks.bfcl.worker")
            try:
                return self._worker.ask(question, TIMEOUT)
            except WorkerError:
                self._worker.close()
                self._worker = None
                raise

    def summarize(self, results: Sequence[Result]) -> dict[str, Json]:
        """The share of valid samples by category; the score is their plain mean."""
        categories = mean_by(results)
        return {"score": sum(categories.values()) / len(categories), **categories}

    def close(self) -> None:
        with self._lock:
            if self._worker is not None:
                self._worker.close()
                self._worker = None


class BfclEpisode:
    """One conversation. Its state is the list of calls so far: the worker keeps none."""

    def __init__(self, benchmark: Bfcl, task: Task) -> None:
        self._benchmark = benchmark
        self._task = task
        self._turns: Turns = [[]]
        self._malformed: list[str] = []

    def step(self, text: str) -> Step:
        """Results of the calls, or the user's next turn, or the verdict. Raises WorkerError if the calls fail to return."""
        parsed = parse_tool_calls(text)
        turn = self._turns[-1]
        if parsed.error:  # officially too, what cannot be decoded ends the turn
            self._malformed.append(f"turn {len(self._turns)}: {parsed.error}")
        elif parsed.calls:
            turn.append([call_text(call) for call in parsed.calls])
            if len(turn) <= MAX_STEPS:
                results = self._benchmark.results(self._task, self._turns)
                return Step(tuple(Message("tool", result) for result in results))
        turns = self._task.spec["turns"]
        if len(turn) > MAX_STEPS or len(self._turns) == len(turns):
            return Step(score=self._benchmark.verdict(self._task, self._turns, self._malformed))
        self._turns.append([])
        return Step(_said(turns[len(self._turns) - 1]))

    def close(self) -> None:
        """Nothing to release."""
