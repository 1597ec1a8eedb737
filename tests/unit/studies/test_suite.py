"""A suite's file: what is read and what is refused, before anything runs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from genenv.config.load import build_config
from genenv.contracts.errors import InputError
from genenv.domains.multihop_qa.domain import MultihopQa
from genenv.loop.seeds import load_seeds
from genenv.loop.sources import groups
from genenv.studies.arms import ARMS
from genenv.studies.suite import load_suite, runs_of

CONFIGS = Path(__file__).parents[3] / "configs"
SUITE = """
base = "base.toml"
arms = ["genenv", "sharp", "seeds_only"]
rounds = 4
seeds = [3, 5]

[set.engine]
threads = 1

[arm.sharp.curriculum]
beta = 30
"""


@pytest.fixture
def suite_file(tmp_path: Path) -> Path:
    (tmp_path / "base.toml").write_text("rounds = 99\nseed = 7\n[simulator]\ntasks = 8\n")
    path = tmp_path / "suite.toml"
    path.write_text(SUITE)
    return path


def test_runs_are_arms_times_seeds_seed_by_seed(suite_file: Path, tmp_path: Path) -> None:
    runs = runs_of(load_suite(suite_file), tmp_path / "out")
    assert [r.name for r in runs] == ["genenv-3", "sharp-3", "seeds_only-3", "genenv-5", "sharp-5", "seeds_only-5"]
    assert {(r.config.rounds, r.config.engine.threads) for r in runs} == {(4, 1)}
    assert [r.config.seed for r in runs] == [3, 3, 3, 5, 5, 5]
    assert [r.config.curriculum.beta for r in runs[:3]] == [8.0, 30.0, 8.0]
    assert [r.config.simulator.tasks for r in runs[:3]] == [8, 8, 10]
    assert {r.state() for r in runs} == {"missing"}
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"seeds_only"]', '"sead"]', "arms: sead is neither built in .* nor a section"),
        ('"seeds_only"]', '"genenv"]', "arms: each one once"),
        ("[3, 5]", "[3, 3]", "seeds: each one once, found 3, 3"),
        ("rounds = 4", "rounds = 0", "rounds: .* greater than or equal to 1, found 0"),
        ("rounds = 4", "round = 4", "unknown key round; did you mean rounds?"),
        ("rounds = 4", 'rounds = 4\ntarget = "paper"', "paper is not in arms = genenv, sharp, seeds_only"),
        ("[arm.sharp.", "[arm.blunt.", "arms: sharp is neither"),
        ("beta = 30", "betta = 30", "base.toml: arm sharp: unknown key curriculum.betta; did you mean curriculum.beta"),
        ("[set.engine]", "[set.eval]\ntasks = 0\n[set.engine]", "eval.tasks = 0: without held-out tasks"),
        ("base.toml", "none.toml", "cannot read the configuration .*none.toml"),
        ("[arm.sharp.curriculum]\nbeta = 30", "[arm.sharp]\nseed = 3", "arm sharp: seed is the suite's to say"),
        ('"sharp", ', '"../x", ', "arms: ../x is neither built in"),
        ("[arm.sharp", '[arm."..".eval]\ntasks = 3\n[arm.sharp', "arm: expected names of letters"),
    ],
)
def test_a_suite_that_cannot_be_run_is_refused_in_one_line(suite_file: Path, old: str, new: str, message: str) -> None:
    suite_file.write_text(SUITE.replace(old, new))
    with pytest.raises(InputError, match=message) as caught:
        runs_of(load_suite(suite_file), suite_file.parent / "out")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "arms", "rollouts"),
    [
        ("tool_use", len(ARMS), (10, 8)),
        ("multihop_qa", 5, (10, 6)),
        ("recipe_tool_use", 10, (10, 8)),
        ("recipe_multihop_qa", 10, (10, 6)),
    ],
)
def test_the_shipped_suites_have_equal_rollouts(
    name: str, arms: int, rollouts: tuple[int, int], tmp_path: Path
) -> None:
    runs = runs_of(load_suite(CONFIGS / f"suite_{name}.toml"), tmp_path)
    assert len({r.arm for r in runs}) == arms
    assert len(runs) == arms * 5
    shapes = {(groups(r.config.simulator.tasks, r.config.agent.replay), r.config.agent.group_size) for r in runs}
    assert shapes == {rollouts}


def test_files_are_looked_for_beside_the_suite_wherever_it_names_them(tmp_path: Path) -> None:
    text = (CONFIGS / "suite_multihop_qa.toml").read_text("utf-8")
    path = tmp_path / "suite.toml"
    path.write_text(f'{text}\n[arm.genenv.domain]\nseeds = "seeds_multihop_qa_hard.jsonl"\n', "utf-8")
    files = {r.config.domain.seeds for r in runs_of(load_suite(path), tmp_path / "out")}
    assert files == {(tmp_path / "seeds_multihop_qa_hard.jsonl").resolve()}


def test_the_recipes_own_arm_is_that_of_the_suite_it_is_changed_in(tmp_path: Path) -> None:
    """So that runs of one suite may be copied to the other."""
    for name in ("tool_use", "multihop_qa"):
        one, other = (runs_of(load_suite(CONFIGS / f"suite_{n}.toml"), tmp_path) for n in (name, f"recipe_{name}"))
        assert [r.config for r in one if r.arm == "genenv"] == [r.config for r in other if r.arm == "genenv"]


def test_the_hard_seeds_of_a_shipped_suite_are_tasks() -> None:
    config = build_config(load_suite(CONFIGS / "suite_multihop_qa.toml").set, "suite")
    assert config.domain.seeds is not None
    seeds = load_seeds(config.domain.seeds, MultihopQa())
    assert Counter(s.family for s in seeds) == {"1-hop": 2, "2-hop": 4, "3-hop": 10, "4-hop": 24}
