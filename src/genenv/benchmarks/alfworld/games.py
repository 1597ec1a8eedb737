"""ALFWorld's text games, wherever they come from: one attempt, command by command, and the workers that play them.

One turn is one command: the last line of what the agent wrote that is not blank, without `Action:` or `>` before it, or
what stands in the last `<action>...</action>`. Whatever a game does not know it answers itself ("Nothing happens."); the
commands that are possible are not shown. An attempt is right if the game says that it is won within 50 commands; that a
game is over proves nothing.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from genenv.contracts.domain import Step
from genenv.contracts.errors import MissingExtraError
from genenv.contracts.types import Json, Message, Score, Task
from genenv.sandbox.processes import Worker, WorkerError

WORKER = "genenv.benchmarks.alfworld.worker"

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

_PREFIX = re.compile(r"(?:action:|>)\s*", re.IGNORECASE)


def need_packages(purpose: str) -> None:
    """Raises MissingExtraError where the TextWorld engine is not installed."""
    for package in ("alfworld", "textworld", "fast_downward"):
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError(package, "alfworld", purpose)


Source = str | Mapping[str, Json]
"""A game's file `game.tw-pddl`, or what stands in it."""


class Game(Protocol):
    """A game in progress. All but `close` raise WorkerError where what plays it has failed."""

    def first(self) -> str:
        """What the game shows before the first command."""
        ...

    def do(self, command: str) -> tuple[str, bool]:
        """The observation after a command, and whether the game is won."""
        ...

    def possible(self) -> list[str]:
        """The commands that the game would take now."""
        ...

    def close(self) -> None: ...


class CommandEpisode:
    """One attempt at one task. The game must begin with what stands in the prompt, else there is no score."""

    def __init__(self, task: Task, game: Game) -> None:
        self._first = task.messages[-1].content
        self._game = game
        self._begun = False
        self._commands: list[str] = []

    def step(self, text: str) -> Step:
        try:
            self._begin()
            self._commands.append(command(text))
            observation, won = self._game.do(self._commands[-1])
        except WorkerError as error:
            return Step(score=self.score(None, f"environment error: {error}"))
        if won:
            return Step(score=self.score(1.0, "won"))
        if len(self._commands) == STEPS:
            return Step(score=self.score(0.0, f"not won within {STEPS} commands"))
        return Step((Message("user", observation),))

    def possible(self) -> list[str]:
        """The commands that the game would take now; none if there is no game."""
        try:
            self._begin()
            return self._game.possible()
        except WorkerError:
            return []

    def _begin(self) -> None:
        if not self._begun and self._game.first() != self._first:
            raise WorkerError("the game's first observation is not the one in the prompt")
        self._begun = True

    def score(self, value: float | None, reason: str) -> Score:
        return Score(value, reason, list(self._commands), {"steps": len(self._commands)})

    def close(self) -> None:
        self._game.close()


def command(text: str) -> str:
    """The command in what an agent wrote; empty if there is none, which no game knows."""
    _, tag, rest = text.rpartition("<action>")
    lines = (rest.partition("</action>")[0] if tag else text).splitlines()
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return _PREFIX.sub("", last, count=1) if _PREFIX.match(last) else last


class Games:
    """Games played by workers that run `module`. A worker may have several games and ends after a number of them."""

    def __init__(self, module: str = WORKER) -> None:
        self._module = module
        self._hosts: list[_Host] = []

    def open(self, source: Source) -> WorkerGame:
        """Begin to load a game; it loads while others are played."""
        return WorkerGame(self, self._host(source), source)

    def _host(self, source: Source) -> _Host:
        """The worker that just translated the same game, a new one, or the one with the fewest games."""
        free = [h for h in self._hosts if h.opened < GAMES and not h.lost]
        host = next((h for h in free if h.last == source), None)
        if host is None and len(free) < WORKERS:
            host = _Host(self._module)
            self._hosts.append(host)
        return host or min(free, key=lambda h: h.opened)

    def release(self, host: _Host, number: int) -> None:
        """End a game; a worker that takes no more games ends with its last one."""
        if host not in self._hosts:
            return
        host.live -= 1
        host.send({"game": number}, STEP_TIMEOUT)
        if host.live == 0 and (host.opened >= GAMES or host.lost):
            self._hosts.remove(host)
            host.close()

    def close(self) -> None:
        while self._hosts:
            self._hosts.pop().close()


class WorkerGame:
    """One game in a worker that may have others."""

    def __init__(self, owner: Games, host: _Host, source: Source) -> None:
        self._owner: Games | None = owner
        self._host = host
        self._number, self._opening = host.open(source)
        self._possible: list[str] | None = None

    def first(self) -> str:
        state = _answer(self._opening)
        if self._possible is None:
            self._possible = state["possible"]
        return str(state["observation"])

    def do(self, command: str) -> tuple[str, bool]:
        state = _answer(self._host.send({"game": self._number, "command": command}, STEP_TIMEOUT))
        self._possible = state["possible"]
        return state["observation"], state["won"]

    def possible(self) -> list[str]:
        return list(self._possible or ())

    def close(self) -> None:
        self._opening.cancel()
        if self._owner is not None:
            self._owner.release(self._host, self._number)
            self._owner = None


class _Host:
    """A worker and the thread that waits for it, so that games load while others are played."""

    def __init__(self, module: str) -> None:
        self._worker = Worker(module)
        self._thread = ThreadPoolExecutor(1)
        self.opened = 0
        self.live = 0
        self.last: Source = ""
        """The game that was opened last."""
        self.lost = ""
        """Why there is no worker any more."""

    def open(self, source: Source) -> tuple[int, Future[Json]]:
        """The number of a new game and the promise of its first answer."""
        self.opened += 1
        self.live += 1
        self.last = source
        return self.opened, self.send({"game": self.opened, "open": source}, OPEN_TIMEOUT)

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


def _answer(promise: Future[Json]) -> Json:
    """What the worker answers. Raises WorkerError, for what went wrong in the game as well."""
    answer = promise.result()
    if "failed" in answer:
        raise WorkerError(answer["failed"])
    return answer
