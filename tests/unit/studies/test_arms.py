"""What an arm is: its configuration, its share of fresh tasks, and the order in which a fixed set is played."""

from __future__ import annotations

import pytest

from genenv.config.load import build_config
from genenv.contracts.errors import InputError
from genenv.contracts.types import Message, Task
from genenv.loop.sources import groups, quota, turn
from genenv.studies.arms import ARMS, arm_config, fresh_tasks

BASE = {"simulator": {"tasks": 24}, "curriculum": {"family_beta": 48.0}}
SIZES = {  # fresh tasks a round, replay, size of the set per seed
    "genenv": (24, 0.25, 1.0), "paper": (15, 1.0, 1.0), "random": (15, 1.0, 1.0), "static": (30, 0.0, 1.0),
    "static_x3.3": (30, 0.0, 3.3), "teacher_x1.8": (30, 0.0, 1.8), "teacher_x3.3": (30, 0.0, 3.3),
    "seeds_only": (30, 0.0, 1.0), "r_zero": (24, 0.25, 1.0), "absolute_zero": (24, 0.25, 1.0),
    "learnability": (24, 0.25, 1.0), "drop": (24, 0.25, 1.0),
}  # fmt: skip


@pytest.mark.parametrize("name", ARMS)
def test_every_built_in_arm_has_thirty_groups_a_round(name: str) -> None:
    config = arm_config(name, BASE, {}, "suite")
    found = config.simulator.tasks, config.agent.replay, config.curriculum.set_size
    assert found == SIZES[name]
    assert groups(config.simulator.tasks, config.agent.replay) == 30
    assert config.simulator.fill
    assert config.curriculum.family_beta == 48.0


def test_arms_differ_in_what_they_say() -> None:
    arms = {name: arm_config(name, BASE, {}, "suite") for name in ARMS}
    assert {n for n, c in arms.items() if not c.simulator.train} == {
        "random", "static", "static_x3.3", "teacher_x1.8", "teacher_x3.3", "seeds_only",
    }  # fmt: skip
    assert [arms[n].curriculum.reward for n in ("genenv", "r_zero", "absolute_zero", "learnability")] == [
        "alpha", "r_zero", "absolute_zero", "learnability",
    ]  # fmt: skip
    # random is the paper's recipe without the simulator's update, and nothing else
    paper = arms["paper"]
    frozen = paper.model_copy(update={"simulator": paper.simulator.model_copy(update={"train": False})})
    assert arms["random"] == frozen
    assert (paper.curriculum.beta, paper.curriculum.k_min, paper.simulator.weight_temperature) == (2.0, 0.1, 1.0)
    assert arms["drop"].curriculum.drop == 0.25


def test_a_recipe_wins_over_the_bases_own_curriculum_and_own_settings_over_both() -> None:
    base = {**BASE, "curriculum": {"beta": 30.0}}
    assert arm_config("paper", base, {}, "suite").curriculum.beta == 2.0
    assert arm_config("paper", base, {"curriculum": {"beta": 5.0}}, "suite").curriculum.beta == 5.0
    assert arm_config("mine", base, {"agent": {"replay": 0.5}}, "suite").simulator.tasks == 20


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"simulator": {"tasks": 20}}, "suite: arm x: expected 240 rollouts a round like all arms"),
        ({"agent": {"group_size": 7}}, "suite: arm x: expected 240 rollouts"),
        ({"agent": {"steps": 3}}, "agent.steps must be the same in all arms"),
        ({"agent": {"train": False}}, "agent.train must be the same"),
        ({"eval": {"tasks": 3}}, "sections domain and eval must be the same"),
        ({"domain": {"seed_count": 3}}, "sections domain and eval must be the same"),
        ({"agent": {"lrr": 3}}, "suite: arm x: unknown key agent.lrr; did you mean agent.lr?"),
    ],
)
def test_arms_that_would_not_be_equal_are_refused(own: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        arm_config("x", BASE, own, "suite")


def test_smaller_groups_are_more_groups() -> None:
    config = arm_config("x", BASE, {"agent": {"group_size": 4}}, "suite")
    assert (config.simulator.tasks, config.agent.group_size) == (48, 4)


def test_fresh_tasks_by_hand() -> None:
    assert [fresh_tasks(n, 0.25) for n in (1, 10, 15, 30)] == [1, 8, 12, 24]
    assert [fresh_tasks(n, 1.0) for n in (15, 30)] == [None, 15]


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"curriculum": {"source": "offline"}}, "curriculum.source = offline is a fixed set"),
        ({"curriculum": {"source": "seeds"}, "simulator": {"train": False}}, "agent.replay = 0"),
        ({"curriculum": {"edits": 0.25}, "simulator": {"fill": True}}, "simulator.fill makes all rounds equally large"),
        ({"curriculum": {"set_size": 2.0}}, "curriculum.set_size = 2 is for offline and privileged sets"),
    ],
)
def test_settings_that_have_no_meaning_together_are_refused(raw: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        build_config(raw, "test")


def test_what_a_round_asks_for_by_hand() -> None:
    live = {"simulator": {"tasks": 24}}
    filled = {"simulator": {"tasks": 24, "fill": True}}
    assert quota(build_config(live, "x"), 1, seeds=100, tried=0) == (24, 1)
    found = [quota(build_config(filled, "x"), n, seeds=100, tried=t) for n, t in ((1, 0), (2, 4), (3, 28))]
    assert found == [(30, 8), (26, 8), (24, 8)]
    arms = {name: arm_config(name, BASE, {}, "x") for name in ("static_x3.3", "seeds_only")}
    assert [quota(c, 1, seeds=100, tried=0) for c in arms.values()] == [(330, 8), (100, 1)]
    assert [quota(c, 2, seeds=100, tried=30) for c in arms.values()] == [(0, 0), (0, 0)]


def numbered(count: int) -> list[Task]:
    return [Task("x", (Message("user", str(i)),), (), None, {}) for i in range(count)]


def test_a_set_is_played_in_epochs_without_a_task_twice_in_a_round() -> None:
    tasks = numbered(10)
    rounds = [[t.id for t in turn(tasks, n, 4, seed=7)] for n in range(1, 11)]
    assert all(len(set(r)) == 4 for r in rounds)
    played = [t for r in rounds for t in r]
    epochs = [played[start : start + 10] for start in range(0, 40, 10)]
    assert all(set(epoch) == {t.id for t in tasks} for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    assert [t.id for t in turn(tasks, 4, 4, seed=8)] != rounds[3]
    assert {t.id for t in turn(tasks, 1, 10, 0)} == {t.id for t in tasks}


def test_a_set_smaller_than_a_round_is_refused() -> None:
    with pytest.raises(InputError, match="the set has 2 admitted tasks, a round plays 3"):
        turn(numbered(2), 1, 3, 0)
