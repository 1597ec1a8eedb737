"""Equations 1 to 3 of the paper (arXiv 2512.19682), as pure functions. Eq. 1 itself is a domain's score."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from genenv.contracts.types import SOLVED, RewardSignal


def empirical_success(rewards: Sequence[float | None]) -> float | None:
    """Eq. 2: p_hat = k / n over the scored attempts; None if none was scored."""
    scored = [r for r in rewards if r is not None]
    return sum(r >= SOLVED for r in scored) / len(scored) if scored else None


def without_ends(values: Sequence[float], share: float) -> list[int]:
    """Indices of what is left, in order, without the lowest and the highest `share` of `values`, rounded down.

    Of equal values the earlier counts as the lower. With `share` below 1/2 something is always left.
    """
    cut = int(round(share * len(values), 9))
    return sorted(sorted(range(len(values)), key=lambda i: (values[i], i))[cut : len(values) - cut])


def alpha_curriculum_reward(p_hat: float, alpha: float = 0.5, beta: float = 2.0) -> float:
    """Eq. 3: R_env = exp(-beta (p_hat - alpha)^2), in (0, 1], largest at p_hat = alpha. Never remapped."""
    return math.exp(-beta * (p_hat - alpha) ** 2)


def r_zero_reward(p_hat: float) -> float:
    """R-Zero (arXiv 2508.05004): 1 - 2 |p - 1/2| = 2 min(p, 1 - p), in [0, 1], largest at 1/2."""
    return 2.0 * min(p_hat, 1.0 - p_hat)


def absolute_zero_reward(p_hat: float) -> float:
    """Absolute Zero (arXiv 2505.03335): 1 - p where p > 0, else 0: the harder the better, if solved at all."""
    return 1.0 - p_hat if p_hat > 0.0 else 0.0


def learnability_reward(p_hat: float) -> float:
    """Learnability (sampling for learnability, arXiv 2408.15099): 4 p (1 - p), the variance of success, scaled to [0, 1]."""
    return 4.0 * p_hat * (1.0 - p_hat)


PEERS: Mapping[RewardSignal, Callable[[float], float]] = {
    "r_zero": r_zero_reward,
    "absolute_zero": absolute_zero_reward,
    "learnability": learnability_reward,
}
"""Signals of other work in the place of Eq. 3. All have a maximum of 1, so that lambda means the same to each."""


def task_reward(signal: RewardSignal, p_hat: float, alpha: float, beta: float) -> float:
    """What a task earns the simulator: Eq. 3, or a signal of `PEERS`, which know neither alpha nor beta."""
    return alpha_curriculum_reward(p_hat, alpha, beta) if signal == "alpha" else PEERS[signal](p_hat)
