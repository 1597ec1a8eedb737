"""The run on disk: one folder, one writer.

    run/
      config.json      the resolved configuration
      run.sqlite       rounds, candidates with their verdicts, rollouts, evaluations (WAL)
      checkpoints/     round_000012/{agent,simulator}/ + pools.json + manifest.json
      lock             held by the process that writes

A round is one transaction, then a checkpoint is written to a temporary folder and renamed. Whatever lies after the
newest complete checkpoint is deleted on resume, so nothing is counted twice.
"""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from genenv.config import Config, build_config
from genenv.edits import Outcome
from genenv.errors import GenEnvError, InputError
from genenv.types import Candidate, Group, Json, Message, Sample, Task, Trajectory, Verdict, canonical

SCHEMA = """
CREATE TABLE rounds (
    round INTEGER PRIMARY KEY, metrics TEXT NOT NULL, timing TEXT NOT NULL
);
CREATE TABLE candidates (
    round INTEGER NOT NULL, number INTEGER NOT NULL, reason TEXT NOT NULL, detail TEXT NOT NULL,
    asked_family TEXT NOT NULL, direction TEXT NOT NULL, seed_id TEXT NOT NULL, text TEXT NOT NULL,
    task_id TEXT, p_hat REAL, reward REAL, tokens TEXT NOT NULL, parent TEXT, outcome TEXT,
    PRIMARY KEY (round, number)
);
CREATE INDEX candidates_by_task ON candidates (task_id);
CREATE TABLE tasks (
    id TEXT PRIMARY KEY, round INTEGER NOT NULL, family TEXT NOT NULL, origin TEXT NOT NULL, body TEXT NOT NULL
);
CREATE TABLE rollouts (
    round INTEGER NOT NULL, task_id TEXT NOT NULL, member INTEGER NOT NULL, replayed INTEGER NOT NULL,
    text TEXT NOT NULL, score REAL, reason TEXT NOT NULL, stop TEXT NOT NULL, written INTEGER NOT NULL,
    PRIMARY KEY (round, task_id, member)
);
CREATE TABLE evaluations (
    round INTEGER NOT NULL, task_id TEXT NOT NULL, member INTEGER NOT NULL, family TEXT NOT NULL,
    text TEXT NOT NULL, score REAL, reason TEXT NOT NULL,
    PRIMARY KEY (round, task_id, member)
);
"""
VERSION = 1
"""Of the tables above, kept in the database; a program reads its own only."""
TABLES = ("rounds", "candidates", "tasks", "rollouts", "evaluations")
KEEP = 2
"""Complete checkpoints kept; the one before the newest stays in case the newest is damaged later."""


@dataclass(frozen=True)
class CandidateRecord:
    """A candidate, its verdict and what it earned. `p_hat` and `reward` are None where nothing was measured."""

    candidate: Candidate
    verdict: Verdict
    task: Task | None
    p_hat: float | None = None
    reward: float | None = None
    outcome: Outcome | None = None
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


def _task_json(task: Task) -> str:
    return json.dumps(asdict(task), ensure_ascii=False)


def _task(body: str) -> Task:
    record = json.loads(body)
    messages = tuple(Message(**m) for m in record.pop("messages"))
    return Task(messages=messages, tools=tuple(record.pop("tools")), **record)


class Store:
    """Read and write one run folder. Use `create`, `resume` (both take the lock) or `read`."""

    def __init__(self, folder: Path, lock: IO[str] | None) -> None:
        self.folder = folder
        self._lock = lock
        self._db = sqlite3.connect(folder / "run.sqlite", isolation_level=None)
        try:
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
        except sqlite3.Error as error:
            self.close()
            raise InputError(f"{folder / 'run.sqlite'} cannot be opened: {error}") from None

    def _must_be_readable(self) -> None:
        """Raises InputError if the database or the configuration is not one of this version of the program."""
        path = self.folder / "run.sqlite"
        try:
            (version,) = self._db.execute("PRAGMA user_version").fetchone()
            tables = {name for (name,) in self._db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if missing := set(TABLES) - tables:
                raise InputError(f"{path} is not the database of a run: it has no table {min(missing)}")
            if version != VERSION:
                raise InputError(f"{path} has records of version {version}, this program reads version {VERSION}")
            _ = self.config
        except sqlite3.Error as error:
            raise InputError(f"{path} cannot be read: {error}") from None

    # -- opening -----------------------------------------------------------------------------------------------

    @classmethod
    def create(cls, folder: Path, config: Config) -> Store:
        """A new run. Raises InputError if the folder already holds one."""
        if (folder / "run.sqlite").exists():
            raise InputError(f"{folder} already holds a run: resume it with --resume, or choose another --run-dir")
        made = not folder.exists()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = _take_lock(folder)
        except OSError as error:
            raise InputError(f"cannot make the run folder {folder}: {error.strerror}") from None
        try:
            (folder / "config.json").write_text(config.model_dump_json(indent=2) + "\n", "utf-8")
            store = cls(folder, lock)
            with store._transaction() as db:
                for statement in SCHEMA.split(";"):
                    db.execute(statement)
                db.execute(f"PRAGMA user_version = {VERSION}")
        except BaseException:
            lock.close()
            for name in ("config.json", "run.sqlite", "run.sqlite-wal", "run.sqlite-shm", "lock"):
                (folder / name).unlink(missing_ok=True)
            if made:
                folder.rmdir()
            raise
        return store

    @classmethod
    def resume(cls, folder: Path) -> Store:
        """An existing run, for writing."""
        _must_be_run(folder)
        return cls._opened(cls(folder, _take_lock(folder)))

    @classmethod
    def read(cls, folder: Path) -> Store:
        """An existing run, for reading; another process may be writing."""
        _must_be_run(folder)
        return cls._opened(cls(folder, None))

    @staticmethod
    def _opened(store: Store) -> Store:
        try:
            store._must_be_readable()
        except InputError:
            store.close()
            raise
        return store

    def close(self) -> None:
        self._db.close()
        if self._lock is not None:
            self._lock.close()

    @property
    def config(self) -> Config:
        path = self.folder / "config.json"
        try:
            raw = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(f"{path} cannot be read: {error}") from None
        if not isinstance(raw, dict):
            raise InputError(f"{path}: expected the configuration as a JSON object")
        return build_config(raw, str(path))

    # -- a round -----------------------------------------------------------------------------------------------

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield self._db
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:  # on a full disk SQLite has rolled back by itself
                self._db.execute("ROLLBACK")
            raise

    def commit_round(
        self, number: int, records: Sequence[CandidateRecord], groups: Sequence[Group], metrics: Json, timing: Json
    ) -> None:
        """Everything that happened in a round, at once or not at all."""
        with self._transaction() as db:
            for i, r in enumerate(records):
                c, task_id = r.candidate, r.task.id if r.task is not None else None
                # what its own update needs again when it is replayed
                tokens = json.dumps([c.prompt, c.sample.tokens, c.sample.logprobs]) if r.verdict.admitted else "[]"
                db.execute(
                    "INSERT INTO candidates VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
                    (number, i, r.verdict.reason, r.verdict.detail, c.family, c.direction, c.seed_id, c.text, task_id,
                     r.p_hat, r.reward, tokens, c.parent, r.outcome),
                )  # fmt: skip
                if r.task is not None and r.verdict.admitted:
                    row = (task_id, number, r.task.family, r.task.origin, _task_json(r.task))
                    db.execute("INSERT INTO tasks VALUES (?,?,?,?,?)", row)
            for group in groups:
                for member, t in enumerate(group.trajectories):
                    db.execute(
                        "INSERT INTO rollouts VALUES (?,?,?,?,?,?,?,?,?)",
                        (number, group.task.id, member, group.replayed, t.text, t.score.value, t.score.reason, t.stop,
                         t.written),
                    )  # fmt: skip
            db.execute("INSERT INTO rounds VALUES (?,?,?)", (number, canonical(metrics), canonical(timing)))

    def commit_evaluation(self, number: int, tasks: Sequence[Task], attempts: Sequence[Sequence[Trajectory]]) -> None:
        with self._transaction() as db:
            db.execute("DELETE FROM evaluations WHERE round = ?", (number,))
            for task, trajectories in zip(tasks, attempts, strict=True):
                for member, t in enumerate(trajectories):
                    db.execute(
                        "INSERT INTO evaluations VALUES (?,?,?,?,?,?,?)",
                        (number, task.id, member, task.family, t.text, t.score.value, t.score.reason),
                    )

    def rewind(self, number: int) -> None:
        """Forget every round after `number`."""
        with self._transaction() as db:
            for table in TABLES:
                db.execute(f"DELETE FROM {table} WHERE round > ?", (number,))

    # -- reading -----------------------------------------------------------------------------------------------

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
        return _task(row[0])

    def admitted(self) -> Iterator[Task]:
        for (body,) in self._db.execute("SELECT body FROM tasks ORDER BY round, rowid"):
            yield _task(body)

    def tried(self) -> Iterator[Task]:
        """The different tasks that the agent has played, in the order in which they were admitted."""
        query = "SELECT body FROM tasks WHERE id IN (SELECT task_id FROM rollouts) ORDER BY round, rowid"
        for (body,) in self._db.execute(query):
            yield _task(body)

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
            task = _task(row[7]) if row[7] else None
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

    # -- checkpoints -------------------------------------------------------------------------------------------

    def save_checkpoint(self, number: int, write: Callable[[Path], None]) -> None:
        """`write` fills a temporary folder, which is renamed when everything is on disk."""
        home = self.folder / "checkpoints"
        home.mkdir(exist_ok=True)
        final, draft = home / f"round_{number:06d}", home / f".draft_{number:06d}"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir()
        try:
            write(draft)
            files = {str(p.relative_to(draft)): _digest(p) for p in sorted(draft.rglob("*")) if p.is_file()}
            with (draft / "manifest.json").open("w", encoding="utf-8") as handle:
                json.dump({"round": number, "files": files}, handle)
                handle.flush()
                os.fsync(handle.fileno())
        except OSError:
            shutil.rmtree(draft, ignore_errors=True)
            raise
        except Exception as error:  # libraries report a full disk in many ways
            shutil.rmtree(draft, ignore_errors=True)
            raise GenEnvError(f"checkpoint {final.name} could not be written: {error}") from error
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
        shutil.rmtree(final, ignore_errors=True)
        draft.rename(final)
        for old in sorted(home.glob("round_*"))[:-KEEP]:
            shutil.rmtree(old)

    def latest_checkpoint(self, warn: Callable[[str], None]) -> tuple[int, Path] | None:
        """The newest complete checkpoint; damaged ones are named to `warn` and passed over."""
        for folder in sorted((self.folder / "checkpoints").glob("round_*"), reverse=True):
            if fault := checkpoint_fault(folder):
                warn(f"checkpoint {folder.name} is damaged and is passed over: {fault}")
            else:
                return int(folder.name.removeprefix("round_")), folder
        return None

    def checkpoint(self, number: int) -> Path:
        """The checkpoint of one round. Raises InputError if there is none or it is damaged."""
        folder = self.folder / "checkpoints" / f"round_{number:06}"
        if not folder.is_dir():
            have = [f.name.removeprefix("round_").lstrip("0") or "0" for f in sorted(folder.parent.glob("round_*"))]
            raise InputError(f"{self.folder} has no checkpoint of round {number}, only of {', '.join(have) or 'none'}")
        if fault := checkpoint_fault(folder):
            raise InputError(f"checkpoint {folder.name} of {self.folder} is damaged: {fault}")
        return folder


def checkpoint_fault(folder: Path) -> str:
    """What is wrong with a checkpoint folder, or ""."""
    try:
        manifest: Mapping[str, Json] = json.loads((folder / "manifest.json").read_text("utf-8"))
        for name, digest in manifest["files"].items():
            path = folder / name
            if not path.exists():
                return f"{name} is missing"
            if _digest(path) != digest:
                return f"{name} has been changed or cut"
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return "manifest.json is missing or unreadable"
    return ""


def _digest(path: Path) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _must_be_run(folder: Path) -> None:
    if not (folder / "run.sqlite").is_file() or not (folder / "config.json").is_file():
        raise InputError(f"{folder} is not a run folder: expected run.sqlite and config.json in it")


def _take_lock(folder: Path) -> IO[str]:
    handle = (folder / "lock").open("a+", encoding="utf-8")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        handle.close()
        raise InputError(f"{folder} is being written by another process: wait for it, or stop it") from None
    return handle
