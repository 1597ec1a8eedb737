"""A game of several turns, and a task in it."""

from __future__ import annotations

from genenv.contracts.domain import Step
from genenv.contracts.types import Message, Score, Task

TASK = Task("x", (Message("user", "hi"),), (), None, {})


class Game:
    """Ends with 1.0 at `stop`, answers `go on` to everything else, fails at `crash`."""

    name = "game"

    def __init__(self) -> None:
        self.closed = 0

    def episode(self, task: Task) -> Game:
        return self

    def step(self, text: str) -> Step:
        if text == "crash":
            raise RuntimeError("lost")
        if text == "stop":
            return Step(score=Score(1.0, "right"))
        return Step((Message("tool", "ok"),))

    def close(self) -> None:
        self.closed += 1
