"""The command line with the built-in model: a short co-evolution, killed in the middle and resumed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SMALL = """
rounds = 3

[engine]
threads = 1

[simulator]
tasks = 8

[agent]
group_size = 4

[eval]
tasks = 8
rollouts = 1
"""


def genenv(*arguments: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from genenv.cli.app import app; app()", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=check, timeout=300)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("demo")
    (folder / "small.toml").write_text(SMALL)
    genenv("train", folder / "small.toml", "--run-dir", folder / "run")
    return folder / "run"


def figures(run: Path) -> dict[str, object]:
    """The metrics table, without what the clock and the memory say."""
    report = json.loads(genenv("report", run, "--json").stdout)
    return {k: v for k, v in report.items() if not k.startswith(("seconds", "peak_memory"))}


def test_both_players_are_trained_and_reported(whole: Path) -> None:
    report = figures(whole)
    assert report["rounds"] == 3
    assert report["agent_rollouts"] > 0
    assert report["admitted"] >= 0.5 * report["candidates"]
    assert (whole / "report.html").is_file()
    for player in ("agent", "simulator"):
        folder = whole / "checkpoints" / "round_000003" / player
        assert json.loads((folder / "policy.json").read_text())["version"] > 0
        assert (folder / "adapter_model.safetensors").is_file()


def test_a_run_killed_in_mid_round_resumes_exactly(whole: Path, tmp_path: Path) -> None:
    """SIGKILL as soon as the first round is reported, that is within the second."""
    (tmp_path / "small.toml").write_text(SMALL)
    run = tmp_path / "run"
    command = [sys.executable, "-c", "from genenv.cli.app import app; app()", "train", str(tmp_path / "small.toml")]
    process = subprocess.Popen(
        [*command, "--run-dir", str(run)], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("round    1  success"):
            os.kill(process.pid, signal.SIGKILL)
            break
    process.stderr.close()
    assert process.wait() == -signal.SIGKILL
    assert json.loads(genenv("report", run, "--json").stdout)["rounds"] == 1
    genenv("train", "--resume", run)
    assert figures(run) == figures(whole)


def test_the_trained_agent_can_be_evaluated(whole: Path) -> None:
    result = json.loads(genenv("eval", whole, "--tasks", 4, "--rollouts", 1, "--json").stdout)
    assert result["round"] == 3
    assert result["tasks"] == 4
    assert result["unscored"] == 0
