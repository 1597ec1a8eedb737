"""Tasks judged by a Python function: reading them, building them, and what an attempt earns."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from genenv.contracts.domain import SpecError
from genenv.contracts.errors import InputError, MissingExtraError
from genenv.contracts.types import Score, Task
from genenv.domains.python_checker import PythonChecker
from genenv.sandbox.outcome import Limits, Outcome
from genenv.sandbox.pool import Sandbox

SUM = {
    "family": "sums",
    "prompt": "What is 40 + 2?",
    "reference": "42",
    "checker": "def check(answer):\n    return answer.strip() == '42'\n",
}
WORD = {
    "family": "words",
    "prompt": "Write a word that reads the same backwards.",
    "reference": "level",
    "checker": "def check(answer):\n    return len(answer) > 1 and answer == answer[::-1]\n",
}
HELDOUT = {**SUM, "prompt": "What is 6 * 7?", "split": "heldout"}


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(Limits(wall_s=0.5), workers=1) as box:
        yield box


def write(path: Path, *lines: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture
def domain(tmp_path: Path, sandbox: Sandbox) -> PythonChecker:
    return PythonChecker(write(tmp_path / "tasks.jsonl", SUM, WORD, HELDOUT), sandbox)


def score(domain: PythonChecker, task: Task, text: str) -> Score:
    result = domain.episode(task).step(text)
    assert result.done
    assert result.score is not None
    return result.score


# -- scoring -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", [SUM, WORD])
def test_reference_earns_one_and_perturbed_answers_nothing(domain: PythonChecker, spec: dict[str, Any]) -> None:
    task = domain.build(spec)
    assert [score(domain, task, text).value for text in domain.reference(task)] == [1.0]
    perturbed = domain.perturbed(task)
    assert [score(domain, task, text).value for (text,) in perturbed] == [0.0] * len(perturbed)


def test_perturbed_answers_are_null_empty_the_prompt_and_a_changed_reference(domain: PythonChecker) -> None:
    task = domain.build(SUM)
    assert domain.perturbed(task) == [[""], ["null"], ["What is 40 + 2?"], ["43"]]
    assert domain.perturbed(task) == domain.perturbed(domain.build(SUM))
    for reference in ("9", "x", "null", "?!", "Ünder", "1 of 3"):
        answers = [a for (a,) in domain.perturbed(domain.build({**SUM, "reference": reference}))]
        assert reference not in answers
        assert len(set(answers)) == len(answers)


def test_score_is_the_verdict_with_the_answer_kept(domain: PythonChecker) -> None:
    partly = domain.build({**SUM, "checker": "def check(answer):\n    return min(1.0, len(answer) / 2)\n"})
    assert score(domain, partly, "4") == Score(0.5, "partly right", "4")
    assert score(domain, domain.build(SUM), " 42\n") == Score(1.0, "right", " 42\n")
    assert score(domain, domain.build(SUM), "41") == Score(0.0, "wrong", "41")


def test_crash_on_the_answer_is_wrong_if_the_reference_works(domain: PythonChecker) -> None:
    task = domain.build({**SUM, "reference": "7", "checker": "def check(answer):\n    return int(answer) == 7\n"})
    crashed = score(domain, task, "seven")
    assert crashed.value == 0.0
    assert "ValueError" in crashed.reason
    assert score(domain, task, "7").value == 1.0


def test_time_out_on_the_answer_is_wrong_with_its_own_reason(domain: PythonChecker) -> None:
    checker = "def check(answer):\n    while answer != '42':\n        pass\n    return True\n"
    slow = score(domain, domain.build({**SUM, "checker": checker}), "43")
    assert slow.value == 0.0
    assert "timed out" in slow.reason


@pytest.mark.parametrize(
    "checker",
    [
        "import no_such_module\ndef check(answer):\n    return True\n",
        "def check(answer):\n    raise ValueError\n",
        "def check(answer):\n    return 1\n",
        "def check(answer):\n    return answer.no_such_method()\n",
        "def check(answer:\n",
    ],
)
def test_checker_that_fails_on_its_reference_scores_nobody(domain: PythonChecker, checker: str) -> None:
    task = domain.build({**SUM, "checker": checker})
    for text in ("42", "41", ""):
        result = score(domain, task, text)
        assert result.value is None
        assert result.reason.startswith("invalid task: ")


def test_crash_where_the_reference_is_wrong_is_an_invalid_task(domain: PythonChecker) -> None:
    task = domain.build({**SUM, "checker": "def check(answer):\n    return int(answer) == 7\n"})
    assert score(domain, task, "seven") == Score(None, "invalid task: the reference does not earn 1: wrong", "seven")
    assert score(domain, task, "42").value == 0.0


class Scripted(Sandbox):
    """A sandbox whose outcomes are given."""

    def __init__(self, *outcomes: Outcome | Exception) -> None:
        super().__init__()
        self.outcomes = list(outcomes)

    def check(self, source: str, answer: Any) -> Outcome:
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


FAILED = Outcome("infrastructure", None, "sandbox failure: no process", "none")
CRASHED = Outcome("crash", None, "crash: ValueError", "monty")
RIGHT = Outcome("scored", 1.0, "right", "monty")


def test_failure_of_the_sandbox_is_unscored(domain: PythonChecker) -> None:
    domain.sandbox = Scripted(RIGHT, RIGHT, RIGHT, FAILED)
    task = domain.build(SUM)
    scores = [score(domain, task, "42") for _ in range(4)]
    assert [s.value for s in scores] == [1.0, 1.0, 1.0, None]
    assert scores[3].reason == "sandbox failure: no process"
    # a crash that cannot be laid at the answer's door, since the reference could not be tried
    domain.sandbox = Scripted(CRASHED, FAILED)
    assert score(domain, task, "41") == Score(None, "sandbox failure: no process", "41")


def test_refused_checker_is_invalid_from_a_simulator_and_an_error_from_a_user(domain: PythonChecker) -> None:
    (heldout,) = domain.heldout(1, 0)
    domain.sandbox = Scripted(*[InputError("install bubblewrap")] * 2)
    assert score(domain, domain.build(SUM), "41").reason.startswith("invalid task: ")
    domain.sandbox = Scripted(InputError("install bubblewrap"))
    with pytest.raises(InputError, match="install bubblewrap"):
        score(domain, heldout, "42")
    domain.sandbox = Scripted(MissingExtraError("pydantic-monty", "sandbox", "running Python checkers"))
    with pytest.raises(MissingExtraError):
        score(domain, domain.build(SUM), "42")


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap (bwrap) is not installed")
def test_checker_may_use_all_of_python(domain: PythonChecker) -> None:
    checker = "from heapq import nsmallest\ndef check(answer):\n    yield_ = (c for c in answer)\n    return nsmallest(1, yield_) == ['2']\n"
    task = domain.build({**SUM, "checker": checker})
    assert score(domain, task, "42").value == 1.0


# -- tasks and seeds -----------------------------------------------------------------------------------------------


def test_agent_sees_the_prompt_and_nothing_else(domain: PythonChecker) -> None:
    task = domain.build(SUM)
    assert [m.role for m in task.messages] == ["system", "user"]
    assert task.messages[1].content == SUM["prompt"]
    assert "42" not in task.messages[0].content
    assert (task.tools, task.family, task.origin, task.spec) == ((), "sums", "simulator", SUM)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prompt": ""}, "prompt"),
        ({"reference": 42}, "reference"),
        ({"checker": None}, "checker"),
        ({"family": "unknown"}, "family"),
        ({"split": "heldout"}, "split"),
        ({"checker": "x" * 8001}, "checker"),
    ],
)
def test_bad_specification_is_named(domain: PythonChecker, change: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message) as error:
        domain.build({**SUM, **change})
    assert error.value.reason == "schema"


def test_seeds_are_deterministic_and_even(tmp_path: Path, sandbox: Sandbox) -> None:
    lines = [{**SUM, "prompt": f"sum {i}"} for i in range(6)] + [{**WORD, "prompt": f"word {i}"} for i in range(3)]
    domain = PythonChecker(write(tmp_path / "t.jsonl", *lines, HELDOUT), sandbox)
    assert domain.families == ("sums", "words")
    assert domain.seeds(20, 1) == domain.seeds(20, 1) != domain.seeds(20, 2)
    assert [s.family for s in domain.seeds(6, 1)].count("words") == 3
    assert len({s.id for s in domain.seeds(9, 1)}) == 9
    assert len(domain.seeds(20, 1)) == 20
    assert all(domain.build(s.spec).family == s.family for s in domain.seeds(9, 1))
    assert HELDOUT["prompt"] not in [s.spec["prompt"] for s in domain.seeds(50, 1)]


def test_heldout_tasks_are_the_marked_ones_once_each(domain: PythonChecker) -> None:
    (task,) = domain.heldout(10, 0)
    assert (task.messages[1].content, task.origin) == ("What is 6 * 7?", "heldout")
    assert domain.heldout(0, 0) == []


def test_simulator_reads_the_example_and_gets_a_schema_that_it_fits(domain: PythonChecker) -> None:
    import jsonschema

    example = domain.seeds(1, 0)[0]
    chat, schema = domain.simulator_chat(example, 0.25, "harder", 0)
    assert "Solved: 25%. Write a new task, harder." in chat.messages[1].content
    assert json.dumps(example.spec["prompt"]) in chat.messages[1].content
    jsonschema.validate(dict(example.spec), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**example.spec, "family": "other"}, schema)


# -- the user's file -----------------------------------------------------------------------------------------------


def test_family_is_optional_and_blank_lines_are_skipped(tmp_path: Path, sandbox: Sandbox) -> None:
    line = json.dumps({k: v for k, v in SUM.items() if k != "family"})
    (tmp_path / "t.jsonl").write_text(f"\n{line}\r\n\n")
    assert PythonChecker(tmp_path / "t.jsonl", sandbox).families == ("default",)


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (b"{", "2: .*not JSON"),
        (b"[]", "2: .*not a JSON object"),
        (b'{"prompt": "a", "prompt": "b"}', "2: .*repeated key"),
        (b'{"prompt": "a"}', "2: reference"),
        (json.dumps({**SUM, "checkre": "x"}).encode(), "2: checkre"),
        (json.dumps({**SUM, "split": "test"}).encode(), "2: split"),
        (json.dumps(SUM).encode().replace(b"42", b"\xff", 1), "2: expected UTF-8"),
    ],
)
def test_bad_line_is_named(tmp_path: Path, sandbox: Sandbox, second: bytes, message: str) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(json.dumps(SUM).encode() + b"\n" + second + b"\n")
    with pytest.raises(InputError, match=f"tasks.jsonl:{message}") as error:
        PythonChecker(path, sandbox)
    assert "\n" not in str(error.value)


def test_missing_and_empty_files_are_named(tmp_path: Path, sandbox: Sandbox) -> None:
    with pytest.raises(InputError, match=r"cannot read .*no\.jsonl"):
        PythonChecker(tmp_path / "no.jsonl", sandbox)
    with pytest.raises(InputError, match="expected at least one task"):
        PythonChecker(write(tmp_path / "t.jsonl", HELDOUT), sandbox)
