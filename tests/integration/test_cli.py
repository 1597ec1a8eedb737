"""The command line as a user meets it: output, exit status, one line for each mistake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import call, lines, refused, song

from genenv import session
from genenv.config.load import build_config
from genenv.domains.tool_use.domain import ToolUse
from genenv.reading.parsing import Call, format_tool_calls


def test_train_report_tasks_eval_on_one_run(scripted: None, config_file: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    result = call("train", config_file, "--run-dir", run, "--seed", 5, "--set", "simulator.tasks=8", "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["rounds"] == 3
    assert document["run"] == str(run)
    assert json.loads((run / "config.json").read_text())["seed"] == 5
    assert (run / "report.html").stat().st_size > 1000

    figures = json.loads(call("report", run, "--json").stdout)
    for key in [
        "rounds",
        "success_by_round",
        "admitted_share_by_round",
        "rejected_by_reason",
        "useful_group_share_by_round",
        "in_band_from_round",
        "heldout_start",
        "heldout_end",
        "agent_rollouts",
        "agent_tokens",
        "simulator_tokens",
        "seconds",
        "peak_memory_mb",
    ]:
        assert key in figures
    assert len(figures["success_by_round"]) == 3

    rows = json.loads(call("tasks", run, "--round", 2, "--json").stdout)
    assert len(rows) == 8
    assert {"reason", "p_hat", "reward", "text"} <= rows[0].keys()
    assert "admitted" in call("tasks", run, "--reason", "admitted").stdout

    scored = json.loads(call("eval", run, "--tasks", 4, "--rollouts", 3, "--json").stdout)
    assert (scored["round"], scored["tasks"], scored["unscored"]) == (3, 4, 0)
    assert 0.0 <= scored["score"] <= 1.0

    again = call("train", run, "--resume", "--json")
    assert again.exit_code == 0
    assert json.loads(again.stdout)["success_by_round"] == figures["success_by_round"]


def test_mistakes_of_train(scripted: None, config_file: Path, tmp_path: Path) -> None:
    misspelt = refused("train", config_file, "--run-dir", tmp_path / "a", "--set", "agent.group_sizes=1")
    assert "unknown key agent.group_sizes; did you mean agent.group_size?" in misspelt
    assert "cannot read" in refused("train", tmp_path / "none.toml", "--run-dir", tmp_path / "a")
    assert "not a run folder" in refused("train", tmp_path, "--resume")
    assert "drop --seed" in refused("train", tmp_path, "--resume", "--seed", 1)
    assert not (tmp_path / "a").exists()
    assert call("train", config_file, "--run-dir", tmp_path / "a").exit_code == 0
    assert "already holds a run" in refused("train", config_file, "--run-dir", tmp_path / "a")


def test_a_missing_model_is_refused_before_a_folder_is_made(config_file: Path, tmp_path: Path) -> None:
    line = refused("train", config_file, "--run-dir", tmp_path / "a", "--set", "engine.model=./nowhere")
    assert "expected a folder with config.json" in line
    assert not (tmp_path / "a").exists()


def test_gate_gives_each_line_one_verdict(tmp_path: Path) -> None:
    file = lines(tmp_path / "t.jsonl", song("Echoes"), song("echoes"), song("Echoes"), "{nonsense", {"calls": []})
    result = call("gate", "tool_use", file)
    assert result.exit_code == 0
    assert [x.split("\t")[:2] for x in result.stdout.splitlines()] == [
        ["1", "admitted"],
        ["2", "contradiction"],  # the same request to a reader, but another title
        ["3", "duplicate"],
        ["4", "unparsable"],
        ["5", "schema"],
    ]
    document = json.loads(call("gate", "tool_use", file, "--json").stdout)
    assert [d["reason"] for d in document] == ["admitted", "contradiction", "duplicate", "unparsable", "schema"]


def test_score_counts_every_task(tmp_path: Path) -> None:
    tasks = lines(tmp_path / "t.jsonl", *(song(t, id=t) for t in ("Echoes", "Wildfire", "Paper Moon", "Night Train")))
    right = format_tool_calls([Call("play_song", {"title": "Echoes"})])
    outputs = lines(
        tmp_path / "o.jsonl",
        {"id": "Echoes", "output": right},
        {"id": "Wildfire", "output": right},
        {"id": "Paper Moon", "output": "<tool_call>{"},
    )
    result = call("score", tasks, outputs)
    rows = [x.split("\t") for x in result.stdout.splitlines()]
    assert [(r[0], r[1]) for r in rows] == [
        ("Echoes", "1"),
        ("Wildfire", "0"),
        ("Paper Moon", "0"),
        ("Night Train", "0"),
    ]
    assert rows[1][3] == "wrong arguments for play_song"
    assert rows[2][3].startswith("malformed")
    assert rows[3][3] == "missing output"
    assert json.loads(call("score", tasks, outputs, "--json").stdout)["score"] == 0.25


@pytest.mark.parametrize(
    ("tasks", "outputs", "message"),
    [
        ([song("A", id=1), song("B", id=1)], [{"id": 1, "output": ""}], "t.jsonl:2: id '1' occurs twice"),
        ([song("A", id=1)], [{"id": 1, "output": ""}] * 2, "o.jsonl:2: id '1' occurs twice"),
        ([song("A", id=1)], [{"id": 2, "output": ""}], "id '2' is not in"),
        ([song("A", id=1)], [{"id": 1}], "o.jsonl:1: expected"),
        ([{"id": 1}], [{"id": 1, "output": ""}], "t.jsonl:1: not a tool_use specification"),
        ([], [{"id": 1, "output": ""}], "expected at least one JSON record, found none"),
    ],
)
def test_score_refuses_bad_files(tmp_path: Path, tasks: list, outputs: list, message: str) -> None:
    paths = lines(tmp_path / "t.jsonl", *tasks), lines(tmp_path / "o.jsonl", *outputs)
    assert message in refused("score", *paths)


def test_files_that_are_not_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_bytes(b"\xff\xfe\x00")
    assert "expected UTF-8" in refused("gate", "tool_use", tmp_path / "bad.jsonl")
    assert "domain.name" in refused("gate", "no_such_domain", tmp_path / "bad.jsonl")


def test_doctor_tells_what_will_run() -> None:
    findings = json.loads(call("doctor", "--json").stdout)
    assert findings["engine"] == "local, builtin:tiny"
    assert findings["memory_mb"]["total"] > 0
    assert "torch" in call("doctor").stdout


def test_doctor_plans_without_the_model(tmp_path: Path) -> None:
    config = tmp_path / "large.toml"
    config.write_text('[engine]\nmodel = "Qwen/Qwen2.5-7B-Instruct"\n')
    plan = json.loads(call("doctor", config, "--plan", "--gpu", "h100-80gb", "--json").stdout)
    assert plan["parameters"]["all"] == 7_615_616_512
    assert plan["advice"] == "lower engine.token_budget to 4096"
    assert (
        "fits        no: lower engine.token_budget to 4096"
        in call("doctor", config, "--plan", "--gpu", "h100-80gb").stdout
    )
    assert "--gpu 80GB: expected one of l4-24gb" in refused("doctor", config, "--plan", "--gpu", "80GB")
    config.write_text('[engine]\nmodel = "Nobody/Nothing-1B"\n')
    assert "not among the known shapes" in refused("doctor", config, "--plan", "--gpu", "h100-80gb")


def test_users_seeds_and_catalogue(tmp_path: Path) -> None:
    catalogue = lines(
        tmp_path / "c.jsonl",
        {"type": "function", "function": {
            "name": "ship_order", "description": "Ship an order.",
            "parameters": {"type": "object", "properties": {"order": {"type": "string"}, "express": {"type": "boolean"}},
                           "required": ["order"]}}},
    )  # fmt: skip
    spec = {"calls": [{"name": "ship_order", "arguments": {"order": "X1", "express": True}}], "distractors": []}
    settings = build_config({"domain": {"catalogue": catalogue, "seeds": lines(tmp_path / "s.jsonl", spec)}}, "x")
    domain = session.make_domain(settings.domain)
    (seed,) = session.make_seeds(settings.domain, domain)
    assert seed.family == "1-call"
    assert domain.build(seed.spec).messages[-1].content == "Ship an order with order X1, express true."
    assert isinstance(domain, ToolUse)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"name": "f"}, "parameters"),
        ({"name": "f", "parameters": {"type": "nonsense"}}, "not a function record"),
        ({"name": "f f", "parameters": {}}, "name"),
        ("[1]", "not a function record"),
    ],
)
def test_a_broken_catalogue_is_named_with_its_line(tmp_path: Path, record: object, message: str) -> None:
    good = {"name": "ok", "parameters": {"type": "object", "properties": {}}}
    catalogue = lines(tmp_path / "c.jsonl", good, record)
    line = refused("gate", "tool_use", lines(tmp_path / "t.jsonl", song("A")), "--catalogue", catalogue)
    assert "c.jsonl:2" in line
    assert message in line


def test_version_and_help() -> None:
    assert call("--version").stdout.startswith("genenv ")
    for command in ("train", "eval", "report", "tasks", "gate", "score", "doctor"):
        assert command in call("--help").stdout
        assert call(command, "--help").exit_code == 0
