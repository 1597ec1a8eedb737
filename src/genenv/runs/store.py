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
import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from genenv.config.load import build_config
from genenv.config.sections import Config
from genenv.contracts.errors import InputError
from genenv.contracts.types import Group, Json, Task, Trajectory, canonical
from genenv.runs.checkpoints import Checkpoints
from genenv.runs.records import CandidateRecord, Records
from genenv.runs.schema import SCHEMA, TABLES, VERSION, task_json


class Store(Records):
    """Read and write one run folder. Use `create`, `resume` (both take the lock) or `read`."""

    def __init__(self, folder: Path, lock: IO[str] | None) -> None:
        self.folder = folder
        self._lock = lock
        self.checkpoints = Checkpoints(folder / "checkpoints")
        super().__init__(sqlite3.connect(folder / "run.sqlite", isolation_level=None))
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
                    row = (task_id, number, r.task.family, r.task.origin, task_json(r.task))
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
