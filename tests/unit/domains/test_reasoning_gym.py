"""Puzzles of reasoning-gym as a domain: with a worker of our own that misbehaves, and with the library where it is."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from genenv.config.load import build_config
from genenv.contracts.domain import SpecError, released
from genenv.contracts.errors import InputError, MissingExtraError
from genenv.contracts.types import Json, Score, Task
from genenv.domains.reasoning_gym import domain as reasoning_gym
from genenv.domains.reasoning_gym.domain import SEEDS, ReasoningGym, final_answer
from genenv.loop.gate import Gate
from genenv.session import make_domain

SUM: Json = {"dataset": "sums", "seed": 7, "levels": {"size": 1}}


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reasoning_gym, "WORKER", "toy_puzzles")
    monkeypatch.setattr(reasoning_gym, "PACKAGE", "genenv")
    monkeypatch.setenv("PYTHONPATH", ":".join(p for p in sys.path if p))


@pytest.fixture
def sums(toys: None) -> Iterator[ReasoningGym]:
    with released(ReasoningGym(["sums"], timeout=1)) as domain:
        yield domain


def score(domain: ReasoningGym, task: Task, text: str) -> Score:
    return domain.episode(task).step(text).score


def test_a_puzzle_and_its_verdicts(sums: ReasoningGym) -> None:
    task = sums.build(SUM)
    assert (task.family, task.spec) == ("sums", SUM)
    a, b = map(int, re.findall(r"\d+", task.messages[-1].content))
    right = str(a + b)
    assert sums.reference(task) == [f"<answer>{right}</answer>"]
    assert score(sums, task, f"Let me think: <answer>1</answer> no, <answer> {right} </answer>.") == Score(
        1, "right", right
    )
    assert score(sums, task, right).value == 1.0
    assert score(sums, task, f"{right}!") == Score(0.0, "wrong, the verifier says 0.4", f"{right}!")
    assert score(sums, task, "") == Score(0.0, "wrong, the verifier says 0.01", "")


def test_a_threshold_lets_parts_count(toys: None) -> None:
    with released(ReasoningGym(["sums"], threshold=0.3)) as domain:
        task = domain.build(SUM)
        assert score(domain, task, task.target["answer"] + "!") == Score(
            0.4, "the verifier says 0.4", task.target["answer"] + "!"
        )
        assert score(domain, task, "?").value == 0.0
        assert Gate(domain).judge(task).reason == "perturbed_passes"  # both answers at once hold the right one


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("raise", "the verifier fails on this answer: AssertionError: no such puzzle"),
        ("hang", "the verifier fails on this answer: the worker gave no answer within 1 s"),
        ("die", "the verifier fails on this answer: the worker died"),
        ("too much", "the verifier fails on this answer: the verifier says 1.5, which is no share"),
    ],
)
def test_an_answer_that_the_verifier_fails_on_is_wrong(sums: ReasoningGym, answer: str, reason: str) -> None:
    task = sums.build(SUM)
    assert score(sums, task, answer) == Score(0.0, reason, answer)
    assert score(sums, task, task.target["answer"]).value == 1.0


def test_a_puzzle_that_the_installed_version_makes_otherwise_is_not_scored(sums: ReasoningGym) -> None:
    task = sums.build(SUM)
    old = dataclasses.replace(task, messages=(task.messages[0], dataclasses.replace(task.messages[1], content="Old?")))
    for answer in ("3", task.target["answer"]):
        found = score(sums, old, answer)
        assert found == Score(None, "environment error: ValueError: another question", answer)


@pytest.mark.parametrize(
    ("level", "reason", "detail"),
    [
        (0, "schema", "the library refuses it: AssertionError: no such puzzle"),
        (1, "unscored", "the worker gave no answer within 1 s"),
        (2, "unscored", "the worker died"),
        (3, "reference_fails", "the library gives no answer to this puzzle"),
    ],
)
def test_puzzles_that_the_library_cannot_make(toys: None, level: int, reason: str, detail: str) -> None:
    with released(ReasoningGym(["sums", "bad"], timeout=1)) as domain:
        with pytest.raises(SpecError) as caught:
            domain.build({"dataset": "bad", "seed": 1, "levels": {"how": level}})
        assert (caught.value.reason, caught.value.detail) == (reason, detail)
        assert domain.build(SUM).family == "sums"


def test_a_data_set_without_tasks_is_an_error(toys: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reasoning_gym, "DRAWS", 3)
    with (
        released(ReasoningGym(["bad"], max_level=0)) as domain,
        pytest.raises(InputError, match="3 random puzzles of bad are no tasks: schema: the library refuses it: Assert"),
    ):
        domain.seeds(1, 0)


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        ({"dataset": "sum"}, "dataset: unknown data set 'sum', for example sums"),
        ({"seed": SEEDS}, "seed: those from 1000000 are for evaluation"),
        ({"seed": -1}, "seed: Input should be greater than or equal to 0"),
        ({"levels": {}}, "levels: expected size"),
        ({"levels": {"size": 1, "x": 0}}, "levels: expected size"),
        ({"levels": {"size": 3}}, "levels.size: expected 0 to 2, found 3"),
        ({"levels": {"size": True}}, "levels.size: Input should be a valid integer"),
        ({"more": 1}, "more: Extra inputs are not permitted"),
    ],
)
def test_specifications_that_are_no_puzzles(sums: ReasoningGym, changes: Json, detail: str) -> None:
    with pytest.raises(SpecError) as caught:
        sums.build({**SUM, **changes})
    assert (caught.value.reason, caught.value.detail) == ("schema", detail)


def test_seeds_and_evaluation_are_apart_and_the_same_every_time(toys: None) -> None:
    with (
        released(ReasoningGym(["sums", "countdown"], max_level=1)) as one,
        released(ReasoningGym(["sums", "countdown"], max_level=1)) as two,
    ):
        seeds, heldout = one.seeds(6, 3), one.heldout(6, 3)
        assert [s.id for s in seeds] == [s.id for s in two.seeds(6, 3)]
        assert [t.id for t in heldout] == [t.id for t in two.heldout(6, 3)]
        assert [s.family for s in seeds] == ["sums", "countdown"] * 3
        assert all(s.spec["seed"] < SEEDS for s in seeds)
        assert all(SEEDS <= t.spec["seed"] < 2 * SEEDS and t.origin == "heldout" for t in heldout)
        assert {s.spec["levels"]["size"] for s in one.seeds(40, 0) if s.family == "sums"} == {0, 1}


def test_what_the_simulator_reads(sums: ReasoningGym) -> None:
    (seed,) = sums.seeds(1, 0)
    chat, schema = sums.simulator_chat(seed, 0.25, "harder", 0)
    assert chat.messages[1].content.splitlines()[1:] == [
        "size: level 0 to 2 is 9, 99, 999.",
        "Family: sums. Solved: 25%. Write a new task, harder.",
    ]
    assert schema["properties"]["dataset"] == {"const": "sums"}
    assert schema["properties"]["levels"]["properties"] == {"size": {"type": "integer", "minimum": 0, "maximum": 2}}
    harder = dataclasses.replace(seed, spec={**seed.spec, "levels": {"size": 3}})
    assert (sums.direction(seed, harder), sums.direction(harder, seed)) == ("harder", "easier")


def test_code_never_reaches_a_verifier_that_evaluates(toys: None) -> None:
    with released(ReasoningGym(["countdown"], timeout=1)) as domain:
        task = domain.build({"dataset": "countdown", "seed": 1})
        for answer in ("die", "__import__('os')._exit(1)", "9**9**9", "(\n)"):
            reason = "wrong, it has characters that no right answer has"
            assert score(domain, task, answer) == Score(0.0, reason, answer)
        assert score(domain, task, "(1 + 2) * 3").reason == "wrong, the verifier says 0.01"


@pytest.mark.parametrize(
    ("name", "answer", "passes"),
    [
        ("n_queens", "[['Q', '_'], ['_', 'Q']]", True),
        ("n_queens", "Q _\n_ Q", True),
        ("spiral_matrix", "[1, -2, 3]", True),
        ("string_insertion", '["A", "B"]', True),
        ("binary_matrix", "exit()", False),
        ("binary_matrix", "os.abort", False),
        ("binary_matrix", "[x:=1]", False),
        ("puzzle24", "6 * (3 + 1) - 0", True),
        ("puzzle24", "6 * x", False),
    ],
)
def test_what_is_harmless(name: str, answer: str, passes: bool) -> None:
    assert bool(reasoning_gym.HARMLESS[name].fullmatch(answer)) is passes


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({}, "domain.options: .*missing a required argument: 'datasets'"),
        ({"datasets": []}, "expected datasets"),
        ({"datasets": ["sums"], "threshold": 0.0}, "0 < threshold <= 1"),
        ({"datasets": ["sums", "sim"]}, "datasets: no data set sim in the installed version"),
        ({"datasets": ["simple_integration"]}, "simple_integration: the verifier runs answers as Python code"),
        ({"datasets": ["sums"], "levels": 1}, "unexpected keyword argument 'levels'"),
    ],
)
def test_options_that_are_refused(toys: None, options: Json, line: str) -> None:
    with pytest.raises(InputError, match=line):
        make_domain(build_config({"domain": {"name": "reasoning_gym", "options": options}}, "x").domain)


def test_a_missing_library_names_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reasoning_gym, "PACKAGE", "no_such_package_here")
    with pytest.raises(MissingExtraError, match=r"pip install 'genenv-rl\[reasoning-gym\]'"):
        ReasoningGym(["sums"])


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("7", "7"),
        (" 7\n", "7"),
        ("<answer>7", "7"),
        ("<answer>1</answer><answer>2</answer> 3", "2"),
        ("</answer>", "</answer>"),
    ],
)
def test_the_final_answer(text: str, answer: str) -> None:
    assert final_answer(text) == answer


# -- the library itself ------------------------------------------------------------------------------------------------


@pytest.fixture
def library() -> Path:
    spec = importlib.util.find_spec("reasoning_gym")
    if spec is None or spec.origin is None:
        pytest.skip("reasoning-gym is not installed: pip install 'genenv-rl[reasoning-gym]'")
    return Path(spec.origin).parent


def test_real_puzzles_pass_the_gate(library: Path) -> None:
    names = ["leg_counting", "list_functions", "n_queens", "countdown"]
    with released(ReasoningGym(names, max_level=1)) as domain:
        gate = Gate(domain)
        assert [gate.judge(t).reason for t in domain.heldout(4, 0)] == ["admitted"] * 4
        queens = domain.heldout(3, 0)[2]
        assert score(domain, queens, f"<answer>{queens.target['answer']}</answer>").value == 1.0
        with released(ReasoningGym(names, max_level=1)) as other:  # the same in another process
            assert [t.id for t in other.heldout(4, 1)] == [t.id for t in domain.heldout(4, 1)]


def test_verifiers_that_evaluate_are_known(library: Path) -> None:
    """By the library's source: a new version may have more of them."""
    evaluating = set()
    for path in library.rglob("*.py"):
        text = path.read_text("utf-8")
        scoring = text[text.find("def score_answer") :] if "def score_answer" in text else ""
        if re.search(r"\b(eval|exec|sympify|(sp|sympy)\.parse_expr)\(|parse_expr\(answer", scoring):
            evaluating.add(path.stem)
    # number_sorting evaluates the reference, which is its own
    assert evaluating - {"number_sorting"} == reasoning_gym.REFUSED | reasoning_gym.HARMLESS.keys()
