"""A suite: arms x seeds over one base configuration, one process a run, and what is already done is not done again.

runs/NAME/
  ARM-SEED/        a run folder like any other
  ARM-SEED.json    its configuration
  ARM-SEED.log     what its process said
  compare.html, compare.md, compare.png
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator

from genenv.config.load import anchored, explain, merge, read_raw
from genenv.config.sections import Config, Section
from genenv.config.shipped import find_config
from genenv.contracts.errors import InputError
from genenv.runs.store import Store
from genenv.studies.arms import ARMS, arm_config

PROGRAM: tuple[str, ...] = (sys.executable, "-c", "from genenv.cli.app import app; app()")
"""How a run's process is started, followed by the arguments of `genenv`."""
NAME = "[A-Za-z0-9_][A-Za-z0-9_.]*"
"""Of an arm, which names a folder."""


class Suite(Section):
    """What a suite's file says."""

    base: Path = Field(description="the configuration that all arms share: beside the suite's file, or one that ships")
    arms: tuple[str, ...] = Field(min_length=1, description="the first one is what the others are held against")
    seeds: tuple[int, ...] = Field((0, 1, 2, 3, 4), min_length=1, max_length=16)
    rounds: int = Field(ge=1)
    target: str | None = Field(None, description="arm whose final score the others are to reach; none: the first")
    set: dict[str, Any] = Field({}, description="settings over the base, for all arms")
    arm: dict[str, dict[str, Any]] = Field({}, description="settings of one arm, over those of the built-in one")

    @model_validator(mode="after")
    def _names_are_known(self) -> Suite:
        for name in self.arm:
            if not re.fullmatch(NAME, name):
                raise ValueError(f"arm: expected names of letters, digits, dots and underscores, found {name!r}")
        for name in self.arms:
            if name not in ARMS and name not in self.arm:
                raise ValueError(f"arms: {name} is neither built in ({', '.join(ARMS)}) nor a section [arm.{name}]")
        for what, names in (("arms", self.arms), ("seeds", self.seeds)):
            if len(set(names)) < len(names):
                raise ValueError(f"{what}: each one once, found {', '.join(map(str, names))}")
        if unused := [n for n in [*self.arm, self.target] if n is not None and n not in self.arms]:
            raise ValueError(f"{unused[0]} is not in arms = {', '.join(self.arms)}")
        return self


State = Literal["missing", "interrupted", "finished"]


@dataclass(frozen=True)
class Run:
    """One arm with one seed."""

    arm: str
    seed: int
    config: Config
    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    def state(self) -> State:
        """Raises InputError if the folder holds a run of other settings."""
        if not (self.folder / "run.sqlite").exists():
            return "missing"
        store = Store.read(self.folder)
        try:
            if store.config != self.config:
                raise InputError(
                    f"{self.folder} holds a run with other settings than the suite now says: choose another --out, or "
                    "delete that folder"
                )
            return "finished" if len(store.metrics()) == self.config.rounds else "interrupted"
        finally:
            store.close()


def load_suite(path: Path) -> Suite:
    """Raises InputError naming file and key."""
    raw = read_raw(path)
    try:
        suite = Suite.model_validate(raw)
    except ValidationError as error:
        raise InputError(f"{path}: {explain(error, Suite)}") from None
    here = path.parent
    arms = {name: anchored(own, here) for name, own in suite.arm.items()}
    beside = here / suite.base
    base = beside if beside.exists() else find_config(suite.base)
    return suite.model_copy(update={"base": base, "set": anchored(suite.set, here), "arm": arms})


def runs_of(suite: Suite, folder: Path) -> list[Run]:
    """All runs, those of the first seed first, so that whatever is finished can be compared. Raises InputError."""
    base = anchored(read_raw(suite.base), suite.base.parent)
    base = merge(merge(base, suite.set), {"rounds": suite.rounds})
    configs = {name: arm_config(name, base, suite.arm.get(name, {}), str(suite.base)) for name in suite.arms}
    if base.get("eval", {}).get("tasks") == 0:
        raise InputError(f"{suite.base}: eval.tasks = 0: without held-out tasks there is nothing to compare")
    return [
        Run(name, seed, config.model_copy(update={"seed": seed}), folder / f"{name}-{seed}")
        for seed in suite.seeds
        for name, config in configs.items()
    ]


Note = Callable[[Run, str], None]
"""Called from the threads that watch the processes, with each line that a run prints."""


def play_all(runs: Sequence[Run], jobs: int, note: Note, done: Callable[[Run, str], None]) -> list[str]:
    """Play what is not finished, `jobs` processes at a time; returns one line for each run that failed.

    `done` is called after each run with that line, "" if it did not fail.
    """
    todo = [(run, state) for run in runs if (state := run.state()) != "finished"]
    processes = _Processes()
    failures = []
    with ThreadPoolExecutor(jobs) as pool:
        try:
            futures = {pool.submit(_play, run, state, note, processes): run for run, state in todo}
            for future in as_completed(futures):
                failure = future.result()
                done(futures[future], failure)
                failures += [failure] if failure else []
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            processes.end()
            raise
    return failures


class _Processes:
    """What is played. Once ended, nothing else starts, whatever its thread was about to do."""

    def __init__(self) -> None:
        self._started: list[subprocess.Popen[str]] = []
        self._ended = False
        self._lock = threading.Lock()

    def start(self, arguments: Sequence[str]) -> subprocess.Popen[str] | None:
        with self._lock:
            if self._ended:
                return None
            pipe = subprocess.PIPE
            process = subprocess.Popen(arguments, stdout=pipe, stderr=subprocess.STDOUT, text=True, errors="replace")
            self._started.append(process)
            return process

    def end(self) -> None:
        with self._lock:
            self._ended = True
            for process in self._started:
                process.terminate()  # nothing to one that has finished


def _play(run: Run, state: State, note: Note, processes: _Processes) -> str:
    settings, log = (run.folder.parent / f"{run.name}.{kind}" for kind in ("json", "log"))
    arguments = [str(run.folder), "--resume"]
    if state == "missing":
        settings.write_text(run.config.model_dump_json(indent=2) + "\n", "utf-8")
        arguments = [str(settings), "--run-dir", str(run.folder)]
    line = last = ""
    with log.open("a", buffering=1, encoding="utf-8") as copy:
        process = processes.start([*PROGRAM, "train", *arguments])
        if process is None:
            return ""
        with process:
            assert process.stdout is not None
            for line in process.stdout:
                copy.write(line)
                last = line.strip() or last
                note(run, last)
    return f"{run.name} ended with status {process.returncode}: {last} (see {log})" if process.returncode else ""
