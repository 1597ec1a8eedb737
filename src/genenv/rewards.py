"""Equations 1 to 3 of the paper (arXiv 2512.19682), as pure functions. Eq. 1 itself is a domain's score."""

from __future__ import annotations

import math
from collections.abc import Sequence

SOLVED = 1.0
"""An attempt is a success when it earns full reward."""


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
