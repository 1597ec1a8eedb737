"""The demos of the worlds, one small round each with their built-in models: several turns, edits, held-out tasks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from genenv.cli.app import app
from genenv.runs.store import Store

SMALL = (
    "rounds=2", "engine.threads=1", "simulator.tasks=8", "agent.group_size=2", "eval.tasks=6", "eval.rollouts=1",
    "curriculum.edits=0.5",
)  # fmt: skip


@pytest.mark.parametrize("name", ["household", "qa", "travel"])
def test_a_small_demo(name: str, tmp_path: Path) -> None:
    if name == "travel":
        pytest.importorskip("highspy", reason="the extra travel is not installed")
    overrides = [part for setting in SMALL for part in ("--set", setting)]
    config = f"demo_{name}"
    result = CliRunner().invoke(app, ["train", str(config), "--run-dir", str(tmp_path / "run"), *overrides])
    assert result.exit_code == 0, result.output
    report = json.loads(CliRunner().invoke(app, ["report", str(tmp_path / "run"), "--json"]).stdout)
    assert report["rounds"] == 2
    assert report["admitted"] >= 4
    assert report["unscored_by_round"] == [0, 0]
    assert [h["attempts"] for h in report["heldout_by_round"]] == [6, 6]
    store = Store.read(tmp_path / "run")
    try:
        asked = [m["edits"] for m in store.metrics()]
        assert asked[0] == {}  # nothing was measured yet that could be edited
        assert sum(way["asked"] for way in asked[1].values()) > 0
        tasks = [row.task for row in store.candidates([1]) if row.task is not None]
        # what the agent wrote and what it was answered, turn by turn
        assert any(a["text"].count("\n") > 1 for t in tasks for a in store.attempts(t.id, 1))
    finally:
        store.close()
