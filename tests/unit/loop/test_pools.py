"""Pools: weights, duplicates, exact state."""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest

from genenv.loop.pools import Gain, Pool, Pools, Posterior, direction


def filled(count: int) -> Pool:
    pool = Pool()
    for i in range(count):
        pool.put(f"t{i}", 1.0 + i % 3)
    return pool


def test_a_draw_has_no_repeats_and_follows_the_weights() -> None:
    pool = Pool()
    for name, weight in (("a", 8.0), ("b", 1.0), ("c", 1.0), ("never", 0.0)):
        pool.put(name, weight)
    rng = random.Random(0)
    counts = Counter(pool.draw(1, rng)[0] for _ in range(2000))
    assert counts["a"] / 2000 == pytest.approx(0.8, abs=0.04)
    assert counts["never"] == 0
    assert sorted(pool.draw(10, rng)) == ["a", "b", "c"]
    assert Pool().draw(3, rng) == []


def test_a_task_counts_once() -> None:
    pool = Pool()
    pool.put("a", 1.0)
    pool.put("a", 5.0)
    pool.put("b", 5.0)
    assert len(pool) == 2
    counts = Counter(pool.draw(1, random.Random(i))[0] for i in range(1000))
    assert counts["a"] == pytest.approx(500, abs=60)


def test_the_oldest_half_leaves_a_full_pool() -> None:
    pool = Pool(capacity=4)
    for i in range(5):
        pool.put(f"t{i}", 1.0)
    assert [f"t{i}" in pool for i in range(5)] == [False, False, True, True, True]
    assert len(pool) == 3


def test_draws_after_a_round_trip_are_the_same_step_by_step() -> None:
    """Also with other random calls in between, and while the pool grows."""
    whole, first = filled(20), filled(20)
    expected, got = [], []
    for step in range(10):
        if step == 3:
            for pool in (whole, first):
                for i in range(20, 23):
                    pool.put(f"t{i}", 2.0)
        if step == 4:
            state = json.loads(json.dumps(first.state()))
            random.random()
            first = Pool()
            first.load(state)
        expected.append(whole.draw(3, random.Random(f"7-{step}")))
        got.append(first.draw(3, random.Random(f"7-{step}")))
    assert got == expected
    assert len({tuple(x) for x in expected}) > 5


def test_posterior_by_hand() -> None:
    assert Posterior().mean == 0.5
    assert not Posterior().known
    once = Posterior().updated(3, 1, memory=0.5)
    assert once.mean == pytest.approx(4 / 6)
    twice = once.updated(0, 4, memory=0.5)
    assert (twice.successes, twice.failures) == (1.5, 4.5)
    assert twice.mean == pytest.approx(2.5 / 8)


def test_families_keep_their_counts_when_they_are_not_tried() -> None:
    pools = Pools()
    pools.observe({"a": (4, 0), "b": (1, 3)}, memory=0.5)
    pools.observe({"b": (0, 0)}, memory=0.5)
    assert pools.success("a") == pytest.approx(5 / 6)
    assert pools.success("b") == pytest.approx(2 / 6)
    assert pools.success("c") is None


def test_family_weights_by_hand() -> None:
    pools = Pools(families={"a": Posterior(8, 0), "b": Posterior(4, 4)})
    # means 0.9, 0.5, and 0.5 for a family nobody has tried
    weights = pools.family_weights(["a", "b", "c"], alpha=0.5, beta=8.0, floor=0.05)
    assert weights == pytest.approx([0.27804 + 0.05, 1.05, 1.05], abs=1e-4)


def test_state_of_all_pools_round_trips() -> None:
    pools = Pools(families={"a": Posterior(1.5, 2.5)})
    pools.train.put("x", 1.0)
    pools.env.put("x", 0.3)
    back = Pools.from_state(json.loads(json.dumps(pools.state())))
    assert back.state() == pools.state()


@pytest.mark.parametrize(
    ("success", "expected"),
    [(None, "similar"), (0.5, "similar"), (0.41, "similar"), (0.2, "easier"), (0.75, "harder")],
)
def test_direction(success: float | None, expected: str) -> None:
    assert direction(success, 0.5) == expected


def gained(*pairs: tuple[float, float], times: int = 1) -> Gain:
    gain = Gain()
    for _ in range(times):
        gain = gain.updated(pairs)
    return gain


@pytest.mark.parametrize(
    ("gain", "stuck"),
    [
        (Gain(), False),
        (gained((0.5, 0.5), times=6), False),  # too few to tell
        (gained((0.5, 0.5), times=20), True),
        (gained((0.25, 0.75), (0.75, 0.25), times=60), False),  # as much up as down: the error is 0.11
        (gained((0.25, 0.375), (0.375, 0.25), times=60), True),
        (gained((0.25, 0.5), times=20), False),
        (gained((0.5, 0.25), times=20), True),
        (gained((1.0, 1.0), times=20), False),  # no room to rise
    ],
)
def test_a_family_is_stuck_if_surely_nothing_rises(gain: Gain, stuck: bool) -> None:
    assert gain.stuck == stuck


def test_gain_by_hand() -> None:
    gain = Gain().updated([(0.5, 0.75), (0.25, 0.25)]).updated([(0.0, 1.0)])
    assert (gain.count, gain.first) == (2 * 0.95 + 1, 0.75 * 0.95)
    assert (gain.change, gain.squares) == (pytest.approx(0.25 * 0.95 + 1), pytest.approx(0.0625 * 0.95 + 1))


def test_a_stuck_family_is_discounted_and_keeps_its_floor() -> None:
    pools = Pools(families={"a": Posterior(4, 4), "b": Posterior(4, 4)})
    for _ in range(20):
        pools.measured_again({"b": [(0.5, 0.5)], "a": [(0.5, 0.75)]})
    assert pools.stuck() == ["b"]
    assert pools.family_weights(["a", "b"], 0.5, 8.0, 0.05, 0.25) == pytest.approx([1.05, 0.30])
    assert pools.family_weights(["a", "b"], 0.5, 8.0, 0.05) == pytest.approx([1.05, 1.05])
    for _ in range(60):  # and can leave
        pools.measured_again({"b": [(0.5, 0.75)]})
    assert pools.stuck() == []


def test_cluster_sizes_reach_back_as_many_rounds_as_asked() -> None:
    pools = Pools()
    assert pools.cluster_sizes(["x", "x", "y"], 3) == [2, 2, 1]
    for clusters in (["x", "x"], ["x", "z"], ["z"]):
        pools.remember_clusters(clusters, 3)
    assert pools.cluster_sizes(["x", "y", "z", "z"], 3) == [2, 1, 4, 4]  # the first of the three is forgotten
    assert pools.cluster_sizes(["x", "y", "z", "z"], 2) == [1, 1, 3, 3]
    assert pools.cluster_sizes(["x", "x"], 1) == [2, 2]
    assert pools.cluster_sizes(["x", "x"], 0) == [1, 1]
    back = Pools.from_state(json.loads(json.dumps(pools.state())))
    assert back.cluster_sizes(["x", "z"], 3) == [2, 3]
