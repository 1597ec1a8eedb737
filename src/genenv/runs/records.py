"""What a run has recorded, read back: rounds, candidates with their verdicts, attempts, evaluations."""

from __future__ import annotations

import itertools
import json
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from genenv.contracts.types import Candidate, EditOutcome, Json, Sample, Task, Verdict
from genenv.runs.schema import read_task


@dataclass(frozen=True)
class CandidateRecord:
    """A candidate, its verdict and what it earned. `p_hat` and `reward` are None where nothing was measured."""

    candidate: Candidate
    verdict: Verdict
    task: Task | None
    p_hat: float | None = None
    reward: float | None = None
    outcome: EditOutcome | None = None
    """Of an edit, once it was tried."""


@dataclass(frozen=True)
class TaskRow:
    """What `genenv tasks` shows of one candidate."""

    round: int
    number: int
    reason: str
    detail: str
    family: str
    direction: str
    text: str
    task: Task | None
    p_hat: float | None
    reward: float | None
    outcome: str | None


@dataclass(frozen=True)
class Attempts:
    """What the attempts at one task in one round earned, in order; None where one could not be scored."""

    round: int
    task_id: str
    family: str
    replayed: bool
    scores: tuple[float | None, ...]


class Records:
    """Read-only questions to the database of a run. Another process may be writing it."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def metrics(self) -> list[dict[str, Json]]:
        """One record per round, in order; the same for the same configuration on the same machine."""
        return [json.loads(m) for (m,) in self._db.execute("SELECT metrics FROM rounds ORDER BY round")]

    def timings(self) -> list[dict[str, Json]]:
        """Seconds and memory per round, in order."""
        return [json.loads(t) for (t,) in self._db.execute("SELECT timing FROM rounds ORDER BY round")]

    def heldout(self) -> list[tuple[int, float, int]]:
        """(round, mean score, attempts) of each evaluation; an unscored attempt counts as 0."""
        rows = self._db.execute(
            "SELECT round, avg(coalesce(score, 0)), count(*) FROM evaluations GROUP BY round ORDER BY round"
        )
        return [(number, score, count) for number, score, count in rows]

    def heldout_scores(self, number: int) -> dict[str, float]:
        """Mean score of each task in one evaluation; an unscored attempt counts as 0."""
        rows = self._db.execute(
            "SELECT task_id, avg(coalesce(score, 0)) FROM evaluations WHERE round = ? GROUP BY task_id ORDER BY task_id",
            (number,),
        )
        return dict(rows.fetchall())

    def task(self, task_id: str) -> Task:
        """An admitted task. Raises KeyError."""
        row = self._db.execute("SELECT body FROM tasks WHERE id = ?", (task_id,)).fetchone()
        if row is None:
            raise KeyError(task_id)
        return read_task(row[0])

    def admitted(self) -> Iterator[Task]:
        for (body,) in self._db.execute("SELECT body FROM tasks ORDER BY round, rowid"):
            yield read_task(body)

    def tried(self) -> Iterator[Task]:
        """The different tasks that the agent has played, in the order in which they were admitted."""
        query = "SELECT body FROM tasks WHERE id IN (SELECT task_id FROM rollouts) ORDER BY round, rowid"
        for (body,) in self._db.execute(query):
            yield read_task(body)

    def candidate(self, task_id: str) -> Candidate:
        """What the simulator saw and wrote for an admitted task."""
        row = self._db.execute(
            "SELECT asked_family, direction, seed_id, text, tokens FROM candidates"
            " WHERE task_id = ? AND reason = 'admitted'",
            (task_id,),
        ).fetchone()
        if row is None:
            raise KeyError(task_id)
        family, direction, seed_id, text, tokens = row
        prompt, written, logprobs = json.loads(tokens)
        sample = Sample(tuple(written), tuple(logprobs), stopped=True, policy_version=-1)
        return Candidate(tuple(prompt), sample, text, family, direction, seed_id, self.task(task_id).spec)

    def first_success(self, task_id: str) -> tuple[int, float] | None:
        """The round in which an admitted task was first tried, and its p_hat then; None if nothing was measured."""
        row = self._db.execute(
            "SELECT round, p_hat FROM candidates WHERE task_id = ? AND reason = 'admitted' AND p_hat IS NOT NULL",
            (task_id,),
        ).fetchone()
        return (int(row[0]), float(row[1])) if row else None

    def candidates(self, rounds: Sequence[int] | None = None) -> Iterator[TaskRow]:
        """All candidates in order, admitted or not, of all or of some rounds."""
        query = (
            "SELECT c.round, number, reason, detail, asked_family, direction, text, body, p_hat, reward, outcome"
            " FROM candidates c LEFT JOIN tasks t ON t.id = c.task_id AND c.reason = 'admitted'"
        )
        if rounds is not None:
            query += f" WHERE c.round IN ({','.join(map(str, map(int, rounds)))})"
        for row in self._db.execute(query + " ORDER BY c.round, number"):
            task = read_task(row[7]) if row[7] else None
            yield TaskRow(*row[:7], task, *row[8:])  # type: ignore[call-arg]  # as many columns as fields

    def attempts(self, task_id: str, number: int) -> list[dict[str, Json]]:
        """The agent's attempts at a task in a round."""
        rows = self._db.execute(
            "SELECT text, score, reason, stop, written FROM rollouts WHERE task_id = ? AND round = ? ORDER BY member",
            (task_id, number),
        )
        return [dict(zip(("text", "score", "reason", "stop", "written"), row, strict=True)) for row in rows]

    def all_attempts(self) -> Iterator[Attempts]:
        """The scores of every group, rounds in order."""
        rows = self._db.execute(
            "SELECT r.round, task_id, family, replayed, score FROM rollouts r JOIN tasks t ON t.id = task_id"
            " ORDER BY r.round, task_id, member"
        )
        for (number, task_id, family, replayed), group in itertools.groupby(rows, lambda row: row[:4]):
            yield Attempts(number, task_id, family, bool(replayed), tuple(score for *_, score in group))
