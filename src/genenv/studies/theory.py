"""Proposition 1 of the paper (arXiv 2512.19682), measured: how the learning signal of a task depends on its success.

For a task that the policy solves with chance p, an attempt with reward r in {0, 1} and score s = grad log pi (of all the
tokens that the agent wrote, a sum), the policy gradient of one attempt with baseline p is g = (r - p) s. Two quantities:

- the signal of one rollout, E|g|^2. This is what the proposition bounds: if m <= E[|s|^2 | r] <= M for both rewards, then
  m p (1 - p) <= E|g|^2 <= M p (1 - p).
- the squared norm of the expected gradient, |E g|^2. By Cauchy-Schwarz it is at most E|s|^2 p (1 - p), but nothing bounds
  it from below: E g = p (1 - p) (E[s | r = 1] - E[s | r = 0]), so that it falls with (p (1 - p))^2 towards both ends where
  that difference stays the same.

Both are estimated without bias from n attempts. A task's bin comes from n other attempts: sorted by the very rewards that
are in g, the shape p (1 - p) would appear whatever the gradients are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from genenv.contracts.domain import Playable
from genenv.contracts.engine import Differentiable, Loss, Policy
from genenv.contracts.errors import InputError
from genenv.contracts.types import SOLVED, Datum, Json, Task, Trajectory, derive_seed
from genenv.loop.rollouts import PlayConfig, play

Floats = NDArray[np.float64]

MIN_SCORED = 4
"""Scored attempts that a task needs: two in each half."""
SPLITS = 64
"""Random halvings over which the estimate of |E g|^2 is averaged."""
BINS = 10
"""Bins of equal width over the success of a task."""
RESAMPLES = 1000
"""Of the bootstrap."""

SHAPES: Mapping[str, Callable[[Floats], Floats]] = {
    "p(1-p)": lambda p: p * (1.0 - p),
    "(p(1-p))^2": lambda p: (p * (1.0 - p)) ** 2,
    "min(p,1-p)": lambda p: np.minimum(p, 1.0 - p),
    "p": lambda p: p,
    "1-p": lambda p: 1.0 - p,
    "constant": lambda p: np.ones_like(p),
}
"""What a signal could look like as a function of success."""
QUANTITIES = ("rollout", "expected")


# -- one task ----------------------------------------------------------------------------------------------------


def spread(rewards: Floats) -> float:
    """Unbiased estimate of p (1 - p) from (N,) rewards in {0, 1}: k (n - k) / (n (n - 1))."""
    n, k = len(rewards), float(rewards.sum())
    return k * (n - k) / (n * (n - 1))


def rollout_signal(rewards: Floats, norms: Floats) -> float:
    """Unbiased estimate of E[(r - p)^2 |s|^2] from (N,) rewards in {0, 1} and (N,) squared score norms.

    (r - p)^2 = r - 2 r p + p^2; each attempt's p and p^2 are estimated from the n - 1 others, p^2 as the share of their
    ordered pairs that are both successes.
    """
    n = len(rewards)
    others = rewards.sum() - rewards
    p = others / (n - 1)
    p_squared = others * (others - 1.0) / ((n - 1) * (n - 2))
    return float(np.mean(norms * (rewards - 2.0 * rewards * p + p_squared)))


def expected_signal(rewards: Floats, gram: Floats, rng: np.random.Generator) -> float:
    """Unbiased estimate of |E g|^2 from (N,) rewards and the (N, N) inner products of the scores.

    The inner product of the gradients of two independent halves, each with the mean of the half's other attempts as its
    baseline; the mean over SPLITS random halvings. It can be negative.
    """
    n = len(rewards)
    found = []
    for _ in range(SPLITS):
        a, b = np.split(rng.permutation(n), [n // 2])
        # a mean with leave-one-out baselines: (r - mean) / (n - 1)
        left, right = ((rewards[i] - rewards[i].mean()) / (len(i) - 1) for i in (a, b))
        found.append(left @ gram[np.ix_(a, b)] @ right)
    return float(np.mean(found))


@dataclass(frozen=True)
class Signal:
    """What one task gives the policy to learn. `chance` is its success in the attempts that choose its bin."""

    task_id: str
    family: str
    chance: float
    success: float
    spread: float
    rollout: float
    expected: float


def measure(
    agent: Policy,
    domain: Playable,
    tasks: Sequence[Task],
    config: PlayConfig,
    seed: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Signal]:
    """The signals of tasks, from `config.group_size` attempts each, and as many before to choose their bins.

    Tasks with fewer than MIN_SCORED scored attempts are left out. Raises InputError for engines that keep their gradients.
    """
    if not isinstance(agent, Differentiable):
        raise InputError("gradients are measured in this process: expected a run or a model of the local engine")
    chances = play(agent, agent.chat, domain, tasks, config, derive_seed(seed, "bins"))
    attempts = play(agent, agent.chat, domain, tasks, config, derive_seed(seed, "signal"))
    signals = []
    for done, (task, before, group) in enumerate(zip(tasks, chances, attempts, strict=True)):
        progress(done, len(tasks))
        scored = [t for t in group if t.score.value is not None]
        first, rewards = _rewards(before), _rewards(scored)
        if min(len(first), len(rewards)) < MIN_SCORED:
            continue
        rollout = expected = 0.0
        if 0.0 < rewards.sum() < len(rewards):  # else both estimates are 0, whatever the gradients
            scores_NP = np.stack([agent.gradient([_score(t)], Loss("cross_entropy")) for t in scored])
            gram = (scores_NP @ scores_NP.T).astype(np.float64)
            rollout = rollout_signal(rewards, gram.diagonal())
            halves = np.random.default_rng(derive_seed(seed, "halves", task.id))
            expected = expected_signal(rewards, gram, halves)
        means = float(first.mean()), float(rewards.mean())
        signals.append(Signal(task.id, task.family, *means, spread(rewards), rollout, expected))
    return signals


def _rewards(attempts: Sequence[Trajectory]) -> Floats:
    return np.array([float(t.score.value >= SOLVED) for t in attempts if t.score.value is not None])


def _score(trajectory: Trajectory) -> Datum:
    """The datum whose cross-entropy has the gradient of log pi itself: that loss has a minus sign."""
    return Datum(trajectory.tokens, tuple(-float(m) for m in trajectory.mask), trajectory.prompt_length)


# -- many tasks --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mean:
    """A mean or a ratio of means with its 95 % bootstrap interval."""

    value: float
    low: float
    high: float


def bootstrap(parts: Floats, wholes: Floats, rng: np.random.Generator) -> Mean | None:
    """sum(parts) / sum(wholes) of (N,) units, which are drawn again with replacement; None where the whole is 0.

    With wholes of 1 it is a plain mean. Resamples without a whole are left out.
    """
    if not wholes.sum():
        return None
    drawn = [rng.integers(len(parts), size=len(parts)) for _ in range(RESAMPLES)]
    sums = [(float(parts[i].sum()), float(wholes[i].sum())) for i in drawn]
    low, high = np.quantile([part / whole for part, whole in sums if whole], [0.025, 0.975])
    return Mean(float(parts.sum() / wholes.sum()), float(low), float(high))


def mean(values: Sequence[float], rng: np.random.Generator) -> Mean | None:
    """The mean of some units; None if there are none."""
    return bootstrap(np.array(values), np.ones(len(values)), rng)


def binned(signals: Sequence[Signal]) -> list[list[Signal]]:
    """The signals by the bin of their `chance`: [0, 0.1), ..., [0.9, 1]. A bin may be empty."""
    bins: list[list[Signal]] = [[] for _ in range(BINS)]
    for signal in signals:
        bins[min(int(round(signal.chance * BINS, 9)), BINS - 1)].append(signal)
    return bins


@dataclass(frozen=True)
class Fit:
    """Least squares of a signal against c times a shape, over bins weighted by their tasks.

    `r2` is the share of the variance between bins that it explains: 0 for a constant, negative for what is worse than one.
    """

    c: float
    r2: float | None


def fit(shape: str, p: Floats, values: Floats, weights: Floats) -> Fit:
    """Of (B,) bins: mean success, mean signal, number of tasks."""
    f = SHAPES[shape](p)
    below = float((weights * f * f).sum())
    c = float((weights * f * values).sum()) / below if below else 0.0
    total = float((weights * (values - np.average(values, weights=weights)) ** 2).sum())
    return Fit(c, 1.0 - float((weights * (values - c * f) ** 2).sum()) / total if total else None)


def fits(bins: Sequence[Sequence[Signal]], quantity: str, rng: np.random.Generator) -> list[dict[str, Json]]:
    """Every shape fitted to a quantity, with a bootstrap interval of c: tasks are drawn again within their bins."""
    success = [np.array([s.success for s in b]) for b in bins]
    values = [np.array([getattr(s, quantity) for s in b]) for b in bins]
    weights = np.array([float(len(b)) for b in bins])
    rows = [[np.arange(len(b)) for b in bins]]
    rows += [[rng.integers(len(b), size=len(b)) for b in bins] for _ in range(RESAMPLES)]
    means = [
        [np.array([v[i].mean() for v, i in zip(of, row, strict=True)]) for of in (success, values)] for row in rows
    ]
    found: list[dict[str, Json]] = []
    for shape in SHAPES:
        tried = [fit(shape, p, y, weights) for p, y in means]
        low, high = np.quantile([t.c for t in tried[1:]], [0.025, 0.975])
        found.append({"shape": shape, "c": tried[0].c, "low": float(low), "high": float(high), "r2": tried[0].r2})
    return found


def proposition(signals: Sequence[Signal], seed: int) -> dict[str, Json]:
    """Signals by bin of success, and what fits them. Intervals are 95 % bootstrap intervals over tasks.

    `constant` is the bin's signal of one rollout over its p (1 - p): the proposition says that it stays within bounds.
    """
    rng = np.random.default_rng(derive_seed(seed, "bootstrap"))
    bins = binned(signals)
    rows: list[dict[str, Json]] = []
    for i, members in enumerate(bins):
        if not members:
            continue
        spreads, rollouts = (np.array([getattr(s, key) for s in members]) for key in ("spread", "rollout"))
        rows.append(
            {
                "from": i / BINS,
                "to": (i + 1) / BINS,
                "tasks": len(members),
                "success": float(np.mean([s.success for s in members])),
                **{key: _plain(mean([getattr(s, key) for s in members], rng)) for key in QUANTITIES},
                "constant": _plain(bootstrap(rollouts, spreads, rng)),
            }
        )
    filled = [b for b in bins if b]
    return {"bins": rows, "fits": {key: fits(filled, key, rng) if filled else [] for key in QUANTITIES}}


def _plain(found: Mean | None) -> dict[str, float] | None:
    return None if found is None else {"value": found.value, "low": found.low, "high": found.high}
