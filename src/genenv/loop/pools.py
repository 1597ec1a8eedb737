"""What a run remembers: family success, D_train and D_env. Explicit state that is saved and loaded as JSON.

- D_train holds every admitted task that was tried, solved or not: the agent replays from it with fresh attempts.
- D_env holds admitted tasks weighted by R_env: the simulator is trained on them again and shown them as examples.
- A task drawn from D_train is measured again. Families whose success does not rise between the first attempt and one at
  least MIN_LAG rounds later teach nothing, however near alpha they are: `stuck`.
- The clusters of the last rounds' tasks: near-identical ones share one reward.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field

import numpy as np

from genenv.contracts.types import Direction, Json, RewardSignal
from genenv.loop.rewards import task_reward


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


MIN_LAG = 5
"""Rounds of training between two measurements that are compared."""
MIN_MEASURED = 8.0
"""Tasks measured again, discounted, before a family is judged."""
MIN_GAIN = 0.05
"""A family becomes stuck where its mean gain is surely below this, and leaves where it is surely above (by one standard
error each): between the two it stays what it was, so that chance does not toss it to and fro."""
MASTERED = 0.9
"""Families that started above have no room to rise and are not called stuck."""
GAIN_MEMORY = 0.95
"""Share of the sums that survives a round in which a family was measured again."""


@dataclass(frozen=True)
class Gain:
    """How success on a family's tasks changed from the first attempt to a later one: discounted sums."""

    count: float = 0.0
    first: float = 0.0
    change: float = 0.0
    squares: float = 0.0
    stuck: bool = False

    def updated(self, pairs: Sequence[tuple[float, float]]) -> Gain:
        """With one round's (first, later) success of tasks measured again."""
        changes = [later - first for first, later in pairs]
        count = self.count * GAIN_MEMORY + len(pairs)
        first = self.first * GAIN_MEMORY + sum(first for first, _ in pairs)
        change = self.change * GAIN_MEMORY + sum(changes)
        squares = self.squares * GAIN_MEMORY + sum(c * c for c in changes)
        mean = change / count if count else 0.0
        error = math.sqrt(max(0.0, squares / count - mean * mean) / count) if count else 0.0
        if count < MIN_MEASURED or first / count > MASTERED:
            stuck = False
        elif self.stuck:
            stuck = mean - error <= MIN_GAIN
        else:
            stuck = mean + error < MIN_GAIN
        return Gain(count, first, change, squares, stuck)


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
    gains: dict[str, Gain] = field(default_factory=dict)
    recent: list[dict[str, int]] = field(default_factory=list)

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

    def measured_again(self, pairs: Mapping[str, Sequence[tuple[float, float]]]) -> None:
        """Fold one round's (first, later) success of old tasks per family into the gains."""
        for family, found in sorted(pairs.items()):
            self.gains[family] = self.gains.get(family, Gain()).updated(found)

    def stuck(self) -> list[str]:
        """The families whose success does not rise with training."""
        return sorted(f for f, gain in self.gains.items() if gain.stuck)

    def family_weights(
        self,
        families: Sequence[str],
        alpha: float,
        beta: float,
        floor: float,
        discount: float = 1.0,
        signal: RewardSignal = "alpha",
    ) -> list[float]:
        """R_env of each family's posterior mean plus a floor; a stuck one earns `discount` times what the best other does.

        The floor keeps every family measured, so that one can leave the stuck ones again. What a stuck family earns
        at most depends on the others since a sharp R_env would else prefer it to every family that is mastered.
        """
        rewards = {f: task_reward(signal, self.families.get(f, Posterior()).mean, alpha, beta) for f in families}
        stuck = set(self.stuck()) & rewards.keys() if discount < 1.0 else set()
        best = max((r for f, r in rewards.items() if f not in stuck), default=1.0)
        return [(discount * min(r, best) if f in stuck else r) + floor for f, r in rewards.items()]

    def cluster_sizes(self, clusters: Sequence[str], rounds: int) -> list[int]:
        """How many near-identical tasks each of this round's has in the last `rounds` rounds, itself included."""
        if rounds == 0:
            return [1] * len(clusters)
        counts = Counter(clusters)
        for old in self.recent[-(rounds - 1) :] if rounds > 1 else []:
            for cluster in counts:
                counts[cluster] += old.get(cluster, 0)
        return [counts[c] for c in clusters]

    def remember_clusters(self, clusters: Sequence[str], rounds: int) -> None:
        """Keep what `cluster_sizes` needs of this round."""
        if rounds > 1:
            self.recent = [*self.recent, dict(Counter(clusters))][-(rounds - 1) :]

    def state(self) -> Json:
        return {
            "train": self.train.state(),
            "env": self.env.state(),
            "families": {f: [p.successes, p.failures] for f, p in self.families.items()},
            "gains": {f: list(astuple(g)) for f, g in self.gains.items()},
            "recent": self.recent,
        }

    @staticmethod
    def from_state(state: Json) -> Pools:
        pools = Pools(
            families={f: Posterior(*counts) for f, counts in state["families"].items()},
            gains={f: Gain(*sums) for f, sums in state["gains"].items()},
            recent=state["recent"],
        )
        pools.train.load(state["train"])
        pools.env.load(state["env"])
        return pools


def direction(success: float | None, alpha: float) -> Direction:
    """Which way a new task of a family should go."""
    if success is None or abs(success - alpha) <= 0.1:
        return "similar"
    return "easier" if success < alpha else "harder"
