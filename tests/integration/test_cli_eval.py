"""`genenv eval` on benchmarks, as a user meets it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import call, lines, refused

from genenv.evaluation import official as evaluate

QUESTIONS = [{"Question": f"What is {i}?", "Answer": f"thing {i}"} for i in range(6)]
CALL = {"name": "SetTimer", "parameters": {"minutes": "5"}}
RECORD = {"system": "Tools.", "user": "Timer, please.", "answer": [CALL], "other": {}}


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two benchmarks of our own under one folder, and a third without data, are all that there is."""
    monkeypatch.delenv("GENENV_DATA", raising=False)
    monkeypatch.setattr(evaluate, "COLUMNS", ("api-bank", "bamboogle", "travelplanner"))
    root = tmp_path / "data"
    (root / "bamboogle").mkdir(parents=True)
    (root / "bamboogle" / "data.json").write_text(json.dumps(QUESTIONS))
    (root / "api-bank").mkdir()
    for level in (1, 2, 3):
        (root / "api-bank" / f"level-{level}-api_processed.json").write_text(json.dumps([RECORD]))
    return root


def test_a_baseline_on_one_benchmark(data: Path, tmp_path: Path) -> None:
    arguments = ("eval", "baseline:empty", "--benchmark", "bamboogle", "--data", data / "bamboogle", "--limit", 4)
    result = call(*arguments, "--out", tmp_path / "out", "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["score"] == 0.0
    assert (document["samples"], document["of"], document["malformed"]) == (4, 6, 4)
    assert document["sample"] == "4 of 6 at random, seed 0"
    assert "closed book" in document["protocol"]
    assert result.stderr.splitlines() == ["bamboogle  4/4  0.0 % so far"]
    assert len((tmp_path / "out" / "records.jsonl").read_text().splitlines()) == 4
    shown = call(*arguments).stdout
    assert "bamboogle       0.0 %   4 of 6 at random, seed 0; 4 malformed, 0 cut off, 0 unscored, 0 missing" in shown
    assert document["protocol"] in shown
    other = refused(*arguments, "--out", tmp_path / "out", "--seed", 1)
    assert "holds an evaluation with other settings" in other


def test_data_is_found_by_the_environment(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GENENV_DATA", str(data))
    assert json.loads(call("eval", "baseline:empty", "--benchmark", "api-bank", "--json").stdout)["samples"] == 3


def test_a_search_tool(data: Path, tmp_path: Path) -> None:
    passages = lines(tmp_path / "p.jsonl", {"title": "Things", "text": "Thing 1 is a thing."})
    arguments = ("eval", "baseline:empty", "--benchmark", "bamboogle", "--data", data / "bamboogle")
    document = json.loads(call(*arguments, "--passages", passages, "--json").stdout)
    assert re.search(r"search tool [0-9a-f]{16}, 8 turns", document["protocol"])
    assert "cannot read" in refused(*arguments, "--passages", tmp_path / "none.jsonl")


def test_all_benchmarks_in_one_table(data: Path, tmp_path: Path) -> None:
    result = call("eval", "baseline:empty", "--all", "--data", data, "--out", tmp_path / "out", "--json")
    document = json.loads(result.stdout)
    assert document["mean"] is None
    assert set(document["benchmarks"]) == {"api-bank", "bamboogle", "travelplanner"}
    assert document["benchmarks"]["api-bank"]["score"] == 0.0
    assert set(document["benchmarks"]["travelplanner"]) == {"reason"}
    assert (tmp_path / "out" / "api-bank" / "records.jsonl").exists()
    shown = call("eval", "baseline:empty", "--all", "--data", data).stdout
    rows = [line.split() for line in shown.splitlines()]
    assert ["%", "ALFWorld", "BFCL", "API-Bank", "Bamboogle", "TravelPlanner", "mean"] in rows
    assert ["baseline:empty", "-", "-", "0.0", "0.0", "-", "-"] in rows
    assert ["GenEnv", "7B", "54.5", "41.8", "79.1", "76.0", "16.6", "53.6"] in rows
    assert "arXiv 2512.19682" in shown
    nothing = refused("eval", "baseline:empty", "--all", "--data", tmp_path)
    assert nothing.startswith("genenv: --all: ")


def test_recorded_predictions(data: Path, tmp_path: Path) -> None:
    right = f"<tool_call>\n{json.dumps(CALL)}\n</tool_call>"
    outputs = lines(tmp_path / "o.jsonl", {"id": "Level1_0", "output": right}, {"id": "Level2_0", "output": "hm"})
    arguments = ("eval", "--benchmark", "api-bank", "--data", data / "api-bank", "--predictions", outputs)
    result = call(*arguments, "--json")
    assert result.stderr == ""
    document = json.loads(result.stdout)
    assert document["score"] == pytest.approx(1 / 3)
    assert document["figures"]["level-1"] == 1.0
    assert (document["malformed"], document["missing"]) == (1, 1)
    shown = call(*arguments).stdout.splitlines()
    assert shown[0] == f"Level1_0\t1\t{json.dumps([CALL])}\tright"
    assert shown[2] == "Level3_0\t0\tnull\tmissing output"
    unknown = lines(tmp_path / "u.jsonl", {"id": "Level1_1", "output": right})
    assert "id 'Level1_1' is not in api-bank" in refused(*arguments[:-1], unknown)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "expected a run folder or a model, or --benchmark with --predictions"),
        (["--benchmark", "api-bank"], "expected a run folder or a model"),
        (["--all"], "expected a run folder or a model"),
        (["--predictions", "p"], "--predictions: expected --benchmark beside it"),
        (["m", "--benchmark", "api-bank", "--predictions", "p"], "RUN_OR_MODEL: not for --predictions"),
        (["--benchmark", "api-bank", "--predictions", "p", "--limit", "3", "--out", "o"],
         "--limit, --out: not for --predictions"),
        (["m", "--all", "--benchmark", "api-bank"], "--benchmark: not for --all"),
        (["m", "--benchmark", "api-bank", "--rollouts", "2"], "--rollouts: not for --benchmark"),
        (["m", "--limit", "3"], "--limit: not for held-out tasks"),
        (["m", "--benchmark", "api-banks"], "benchmark api-banks: expected one of "),
        (["m", "--benchmark", "api-bank"], "api-bank: no data: clone"),
        (["m", "--benchmark", "api-bank", "--data", "nowhere"], "api-bank: nowhere is no folder: clone"),
        (["m", "--benchmark", "api-bank", "--passages", "x"], "api-bank has no search tool"),
    ],
)  # fmt: skip
def test_combinations_that_make_no_sense(arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GENENV_DATA", raising=False)
    assert message in refused("eval", *arguments)


def test_the_built_in_model_on_official_data(official: Callable[[str], Path]) -> None:
    """Prompts that do not fit are samples, too."""
    result = call("eval", "builtin:tiny", "--benchmark", "api-bank", "--data", official("api-bank"), "--limit", 3,
                  "--max-tokens", 16, "--json")  # fmt: skip
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert (document["samples"], document["of"], document["unscored"]) == (3, 597, 0)


def test_a_checkpoint_asked_for_by_its_round(scripted: None, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("rounds = 2\n[simulator]\ntasks = 6\n[agent]\ngroup_size = 4\n[eval]\ntasks = 0\n")
    assert call("train", tmp_path / "c.toml", "--run-dir", tmp_path / "run").exit_code == 0
    few = ("--tasks", 3, "--rollouts", 1, "--json")
    assert json.loads(call("eval", tmp_path / "run", "--round", 1, *few).stdout)["round"] == 1
    assert json.loads(call("eval", tmp_path / "run", *few).stdout)["round"] == 2
    (tmp_path / "run" / "checkpoints" / "round_000001" / "pools.json").write_bytes(b"")
    for arguments, line in [
        (("--round", 1), "round_000001 of"),
        (("--round", 7), "has no checkpoint of round 7, only of 1, 2"),
        (("--base-url", "http://x"), "base_url: not for a run"),
    ]:
        result = call("eval", tmp_path / "run", *arguments)
        assert result.exit_code == 2
        assert line in result.stderr
    result = call("eval", "builtin:tiny", "--round", 1)
    assert result.exit_code == 2
    assert "--round 1: builtin:tiny is no run folder" in result.stderr
    result = call("eval", "builtin:tiny", "--base-url", "http://x")
    assert result.exit_code == 2
    assert "builtin:tiny is not behind a server" in result.stderr


def test_splits_and_baselines_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    for arguments, line in [
        (("baseline:empty", "--benchmark", "bamboogle", "--split", "train"), "bamboogle: split train: expected none"),
        (("baseline:empty", "--benchmark", "alfworld", "--split", "x"), "expected valid_unseen or valid_seen or train"),
        (("baseline:empty", "--all", "--split", "train"), "--split: not for --all"),
        (("baseline:chance", "--benchmark", "bamboogle"), "expected baseline:empty or baseline:random"),
        (("baseline:random",), "only for --benchmark alfworld"),
    ]:
        result = call("eval", *arguments)
        assert result.exit_code == 2
        assert line in " ".join(result.stderr.split())
