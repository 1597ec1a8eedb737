"""Statistics of a comparison, as pure functions. Suffixes name axes: `_S` seeds, `_T` tasks, `_R` rounds, `_B` resamples.

Runs differ by their seed and all are measured on the same held-out tasks, so a mean score is uncertain in two ways: with
other seeds and with other tasks it would have come out differently. Both are resampled, independently of each other
(the crossed, or pigeonhole, bootstrap: Owen 2007, Annals of Applied Statistics 1(2)), with a fixed seed of its own.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
RESAMPLES = 10_000
LEVEL = 0.95


def _weights(count: int, rng: np.random.Generator) -> Floats:
    """[B, count]: how often each of `count` things comes in a resample of as many, as a share."""
    return rng.multinomial(count, np.full(count, 1.0 / count), size=RESAMPLES) / count


@functools.lru_cache(4)
def _crossed_weights(seeds: int, tasks: int) -> tuple[Floats, Floats]:
    """[B, S] and [B, T], the same for all intervals of a suite."""
    rng = np.random.default_rng(0)
    return _weights(seeds, rng), _weights(tasks, rng)


def percentiles(values_B: Floats) -> tuple[float, float]:
    """The percentile interval of resampled values."""
    low, high = np.quantile(values_B, [(1.0 - LEVEL) / 2.0, (1.0 + LEVEL) / 2.0])
    return float(low), float(high)


def resampled(values_SR: Floats) -> Floats:
    """[B, ...]: means over seeds, the first axis, in each resample of the seeds."""
    return np.tensordot(_weights(len(values_SR), np.random.default_rng(0)), values_SR, axes=1)


def crossed_interval(values_ST: Floats) -> tuple[float, float]:
    """Interval of the mean over seeds and tasks, both resampled. For differences of two arms: of the paired differences."""
    seeds_BS, tasks_BT = _crossed_weights(*values_ST.shape)
    return percentiles(np.einsum("bs,st,bt->b", seeds_BS, values_ST, tasks_BT, optimize=True))


def band(values_SR: Floats) -> tuple[list[float | None], list[float | None], list[float | None]]:
    """(mean, low, high) over seeds in each round, seeds resampled. NaN is unknown; a round without any value is None."""
    known_SR = ~np.isnan(values_SR)
    seeds_BS = _weights(len(values_SR), np.random.default_rng(0))
    with np.errstate(invalid="ignore", divide="ignore"):
        mean_R = np.nansum(values_SR, axis=0) / known_SR.sum(axis=0)
        means_BR = (seeds_BS @ np.nan_to_num(values_SR)) / (seeds_BS @ known_SR)
    bounds = [
        percentiles(m[~np.isnan(m)]) if known.any() else None for m, known in zip(means_BR.T, known_SR.T, strict=True)
    ]
    mean = [None if np.isnan(m) else float(m) for m in mean_R]
    return mean, [b and b[0] for b in bounds], [b and b[1] for b in bounds]


def sign_flip(differences_S: Sequence[float]) -> float:
    """Exact two-sided permutation test that paired differences have mean 0: the share of all 2^n choices of signs whose
    absolute mean is at least the observed one. With n seeds it is never below 2 / 2^n: 0.0625 for five."""
    values = np.asarray(differences_S, dtype=float)
    signs = np.array(list(itertools.product((1.0, -1.0), repeat=len(values))))
    means = np.abs(signs @ values)
    return float(np.mean(means >= np.abs(values.sum()) - 1e-12))


def rollouts_to(score: float, rollouts: Sequence[float], scores: Sequence[float]) -> float | None:
    """Rollouts at which a curve first has a score, between two evaluations by straight line; None if it never does."""
    for i, (count, value) in enumerate(zip(rollouts, scores, strict=True)):
        if value >= score:
            if i == 0:
                return float(count)
            before, below = rollouts[i - 1], scores[i - 1]
            return float(before + (count - before) * (score - below) / (value - below))
    return None
