"""ALFWorld: household tasks in the TextWorld games of the benchmark, played in processes of their own.

An attempt is right if the game says that it is won within 50 commands; that a game is over proves nothing. One turn is
one command: the last line of what the agent wrote that is not blank, without `Action:` or `>` before it, or what stands
in the last `<action>...</action>`. Whatever the game does not know it answers itself ("Nothing happens."); the commands
that are possible are not shown. Goals are the templated ones that stand in the games.

The first message must be there before the game, which takes a second to load, so it is written here from the game's
PDDL. When the game is open its own first observation is compared: an attempt whose prompt differs is not scored.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import random
import re
import tarfile
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from lzma import LZMAError
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from genenv.benchmarks.base import Result, data_folder, mean_by
from genenv.domains.base import Step
from genenv.errors import InputError, MissingExtraError
from genenv.processes import Worker, WorkerError
from genenv.types import Json, Message, Score, Task, derive_seed

HOW = "pip install 'genenv-rl[alfworld]' and run alfworld-download"
WORKER = "genenv.benchmarks._alfworld_worker"

SPLITS: dict[str, int | None] = {"valid_unseen": 134, "valid_seen": 140, "train": None}
"""Number of games, None where any number will do."""

STEPS = 50
GAMES = 16
"""Games that one worker opens in its life: each leaves about 6 MB behind."""
WORKERS = min(4, os.cpu_count() or 1)
"""Workers that take new games at one time."""
OPEN_TIMEOUT = 120.0
STEP_TIMEOUT = 30.0

INSTRUCTIONS = """\
You are in a house and act by commands, one a turn, at most 50. The commands are:
look
inventory
go to (receptacle)
open (receptacle)
close (receptacle)
examine (something)
take (object) from (receptacle)
move (object) to (receptacle)
use (object)
heat (object) with (receptacle)
cool (object) with (receptacle)
clean (object) with (receptacle)
slice (object) with (object)
help
Things have a name and a number, for example: go to shelf 2. What cannot be done is answered "Nothing happens."
You may think first; the last line that you write is the command and nothing else."""

TaskType = Literal[
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
]

_GOAL = re.compile(r'"(Your task is to: [^"]+)"')
_PLACE = re.compile(r"\(receptacleatlocation ([^\s?]+) ")
_PREFIX = re.compile(r"(?:action:|>)\s*", re.IGNORECASE)


class _Trial(BaseModel):
    """What is used of `traj_data.json`."""

    model_config = ConfigDict(frozen=True)
    task_type: TaskType


class _Game(BaseModel):
    """What is used of `game.tw-pddl` here; the worker reads the rest."""

    model_config = ConfigDict(frozen=True)
    grammar: str
    pddl_problem: str
    solvable: bool = False


class Alfworld:
    """One split of the benchmark. `data` holds `json_2.1.1/SPLIT/...` or an archive `json_2.1.1_SPLIT*.tar.xz` of it.

    Without `data` it is $ALFWORLD_DATA, where `alfworld-download` puts the games, else $GENENV_DATA/alfworld. `worker`
    is the module that plays the games. Raises InputError.
    """

    name = "alfworld"
    max_turns = STEPS
    max_tokens = 256

    def __init__(self, data: Path | None, split: str = "valid_unseen", worker: str = WORKER) -> None:
        if split not in SPLITS:
            raise InputError(f"alfworld: split: expected one of {', '.join(SPLITS)}, found {split}")
        if worker == WORKER:
            for package in ("alfworld", "textworld", "fast_downward"):
                if importlib.util.find_spec(package) is None:
                    raise MissingExtraError(package, "alfworld", "the benchmark ALFWorld")
        official = os.environ.get("ALFWORLD_DATA")
        self._folder = data_folder(self.name, data or (Path(official) if official else None), HOW)
        self._split = split
        self._module = worker
        self._unpacked: tempfile.TemporaryDirectory[str] | None = None
        self._paths: dict[str, Path] = {}
        self._tasks: list[Task] = []
        self._hosts: list[_Host] = []
        self.protocol = (
            f"{split}: won within {STEPS} commands; ALFWorld 0.4 wording, templated goals, possible commands not shown"
        )

    # -- the games -------------------------------------------------------------------------------------------------

    def tasks(self) -> Sequence[Task]:
        """The games that the official loader takes, in the order of their paths; no game is opened for it."""
        if not self._tasks:
            tasks = list(self._read())
            expected = SPLITS[self._split] or max(1, len(tasks))
            if len(tasks) != expected:
                raise InputError(
                    f"alfworld: expected {expected} games of {self._split} in {self._folder}, found {len(tasks)}: {HOW}"
                )
            self._tasks = tasks
        return self._tasks

    def _read(self) -> Iterator[Task]:
        root = self._root()
        for trial in sorted(root.glob(f"{self._split}/*/*/traj_data.json")):
            path = trial.with_name("game.tw-pddl")
            identity = path.parent.relative_to(root).as_posix()
            if "movable" in identity or "Sliced" in identity or not path.exists():
                continue
            try:
                family = _Trial.model_validate_json(trial.read_bytes()).task_type
                game = _Game.model_validate_json(path.read_bytes())
                first = first_observation(game.grammar, game.pddl_problem)
            except (OSError, ValueError) as error:
                raise InputError(f"alfworld: {path.parent}: {_line(error)}: {HOW}") from None
            if not game.solvable:
                continue
            self._paths[identity] = path
            yield Task(
                family=family,
                messages=(Message("system", INSTRUCTIONS), Message("user", first)),
                tools=(),
                target={"won": identity},
                spec={"id": identity},
                origin="user",
            )

    def _root(self) -> Path:
        """The folder above that of the split, unpacked if there is only an archive."""
        root = self._folder / "json_2.1.1"
        if (root / self._split).is_dir():
            return root
        archives = sorted(self._folder.glob(f"json_2.1.1_{self._split}*.tar.xz"))
        if not archives:
            raise InputError(f"alfworld: {root / self._split} is no folder: {HOW}")
        if self._unpacked is None:
            self._unpacked = tempfile.TemporaryDirectory(prefix="genenv-alfworld-")
        try:
            with tarfile.open(archives[0]) as archive:
                archive.extractall(self._unpacked.name, filter="data")
        except (OSError, EOFError, tarfile.TarError, LZMAError) as error:
            raise InputError(f"alfworld: cannot unpack {archives[0]}: {_line(error)}") from None
        return Path(self._unpacked.name) / "json_2.1.1"

    # -- attempts --------------------------------------------------------------------------------------------------

    def episode(self, task: Task) -> _Episode:
        """A game of its own, which loads while others are played. Worker failures leave the attempt without a score."""
        path = str(self._paths[task.spec["id"]])
        host = self._host(path)
        return _Episode(task, host, path, functools.partial(self._release, host))

    def _host(self, path: str) -> _Host:
        """The worker that just translated the same game, a new one, or the one with the fewest games."""
        free = [h for h in self._hosts if h.opened < GAMES and not h.lost]
        host = next((h for h in free if h.last == path), None)
        if host is None and len(free) < WORKERS:
            host = _Host(self._module)
            self._hosts.append(host)
        return host or min(free, key=lambda h: h.opened)

    def _release(self, host: _Host, number: int) -> None:
        """End a game; a worker that takes no more games ends with its last one."""
        if host not in self._hosts:
            return
        host.live -= 1
        host.send({"game": number}, STEP_TIMEOUT)
        if host.live == 0 and (host.opened >= GAMES or host.lost):
            self._hosts.remove(host)
            host.close()

    def replay(self, task: Task, output: Json) -> Score:
        """`output` is the list of commands, or of the texts that the agent wrote, one a turn."""
        if not isinstance(output, list) or not all(isinstance(text, str) for text in output):
            return Score(0.0, "malformed: expected a list of commands")
        with closing(self.episode(task)) as episode:
            for text in output:
                score = episode.step(text).score
                if score is not None:
                    return score
            return episode.score(0.0, "not won when the commands ended")

    def random_attempt(self, task: Task, seed: int) -> Score:
        """The baseline: commands drawn evenly from the possible ones. The answer of the score is their list."""
        rng = random.Random(derive_seed(seed, "random", task.spec["id"]))
        with closing(self.episode(task)) as episode:
            while True:
                score = episode.step(rng.choice(episode.possible() or [""])).score
                if score is not None:
                    return score

    def summarize(self, results: Sequence[Result]) -> dict[str, Json]:
        return {"score": sum(r.value for r in results) / len(results), **mean_by(results)}

    def close(self) -> None:
        while self._hosts:
            self._hosts.pop().close()
        if self._unpacked is not None:
            self._unpacked.cleanup()
            self._unpacked, self._tasks = None, []


class _Host:
    """A worker and the thread that waits for it, so that games load while others are played."""

    def __init__(self, module: str) -> None:
        self._worker = Worker(module)
        self._thread = ThreadPoolExecutor(1)
        self.opened = 0
        self.live = 0
        self.last = ""
        """The game that was opened last."""
        self.lost = ""
        """Why there is no worker any more."""

    def open(self, path: str) -> tuple[int, Future[Json]]:
        """The number of a new game and the promise of its first answer."""
        self.opened += 1
        self.live += 1
        self.last = path
        return self.opened, self.send({"game": self.opened, "open": path}, OPEN_TIMEOUT)

    def send(self, request: Json, timeout: float) -> Future[Json]:
        return self._thread.submit(self._ask, request, timeout)

    def _ask(self, request: Json, timeout: float) -> Json:
        if self.lost:
            raise WorkerError(self.lost)
        try:
            return self._worker.ask(request, timeout)
        except WorkerError as error:
            self.lost = str(error)
            raise

    def close(self) -> None:
        self._thread.shutdown(cancel_futures=True)
        self._worker.close()


class _Episode:
    """One attempt at one game, whose worker may have others. `release` tells its owner that it is over."""

    def __init__(self, task: Task, host: _Host, path: str, release: Callable[[int], None]) -> None:
        self._task = task
        self._host = host
        self._release: Callable[[int], None] | None = release
        self._number, self._opening = host.open(path)
        self._possible: list[str] | None = None
        self._commands: list[str] = []

    def step(self, text: str) -> Step:
        try:
            self._begin()
            self._commands.append(command(text))
            state = _answer(self._host.send({"game": self._number, "command": self._commands[-1]}, STEP_TIMEOUT))
        except WorkerError as error:
            return Step(score=self.score(None, f"environment error: {error}"))
        self._possible = state["possible"]
        if state["won"]:
            return Step(score=self.score(1.0, "won"))
        if len(self._commands) == STEPS:
            return Step(score=self.score(0.0, f"not won within {STEPS} commands"))
        return Step((Message("user", state["observation"]),))

    def possible(self) -> list[str]:
        """The commands that the game would take now; none if there is no game."""
        try:
            return self._begin()
        except WorkerError:
            return []

    def _begin(self) -> list[str]:
        if self._possible is None:
            state = _answer(self._opening)
            if state["observation"] != self._task.messages[-1].content:
                raise WorkerError("the game's first observation is not the one in the prompt")
            self._possible = state["possible"]
        return self._possible

    def score(self, value: float | None, reason: str) -> Score:
        return Score(value, reason, list(self._commands), {"steps": len(self._commands)})

    def close(self) -> None:
        self._opening.cancel()
        if self._release is not None:
            self._release(self._number)
            self._release = None


def _answer(promise: Future[Json]) -> Json:
    """What the worker answers. Raises WorkerError, for what went wrong in the game as well."""
    answer = promise.result()
    if "failed" in answer:
        raise WorkerError(answer["failed"])
    return answer


def command(text: str) -> str:
    """The command in what an agent wrote; empty if there is none, which no game knows."""
    _, tag, rest = text.rpartition("<action>")
    lines = (rest.partition("</action>")[0] if tag else text).splitlines()
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return _PREFIX.sub("", last, count=1) if _PREFIX.match(last) else last


def first_observation(grammar: str, problem: str) -> str:
    """What a game shows before the first command. Raises ValueError for texts that are not an ALFWorld game's.

    Receptacles come in the order of their identifiers, and those of one kind are numbered downwards.
    """
    goal = _GOAL.search(grammar)
    places = sorted(set(_PLACE.findall(problem.lower())))
    if goal is None or len(places) < 2:
        raise ValueError("expected a goal and receptacles, found a game without")
    kinds = [place.partition("_bar_")[0] + ("basin" if "basin" in place else "") for place in places]
    left = Counter(kinds)
    names = []
    for kind in kinds:
        names.append(f"a {kind} {left[kind]}")
        left[kind] -= 1
    seen = f"{', '.join(names[:-1])}, and {names[-1]}"
    return (
        "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room."
        f" Looking quickly around you, you see {seen}.\n\n{goal[1]}"
    )


def _line(error: Exception) -> str:
    """One line for a person."""
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc'])) or 'file'}: {first['msg']}"
    return str(error)
