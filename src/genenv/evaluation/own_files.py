"""Files of a user's own: tasks through the gate, recorded outputs through the scorer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from genenv.contracts.domain import Domain, SpecError
from genenv.contracts.errors import InputError
from genenv.contracts.types import Json, Score, Task, Verdict
from genenv.loop.gate import Gate
from genenv.reading.parsing import parse_json_object
from genenv.reading.records import MAX_RECORD, read_lines, read_records

MISSING = "missing output"


@dataclass(frozen=True)
class GateLine:
    """The verdict on one line of a file."""

    line: int
    verdict: Verdict
    task_id: str | None


@dataclass(frozen=True)
class ScoreLine:
    """The score of one task; `value` is 0 for a missing output, which `reason` then says."""

    id: str
    score: Score


def failures(scores: Sequence[Score]) -> dict[str, Json]:
    """How many answers could not be read, how many could not be scored, and why these most often (None: there are none)."""
    reasons = Counter(s.reason for s in scores if s.value is None)
    return {
        "malformed": sum(s.reason.startswith("malformed") for s in scores),
        "unscored": reasons.total(),
        "unscored_reason": reasons.most_common(1)[0][0] if reasons else None,
    }


def gate_file(domain: Domain, path: Path) -> Iterator[GateLine]:
    """Every line gets exactly one verdict; earlier lines are known to later ones."""
    gate = Gate(domain)
    empty = True
    for number, text in read_records(path):
        empty = False
        if text is None:
            yield GateLine(number, Verdict("too_long", f"more than {MAX_RECORD:,} bytes"), None)
            continue
        try:
            task = domain.build(parse_json_object(text))
        except SpecError as error:
            yield GateLine(number, Verdict(error.reason, error.detail), None)
        except ValueError as error:
            yield GateLine(number, Verdict("unparsable", str(error)), None)
        else:
            yield GateLine(number, gate.judge(task), task.id)
    if empty:
        raise InputError(f"{path}: expected at least one JSON record, found none")


def read_tasks(domain: Domain, path: Path) -> dict[str, Task]:
    """Tasks by id: specifications with an optional `id`, else numbered from 1. Raises InputError with the line."""
    tasks: dict[str, Task] = {}
    for number, text in read_lines(path):
        try:
            record = parse_json_object(text)
            key = str(record.pop("id", len(tasks) + 1))
            task = domain.build(record)
        except ValueError as error:
            raise InputError(f"{path}:{number}: not a {domain.name} specification: {error}") from None
        if key in tasks:
            raise InputError(f"{path}:{number}: id {key!r} occurs twice")
        tasks[key] = task
    return tasks


def read_outputs(path: Path, known: Container[str], source: str, form: type = str) -> dict[str, Json | Score]:
    """Recorded outputs by id: `{"id": ..., "output": ...}` a line, or `{"id": ..., "error": "..."}` where there was none.

    `form` is the type of an output, `object` for any JSON. Raises InputError with the line, also for an id that occurs
    twice or is not among the `known` ones, which `source` has.
    """
    outputs: dict[str, Json | Score] = {}
    for number, text in read_lines(path):
        try:
            record: dict[str, Json] = parse_json_object(text)
        except ValueError as error:
            raise InputError(f"{path}:{number}: {error}") from None
        failed = isinstance(record.get("error"), str) and "output" not in record
        if "id" not in record or not (failed or ("output" in record and isinstance(record["output"], form))):
            shown = '"..."' if form is str else "..."
            raise InputError(f'{path}:{number}: expected {{"id": ..., "output": {shown}}}')
        key = str(record["id"])
        if key not in known:
            raise InputError(f"{path}:{number}: id {key!r} is not in {source}")
        if key in outputs:
            raise InputError(f"{path}:{number}: id {key!r} occurs twice")
        outputs[key] = Score(None, f"error: {record['error']}") if failed else record["output"]
    return outputs


def score_file(domain: Domain, tasks_path: Path, outputs_path: Path) -> list[ScoreLine]:
    """One line per task: every task counts, with or without an output. Raises InputError for an unknown id."""
    tasks = read_tasks(domain, tasks_path)
    outputs = read_outputs(outputs_path, tasks, str(tasks_path))
    gate = Gate(domain)

    def score(key: str, task: Task) -> Score:
        output = outputs.get(key, Score(0.0, MISSING))
        return output if isinstance(output, Score) else gate.execute(task, [output])

    return [ScoreLine(key, score(key, task)) for key, task in tasks.items()]
