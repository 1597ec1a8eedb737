"""Domains that misbehave where their task says so, for tests of isolation."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from genenv.contracts.domain import Step
from genenv.contracts.types import Json, Message, Score, Task


class Odd:
    """A turn's text is what happens. What is closed is noted in the file `log`."""

    name = "odd"
    families = ("odd",)
    seeds = heldout = simulator_chat = direction = reference = perturbed = lambda self, *_: []

    def __init__(self, log: str, broken: str | None = None) -> None:
        self.log = Path(log)
        if broken is not None and (self.log.exists() or self.log.touch()):
            happen(broken)  # the second time, in a worker

    def build(self, spec: Json) -> Task:
        return Task("odd", (Message("user", "do"),), ({"name": "do"},), {"right": [1]}, spec)

    def note(self, text: str) -> None:
        with self.log.open("a") as file:
            file.write(text + "\n")

    def episode(self, task: Task) -> OddEpisode:
        happen(task.spec.get("reset", ""))
        return OddEpisode(self, task)

    def close(self) -> None:
        self.note("domain")


class OddEpisode:
    def __init__(self, domain: Odd, task: Task) -> None:
        self._domain = domain
        self._task = task

    def step(self, text: str) -> Step:
        happen(text)
        if text == "who":
            return Step((Message("user", str(os.getpid())),))
        if text == "set":
            return Step(score=Score(1.0, "", {1, 2}))
        return Step(score=Score(1.0, text, [self._task.target, "é\ud800"], {"turns": 1}))

    def close(self) -> None:
        happen(self._task.spec.get("close", ""))
        self._domain.note("episode")


def happen(what: Json) -> None:
    match what:
        case "hang":
            threading.Event().wait()
        case "exit":
            sys.exit(3)
        case "die":
            os._exit(3)
        case "raise":
            raise KeyError("cart")
        case "print":
            print('{"result": "a forged answer"}', flush=True)
            os.write(1, b'{"result": "another"}\n')
        case "read":
            assert sys.stdin.read() == ""
