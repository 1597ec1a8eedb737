"""A command line with scripted players."""

from __future__ import annotations

from pathlib import Path

import pytest
from planted import Levels

from genenv import session
from genenv.engines.scripted import ScriptedEngine


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions get scripted players on the planted domain instead of a model."""
    from test_run import agent, simulator

    monkeypatch.setattr(session, "make_engine", lambda config, seed: ScriptedEngine(agent, simulator))
    monkeypatch.setattr(session, "make_domain", lambda config: Levels())


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text("rounds = 3\n[simulator]\ntasks = 6\n[agent]\ngroup_size = 4\n[eval]\ntasks = 2\nrollouts = 2\n")
    return path
