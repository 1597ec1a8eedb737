"""Signs that the simulator collapses: one kind of task, or one family whatever is asked for. Pure functions."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence

ENOUGH = 8
"""Tasks in a round below which a share says nothing."""
EXCESS = 0.1
"""How far a family's share may exceed what was asked for before the simulator is the reason."""


def variety(clusters: Sequence[str]) -> float | None:
    """exp(entropy) of the clusters over the number of tasks: 1 if no two are alike, 1 / n if all are."""
    if not clusters:
        return None
    shares = [count / len(clusters) for count in Counter(clusters).values()]
    return math.exp(-sum(s * math.log(s) for s in shares)) / len(clusters)


def usual_variety(clusters: Sequence[str], count: int, rng: random.Random) -> float:
    """Mean variety of `count` draws from a set of known good tasks: what a round is held against."""
    draws = [variety(rng.sample(clusters, min(count, len(clusters)))) for _ in range(16)]
    return sum(d or 0.0 for d in draws) / len(draws)


def largest_share(families: Sequence[str]) -> tuple[str, float]:
    """The most frequent family and its share; the first by name of equals."""
    counts = Counter(families)
    family = min(counts, key=lambda f: (-counts[f], f))
    return family, counts[family] / len(families)


def alarms(
    written: Sequence[str], asked: Sequence[str], clusters: Sequence[str], usual: float, max_share: float, low: float
) -> list[str]:
    """One sentence per sign of collapse in a round.

    `written` and `asked` are the families of its tasks, `clusters` their clusters. A family's share may be as large as
    asked for; above `max_share` more than that is an alarm, as is a variety below `low` times the usual one.
    """
    if len(written) < ENOUGH:
        return []
    found = []
    family, share = largest_share(written)
    if share > max_share and share > asked.count(family) / len(asked) + EXCESS:
        found.append(f"{100 * share:.0f} % of the simulator's tasks are of the family {family}, whatever is asked for")
    now = variety(clusters) or 0.0
    if now < low * usual:
        found.append(f"the simulator repeats itself: variety {now:.2f}, that of the seeds is {usual:.2f}")
    return found
