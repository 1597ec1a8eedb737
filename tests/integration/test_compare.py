"""A whole suite with scripted players, each run in a process of its own: play, fail, go on, report."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from commands import call, refused
from pages import Page

from genenv.cli.compare import SuiteDisplay
from genenv.studies import suite
from genenv.studies.suite import _Processes, load_suite, play_all, runs_of

PROGRAM = Path(__file__).parents[1] / "support" / "scripted_program.py"
BASE = """
[domain]
seed_count = 12
[simulator]
tasks = 4
max_tokens = 100
[agent]
group_size = 4
max_tokens = 40
steps = 1
[eval]
tasks = 6
rollouts = 2
every = 2
"""
SUITE = 'base = "base.toml"\narms = ["genenv", "static"]\nrounds = 6\nseeds = [0, 1]\n'


@pytest.fixture(autouse=True)
def scripted_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "PROGRAM", (sys.executable, str(PROGRAM)))


def written(folder: Path, text: str = SUITE) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "base.toml").write_text(BASE)
    (folder / "suite.toml").write_text(text)
    return folder / "suite.toml"


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    """A suite of which one run failed at first, and its comparison."""
    folder = tmp_path_factory.mktemp("suite")
    path = written(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(suite, "PROGRAM", (sys.executable, str(PROGRAM)))
        patch.setenv("BROKEN_SEED", "1")
        first = call("compare", path, "--out", folder / "out", "--jobs", 2, "--json")
        assert first.exit_code == 1
        half = json.loads(first.stdout)
        assert len(half["failures"]) == 2
        assert "No space left on device" in half["failures"][0]
        assert half["missing"] == ["genenv-1", "static-1"]
        assert [a["seeds"] for a in half["arms"].values()] == [[0], [0]]
        assert "2 of 4 runs failed" in first.stderr
        patch.delenv("BROKEN_SEED")
        before = stamps(folder / "out")
        second = call("compare", path, "--out", folder / "out", "--json", "--png")
        assert second.exit_code == 0, second.output
        assert stamps(folder / "out")["genenv-0"] == before["genenv-0"]
    return folder, json.loads(second.stdout)


def stamps(out: Path) -> dict[str, list[str]]:
    """The timing of all rounds of each run: other figures whenever it is played again."""
    found = {}
    for run in out.glob("*/run.sqlite"):
        with sqlite3.connect(run) as db:
            found[run.parent.name] = [t for (t,) in db.execute("SELECT timing FROM rounds ORDER BY round")]
    return found


def test_a_suite_goes_on_where_it_failed_and_repeats_nothing(done: tuple[Path, dict]) -> None:
    folder, found = done
    assert found["missing"] == found["failures"] == []
    assert {n: len(t) for n, t in stamps(folder / "out").items()} == dict.fromkeys(
        ["genenv-0", "genenv-1", "static-0", "static-1"], 6
    )
    before = stamps(folder / "out")
    again = call("compare", folder / "suite.toml", "--out", folder / "out", "--json")
    assert stamps(folder / "out") == before
    assert {**json.loads(again.stdout), "written": 0} == {**found, "written": 0}


def test_the_figures_are_those_of_the_runs(done: tuple[Path, dict]) -> None:
    folder, found = done
    for name, arm in found["arms"].items():
        assert arm["seeds"] == [0, 1]
        assert arm["rollouts"] == 6 * 5 * 4
        assert arm["heldout"]["round"] == [0, 2, 4, 6]
        assert arm["heldout"]["rollouts"] == [0, 40, 80, 120]
        scores = []
        for seed in (0, 1):
            with sqlite3.connect(folder / "out" / f"{name}-{seed}" / "run.sqlite") as db:
                query = "SELECT avg(score) FROM evaluations WHERE round = 6"
                scores.append(db.execute(query).fetchone()[0])
                tried = db.execute("SELECT count(DISTINCT task_id) FROM rollouts").fetchone()[0]
        assert arm["final"]["by_seed"] == pytest.approx(scores)
        assert arm["final"]["mean"] == pytest.approx(sum(scores) / 2)
        assert arm["final"]["low"] <= arm["final"]["mean"] <= arm["final"]["high"]
        assert arm["tasks"] == pytest.approx(tried, abs=3)
        assert 1 <= arm["clusters"] <= arm["tasks"]
        held = arm["heldout"]["mean"]
        assert arm["average"]["mean"] == pytest.approx((held[0] / 2 + held[1] + held[2] + held[3] / 2) / 3)
    genenv, static = found["arms"]["genenv"], found["arms"]["static"]
    assert genenv["difference"] is None
    by_seed = [a - b for a, b in zip(static["final"]["by_seed"], genenv["final"]["by_seed"], strict=True)]
    assert static["difference"]["by_seed"] == pytest.approx(by_seed)
    assert static["difference"]["p"] in (0.5, 1.0)
    assert static["tasks"] == 12
    assert found["target"] == {"arm": "genenv", "score": genenv["final"]["mean"]}
    assert found["unequal"] == []


def test_the_report_is_a_page_a_table_and_a_picture(done: tuple[Path, dict]) -> None:
    folder, found = done
    page = Page((folder / "out" / "compare.html").read_text("utf-8"))
    assert page.open == []
    assert not [v for k, v in page.attributes if k in ("src", "href")]
    for figure in ("Fig. 1b, 4", "Fig. 4", "Fig. 5", "Fig. 6", "Fig. 7", "Fig. 8"):
        assert figure in page.text
    table = (folder / "out" / "compare.md").read_text("utf-8").splitlines()
    assert table[2].startswith("| `genenv` | 2 | ")
    assert len({line.count("|") for line in table[:4]}) == 1
    score = found["arms"]["static"]["final"]["mean"]
    assert f"| {100 * score:.1f} (" in table[3]
    assert "never below 0.5" in "\n".join(table)
    assert "| claim |" not in "\n".join(table)  # two seeds decide nothing
    assert (folder / "out" / "compare.png").read_bytes().startswith(b"\x89PNG")


def test_only_report_plays_nothing(tmp_path: Path) -> None:
    path = written(tmp_path / "s")
    assert "no run of" in refused("compare", path, "--out", tmp_path / "out", "--only-report")
    assert not (tmp_path / "out").exists()


def test_a_changed_suite_does_not_go_on_with_old_runs(done: tuple[Path, dict], tmp_path: Path) -> None:
    folder, _ = done
    path = written(tmp_path / "s", SUITE.replace("rounds = 6", "rounds = 7"))
    message = refused("compare", path, "--out", folder / "out")
    assert "genenv-0 holds a run with other settings than the suite now says" in message


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen]:
    """All processes that were started."""
    started: list[subprocess.Popen] = []
    start = subprocess.Popen

    class Watched(start):
        def __init__(self, *arguments: object, **options: object) -> None:
            super().__init__(*arguments, **options)
            started.append(self)

    monkeypatch.setattr(subprocess, "Popen", Watched)
    return started


def test_a_suite_that_is_ended_takes_its_runs_with_it(
    live: list[subprocess.Popen], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = written(tmp_path / "s", SUITE.replace("rounds = 6", "rounds = 600"))
    monkeypatch.setattr(SuiteDisplay, "note", lambda self, run, line: os.kill(os.getpid(), signal.SIGTERM))
    ended = call("compare", path, "--out", tmp_path / "out")
    assert ended.exit_code == 143
    assert [p.wait() for p in live] == [-signal.SIGTERM]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_nothing_starts_in_a_suite_that_was_ended(live: list[subprocess.Popen]) -> None:
    processes = _Processes()
    first = processes.start([sys.executable, "-c", "import signal; signal.pause()"])
    assert first is not None
    processes.end()
    assert processes.start([sys.executable, "-c", ""]) is None
    with first:
        pass
    assert [p.returncode for p in live] == [-signal.SIGTERM]


def test_a_run_that_is_killed_fails_alone_and_is_resumed(live: list[subprocess.Popen], tmp_path: Path) -> None:
    runs = runs_of(load_suite(written(tmp_path / "s", SUITE.replace("[0, 1]", "[0]"))), tmp_path)
    killed: list[str] = []

    def note(run: object, line: str) -> None:
        if run is runs[0] and line.startswith("round    3  success") and not killed:
            killed.append(line)
            (process,) = [p for p in live if str(runs[0].folder) in p.args]
            process.send_signal(signal.SIGKILL)

    failures = play_all(runs, 1, note, lambda run, failure: None)
    assert len(failures) == 1
    assert failures[0].startswith("genenv-0 ended with status -9: round    3")
    assert [r.state() for r in runs] == ["interrupted", "finished"]
    rounds = stamps(tmp_path)
    assert play_all(runs, 1, lambda run, line: None, lambda run, failure: None) == []
    assert [r.state() for r in runs] == ["finished", "finished"]
    after = stamps(tmp_path)
    assert after["static-0"] == rounds["static-0"]
    assert after["genenv-0"][:2] == rounds["genenv-0"][:2]
