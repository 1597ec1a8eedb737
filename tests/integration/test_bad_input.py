"""Whatever a user or a machine does wrong: one line, a status, nothing lost, nothing half-made."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from commands import call, refused, song

from genenv import session
from genenv.cli.terminal import failure
from genenv.contracts.types import derive_seed
from genenv.domains.tool_use.domain import ToolUse
from genenv.engines.scripted import ScriptedEngine
from genenv.reading import records as files
from genenv.runs.checkpoints import Checkpoints
from genenv.runs.store import Store


def failed(*arguments: object) -> str:
    """The one line of a command that failed while working."""
    result = call(*arguments)
    assert result.exit_code == 1, result.output
    *_, line = result.stderr.splitlines()
    assert "Traceback" not in result.stderr
    return line


@pytest.mark.parametrize("name", ["file", "file/below", "/proc/nowhere"])
def test_a_run_folder_that_cannot_be_made(scripted: None, config_file: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    assert "cannot make the run folder" in refused("train", config_file, "--run-dir", tmp_path / name)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "small.toml"]


def test_a_disk_that_is_full_at_the_start_leaves_nothing(
    scripted: None,
    config_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(self: Path, *rest: object) -> None:
        raise OSError(28, "No space left on device", str(self))

    monkeypatch.setattr(Path, "write_text", full)
    assert "No space left on device" in failed("train", config_file, "--run-dir", tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("where", "error"),
    [
        ("commit_round", OSError(28, "No space left on device")),
        ("commit_round", sqlite3.OperationalError("database or disk is full")),
        ("save", OSError(28, "No space left on device")),
        ("save", RuntimeError("a library: No space left on device")),
    ],
)
def test_a_disk_that_fills_up_costs_one_round(
    scripted: None,
    config_file: Path,
    tmp_path: Path,
    where: str,
    error: Exception,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        if where == "save":
            original = Checkpoints.save

            def full(folder: Path) -> None:
                (folder / "part").write_text("x")
                raise error

            patch.setattr(Checkpoints, where, lambda self, n, write: original(self, n, full if n == 2 else write))
        else:
            commit = Store.commit_round

            def fails(self: Store, number: int, *rest: object) -> None:
                if number == 2:
                    raise error
                commit(self, number, *rest)

            patch.setattr(Store, where, fails)
        line = failed("train", config_file, "--run-dir", run)
        assert "full" in line or "No space" in line
    assert [p.name for p in sorted((run / "checkpoints").iterdir())] == ["round_000000", "round_000001"]
    assert call("train", run, "--resume").exit_code == 0
    whole = tmp_path / "whole"
    assert call("train", config_file, "--run-dir", whole).exit_code == 0
    same = [json.loads(call("report", r, "--json").stdout)["success_by_round"] for r in (run, whole)]
    assert same[0] == same[1]


def damage(run: Path, kind: str) -> None:
    database = run / "run.sqlite"
    if kind == "no database":
        database.write_bytes(b"this is a text file and no database at all")
    elif kind == "another database":
        database.unlink()
        with sqlite3.connect(database) as db:
            db.execute("CREATE TABLE t (x)")
        db.close()
    elif kind == "another version":
        with sqlite3.connect(database) as db:
            db.execute("PRAGMA user_version = 7")
        db.close()
    elif kind == "cut configuration":
        (run / "config.json").write_text((run / "config.json").read_text()[:100])
    elif kind == "configuration of bytes":
        (run / "config.json").write_bytes(b"\xff\xfe\x00")
    elif kind == "configuration of another kind":
        (run / "config.json").write_text("[1]")
    elif kind == "unknown key":
        (run / "config.json").write_text('{"roundz": 3}')


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("no database", "run.sqlite cannot be opened: file is not a database"),
        ("another database", "not the database of a run: it has no table candidates"),
        ("another version", "records of version 7, this program reads version 1"),
        ("cut configuration", "config.json cannot be read"),
        ("configuration of bytes", "config.json cannot be read"),
        ("configuration of another kind", "expected the configuration as a JSON object"),
        ("unknown key", "unknown key roundz; did you mean rounds?"),
    ],
)
def test_a_damaged_run_folder_is_refused_by_every_command(
    scripted: None,
    config_file: Path,
    tmp_path: Path,
    kind: str,
    message: str,
) -> None:
    run = tmp_path / "run"
    assert call("train", config_file, "--run-dir", run).exit_code == 0
    damage(run, kind)
    for command in (("report", run), ("tasks", run), ("eval", run), ("train", run, "--resume")):
        assert message in refused(*command)


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


GOOD = json.dumps(song("Echoes")).encode()


@pytest.mark.parametrize("content", [b"\xef\xbb\xbf" + GOOD, GOOD + b"\r\n", b"\n\n" + GOOD, GOOD + b"\n \t\n"])
def test_marks_and_line_endings_of_other_systems_are_read(tmp_path: Path, content: bytes) -> None:
    assert "admitted" in call("gate", "tool_use", write(tmp_path / "t.jsonl", content)).stdout


def test_separators_of_unicode_do_not_end_a_record(tmp_path: Path) -> None:
    record = json.dumps(song("Night\u2028Train\u0085"), ensure_ascii=False).encode()
    result = call("gate", "tool_use", write(tmp_path / "t.jsonl", record))
    assert len(result.stdout.splitlines()) == 1


def test_huge_records_are_skipped_or_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_RECORD", 500)
    monkeypatch.setattr("genenv.evaluation.own_files.MAX_RECORD", 500)
    path = write(tmp_path / "t.jsonl", GOOD + b"\n" + json.dumps(song("x" * 5000)).encode() + b"\n" + GOOD + b"\n")
    result = call("gate", "tool_use", path)
    assert [x.split("\t")[1] for x in result.stdout.splitlines()] == ["admitted", "too_long", "duplicate"]
    assert f"{path}:2: expected a record of at most 500 bytes" in refused("score", path, path)


def test_a_byte_order_mark_before_a_configuration(tmp_path: Path) -> None:
    path = write(tmp_path / "c.toml", b"\xef\xbb\xbfrounds = 1\r\n")
    assert "./nowhere" in refused("train", path, "--run-dir", tmp_path / "r", "--set", "engine.model=./nowhere")


def test_no_held_out_tasks_to_evaluate_on(scripted: None, monkeypatch: pytest.MonkeyPatch) -> None:
    from planted import Levels

    monkeypatch.setattr(Levels, "heldout", lambda self, count, seed: [])
    assert "no held-out tasks" in refused("eval", "builtin:tiny")


def test_a_database_that_has_rolled_back_by_itself_still_tells_why(
    scripted: None, config_file: Path, tmp_path: Path
) -> None:
    assert call("train", config_file, "--run-dir", tmp_path / "run").exit_code == 0
    with closing(Store.resume(tmp_path / "run")) as store:

        def fill_up() -> None:
            with store._transaction() as db:
                db.execute("ROLLBACK")
                raise sqlite3.OperationalError("database or disk is full")

        with pytest.raises(sqlite3.OperationalError, match="disk is full"):
            fill_up()
        assert len(store.metrics()) == 3


def test_seeds_that_are_evaluation_tasks_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    domain = ToolUse()
    held = domain.heldout(4, derive_seed("heldout"))
    monkeypatch.setattr(session, "make_engine", lambda config, seed: ScriptedEngine(lambda p, s: "", lambda p, s: ""))
    (tmp_path / "c.toml").write_text("rounds = 1\n[simulator]\ntasks = 2\n[eval]\ntasks = 4\n")
    seeds = [held[0].spec, *(s.spec for s in domain.seeds(4, 0))]
    (tmp_path / "seeds.jsonl").write_text("".join(json.dumps(s) + "\n" for s in seeds))
    command = (
        "train",
        tmp_path / "c.toml",
        "--run-dir",
        tmp_path / "run",
        "--set",
        f"domain.seeds={tmp_path / 'seeds.jsonl'}",
    )
    result = call(*command)
    assert result.exit_code == 0
    assert "5 read, 1 dropped that are in the evaluation set, 4 left" in " ".join(result.stderr.split())
    (tmp_path / "seeds.jsonl").write_text(json.dumps(seeds[0]))
    assert "1 read, 1 dropped that are in the evaluation set, 0 left" in refused(
        *command[:2], "--run-dir", tmp_path / "b", *command[4:]
    )


@pytest.mark.parametrize("content", ["{}", "{"])
def test_a_damaged_model_is_refused_before_a_folder_is_made(config_file: Path, tmp_path: Path, content: str) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(content)
    line = refused("train", config_file, "--run-dir", tmp_path / "run", "--set", f"engine.model={tmp_path / 'model'}")
    assert "cannot be loaded" in line
    assert not (tmp_path / "run").exists()


def test_what_the_machine_says_is_one_line() -> None:
    assert failure(OSError(13, "Permission denied", "/x")) == "Permission denied: /x"
    assert failure(sqlite3.OperationalError("a\nb")) == "a b"
    assert failure(OSError()) == "OSError"
