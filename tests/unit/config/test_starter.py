"""The configuration that `genenv init` writes is the one that it says."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
from commands import call, refused

from genenv.config.load import build_config, load_config
from genenv.config.sections import Config
from genenv.config.shipped import find_config, shipped
from genenv.config.starter import starter, toml
from genenv.contracts.errors import InputError
from genenv.loop.seeds import load_seeds
from genenv.session import make_domain

SETTING = re.compile(r"^# (?=[a-z_]+ = [^ #])", re.MULTILINE)


def test_what_is_commented_out_is_the_default() -> None:
    text = starter({})
    assert tomllib.loads(text) == {name: {} for name, value in Config() if not isinstance(value, (str, int))}
    assert build_config(tomllib.loads(SETTING.sub("", text)), "starter") == Config()
    named = {
        key for section in tomllib.loads(SETTING.sub("", text)).values() if isinstance(section, dict) for key in section
    }
    assert {"lr", "beta", "group_size", "token_budget"} <= named


def test_what_is_set_stands_first_in_its_section() -> None:
    text = starter({"rounds": 3, "agent": {"lr": 0.5}, "domain": {"options": {"days": [3], "plan": "compact"}}})
    assert text.startswith("rounds = 3\n# recipe")
    assert "[agent]\nlr = 0.5\n# group_size" in text
    assert tomllib.loads(text)["domain"] == {"options": {"days": [3], "plan": "compact"}}


@pytest.mark.parametrize("value", [True, 1, 1e-4, 'a "quoted" \\ line', [], ["a", 2], {"a": {"b": [1]}}, {}])
def test_values_survive(value: object) -> None:
    assert tomllib.loads(f"x = {toml(value)}")["x"] == value


@pytest.mark.parametrize(
    ("world", "demo"),
    [("tool_use", "demo"), ("household", "demo_household"), ("multihop_qa", "demo_qa"), ("travel", "demo_travel")],
)
def test_a_new_folder_is_the_demonstration_with_seeds_of_its_own(tmp_path: Path, world: str, demo: str) -> None:
    folder = tmp_path / "mine"
    document = json.loads(call("init", folder, "--domain", world, "--json").stdout)
    assert document["files"][:2] == ["config.toml", "seeds.jsonl"]
    config, shipped_one = load_config(folder / "config.toml"), load_config(Path(demo))
    own = {"seeds": folder / "seeds.jsonl"} | ({"catalogue": folder / "functions.jsonl"} if world == "tool_use" else {})
    assert config == shipped_one.model_copy(update={"domain": shipped_one.domain.model_copy(update=own)})
    seeds = load_seeds(folder / "seeds.jsonl", make_domain(config.domain))
    assert len({s.id for s in seeds}) == 24


def test_nothing_of_a_users_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert "is not an empty folder" in refused("init", tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]


def test_a_start_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, *rest: object, **options: object) -> int:
        raise OSError(28, "No space left on device", str(self))

    monkeypatch.setattr(Path, "write_text", full)
    assert call("init", tmp_path / "mine").exit_code == 1
    assert list(tmp_path.iterdir()) == []


def test_shipped_configurations_are_found_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert shipped()[:4] == ["demo", "demo_household", "demo_qa", "demo_travel"]
    assert load_config(Path("demo")).rounds == 32
    for name in shipped():
        assert find_config(Path(name)).name == f"{name}.toml"
    (tmp_path / "demo").mkdir()  # a folder of that name is not in the way
    assert find_config(Path("demo")).name == "demo.toml"
    (tmp_path / "demo").rmdir()
    (tmp_path / "demo").write_text("rounds = 7\n")  # a file is, for it is what was named
    assert load_config(Path("demo")).rounds == 7


@pytest.mark.parametrize("name", ["dmeo", "demo.toml", "elsewhere/demo"])
def test_a_wrong_name_is_told_the_right_ones(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        InputError, match=f"cannot read the configuration {name}: no such file; .* demo, demo_household"
    ):
        load_config(Path(name))
