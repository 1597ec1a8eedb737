"""Statistics against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from genenv.studies.evidence import band, crossed_interval, rollouts_to, sign_flip


@pytest.mark.parametrize(
    ("differences", "p"),
    [
        ([1.0, 2.0, 3.0], 2 / 8),  # only +++ and --- are as far out
        ([1.0, 2.0, -3.0], 1.0),  # a sum of 0: all are
        ([3.0, -1.0], 1.0),  # sums of 4, 2, -2, -4; |2| is reached by all
        ([0.1, 0.2, 0.3, 0.4, 0.5], 2 / 32),
        ([5.0, 5.0, 5.0, -1.0], 4 / 16),  # 14: by +++- and ++++, and their negatives
        ([0.0, 0.0], 1.0),
    ],
)
def test_sign_flip_by_hand(differences: list[float], p: float) -> None:
    assert sign_flip(differences) == pytest.approx(p)
    assert sign_flip([-d for d in differences]) == pytest.approx(p)


def test_sign_flip_agrees_with_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    for values in np.random.default_rng(1).normal(0.5, 1.0, (5, 7)):
        found = stats.permutation_test((values,), lambda x, axis: np.mean(x, axis=axis), permutation_type="samples",
                                       vectorized=True, n_resamples=np.inf)  # fmt: skip
        assert sign_flip(values) == pytest.approx(found.pvalue)


def test_an_interval_of_equal_scores_is_a_point() -> None:
    assert crossed_interval(np.full((3, 4), 0.25)) == (0.25, 0.25)


def test_an_interval_with_two_values_reaches_the_extremes_that_are_likely_enough() -> None:
    # one task, two seeds with 0 and 1: a resample's mean is 0, 1/2 or 1 with probability 1/4, 1/2, 1/4
    assert crossed_interval(np.array([[0.0], [1.0]])) == (0.0, 1.0)
    # one seed, 6 tasks, one of them solved: its count is binomial(6, 1/6), above 3 with probability 0.9 %
    low, high = crossed_interval(np.array([[1.0, 0, 0, 0, 0, 0]]))
    assert low == 0.0
    assert high == pytest.approx(3 / 6)


def test_an_interval_is_as_wide_as_theory_says() -> None:
    """Independent of each other, the variances of the seeds' and of the tasks' mean add up."""
    rng = np.random.default_rng(3)
    seeds, tasks = rng.normal(0, 0.3, 40), rng.normal(0, 0.5, 60)
    low, high = crossed_interval(seeds[:, None] + tasks[None, :])
    error = (seeds.var() / 40 + tasks.var() / 60) ** 0.5
    assert high - low == pytest.approx(2 * 1.96 * error, rel=0.05)
    assert (low + high) / 2 == pytest.approx(seeds.mean() + tasks.mean(), abs=0.01)


def test_a_band_by_hand() -> None:
    mean, low, high = band(np.array([[0.0, 0.5, np.nan], [1.0, 0.5, np.nan], [0.5, np.nan, np.nan]]))
    assert mean == [0.5, 0.5, None]
    # of 27 resamples of (0, 1, 1/2) one has the mean 0 and one the mean 1: each has 3.7 %
    assert (low[0], high[0]) == (0.0, 1.0)
    assert (low[1], high[1]) == (0.5, 0.5)
    assert (low[2], high[2]) == (None, None)


def test_rollouts_to_a_score_by_hand() -> None:
    rollouts, scores = [0.0, 100.0, 200.0, 300.0], [0.1, 0.3, 0.2, 0.6]
    assert rollouts_to(0.2, rollouts, scores) == pytest.approx(50.0)
    assert rollouts_to(0.3, rollouts, scores) == pytest.approx(100.0)
    assert rollouts_to(0.5, rollouts, scores) == pytest.approx(275.0)
    assert rollouts_to(0.05, rollouts, scores) == 0.0
    assert rollouts_to(0.7, rollouts, scores) is None
