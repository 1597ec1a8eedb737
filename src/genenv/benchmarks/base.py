"""What a benchmark is: the contract between an evaluation and an official test set.

A sample is a `Task` whose `spec` holds its official id under "id" and whose `family` is the category that the official
score reports apart. An agent plays it by `episode`, recorded outputs are scored by `replay`, and both earn the same
`Score`, whose `checks` hold what sub-scores are computed from. `summarize` computes the official figures from all
requested samples: an attempt without a score counts as wrong.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from genenv.contracts.domain import Playable
from genenv.contracts.errors import InputError
from genenv.contracts.types import Json, Score, StopReason, Task


@dataclass(frozen=True)
class Result:
    """One scored sample. `output` is what the agent wrote, turn by turn, or the recorded prediction.

    `stop` says how the episode ended; None for a recorded prediction.
    """

    id: str
    category: str
    score: Score
    prompt: str = ""
    output: Json = None
    stop: StopReason | None = None

    @property
    def value(self) -> float:
        """What the sample adds to the official score: nothing if it could not be scored."""
        return self.score.value or 0.0


class Benchmark(Playable, Protocol):
    """An official test set. `protocol` is the one line that stands beside every number."""

    name: str
    protocol: str
    max_turns: int
    """Turns that the agent has at most in one episode."""
    max_tokens: int
    """Tokens that the agent may write in one turn, unless told otherwise."""

    def tasks(self) -> Sequence[Task]:
        """All samples in the official order. Raises InputError for data that is missing or damaged."""
        ...

    def replay(self, task: Task, output: Json) -> Score:
        """The score of a recorded prediction, in the form that the benchmark's page gives. Never raises for its content."""
        ...

    def summarize(self, results: Sequence[Result]) -> dict[str, Json]:
        """The official figures: `score` in [0, 1] and the sub-scores by name."""
        ...

    def close(self) -> None:
        """End what the benchmark has started."""
        ...


def mean_by(results: Sequence[Result]) -> dict[str, float]:
    """Mean value by category, categories in order of appearance."""
    values: dict[str, list[float]] = {}
    for result in results:
        values.setdefault(result.category, []).append(result.value)
    return {category: sum(v) / len(v) for category, v in values.items()}


def data_folder(name: str, given: Path | None, how: str) -> Path:
    """The folder of a benchmark's official files: the one given, else $GENENV_DATA/NAME.

    Raises InputError that says `how` to get them.
    """
    root = os.environ.get("GENENV_DATA")
    folder = given or (Path(root) / name if root else None)
    if folder is None:
        raise InputError(f"{name}: no data: {how}, then pass --data DIR or set GENENV_DATA to the folder above it")
    if not folder.is_dir():
        raise InputError(f"{name}: {folder} is no folder: {how}")
    return folder
