"""Evaluations on a small benchmark of our own: denominators, records, going on after a kill, recorded predictions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from doubles import Doubles

from genenv.benchmarks import NAMES, make_benchmark
from genenv.contracts.errors import EngineError, InputError
from genenv.contracts.types import Score, Task
from genenv.engines.scripted import ScriptedEngine
from genenv.evaluation import official as evaluate
from genenv.evaluation import table
from genenv.evaluation.official import Options, Player, draw, run, sample_id, score_predictions


def respond(prompt: str, seed: int) -> str:
    """Right below 20, except 3 (unreadable), 5 (too long), 7 (waits first) and 9 (never stops waiting)."""
    n = int(prompt.partition("n=")[2].partition(";")[0])
    if n == 9 or (n == 7 and "go on" not in prompt):
        return "wait"
    return {3: "six", 5: "1" * 30}.get(n, str(2 * n) if n < 20 else "0")


def player(answer: Callable[[str, int], str] = respond, context: int | None = None) -> Player:
    engine = ScriptedEngine(answer, lambda p, s: "")
    return Player("scripted", engine.policy("agent"), context)


def silent(done: int, total: int, mean: float) -> None:
    pass


def test_every_sample_counts(tmp_path: Path) -> None:
    bench, seen = Doubles(), []
    result = run(bench, player(), Options(seed=3), tmp_path / "out", lambda *progress: seen.append(progress))
    assert result == {
        "benchmark": "doubles",
        "protocol": "equal numbers",
        "score": 16 / 40,
        "figures": {"even": 10 / 20, "odd": 6 / 20},
        "samples": 40,
        "of": 40,
        "malformed": 1,
        "cut_off": 1,
        "unscored": 1,
        "unscored_reason": "environment error: OSError: lost",
        "missing": 0,
        "subject": "scripted",
        "seed": 3,
        "temperature": 0.0,
        "max_tokens": 8,
        "max_turns": 2,
    }
    assert seen == [(32, 40, 0.5), (40, 40, 0.4)]
    assert bench.closed == 1
    assert json.loads((tmp_path / "out" / "result.json").read_text()) == result
    records = [json.loads(line) for line in (tmp_path / "out" / "records.jsonl").read_text().splitlines()]
    assert [r["id"] for r in records] == [f"n{i}" for i in range(40)]
    assert records[7] == {
        "id": "n7",
        "category": "odd",
        "prompt": "user: n=7;\nassistant: ",
        "output": ["wait", "14"],
        "stop": "stop",
        "score": 1.0,
        "reason": "right",
        "answer": 14,
        "checks": {"close": True},
    }
    assert (records[5]["stop"], records[5]["output"]) == ("length", ["1" * 8])
    assert (records[9]["reason"], records[9]["stop"]) == ("out of turns", "turn_limit")
    assert (records[13]["score"], records[13]["reason"]) == (None, "environment error: OSError: lost")


def test_a_prompt_longer_than_the_context_is_a_wrong_sample(tmp_path: Path) -> None:
    """A prompt has 22 bytes, from n=10 on 23: below it one token is left, which is an answer for 0, 1, 2 and 4."""
    result = run(Doubles(12), player(context=23), Options(), tmp_path, silent)
    assert (result["score"], result["samples"], result["cut_off"]) == (4 / 12, 12, 12)
    last = json.loads((tmp_path / "records.jsonl").read_text().splitlines()[-1])
    assert last["reason"] == "context full: prompt of 23 tokens, the model takes 23"
    assert (last["score"], last["output"], last["stop"]) == (0.0, [], "length")


def test_a_draw_is_seeded_nested_and_in_order() -> None:
    tasks = Doubles().tasks()
    ten, five, other = draw(tasks, 10, 0), draw(tasks, 5, 0), draw(tasks, 10, 1)
    assert [len(ten), len(five)] == [10, 5]
    assert {t.id for t in five} < {t.id for t in ten}
    assert ten != other
    assert ten == sorted(ten, key=lambda t: t.target)
    assert ten != tasks[:10]
    assert draw(tasks, None, 0) == draw(tasks, 40, 0) == draw(tasks, 99, 0) == tasks
    assert run(Doubles(), player(), Options(limit=10), None, silent)["sample"] == "10 of 40 at random, seed 0"


def test_a_draw_is_the_same_on_every_machine() -> None:
    assert [sample_id(t) for t in draw(Doubles().tasks(), 4, 0)] == ["n4", "n20", "n30", "n35"]


def noisy(prompt: str, seed: int) -> str:
    return str(seed % 50)


def killed_at(call: int, answer: Callable[[str, int], str]) -> Callable[[str, int], str]:
    calls = 0

    def respond(prompt: str, seed: int) -> str:
        nonlocal calls
        calls += 1
        if calls == call:
            raise EngineError("gone")
        return answer(prompt, seed)

    return respond


def test_an_evaluation_that_was_stopped_ends_as_one_that_was_not(tmp_path: Path) -> None:
    options = Options(seed=1, temperature=0.5)
    whole = run(Doubles(), player(noisy), options, tmp_path / "whole", silent)
    records = (tmp_path / "whole" / "records.jsonl").read_text()

    bench = Doubles()
    with pytest.raises(EngineError):
        run(bench, player(killed_at(36, noisy)), options, tmp_path / "part", silent)
    assert bench.closed == 1
    path = tmp_path / "part" / "records.jsonl"
    assert path.read_text() == "".join(records.splitlines(keepends=True)[:32])
    path.write_text(path.read_text()[:-20])  # the last line was being written

    asked = []

    def counted(prompt: str, seed: int) -> str:
        asked.append(prompt)
        return noisy(prompt, seed)

    assert run(Doubles(), player(counted), options, tmp_path / "part", silent) == whole
    assert len(asked) == 9
    assert path.read_text() == records
    assert run(Doubles(), player(counted), options, tmp_path / "part", silent) == whole
    assert len(asked) == 9


@pytest.mark.parametrize(
    ("options", "count", "message"),
    [
        (Options(seed=2), 40, r"\(seed 1, now 2\): choose another --out"),
        (Options(seed=1, temperature=1.0, max_tokens=9), 40, r"\(temperature 0.0, now 1.0, max_tokens 8, now 9\)"),
        (Options(seed=1), 39, "samples"),
        (Options(seed=1, limit=3), 40, "limit None, now 3"),
    ],
)
def test_other_settings_are_refused(tmp_path: Path, options: Options, count: int, message: str) -> None:
    run(Doubles(), player(), Options(seed=1), tmp_path, silent)
    with pytest.raises(InputError, match=message):
        run(Doubles(count), player(), options, tmp_path, silent)


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "records.jsonl").write_text("{}\n")
    with pytest.raises(InputError, match=r"has no settings.json beside it"):
        run(Doubles(), player(), Options(), tmp_path, silent)
    (tmp_path / "settings.json").write_text("[]")
    with pytest.raises(InputError, match=r"settings.json: not a JSON object"):
        run(Doubles(), player(), Options(), tmp_path, silent)
    (tmp_path / "settings.json").unlink()
    (tmp_path / "records.jsonl").unlink()
    run(Doubles(), player(), Options(), tmp_path, silent)
    (tmp_path / "records.jsonl").write_text('{"id": "n0"}\n')
    with pytest.raises(InputError, match=r"records.jsonl:1: not a record of an evaluation"):
        run(Doubles(), player(), Options(), tmp_path, silent)


def predicted(path: Path, *records: object) -> Path:
    path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in records))
    return path


def test_recorded_predictions(tmp_path: Path) -> None:
    bench = Doubles(5)
    file = predicted(
        tmp_path / "p.jsonl",
        {"id": "n3", "output": {"value": 6}},
        {"id": "n0", "output": {"value": 1}},
        {"id": "n1", "output": None},
        {"id": "n4", "error": "refused"},
    )
    result = score_predictions(bench, file)
    lines = result.pop("lines")
    assert result == {
        "benchmark": "doubles",
        "protocol": "equal numbers",
        "score": 0.2,
        "figures": {"even": 0.0, "odd": 0.5},
        "samples": 5,
        "of": 5,
        "malformed": 1,
        "cut_off": 0,
        "unscored": 1,
        "unscored_reason": "error: refused",
        "missing": 1,
    }
    assert [(x["id"], x["value"], x["reason"]) for x in lines] == [
        ("n0", 0.0, "wrong"),
        ("n1", 0.0, "malformed: no object"),
        ("n2", 0.0, "missing output"),
        ("n3", 1.0, "right"),
        ("n4", None, "error: refused"),
    ]
    assert bench.closed == 1


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([{"id": "n1", "output": 1}, {"id": "n1", "output": 1}], "p.jsonl:2: id 'n1' occurs twice"),
        ([{"id": "n5", "output": 1}], "p.jsonl:1: id 'n5' is not in doubles"),
        ([{"id": "n1"}], r'p.jsonl:1: expected \{"id": ..., "output": ...\}'),
        (["[1]"], "p.jsonl:1: not a JSON object"),
        ([], "expected at least one JSON record, found none"),
    ],
)
def test_bad_predictions_are_refused(tmp_path: Path, records: list, message: str) -> None:
    with pytest.raises(InputError, match=message):
        score_predictions(Doubles(5), predicted(tmp_path / "p.jsonl", *records))


def test_names() -> None:
    with pytest.raises(InputError, match=f"benchmark bfcl2: expected one of {', '.join(NAMES)}"):
        make_benchmark("bfcl2")
    with pytest.raises(InputError, match="api-bank has no search tool"):
        make_benchmark("api-bank", passages=Path("x"))
    assert set(NAMES) <= set(table.COLUMNS)


def test_the_papers_means_are_those_of_its_rows() -> None:
    for name, (*figures, mean) in table.PAPER.items():
        assert abs(sum(figures) / 5 - mean) < 0.11, name


def test_there_is_a_mean_of_all_five_only() -> None:
    scores = dict(zip(table.COLUMNS, (0.1, 0.2, 0.3, 0.4, 0.5), strict=True))
    results: dict = {name: {"benchmark": name, "score": score, "figures": {}} for name, score in scores.items()}
    results["travelplanner"] |= {"score": 0.0, "figures": {"mean_of_four": 0.5}}
    assert table.overall(results) == pytest.approx(0.3)
    assert table.rows("mine", results)[1] == ["mine", "10.0", "20.0", "30.0", "40.0", "50.0", "30.0"]
    del results["bfcl"]
    assert table.overall(results) is None
    assert table.rows("mine", results)[1] == ["mine", "10.0", "-", "30.0", "40.0", "50.0", "-"]
    results["alfworld"]["sample"] = "4 of 134"
    assert table.rows("mine", results)[1][0] == "mine (samples only)"


def test_open_all_says_why_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GENENV_DATA", raising=False)
    monkeypatch.setattr(evaluate, "COLUMNS", ("api-bank", "bamboogle", "bfcl2"))
    (tmp_path / "bamboogle").mkdir()
    (tmp_path / "bamboogle" / "data.json").write_text('[{"Question": "?", "Answer": "!"}]')
    found, reasons = evaluate.open_all(tmp_path, None)
    assert list(found) == ["bamboogle"]
    assert reasons["bfcl2"].startswith("benchmark bfcl2: expected one of ")
    assert reasons["api-bank"].startswith("api-bank: no data: clone ")


def test_chance_draws_from_what_is_possible() -> None:
    class Dice(Doubles):
        def random_attempt(self, task: Task, seed: int) -> Score:
            return Score(float(seed == 3), "drawn", ["a", "b"])

    result = run(Dice(), Player("baseline:random", None), Options(seed=3, limit=4), None, silent)
    assert (result["score"], result["samples"]) == (1.0, 4)
    with pytest.raises(InputError, match="does not say what is possible"):
        run(Doubles(), Player("baseline:random", None), Options(), None, silent)
