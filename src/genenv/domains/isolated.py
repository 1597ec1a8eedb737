"""Episodes of foreign code in worker processes, so that one that hangs or crashes costs scores and not the run.

Everything but episodes is done in this process. A worker has many episodes at a time. When one of them does not answer
within the time limit, or ends the process, the worker is killed, all episodes that it has are unscored, and a new worker
takes the next ones. What an environment raises costs only its own episode.

A worker gets one line for each request: `{"episode": NUMBER, "task": {...}}` to start one, `{"episode": NUMBER,
"text": "..."}` for a turn, `{"episode": NUMBER, "close": true}`. When they end, it closes the episodes that are still
open, and the domain if that has `close`.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields

from genenv.contracts.domain import Domain, Episode, Step, release, repeats
from genenv.contracts.errors import InputError
from genenv.contracts.types import Chat, Direction, Json, Message, Score, Seed, Task
from genenv.domains.own import load
from genenv.sandbox.processes import AnswerError, Worker, WorkerError, serve

WORKERS = min(4, os.cpu_count() or 1)
START_TIMEOUT = 120.0
"""Seconds in which a worker must have imported and made the domain."""


class Isolated:
    """`domain`, which `path` and `options` make again in each worker. `timeout`: seconds for one answer of an episode.

    Raises InputError if the first worker cannot make it.
    """

    def __init__(self, domain: Domain, path: str, options: Mapping[str, Json], timeout: float) -> None:
        self._domain = domain
        self._arguments = (path, json.dumps(options))
        self._timeout = timeout
        self._hosts = [_Host(self._arguments, timeout)]
        if self._hosts[0].lost:
            release(domain)
            raise InputError(f"domain.name: {path}: {self._hosts[0].lost}")
        self.name, self.families, self.repeats = domain.name, domain.families, repeats(domain)
        self.max_turns: int | None = getattr(domain, "max_turns", None)
        self.identity: Callable[[Task], str] | None = getattr(domain, "identity", None)

    def seeds(self, count: int, seed: int) -> list[Seed]:
        return self._domain.seeds(count, seed)

    def heldout(self, count: int, seed: int) -> list[Task]:
        return self._domain.heldout(count, seed)

    def simulator_chat(
        self,
        example: Seed,
        success: float | None,
        direction: Direction,
        seed: int,
        target: Seed | None = None,
        edit: bool = False,
    ) -> tuple[Chat, Json]:
        return self._domain.simulator_chat(example, success, direction, seed, target, edit)

    def direction(self, example: Seed, other: Seed) -> Direction:
        return self._domain.direction(example, other)

    def build(self, spec: Mapping[str, Json]) -> Task:
        return self._domain.build(spec)

    def reference(self, task: Task) -> Sequence[str]:
        return self._domain.reference(task)

    def perturbed(self, task: Task) -> Sequence[Sequence[str]]:
        return self._domain.perturbed(task)

    def episode(self, task: Task) -> Episode:
        """An episode in the worker that has the fewest. What goes wrong at its start is what its first step says."""
        self._hosts = [h for h in self._hosts if not h.lost]
        host = min(self._hosts, key=lambda h: h.live, default=None)
        if host is None or (host.live and len(self._hosts) < WORKERS):
            host = _Host(self._arguments, self._timeout)
            self._hosts.append(host)
        return _Episode(host, task)

    def close(self) -> None:
        """End the workers and close the domain, here and there."""
        while self._hosts:
            self._hosts.pop().close()
        release(self._domain)


class _Host:
    """A worker and what is known of it."""

    def __init__(self, arguments: Sequence[str], timeout: float) -> None:
        self.live = 0
        self.opened = 0
        self.lost = ""
        """Why there is no worker any more."""
        self._timeout = timeout
        self._worker = Worker(__name__, *arguments)
        try:
            self._worker.ask({"hello": True}, START_TIMEOUT)
        except WorkerError as error:
            self.lost = f"it cannot be made in a worker process: {error}"
            self._worker.close()

    def ask(self, request: Json) -> Json:
        if self.lost:
            raise WorkerError(f"{self.lost} (in another attempt)")
        try:
            return self._worker.ask(request, self._timeout)
        except AnswerError:
            raise
        except WorkerError as error:
            self.lost = str(error)
            raise

    def close(self) -> None:
        self._worker.close()


class _Episode:
    """One attempt in a worker. Failures are unscored, with the reason."""

    def __init__(self, host: _Host, task: Task) -> None:
        host.live += 1
        host.opened += 1
        self._host, self._number = host, host.opened
        self._open = True
        self._failure = ""
        self._ask({"task": _record(task)})

    def _ask(self, request: Json) -> Json:
        """The worker's answer; None if there is none, and then `_failure` says why."""
        try:
            return self._host.ask({"episode": self._number, **request})
        except WorkerError as error:
            self._failure = self._failure or f"environment error: {error}"
            return None

    def step(self, text: str) -> Step:
        answer = None if self._failure else self._ask({"text": text})
        if answer is None:
            return Step(score=Score(None, self._failure))
        score = answer["score"]
        return Step(tuple(Message(**m) for m in answer["messages"]), score and Score(**score))

    def close(self) -> None:
        if self._open:
            self._open = False
            self._host.live -= 1
            self._ask({"close": True})


def _record(task: Task) -> Json:
    return {**vars(task), "messages": [vars(m) for m in task.messages]}


def _task(record: Json) -> Task:
    names = (f.name for f in fields(Task))
    whole = {n: record[n] for n in names}  # without what is derived
    return Task(**{**whole, "messages": tuple(Message(**m) for m in whole["messages"]), "tools": tuple(whole["tools"])})


# -- the worker ------------------------------------------------------------------------------------------------------


class _Served:
    """The worker's side: the domain, once it is made, and the episodes that are open."""

    def __init__(self, path: str, options: str) -> None:
        self._make = functools.partial(load, path, json.loads(options))
        self._domain: Domain | None = None
        self._episodes: dict[int, Episode] = {}

    def handle(self, request: Json) -> Json:
        if self._domain is None:
            self._domain = self._make()
            return None
        number = request["episode"]
        if "task" in request:
            self._episodes[number] = self._domain.episode(_task(request["task"]))
        elif "text" in request:
            return asdict(self._episodes[number].step(request["text"]))
        elif number in self._episodes:
            self._episodes.pop(number).close()
        return None

    def close(self) -> None:
        closings = [e.close for e in self._episodes.values()]
        if self._domain is not None:
            closings.append(functools.partial(release, self._domain))
        for closing in closings:
            with contextlib.suppress(Exception):  # the others are to be closed as well
                closing()


if __name__ == "__main__":
    served = _Served(*sys.argv[1:])
    serve(served.handle)
    served.close()
