"""A small benchmark of our own."""

from __future__ import annotations

from collections.abc import Sequence

from genenv.benchmarks.base import Result, mean_by
from genenv.contracts.domain import Step
from genenv.contracts.types import Json, Message, Score, Task


class Doubles:
    """Sample n asks for 2n; the first turn may be `wait`. Sample 13 cannot be played."""

    name = "doubles"
    protocol = "equal numbers"
    max_turns = 2
    max_tokens = 8

    def __init__(self, count: int = 40) -> None:
        self.count = count
        self.closed = 0

    def tasks(self) -> list[Task]:
        return [
            Task("odd" if i % 2 else "even", (Message("user", f"n={i};"),), (), 2 * i, {"id": f"n{i}"})
            for i in range(self.count)
        ]

    def episode(self, task: Task) -> _Episode:
        return _Episode(task)

    def replay(self, task: Task, output: Json) -> Score:
        if not isinstance(output, dict):
            return Score(0.0, "malformed: no object", output)
        right = output.get("value") == task.target
        return Score(float(right), "right" if right else "wrong", output, {"close": True})

    def summarize(self, results: Sequence[Result]) -> dict[str, Json]:
        return {"score": sum(r.value for r in results) / len(results), **mean_by(results)}

    def close(self) -> None:
        self.closed += 1


class _Episode:
    def __init__(self, task: Task) -> None:
        self.task = task

    def step(self, text: str) -> Step:
        if self.task.target == 26:
            raise OSError("lost")
        if text == "wait":
            return Step((Message("tool", "go on"),))
        if not text.isdigit():
            return Step(score=Score(0.0, "malformed: no number"))
        right = int(text) == self.task.target
        return Step(score=Score(float(right), "right" if right else "wrong", int(text), {"close": right}))

    def close(self) -> None:
        pass
