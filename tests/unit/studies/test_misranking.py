"""Theorem 1 against numbers worked out by hand."""

from fractions import Fraction
from itertools import product

import pytest

from genenv.studies.misranking import (
    ESTIMATORS,
    bound,
    chances,
    compare,
    distance,
    order,
    rollouts_by_bound,
    rollouts_needed,
)

HALF, QUARTER = Fraction(1, 2), Fraction(1, 4)


def test_estimates_of_one_success_in_four() -> None:
    assert distance("plain", 1, 4, HALF) == Fraction(1, 16)
    assert distance("corrected", 1, 4, HALF) == 0  # 1/16 - (3/16) / 3
    assert distance("posterior", 1, 4, HALF) == Fraction(1, 36)  # (2/6 - 1/2)^2


def test_one_rollout_says_nothing_at_one_half() -> None:
    # p_hat is 0 or 1, both at the same distance
    found = order("plain", 0.5, 0.1, HALF, (1, 1))
    assert (found.wrong, found.tied, found.rate) == (0.0, pytest.approx(1.0), pytest.approx(0.5))
    assert order("corrected", 0.5, 0.1, HALF, (1, 1)) is None  # divides by n - 1


def test_two_rollouts() -> None:
    # at distance 0 is k = 1 alone: near 0.5, far 2 * 0.1 * 0.9 = 0.18
    found = order("plain", 0.5, 0.1, HALF, (2, 2))
    assert found.wrong == pytest.approx(0.5 * 0.18)
    assert found.tied == pytest.approx(0.5 * 0.18 + 0.5 * 0.82)
    assert found.rate == pytest.approx(0.09 + 0.25)


@pytest.mark.parametrize(
    ("estimator", "rate"),
    [
        # near 0.25: (0.5625, 0.375, 0.0625), far 0.75 the other way round
        ("plain", 0.0625 * 0.4375 + (0.9375 * 0.4375 + 0.0625 * 0.5625) / 2),  # k = 0 and 1 tie
        ("corrected", 0.5625 * 0.375 + 0.0625 * 0.4375 + (0.5625 * 0.0625 + 0.375 * 0.375 + 0.0625 * 0.5625) / 2),  # 1, 0, 2
        ("posterior", 0.375 * 0.0625 + 0.0625 * 0.4375 + (0.5625 * 0.0625 + 0.375 * 0.375 + 0.0625 * 0.5625) / 2),  # 0, 1, 2
    ],
)  # fmt: skip
def test_estimators_differ_away_from_one_half(estimator: str, rate: float) -> None:
    assert order(estimator, 0.25, 0.75, QUARTER, (2, 2)).rate == pytest.approx(rate)


def test_sums_over_binomials_are_sums_over_attempts() -> None:
    def chance(attempts: tuple[int, ...], p: float) -> float:
        return p ** sum(attempts) * (1 - p) ** (len(attempts) - sum(attempts))

    wrong = tied = 0.0
    for near, far in product(product((0, 1), repeat=3), product((0, 1), repeat=5)):
        a, b = (Fraction(sum(x), len(x)) for x in (near, far))
        a, b = ((p - HALF) ** 2 - p * (1 - p) / (n - 1) for p, n in ((a, 3), (b, 5)))
        wrong += (a > b) * chance(near, 0.6) * chance(far, 0.2)
        tied += (a == b) * chance(near, 0.6) * chance(far, 0.2)
    found = order("corrected", 0.6, 0.2, HALF, (3, 5))
    assert (found.wrong, found.tied) == (pytest.approx(wrong), pytest.approx(tied))


@pytest.mark.parametrize("n", [2, 7, 16])
def test_at_one_half_and_equal_rollouts_all_estimators_rank_alike(n: int) -> None:
    # each is a rising function of (p_hat - 1/2)^2 then
    rates = [order(e, 0.4, 0.8, HALF, (n, n)).rate for e in ESTIMATORS]
    assert rates == [rates[0]] * 3


def test_unequal_rollouts_are_where_the_estimators_part() -> None:
    # few rollouts of the near family: its p_hat scatters, which the plain estimate takes for distance
    rates = {e: order(e, 0.5, 0.3, HALF, (4, 28)).rate for e in ESTIMATORS}
    assert rates["corrected"] < rates["posterior"] < rates["plain"]


def test_bound() -> None:
    assert bound(0.0, 0.4, 64) == pytest.approx(0.410959, abs=1e-6)
    assert bound(0.1, 0.2, 1) == pytest.approx(3.991121, abs=1e-6)  # 4 exp(-0.01 * 2 / 9)
    assert rollouts_by_bound(0.0, 0.4, 0.05) == 124  # 4.5 log(80) / 0.16 = 123.2
    assert bound(0.0, 0.4, 124) <= 0.05 < bound(0.0, 0.4, 123)


def test_rollouts_needed_are_those_from_which_on_the_rate_stays_low() -> None:
    assert rollouts_needed([0.5, 0.04, 0.06, 0.03, 0.02]) == 4
    assert rollouts_needed([0.5, 0.04, 0.06]) is None
    assert rollouts_needed([None, 0.05]) == 2


def test_pairs_on_both_sides_without_mirror_images() -> None:
    assert chances(0.0, 0.4, 0.5) == [(0.5, 0.1)]
    assert chances(0.1, 0.4, 0.5) == [(0.4, 0.1), (0.4, 0.9)]
    assert chances(0.1, 0.4, 0.3) == [(0.2, 0.7), (0.4, 0.7)]  # 0.3 - 0.4 is no success rate


def test_the_bound_holds_and_is_far_from_tight() -> None:
    (record,) = compare(0.5, [(0.0, 0.4)])
    assert record["bound_holds"]
    assert len(record["bound"]) == len(record["rates"]["plain"]) == 64
    assert record["needed"] == {"plain": 9, "corrected": 9, "posterior": 9}
    assert record["needed_by_bound"] == 124
