"""What is read from a run, against hand-made attempts."""

import numpy as np
import pytest

from genenv.runs.records import Attempts
from genenv.studies.analysis import (
    BINS,
    Recovery,
    Remeasured,
    change_by_bin,
    early_tasks,
    lengths,
    recovery,
    remeasured,
    spread,
    success_bin,
)


def rng():
    return np.random.default_rng(0)


def attempts(number, task, *scores, family="f", replayed=False):
    return Attempts(number, task, family, replayed, scores)


def test_bins_of_success():
    ends = {0.0: 0, 0.19: 0, 0.2: 1, 0.39: 1, 0.4: 2, 0.6: 2, 0.61: 3, 0.8: 3, 0.81: 4, 1.0: 4}
    assert {p: success_bin(p) for p in ends} == ends
    assert success_bin(3 * 0.2) == 2  # 0.6000000000000001


def test_the_first_replay_after_the_lag_counts():
    found = remeasured(
        [
            attempts(1, "a", 1.0, 0.0, None, 0.5),
            attempts(1, "b", 1.0, None),
            attempts(1, "c", 0.0, 0.0),
            attempts(5, "a", 0.0, 0.0, replayed=True),  # too early
            attempts(6, "a", 1.0, 1.0, None, 0.0, replayed=True),
            attempts(6, "b", 1.0, 1.0, replayed=True),  # one scored attempt cannot be halved
            attempts(6, "c", None, None, replayed=True),
            attempts(7, "a", 0.0, 0.0, replayed=True),
            attempts(8, "c", 1.0, 0.0, replayed=True),
        ],
        lag=5,
    )
    assert found == [Remeasured("a", 1, (1, 0, 0), 6, pytest.approx(2 / 3)), Remeasured("c", 1, (0, 0), 8, 0.5)]


def test_change_by_bin_uses_one_half_for_the_bin_and_the_other_for_the_start():
    measured = [
        Remeasured("a", 1, (1, 0, 1, 0), 6, 0.75),  # halves 1 and 0: over 80 % it started at 0, under 20 % at 1
        Remeasured("b", 1, (0, 0, 0, 0), 6, 0.5),
    ]
    found = {c.bin: c for c in change_by_bin(measured, rng())}
    assert list(found) == [*BINS, "all"]
    # a at 1 with weight 1/2 changes by -0.25, b at 0 with weight 1 by +0.5
    low = found["under 20 %"]
    assert (low.tasks, low.before) == (1.5, pytest.approx((1 + 0 + 0) / 3))
    assert low.change.value == pytest.approx((0.5 * -0.25 + 0.5) / 1.5)
    assert found["over 80 %"].change.value == pytest.approx(0.75)
    assert found["over 80 %"].before == 0.0
    assert (found["40-60 %"].tasks, found["40-60 %"].before, found["40-60 %"].change) == (0.0, None, None)
    assert found["all"].tasks == 2
    assert found["all"].before == pytest.approx(0.25)
    assert found["all"].change.value == pytest.approx((0.25 + 0.5) / 2)


def test_luck_is_no_gain():
    """Without training, tasks of one success look easy or hard by chance; no bin may seem to change."""
    draw = np.random.default_rng(1)
    measured = [
        Remeasured(str(i), 1, tuple(map(int, draw.random(4) < 0.5)), 6, float(np.mean(draw.random(4) < 0.5)))
        for i in range(3000)
    ]
    for change in change_by_bin(measured, rng()):
        if change.change is not None:
            assert abs(change.change.value) < 0.04, change.bin
    # bins by all four attempts would say +0.5 for tasks that were never solved
    unlucky = [m.later - np.mean(m.first) for m in measured if sum(m.first) == 0]
    assert np.mean(unlucky) == pytest.approx(0.5, abs=0.08)


def test_no_tasks_no_figures():
    assert [(c.tasks, c.before, c.change) for c in change_by_bin([], rng())] == [(0.0, None, None)] * 6


def test_early_tasks():
    groups = [attempts(n, f"{n}-{i}", 1.0, 0.0) for n in range(1, 11) for i in range(3)]
    groups += [attempts(2, "old", 1.0, 1.0, replayed=True), attempts(2, "unscored", None, None)]
    found = early_tasks(groups, 10, 100, 0)
    assert {a.task_id for a in found} == {f"{n}-{i}" for n in (1, 2) for i in range(3)}
    assert len(early_tasks(groups, 10, 4, 0)) == 4
    assert early_tasks(groups, 10, 4, 0) == early_tasks(groups, 10, 4, 0)


def test_recovery():
    before = [0.5] * 10
    # means of what came after: 0.1, 0.2, 0.3, 0.375, 0.42
    assert recovery([*before, 0.1, 0.3, 0.5, 0.6, 0.6, 0.6], 10) == Recovery(1, 5)
    assert recovery([*before, 0.5, 0.45], 10) == Recovery(None, None)
    assert recovery([*before, 0.9, 0.9, 0.9], 10) == Recovery(1, None)
    # the window slides on: (0.9, 0.9, 0.9, 0.5, 0.5) to (0.9, 0.5, 0.5, 0.5, 0.5) = 0.58
    assert recovery([*before, 0.9, 0.9, 0.9, 0.5, 0.5, 0.5, 0.5], 10) == Recovery(1, 7)
    # inside at first, then out, then in again
    assert recovery([*before, 0.5, 0.1, None, 1.0], 10) == Recovery(2, 4)
    assert recovery([*before, None, 0.5], 10) == Recovery(1, 2)


def test_lengths_of_the_first_and_the_last_fifth():
    metrics = [{"prompt_length": 100.0 + n, "response_length": None if n < 2 else 10.0} for n in range(10)]
    assert lengths(metrics) == {
        "task": {"first": 100.5, "last": 108.5},
        "response": {"first": None, "last": 10.0},
    }


def test_spread_of_difficulty_by_hand():
    run = [
        attempts(1, "a", 1.0, 0.0, family="x"),
        attempts(1, "b", 1.0, 1.0, None, family="x"),
        attempts(1, "c", 0.0, 0.0, family="y"),
        attempts(1, "d", 0.0, 0.5, family="y"),
        attempts(1, "e", 1.0, None, family="y"),  # one attempt says nothing about chance
        attempts(1, "f", 1.0, 1.0, family="y", replayed=True),
    ]
    found = spread([run], rng())
    # success 1/2, 1, 0, 0: squares 0.6875 over 3; within families 0.125 over 2; chance (1/4) / 1 of one task in four
    assert (found.tasks, found.variance) == (4, pytest.approx(0.6875 / 3))
    shares = (found.family.value, found.within.value, found.chance.value)
    assert shares == pytest.approx(((0.6875 / 3 - 0.0625) * 3 / 0.6875, 0.0, 0.0625 * 3 / 0.6875))
    # the same tasks in another round of another run are compared among themselves; a lone task with none
    again = [attempts(2, f"{a.task_id}2", *a.scores, family=a.family) for a in run[:5]]
    more = spread([run, again, [attempts(1, "g", 0.0, 0.0, family="x")]], rng())
    assert (more.tasks, more.variance) == (8, pytest.approx(0.6875 / 3))
    assert (more.family.value, more.chance.value) == pytest.approx((found.family.value, found.chance.value))
    assert spread([[attempts(1, "a", 1.0, 0.0), attempts(1, "b", 1.0, 1.0, family="g")]], rng()) is None
    assert spread([[attempts(1, "a", 0.0, 0.0), attempts(1, "b", 0.0, 0.0)]], rng()) is None
    sevenths = [attempts(1, f"t{i}", *[1.0] * 3, *[0.0] * 4) for i in range(11)]
    assert spread([sevenths], rng()) is None  # its variance is rounding
    assert spread([], rng()) is None


def test_spread_counts_families_by_their_tasks_not_by_their_pairs():
    """An easy family without any spread beside rare ones, mostly alone in their round, whose tasks differ by 0.6."""
    draw = np.random.default_rng(3)
    runs = [[] for _ in range(5)]
    for number in range(1500):
        for i, pick in enumerate(draw.random(8)):
            p = 1.0 if pick < 0.8 else 0.2 if draw.random() < 0.5 else 0.8
            family = "easy" if pick < 0.8 else f"rare {int(20 * (pick - 0.8))}"
            scores = (draw.random(8) < p).astype(float)
            runs[number % 5].append(attempts(number, f"{number} {i}", *scores, family=family))
    found = spread(runs, rng())
    # 0.2 of 0.09 is within, 0.2 of 0.16 / 8 chance, 0.16 of 0.25 between
    whole = 0.2 * 0.09 + 0.2 * 0.02 + 0.16 * 0.25
    for part, truth in ((found.family, 0.04), (found.within, 0.018), (found.chance, 0.004)):
        assert part.value == pytest.approx(truth / whole, abs=0.03)


def test_spread_tells_families_tasks_and_luck_apart():
    """Success 0.2 and 0.4 in one family, 0.6 and 0.8 in the other, four attempts: variances 0.04, 0.01, 0.05."""
    draw = np.random.default_rng(2)
    run = [
        attempts(number, f"{number} {i}", *(draw.random(4) < p).astype(float), family="easy" if p > 0.5 else "hard")
        for number in range(40)
        for i, p in enumerate([0.2, 0.4, 0.6, 0.8] * 20)
    ]
    found = spread([run], rng())
    for part, truth in ((found.family, 0.4), (found.within, 0.1), (found.chance, 0.5)):
        assert part.value == pytest.approx(truth, abs=0.03)
        assert part.low < part.value < part.high < part.low + 0.1
