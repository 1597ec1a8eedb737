"""Theorem 1 of the paper (arXiv 2512.19682), computed: how often the reward puts two task families in the wrong order.

The near family is solved with a chance at distance D1 from alpha, the far one at D2 > D1. R_env falls with the estimated
squared distance, so that the order is wrong where the near family's estimate is the larger one. Every figure is an exact
sum over two binomials: nothing is simulated.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from genenv.contracts.types import Json

ESTIMATORS = ("plain", "corrected", "posterior")
DISTANCES = ((0.0, 0.1), (0.0, 0.2), (0.0, 0.4), (0.1, 0.2), (0.1, 0.4), (0.2, 0.4), (0.3, 0.4))
"""(D1, D2) that are compared by default."""
ROLLOUTS = 64
"""Rollouts of each family, at most."""
UNEQUAL = ((16, 16), (4, 28), (28, 4))
"""Rollouts of the (near, far) family: the same sum, shared otherwise."""
SURE = 0.05
"""The error that is asked for when rollouts are counted."""


def distance(estimator: str, successes: int, rollouts: int, alpha: Fraction) -> Fraction | None:
    """The estimated squared distance of a success rate from alpha, as an exact fraction; None where it is not defined.

    - plain       (p_hat - alpha)^2
    - corrected   (p_hat - alpha)^2 - p_hat (1 - p_hat) / (n - 1), which has no bias; n >= 2
    - posterior   (m - alpha)^2 with the posterior mean m = (k + 1) / (n + 2) under a uniform prior
    """
    if estimator == "posterior":
        return (Fraction(successes + 1, rollouts + 2) - alpha) ** 2
    p = Fraction(successes, rollouts)
    if estimator == "plain":
        return (p - alpha) ** 2
    return (p - alpha) ** 2 - p * (1 - p) / (rollouts - 1) if rollouts > 1 else None


def binomial(p: float, n: int) -> NDArray[np.float64]:
    """(n + 1,) chances of 0 to n successes."""
    return np.array([math.comb(n, k) * p**k * (1.0 - p) ** (n - k) for k in range(n + 1)])


@dataclass(frozen=True)
class Order:
    """Chances that the near family's estimate is the larger one (`wrong`), and that both are equal (`tied`)."""

    wrong: float
    tied: float

    @property
    def rate(self) -> float:
        """The mis-ranking rate: of the ties, a coin decides."""
        return self.wrong + self.tied / 2.0


@functools.lru_cache(1024)
def _places(estimator: str, rollouts: tuple[int, int], alpha: Fraction) -> tuple[NDArray[np.int_], ...] | None:
    """Where each family's possible estimates stand in the order of all of them; equal ones stand at the same place."""
    values = [[distance(estimator, k, n, alpha) for k in range(n + 1)] for n in rollouts]
    known = [[v for v in family if v is not None] for family in values]
    if not all(known):
        return None
    place = {value: i for i, value in enumerate(sorted({*known[0], *known[1]}))}
    return tuple(np.array([place[v] for v in family]) for family in known)


def order(estimator: str, near: float, far: float, alpha: Fraction, rollouts: tuple[int, int]) -> Order | None:
    """Of families that are solved with chances `near` and `far`, from so many rollouts each; None if not defined."""
    places = _places(estimator, rollouts, alpha)
    if places is None:
        return None
    chance_KK = np.outer(binomial(near, rollouts[0]), binomial(far, rollouts[1]))
    ahead_KK = places[0][:, None] - places[1][None, :]
    return Order(float(chance_KK[ahead_KK > 0].sum()), float(chance_KK[ahead_KK == 0].sum()))


def bound(near: float, far: float, rollouts: int) -> float:
    """Theorem 1: 4 exp(-(2/9) (D2 - D1)^2 n), from the two distances. It says nothing where it is 1 or more."""
    return 4.0 * math.exp(-2.0 / 9.0 * (far - near) ** 2 * rollouts)


def rollouts_by_bound(near: float, far: float, error: float) -> int:
    """The rollouts of each family from which on the bound is at most `error`."""
    return math.ceil(round(4.5 * math.log(4.0 / error) / (far - near) ** 2, 9))


def rollouts_needed(rates: Sequence[float | None], error: float = SURE) -> int | None:
    """The rollouts from which on the rate stays at most `error`; `rates` start at one rollout. None: not within them."""
    above = [n for n, rate in enumerate(rates, 1) if rate is None or rate > error]
    first = above[-1] + 1 if above else 1
    return first if first <= len(rates) else None


def chances(near: float, far: float, alpha: float) -> list[tuple[float, float]]:
    """The success rates of two families at distances `near` and `far`: on the same side of alpha, then on both sides.

    Mirror images of another pair, and rates that are none, are left out.
    """
    found: list[tuple[float, float]] = []
    for a, b in ((-near, -far), (-near, far), (near, far), (near, -far)):
        pair = round(alpha + a, 12), round(alpha + b, 12)
        mirror = (round(1.0 - pair[0], 12), round(1.0 - pair[1], 12))
        seen = pair in found or (alpha == 0.5 and mirror in found)
        if all(0.0 <= p <= 1.0 for p in pair) and not seen:
            found.append(pair)
    return found


def compare(alpha: float, distances: Sequence[tuple[float, float]] = DISTANCES) -> list[dict[str, Json]]:
    """One record for each pair of families: rates for 1 to ROLLOUTS rollouts by estimator, the bound, what is needed.

    `bound_holds` counts ties as wrong, which is the stricter reading of the theorem.
    """
    exact = Fraction(str(alpha))
    records: list[dict[str, Json]] = []
    for d1, d2 in distances:
        for near, far in chances(d1, d2, alpha):
            counts = range(1, ROLLOUTS + 1)
            orders = {e: [order(e, near, far, exact, (n, n)) for n in counts] for e in ESTIMATORS}
            rates = {e: [o.rate if o else None for o in found] for e, found in orders.items()}
            limits = [bound(d1, d2, n) for n in counts]
            unequal = [
                {
                    "near_rollouts": n,
                    "far_rollouts": m,
                    **{e: o.rate if (o := order(e, near, far, exact, (n, m))) else None for e in ESTIMATORS},
                }
                for n, m in UNEQUAL
            ]
            records.append(
                {
                    "distances": [d1, d2],
                    "success": [near, far],
                    "rates": rates,
                    "bound": limits,
                    "bound_holds": all(
                        o is None or o.wrong + o.tied <= limit
                        for found in orders.values()
                        for o, limit in zip(found, limits, strict=True)
                    ),
                    "needed": {e: rollouts_needed(r) for e, r in rates.items()},
                    "needed_by_bound": rollouts_by_bound(d1, d2, SURE),
                    "unequal": unequal,
                }
            )
    return records
