"""Bamboogle: expectations of both rules by hand, answers in every form, episodes with a search tool."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from genenv.benchmarks.bamboogle import Bamboogle, covers, read_answer
from genenv.benchmarks.base import Result
from genenv.benchmarks.search import Passages, normalized
from genenv.contracts.errors import InputError
from genenv.contracts.types import Score, Trajectory
from genenv.engines.scripted import ScriptedEngine
from genenv.loop.rollouts import PlayConfig, play

QUESTIONS = [
    {"Question": "Where was the author of The Lost Kite born?", "Answer": "the City of Ulm\n"},
    {"Question": "How high is the hill that Ulm's tower faces?", "Answer": "3,127 m"},
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data.json").write_text(json.dumps(QUESTIONS))
    return tmp_path


def passages(folder: Path, *records: object) -> Passages:
    path = folder / "passages.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in records))
    return Passages.read(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The  City of\tUlm.", ["city", "of", "ulm"]),
        ("3,127 m", ["3127", "m"]),
        ("An apple, a day", ["apple", "day"]),
        ("Ann B. Lee", ["ann", "b", "lee"]),
        ("rock-and-roll", ["rockandroll"]),
        ("Théâtre", ["théâtre"]),
        ("a.", []),
        ("", []),
    ],
)
def test_normalisation(text: str, words: list[str]) -> None:
    assert normalized(text) == words


@pytest.mark.parametrize(
    ("answer", "em", "cover"),
    [
        ("City of Ulm", True, True),
        ("the CITY of  ulm!", True, True),
        ("She was born in the City of Ulm, Germany", False, True),
        ("Ulm", False, False),
        ("city Ulm of", False, False),
        ("the cityofulm", False, False),
        ("city of ulmo", False, False),  # words, not letters
        ("a", False, False),
    ],
)
def test_rules(folder: Path, answer: str, em: bool, cover: bool) -> None:
    bench = Bamboogle(folder)
    score = bench.replay(bench.tasks()[0], f"I think so. <answer>{answer}</answer>")
    assert score.checks == {"em": em, "cover_em": cover}
    assert score.value == float(cover)
    assert score.answer == answer
    assert score.reason == ("right" if cover else f"{answer!r} is not the answer")


def test_nothing_covers_an_empty_gold() -> None:
    assert not covers(["x"], [])
    assert not covers([], ["x"])


@pytest.mark.parametrize(
    ("text", "answer", "error"),
    [
        ("<answer> Ulm </answer>", "Ulm", ""),
        ("<answer>Bonn</answer> no: <answer>Ulm</answer>", "Ulm", ""),
        ("<answer>\\boxed{Ulm}</answer>", "Ulm", ""),
        ("First.\nSo it is \\boxed{Ulm}.", "Ulm", ""),
        ("First.\nAnswer: Ulm\nThat is all.", "Ulm", ""),
        ("Ulm", "Ulm", ""),
        ("<think>\n<answer>Bonn</answer>\n</think>\nUlm", "Ulm", ""),
        ("<answer>Ulm</answer> or <answer>Bonn", None, "unclosed <answer>"),
        ("<answer> </answer>", None, "empty answer"),
        ("so \\boxed{", None, "empty or unclosed box"),
        ("First.\nThen Ulm.", None, "no answer"),
        ("", None, "no answer"),
        ('<tool_call>{"name": "search"', None, "a call instead of an answer"),
    ],
)
def test_answers_are_found(text: str, answer: str | None, error: str) -> None:
    assert read_answer(text) == (answer, error)


def test_what_cannot_be_read_is_wrong_with_a_reason(folder: Path) -> None:
    bench = Bamboogle(folder)
    task = bench.tasks()[0]
    assert bench.replay(task, "one\ntwo") == Score(0.0, "malformed: no answer")
    assert bench.replay(task, ["Ulm"]) == Score(0.0, "malformed: expected the model's text, found list")


def test_a_judge_decides_where_there_is_one(folder: Path) -> None:
    asked = []

    def judge(question: str, gold: str, answer: str) -> bool:
        asked.append((question, gold, answer))
        if answer == "?":
            raise OSError("no line")
        return answer == "Ulm on the Danube"

    bench = Bamboogle(folder, judge=judge)
    task = bench.tasks()[0]
    right, wrong, failed = (bench.replay(task, a) for a in ("Ulm on the Danube", "City of Ulm", "?"))
    assert asked[0] == ("Where was the author of The Lost Kite born?", "the City of Ulm", "Ulm on the Danube")
    assert (right.value, right.checks) == (1.0, {"em": False, "cover_em": False, "judge": True})
    assert (wrong.value, wrong.checks) == (0.0, {"em": True, "cover_em": True, "judge": False})
    assert (failed.value, failed.reason) == (None, "judge: OSError: no line")
    results = [Result("0", "two-hop", s) for s in (right, wrong, failed)]
    assert bench.summarize(results) == {"score": 1 / 3, "em": 1 / 3, "cover_em": 1 / 3, "judge": 1 / 3}
    assert bench.protocol.startswith("judge over 125")


def test_closed_book_is_one_turn_without_tools(folder: Path) -> None:
    bench = Bamboogle(folder)
    task = bench.tasks()[1]
    assert (bench.max_turns, task.tools, task.spec["id"], task.target) == (1, (), "1", "3,127 m")
    step = bench.episode(task).step('<tool_call>{"name": "search", "arguments": {"query": "hill"}}</tool_call>')
    assert step.score == Score(0.0, "malformed: a call instead of an answer")


def test_passages_are_ranked(folder: Path) -> None:
    found = passages(
        folder,
        {"title": "Ulm", "text": "A city on the Danube with a tower."},
        {"title": "The Lost Kite", "text": "A novel by Ada Stern."},
        {"title": "Ada Stern", "text": "Novelist, born in the City of Ulm."},
        {"title": "Tower", "text": "Tower tower tower."},
    )
    assert found("Who wrote The Lost Kite?")[0] == "The Lost Kite: A novel by Ada Stern."
    assert found("tower") == ["Tower: Tower tower tower.", "Ulm: A city on the Danube with a tower."]
    assert found("the") == []
    assert found("Where was Stern born?")[0].startswith("Ada Stern:")


def test_rare_words_weigh_more(folder: Path) -> None:
    """ln(1 + 2.5 / 1.5) * 2.2 / (1 + 1.2 * 1.68) = 0.71 for the long one, ln(1 + 1.5 / 2.5) * 2.2 / (1 + 1.2 * 0.66) = 0.58."""
    texts = {"one": "common", "two": "common", "three": "rare but long long long long"}
    found = passages(folder, *({"title": k, "text": v} for k, v in texts.items()))
    assert [p.partition(":")[0] for p in found("common rare")] == ["three", "one", "two"]


def test_a_broken_file_of_passages_is_named_with_its_line(folder: Path) -> None:
    with pytest.raises(InputError, match=r'passages.jsonl:2: expected \{"title": "...", "text": "..."\}'):
        passages(folder, {"title": "a", "text": "b"}, {"title": "a"})


def search(query: object, name: str = "search") -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': {'query': query}})}</tool_call>"


def played(bench: Bamboogle, script: Sequence[str]) -> Trajectory:
    engine = ScriptedEngine(lambda prompt, seed: script[prompt.count("\ntool: ")], lambda p, s: "")
    config = PlayConfig(1, 256, bench.max_turns)
    return play(engine.policy("agent"), engine.chat, bench, bench.tasks()[:1], config, seed=0)[0][0]


def test_a_search_comes_back_to_the_agent(folder: Path) -> None:
    asked = []

    def find(query: str) -> list[str]:
        asked.append(query)
        if query == "broken":
            raise OSError("no line")
        return ["one", "two"] if query == "kite" else []

    bench = Bamboogle(folder, search=find)
    assert bench.tasks()[0].tools[0]["function"]["name"] == "search"
    script = [
        search("kite"),
        search("x"),
        search("broken"),
        search(5),
        search("y", "find"),
        "<tool_call>{",
        "City of Ulm",
    ]
    trajectory = played(bench, script)
    assert trajectory.score.value == 1.0
    assert asked == ["kite", "x", "broken"]
    assert trajectory.text.split("\n")[1:] == [
        "1. one",
        "2. two",
        script[1],
        "nothing found",
        script[2],
        "error: the search failed: no line",
        script[3],
        "error: expected a call of search with a query",
        script[4],
        "error: expected a call of search with a query",
        script[5],
        "error: not JSON: Expecting property name enclosed in double quotes at character 12",
        "City of Ulm",
    ]


def test_turns_end(folder: Path) -> None:
    trajectory = played(Bamboogle(folder, search=lambda query: []), [search("x")] * 9)
    assert trajectory.score == Score(0.0, "out of turns")
    assert trajectory.text.count("nothing found") == 7


def test_data_that_is_missing_or_damaged_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"neither bamboogle.json nor data.json in"):
        Bamboogle(tmp_path).tasks()
    (tmp_path / "bamboogle.json").write_text('[{"Question": "x"}]')
    with pytest.raises(InputError, match=r"bamboogle.json: 0.Answer: Field required"):
        Bamboogle(tmp_path).tasks()


def test_official_answers_are_right(official: Callable[[str], Path]) -> None:
    bench = Bamboogle(official("bamboogle"))
    tasks = bench.tasks()
    assert len(tasks) == 125
    for shown, em in (("<answer>{}</answer>", 1.0), ("<answer>It is {}, I think</answer>", 0.0)):
        scores = [bench.replay(t, shown.format(t.target)) for t in tasks]
        results = [Result(t.spec["id"], t.family, s) for t, s in zip(tasks, scores, strict=True)]
        assert bench.summarize(results) == {"score": 1.0, "em": em, "cover_em": 1.0}
    wrong = [bench.replay(t, tasks[i - 1].target + "x") for i, t in enumerate(tasks)]
    assert sum(s.value or 0.0 for s in wrong) == 0.0
