"""What a run remembers: family success, D_train and D_env. Explicit state that is saved and loaded as JSON.

- D_train holds every admitted task that was tried, solved or not: the agent replays from it with fresh attempts.
- D_env holds admitted tasks weighted by R_env: the simulator is trained on them again and shown them as examples.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from genenv.rewards import alpha_curriculum_reward
from genenv.types import Direction, Json


class Pool:
    """Task ids with weights; draws in proportion to weight, without replacement.

    Adding is amortised O(1), a draw O(size) in one vectorised pass. `capacity` drops the oldest half when reached.
    """

    def __init__(self, capacity: int = 1_000_000) -> None:
        self._capacity = capacity
        self._ids: list[str] = []
        self._rows: dict[str, int] = {}
        self._weights = np.zeros(64)

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, task_id: str) -> bool:
        return task_id in self._rows

    def put(self, task_id: str, weight: float) -> None:
        """Add a task, or give a known one a new weight: no task counts twice."""
        row = self._rows.get(task_id)
        if row is None:
            if len(self._ids) >= self._capacity:
                self._restore(self._ids[len(self._ids) // 2 :], self._weights[len(self._ids) // 2 : len(self._ids)])
            row = self._rows[task_id] = len(self._ids)
            self._ids.append(task_id)
            if row >= len(self._weights):
                self._weights = np.concatenate([self._weights, np.zeros_like(self._weights)])
        self._weights[row] = weight

    def draw(self, count: int, rng: random.Random) -> list[str]:
        """Up to `count` different ids."""
        weights = self._weights[: len(self._ids)]
        count = min(count, int(np.count_nonzero(weights)))
        if count <= 0:
            return []
        cumulative = np.cumsum(weights)
        chosen: dict[int, None] = {}
        while len(chosen) < count:
            row = int(np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right"))
            if row in chosen and len(chosen) > len(weights) // 2:
                # rejection is slow when little is left: take the rest out of the distribution
                left = weights.copy()
                left[list(chosen)] = 0.0
                cumulative = np.cumsum(left)
                continue
            chosen[min(row, len(weights) - 1)] = None
        return [self._ids[row] for row in chosen]

    def _restore(self, ids: Sequence[str], weights: Sequence[float] | np.ndarray) -> None:
        self._ids = list(ids)
        self._rows = {task_id: row for row, task_id in enumerate(self._ids)}
        self._weights = np.concatenate([np.asarray(weights, dtype=float), np.zeros(max(64, len(ids)))])

    def state(self) -> Json:
        return {"ids": self._ids, "weights": self._weights[: len(self._ids)].tolist()}

    def load(self, state: Json) -> None:
        self._restore(state["ids"], state["weights"])


@dataclass(frozen=True)
class Posterior:
    """Beta posterior of a success rate under a uniform prior, with discounted counts."""

    successes: float = 0.0
    failures: float = 0.0

    @property
    def mean(self) -> float:
        return (self.successes + 1.0) / (self.successes + self.failures + 2.0)

    @property
    def known(self) -> bool:
        return self.successes + self.failures > 0

    def updated(self, successes: float, failures: float, memory: float) -> Posterior:
        return Posterior(self.successes * memory + successes, self.failures * memory + failures)


@dataclass
class Pools:
    """The whole memory of a run."""

    train: Pool = field(default_factory=Pool)
    env: Pool = field(default_factory=Pool)
    families: dict[str, Posterior] = field(default_factory=dict)

    def observe(self, counts: Mapping[str, tuple[int, int]], memory: float) -> None:
        """Fold one round's (successes, failures) per family into the posteriors."""
        for family in sorted({*self.families, *counts}):
            successes, failures = counts.get(family, (0, 0))
            old = self.families.get(family, Posterior())
            # a family that was not tried keeps its counts: not looking is no evidence
            if successes + failures:
                self.families[family] = old.updated(successes, failures, memory)

    def success(self, family: str) -> float | None:
        """The agent's recent success on a family, None before the first attempt."""
        posterior = self.families.get(family)
        return posterior.mean if posterior is not None and posterior.known else None

    def family_weights(self, families: Sequence[str], alpha: float, beta: float, floor: float) -> list[float]:
        """R_env of each family's posterior mean, plus a floor that keeps every family measured."""
        means = [self.families.get(f, Posterior()).mean for f in families]
        return [alpha_curriculum_reward(m, alpha, beta) + floor for m in means]

    def state(self) -> Json:
        return {
            "train": self.train.state(),
            "env": self.env.state(),
            "families": {f: [p.successes, p.failures] for f, p in self.families.items()},
        }

    @staticmethod
    def from_state(state: Json) -> Pools:
        pools = Pools(families={f: Posterior(*counts) for f, counts in state["families"].items()})
        pools.train.load(state["train"])
        pools.env.load(state["env"])
        return pools


def direction(success: float | None, alpha: float) -> Direction:
    """Which way a new task of a family should go."""
    if success is None or abs(success - alpha) <= 0.1:
        return "similar"
    return "easier" if success < alpha else "harder"
