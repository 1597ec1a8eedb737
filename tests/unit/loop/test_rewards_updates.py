"""Every formula against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from genenv.contracts.types import Candidate, Datum, Group, Message, Sample, Score, Task, Trajectory
from genenv.loop.rewards import PEERS, alpha_curriculum_reward, empirical_success, task_reward, without_ends
from genenv.loop.updates import (
    group_advantages,
    grpo_data,
    has_signal,
    k3,
    k3_weight,
    normalized,
    rwr_data,
    rwr_weights,
    with_kl,
)

TASK = Task("x", (Message("user", "q"),), (), None, {})


def attempt(reward: float | None, written: int, environment: int = 0) -> Trajectory:
    """Two prompt tokens, then `written` tokens of the agent, `environment` tokens that it only reads, one more of its own."""
    mask = (0, 0) + (1,) * written + (0,) * environment + ((1,) if environment else ())
    tokens = tuple(range(10, 10 + len(mask)))
    logprobs = tuple(-0.5 if m else 0.0 for m in mask)
    return Trajectory(tokens, mask, logprobs, 2, "", Score(reward, ""), "stop", 0)


def test_the_ends_are_dropped_by_value_and_the_order_stays() -> None:
    values = [0.5, 1.0, 0.0, 0.25, 0.75]
    assert without_ends(values, 0.2) == [0, 3, 4]
    assert without_ends(values, 0.19) == [0, 1, 2, 3, 4]  # less than one task
    assert without_ends(values, 0.49) == [0]
    assert without_ends([0.5] * 4, 0.25) == [1, 2]  # of equals the earlier is the lower
    assert without_ends([float(i) for i in range(10)], 0.3) == [3, 4, 5, 6]  # 0.3 * 10 is 3 in spite of floats
    assert without_ends([], 0.2) == []


@pytest.mark.parametrize(("k", "expected"), [(0, 0.60653), (2, 0.88250), (4, 1.0), (6, 0.88250), (8, 0.60653)])
def test_alpha_curriculum_reward_by_hand(k: int, expected: float) -> None:
    assert alpha_curriculum_reward(k / 8, alpha=0.5, beta=2.0) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(("p", "expected"), [(0.0, 0.83527), (1.0, 0.37531)])
def test_alpha_curriculum_reward_with_another_alpha(p: float, expected: float) -> None:
    assert alpha_curriculum_reward(p, alpha=0.3, beta=2.0) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("signal", "expected"),  # at p = 0, 1/8, 1/2, 3/4, 1
    [
        ("r_zero", [0.0, 0.25, 1.0, 0.5, 0.0]),
        ("absolute_zero", [0.0, 0.875, 0.5, 0.25, 0.0]),
        ("learnability", [0.0, 0.4375, 1.0, 0.75, 0.0]),
        ("alpha", [0.606531, 0.754840, 1.0, 0.882497, 0.606531]),
    ],
)
def test_signals_of_other_work_by_hand(signal: str, expected: list[float]) -> None:
    found = [task_reward(signal, p, alpha=0.5, beta=2.0) for p in (0.0, 0.125, 0.5, 0.75, 1.0)]
    assert found == pytest.approx(expected, abs=1e-6)
    assert set(PEERS) == {"r_zero", "absolute_zero", "learnability"}


def test_empirical_success_leaves_unscored_attempts_out() -> None:
    assert empirical_success([1.0, 1.0, None, 1.0]) == 1.0
    assert empirical_success([1.0, 0.0, None, 0.99]) == pytest.approx(1 / 3)
    assert empirical_success([None, None]) is None


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        ([1.0, 0.0, None, 1.0], [1 / 3, -2 / 3, 0.0, 1 / 3]),
        ([1.0, None, None, None], [0.0] * 4),
        ([None] * 4, [0.0] * 4),
        ([0.7, 0.7, 0.7], [0.0] * 3),
        ([0.1 + 0.2, 0.3], [0.0, 0.0]),  # rounding noise is not variance
        ([1.0], [0.0]),
    ],
)
def test_group_advantages_centred(rewards: list[float | None], expected: list[float]) -> None:
    assert group_advantages(rewards, normalize=False) == pytest.approx(expected)


def test_group_advantages_normalized_keep_signs_and_ratios() -> None:
    # standard deviation of [1, 0, 1] is sqrt(2)/3
    scale = math.sqrt(2) / 3
    assert group_advantages([1.0, 0.0, None, 1.0], normalize=True) == pytest.approx(
        [1 / 3 / scale, -2 / 3 / scale, 0.0, 1 / 3 / scale]
    )
    assert group_advantages([1.0, None, None, None], normalize=True) == [0.0] * 4


def test_grpo_data_has_weight_on_the_agents_tokens_only() -> None:
    group = Group(TASK, (attempt(1.0, written=2, environment=3), attempt(0.0, written=1)))
    data = grpo_data([group], normalize=False)
    # four agent tokens in all: 2 + 1 in the first attempt, 1 in the second
    assert data[0].weights == pytest.approx((0, 0, 0.125, 0.125, 0, 0, 0, 0.125))
    assert data[1].weights == pytest.approx((0, 0, -0.125))
    assert [d.group for d in data] == [0, 0]
    assert data[0].logprobs == (0.0, 0.0, -0.5, -0.5, 0.0, 0.0, 0.0, -0.5)


def test_groups_without_variance_and_unscored_attempts_give_no_data() -> None:
    same = Group(TASK, (attempt(1.0, 2), attempt(1.0, 3)))
    mixed = Group(TASK, (attempt(1.0, 2), attempt(None, 5), attempt(0.0, 2)))
    assert grpo_data([same], normalize=True) == []
    assert not has_signal(same)
    assert has_signal(mixed)
    data = grpo_data([same, mixed], normalize=False)
    assert [sum(w != 0 for w in d.weights) for d in data] == [2, 2]
    assert {d.group for d in data} == {1}


def test_k3_by_hand() -> None:
    assert k3(-1.0, -1.5) == pytest.approx(0.10653, abs=1e-5)  # e^-0.5 + 0.5 - 1
    assert k3(-1.0, -1.0) == 0.0
    assert math.isfinite(k3(-120.0, -0.5))
    assert math.isfinite(k3_weight(-120.0, -0.5))
    assert k3_weight(-1.0, -1.0) == 0.0


def test_kl_weight_is_the_gradient_of_k3() -> None:
    logprob = torch.tensor(-1.0, requires_grad=True)
    reference = torch.tensor(-1.5)
    ((reference - logprob).exp() - (reference - logprob) - 1).backward()
    assert k3_weight(-1.0, -1.5) == pytest.approx(logprob.grad.item(), abs=1e-6)


def test_with_kl_leaves_masked_tokens_alone() -> None:
    datum = Datum((1, 2, 3), (0.0, 0.5, 0.0), 1, (0.0, -1.0, -300.0))
    anchored = with_kl([datum], [(0.0, -1.5, -0.1)], coefficient=0.2)
    # one trained token: 0.5 - 0.2 * (1 - e^-0.5) / 1
    assert anchored.data[0].weights == pytest.approx((0.0, 0.5 - 0.2 * (1 - math.exp(-0.5)), 0.0))
    assert anchored.kl == pytest.approx(0.10653, abs=1e-5)


def test_kl_pulls_the_policy_back() -> None:
    """A token that the policy likes more than the reference loses weight, one that it likes less gains."""
    liked = with_kl([Datum((1, 2), (0.0, 0.5), 1, (0.0, -0.1))], [(0.0, -2.0)], 0.1).data[0].weights[1]
    disliked = with_kl([Datum((1, 2), (0.0, 0.5), 1, (0.0, -2.0))], [(0.0, -0.1)], 0.1).data[0].weights[1]
    assert liked < 0.5 < disliked


def test_rwr_weights_by_hand() -> None:
    # w proportional to exp(lambda R), mean 1
    a, b = math.exp(1.0), math.exp(0.60653)
    assert rwr_weights([1.0, 0.60653], 1.0) == pytest.approx([2 * a / (a + b), 2 * b / (a + b)])
    assert rwr_weights([0.2, 0.9], 0.0) == [1.0, 1.0]
    assert rwr_weights([], 1.0) == []
    assert rwr_weights([1000.0, 0.0], 1.0)[0] == pytest.approx(2.0)  # no overflow


def candidate(prompt: tuple[int, ...], written: tuple[int, ...]) -> Candidate:
    return Candidate(prompt, Sample(written, (-0.1,) * len(written), True, 0), "", "f", "similar", "s", {})


def test_rwr_data_is_a_weighted_mean_over_written_tokens() -> None:
    data = rwr_data([candidate((1, 2), (3, 4)), candidate((1,), (5,))], [0.5, 2.0])
    # 2 tokens of weight 0.5 and one of weight 2: sum 3
    assert data[0].weights == pytest.approx((0, 0, 0.5 / 3, 0.5 / 3))
    assert data[1].weights == pytest.approx((0, 2 / 3))
    assert data[0].tokens == (1, 2, 3, 4)
    assert data[0].logprobs == (0.0, 0.0, -0.1, -0.1)
    assert normalized([]) == []
