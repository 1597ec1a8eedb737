"""Bamboogle: 125 two-hop questions, with or without a search tool. It has no official script.

The answer is what stands in the last `<answer>...</answer>`, else in the last `\\boxed{...}`, else after "Answer:" or alone
on a single line (`genenv.reading.parsing`), thoughts up to `</think>` left out. It is compared with the gold in three ways:

- `em`: equal after lower case, no punctuation, no a/an/the, single spaces (SQuAD's normalisation);
- `cover_em`, the score: the gold's words stand in the answer, in order and side by side. Published figures come from a
  judging model, which accepts an answer that says more than the gold; of the two rules this one is nearer to it;
- `judge`, the score where one is given: whatever it says of (question, gold, answer).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from genenv.benchmarks.base import Result, data_folder
from genenv.benchmarks.search import Search, normalized
from genenv.contracts.domain import Step
from genenv.contracts.errors import InputError
from genenv.contracts.types import Json, Message, Score, Task
from genenv.reading.parsing import OPEN, boxed_answer, parse_tool_calls, plain_answer, shorten

HOW = "clone https://github.com/qiancheng0/ToolRL and take its folder benchmarks/Bamboogle"
FILES = ("bamboogle.json", "data.json")
TURNS = 8

INSTRUCTIONS = (
    "Answer the question. Think step by step, then write the answer alone, as short as possible, as "
    "<answer>...</answer>."
)
SEARCHING = (
    " Look up what you do not know: one search a turn, as "
    '<tool_call>{"name": "search", "arguments": {"query": "..."}}</tool_call>; the results come back to you.'
)
TOOL: Json = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Find passages about something.",
        "parameters": {
            "type": "object",
            "properties": {"query": {"type": "string", "description": "What to look for."}},
            "required": ["query"],
        },
    },
}


class Judge(Protocol):
    """Whether `answer` means the same as `gold`. What it raises leaves the sample unscored."""

    def __call__(self, question: str, gold: str, answer: str) -> bool: ...


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)
    Question: str
    Answer: str


_RECORDS = TypeAdapter(list[_Record])


class Bamboogle:
    """Samples are named by their place in the official file, from 0."""

    name = "bamboogle"
    max_tokens = 512

    def __init__(self, data: Path | None, search: Search | None = None, judge: Judge | None = None) -> None:
        self._folder = data_folder(self.name, data, HOW)
        self.search = search
        self._judge = judge
        self.max_turns = TURNS if search else 1
        rule = "judge" if judge else "cover_em (the gold's words stand in the answer)"
        tool = (
            f"search tool {getattr(search, 'id', '')}".rstrip() + f", {TURNS} turns"
            if search
            else "closed book, one turn"
        )
        self.protocol = f"{rule} over 125; {tool}; em beside it"

    def tasks(self) -> list[Task]:
        path = next((p for name in FILES if (p := self._folder / name).is_file()), None)
        if path is None:
            raise InputError(f"bamboogle: neither {' nor '.join(FILES)} in {self._folder}: {HOW}")
        try:
            records = _RECORDS.validate_json(path.read_bytes())
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise InputError(f"bamboogle: {path}: {where}: {first['msg']}; expected Question and Answer") from None
        system = INSTRUCTIONS + (SEARCHING if self.search else "")
        return [
            Task(
                family="two-hop",
                messages=(Message("system", system), Message("user", record.Question)),
                tools=(TOOL,) if self.search else (),
                target=record.Answer.strip(),
                spec={"id": str(i)},
                origin="user",
            )
            for i, record in enumerate(records)
        ]

    def episode(self, task: Task) -> _Episode:
        return _Episode(self, task)

    def replay(self, task: Task, output: Json) -> Score:
        """`output` is the text of the model's last turn."""
        if not isinstance(output, str):
            return Score(0.0, f"malformed: expected the model's text, found {type(output).__name__}")
        return self.score(task, output)

    def summarize(self, results: Sequence[Result]) -> dict[str, Json]:
        def share(check: str) -> float:
            return sum(bool(r.score.checks.get(check)) for r in results) / len(results)

        rules = ("em", "cover_em", *(("judge",) if self._judge else ()))
        return {"score": sum(r.value for r in results) / len(results), **{rule: share(rule) for rule in rules}}

    def close(self) -> None:
        """Nothing to end."""

    def score(self, task: Task, text: str) -> Score:
        """All rules on the model's last turn."""
        answer, error = read_answer(text)
        if answer is None:
            return Score(0.0, f"malformed: {error}")
        gold, said = normalized(task.target), normalized(answer)
        checks = {"em": said == gold, "cover_em": covers(said, gold)}
        if self._judge is not None:
            try:
                checks["judge"] = bool(self._judge(task.messages[-1].content, task.target, answer))
            except Exception as failure:  # a judge is user code, often behind a network
                return Score(None, f"judge: {type(failure).__name__}: {failure}", answer, checks)
        right = checks["judge" if self._judge else "cover_em"]
        return Score(float(right), "right" if right else f"{shorten(answer)!r} is not the answer", answer, checks)


class _Episode:
    def __init__(self, benchmark: Bamboogle, task: Task) -> None:
        self._benchmark = benchmark
        self._task = task

    def step(self, text: str) -> Step:
        search = self._benchmark.search
        result = None if search is None else look_up(search, text)
        if result is None:
            return Step(score=self._benchmark.score(self._task, text))
        return Step((Message("tool", result),))

    def close(self) -> None:
        pass


def look_up(search: Search, text: str) -> str | None:
    """The result of the search that `text` asks for, None if it asks for none; mistakes are told to the agent."""
    parsed = parse_tool_calls(text)
    if parsed.error:
        return f"error: {parsed.error}"
    if not parsed.calls:
        return None
    call = parsed.calls[0]
    query = call.arguments.get("query")
    if call.name != "search" or not isinstance(query, str):
        return "error: expected a call of search with a query"
    try:
        found = search(query)
    except Exception as failure:  # a search tool is user code, often behind a network
        return f"error: the search failed: {failure}"
    return "\n".join(f"{i}. {passage}" for i, passage in enumerate(found, 1)) or "nothing found"


def read_answer(text: str) -> tuple[str | None, str]:
    """The answer that `text` states, or None and why there is none."""
    text = text.rpartition("</think>")[2]
    start = text.rfind("<answer>")
    if start >= 0:
        inner, closed, _ = text[start + len("<answer>") :].partition("</answer>")
        if not closed:
            return None, "unclosed <answer>"
        answer = boxed_answer(inner) or inner.strip()
        return (answer, "") if answer else (None, "empty answer")
    if "\\boxed{" in text:
        return (boxed, "") if (boxed := boxed_answer(text)) else (None, "empty or unclosed box")
    if OPEN in text:
        return None, "a call instead of an answer"
    plain = plain_answer(text)
    return (plain, "") if plain else (None, "no answer")


def covers(said: Sequence[str], gold: Sequence[str]) -> bool:
    """Whether `gold` stands in `said`, word by word and unbroken. An empty gold is covered by nothing."""
    return bool(gold) and f" {' '.join(gold)} " in f" {' '.join(said)} "
