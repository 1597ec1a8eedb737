"""`genenv theory` and `genenv analyse`, as a user meets them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import call, refused
from logit import OneLogit
from pages import Page
from planted import Levels

from genenv import session
from genenv.engines.scripted import ScriptedEngine


@pytest.fixture
def one_logit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions have an agent whose gradients are known."""
    engine = ScriptedEngine(lambda prompt, seed: "", lambda prompt, seed: "")
    monkeypatch.setattr(engine, "policy", lambda player: OneLogit(engine.chat, skill=4.5))
    monkeypatch.setattr(session, "make_engine", lambda config, seed: engine)
    monkeypatch.setattr(session, "make_domain", lambda config: Levels())


def test_theory(one_logit: None, tmp_path: Path) -> None:
    out = tmp_path / "pages" / "theory.html"
    result = call("theory", "builtin:tiny", "--tasks", 30, "--rollouts", 8, "--seed", 3, "--out", out)
    assert result.exit_code == 0, result.output
    assert "Proposition 1: builtin:tiny, 30 tasks, 8 attempts each, seed 3" in result.stdout
    assert "(p(1-p))^2" in result.stdout
    page = Page(out.read_text("utf-8"))
    assert page.open == []
    assert page.tags.count("svg") == 2 + 11  # two quantities, eleven pairs of families
    assert "With ties counted as wrong the bound holds everywhere" in page.text
    assert not [value for _, value in page.attributes if value and value.startswith("http")]


def test_theory_away_from_one_half_as_json(one_logit: None, tmp_path: Path) -> None:
    arguments = ("theory", "--tasks", 12, "--rollouts", 8, "--alpha", 0.3, "--out", tmp_path / "t.html", "--json")
    document = json.loads(call(*arguments).stdout)
    assert (document["tasks"], document["unscored_tasks"], document["alpha"]) == (12, 0, 0.3)
    assert sum(b["tasks"] for b in document["proposition"]["bins"]) == 12
    (far,) = [r for r in document["theorem"] if r["distances"] == [0.0, 0.4]]
    assert far["success"] == [0.3, 0.7]
    assert far["rates"]["plain"] != far["rates"]["corrected"] != far["rates"]["posterior"]
    assert json.loads(call(*arguments).stdout) == document


def test_theory_refuses_what_has_no_gradient(scripted: None, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "t.html")
    assert "expected a run or a model of the local engine" in refused("theory", "builtin:tiny", "--tasks", 1, *out)
    assert "chance has no gradient" in refused("theory", "baseline:random", "--tasks", 1, *out)


def test_analyse(scripted: None, config_file: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    changes = ("--set", "rounds=6", "--set", "agent.replay=1", "--set", "eval.tasks=0")
    assert call("train", config_file, "--run-dir", run, *changes).exit_code == 0
    arguments = ("analyse", run, "--lag", 1, "--again", 5, "--disturbed", 2)
    document = json.loads(call(*arguments, "--json").stdout)
    (alone,) = document["runs"]
    assert alone["rounds"] == 6
    assert [c["bin"] for c in document["gain"]] == [
        "under 20 %", "20-40 %", "40-60 %", "60-80 %", "over 80 %", "all"
    ]  # fmt: skip
    assert document["gain"][-1]["tasks"] > 5
    assert sum(c["tasks"] for c in document["gain"][:-1]) == document["gain"][-1]["tasks"]
    assert document["forgetting"][-1]["tasks"] <= 5
    assert sum(document["difficulty"][part]["value"] for part in ("family", "within", "chance")) == pytest.approx(1.0)
    assert alone["recovery"].keys() == {"left", "back"}
    assert alone["lengths"]["task"]["first"] > 0
    assert json.loads(call(*arguments, "--json").stdout) == document
    shown = call(*arguments).stdout
    assert "Gain: tasks measured again" in shown
    assert "Forgetting: early tasks" in shown
    assert "only the simulator controls it" in shown
    assert shown.count("response length") == 1
    assert json.loads(call("analyse", run, "--json").stdout)["forgetting"] is None
    assert "--disturbed 6" in refused("analyse", run, "--disturbed", 6)
    other = tmp_path / "other"
    assert call("train", config_file, "--run-dir", other, *changes, "--seed", 1).exit_code == 0
    assert "each run once" in refused("analyse", run, other, run)
    alone_too = json.loads(call("analyse", other, *arguments[2:], "--json").stdout)
    pooled = json.loads(call("analyse", run, other, *arguments[2:], "--json").stdout)
    assert pooled["runs"] == [alone, *alone_too["runs"]]
    for key in ("gain", "forgetting"):
        both = [[c["tasks"] for c in d[key]] for d in (document, alone_too)]
        assert [c["tasks"] for c in pooled[key]] == [a + b for a, b in zip(*both, strict=True)]
        parts = [(d[key][-1]["tasks"], d[key][-1]["before"]) for d in (document, alone_too)]
        assert pooled[key][-1]["before"] == pytest.approx(sum(n * b for n, b in parts) / sum(n for n, _ in parts))
