"""Configuration: recipes, overrides, and one clear line for each kind of mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from genenv.config.load import build_config, load_config
from genenv.config.sections import Config
from genenv.contracts.errors import InputError


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "run.toml"
    path.write_text(text, "utf-8")
    return path


def test_defaults_and_overrides(tmp_path: Path) -> None:
    path = written(tmp_path, "rounds = 7\n[agent]\ngroup_size = 4\n")
    config = load_config(path, ["agent.lr=0.5", "engine.model=some/model", "eval.tasks=0", "curriculum.k_min=0.2"])
    assert (config.rounds, config.agent.group_size, config.agent.lr) == (7, 4, 0.5)
    assert (config.engine.model, config.eval.tasks, config.curriculum.k_min) == ("some/model", 0, 0.2)


def test_files_are_looked_for_beside_the_configuration_those_of_overrides_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    away = tmp_path / "away"
    path = written(tmp_path, f'[domain]\nseeds = "seeds.jsonl"\ntasks = "{away}"\ncatalogue = "c.json"\n')
    found = [load_config(name, ["domain.catalogue=c.json"]).domain for name in (path, Path("..") / path.name)]
    assert found[0] == found[1]
    domain = found[0]
    assert (domain.seeds, domain.tasks) == ((tmp_path / "seeds.jsonl").resolve(), away.resolve())
    assert domain.catalogue == (tmp_path / "here" / "c.json").resolve()


def test_the_papers_recipe_sets_defaults_that_a_file_may_overrule() -> None:
    paper = build_config({"recipe": "paper"}, "x")
    assert (paper.curriculum.beta, paper.curriculum.k_min, paper.curriculum.alpha) == (2.0, 0.1, 0.5)
    assert (paper.simulator.weight_temperature, paper.curriculum.mixed_only) == (1.0, False)
    assert build_config({"recipe": "paper", "curriculum": {"beta": 9}}, "x").curriculum.beta == 9.0
    assert Config().curriculum.k_min is None


def test_a_resolved_configuration_is_read_back_unchanged() -> None:
    config = build_config({"recipe": "paper", "seed": 3}, "x")
    assert build_config(config.model_dump(mode="json"), "x") == config


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[curriculum]\nalfa = 0.3", "unknown key curriculum.alfa; did you mean curriculum.alpha?"),
        ("beta = 5", "unknown key beta; did you mean curriculum.beta?"),
        ("[agent]\ngroup-size = 8", "unknown key agent.group-size; did you mean agent.group_size?"),
        ("curriculum = 0.3", "curriculum: Input should be"),
        ("[curriculum]\nalpha = 0.3\nalpha = 0.4", "not valid TOML"),
        ("[curriculum]\nalpha = 1.5", "curriculum.alpha: Input should be less than 1, found 1.5"),
        ("[agent]\nlr = nan", "agent.lr"),
        ("recipe = 'mine'", "recipe: Input should be 'genenv' or 'paper'"),
        ("recipe = 3", "recipe"),
        (
            "[teacher]\nmodel = 'strong'",
            "run.toml: teacher.model cannot be trained: set simulator.train = false and simulator.warmup = 0",
        ),
        ("[teacher]\nmodel = 'strong'\n[simulator]\ntrain = false\nwarmup = 1", "teacher.model cannot be trained"),
        ("[teacher]\nconcurrency = 0", "teacher.concurrency: Input should be greater than or equal to 1, found 0"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        load_config(written(tmp_path, text))
    assert message in str(caught.value)
    assert "run.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("agent.lrr=1", "unknown key agent.lrr; did you mean agent.lr?"),
        ("agent", "expected KEY=VALUE"),
        ("rounds.x=1", "rounds is a value, not a section"),
        ("agent.lr=fast", "agent.lr"),
    ],
)
def test_overrides_are_checked(tmp_path: Path, override: str, message: str) -> None:
    with pytest.raises(InputError, match=message.replace("?", r"\?")):
        load_config(written(tmp_path, "rounds = 7"), [override])


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read the configuration"):
        load_config(tmp_path / "missing.toml")
    bad = tmp_path / "bad.toml"
    bad.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="not valid TOML"):
        load_config(bad)
