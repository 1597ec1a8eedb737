"""Copies of the metrics: which numbers, and what a missing extra says."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from genenv.config.load import build_config
from genenv.contracts.errors import MissingExtraError
from genenv.runs.trackers import flat, open_trackers, require_trackers


def test_flat_keeps_numbers_under_dotted_names() -> None:
    metrics = {"round": 3, "success": None, "families": {"1-call": {"success": 0.5}}, "note": "x", "updated": True}
    assert flat(metrics) == {"round": 3.0, "families.1-call.success": 0.5, "updated": 1.0}


def test_nothing_is_opened_by_default(tmp_path: Path) -> None:
    assert open_trackers(build_config({}, "x"), tmp_path) == []


@pytest.mark.parametrize(("key", "value", "package"), [("tensorboard", True, "tensorboard"), ("wandb", "p", "wandb")])
def test_a_missing_extra_names_its_install_command(
    monkeypatch: pytest.MonkeyPatch, key: str, value: object, package: str
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=rf"pip install 'genenv-rl\[{package}\]'"):
        require_trackers(build_config({"log": {key: value}}, "x"))


def test_tensorboard_gets_event_files(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="extra tensorboard")
    (tracker,) = open_trackers(build_config({"log": {"tensorboard": True}}, "x"), tmp_path)
    tracker(1, {"families.1-call.success": 0.5})
    (events,) = (tmp_path / "tensorboard").iterdir()
    assert b"families/1-call/success" in events.read_bytes()
