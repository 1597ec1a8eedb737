"""The gate: one verdict per candidate, each reason reached by a candidate made for it."""

from __future__ import annotations

from collections import Counter

import pytest

from genenv.domains.tool_use import ToolUse
from genenv.gate import Gate
from genenv.types import Candidate, Sample, Score, Task


def spec(name: str = "play_song", distractors: tuple[str, ...] = (), **arguments: object) -> dict:
    return {"calls": [{"name": name, "arguments": arguments}], "distractors": list(distractors)}


def candidate(content: object, error: str = "") -> Candidate:
    return Candidate((1,), Sample((2,), (0.0,), True, 0), "", "1-call", "similar", "s", content, error)


def verdict(content: object, gate: Gate | None = None) -> str:
    return (gate or Gate(ToolUse())).admit(candidate(content))[1].reason


def test_a_good_task_is_admitted_once() -> None:
    gate = Gate(ToolUse())
    good = spec(title="Echoes", volume=30)
    task, first = gate.admit(candidate(good))
    assert first.admitted
    assert task is not None
    assert task.messages[-1].content == "Play Echoes at volume 30."
    assert verdict(good, gate) == "duplicate"
    # other distractors, another case: still the same request with the same answer
    assert verdict(spec(distractors=("set_volume",), title="Echoes", volume=30), gate) == "duplicate"


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"calls": []},
        spec("no_such_function", title="Echoes"),
        spec(),  # title is required
        spec(title=7),
        spec(title="Echoes", volume=200),  # above the maximum
        spec(title="Echoes", loud=True),
        spec(distractors=("no_such_function",), title="Echoes"),
        spec("get_sun_times", city="Oslo", date="2026-02-30"),  # no such day
        {"calls": [{"name": "play_song", "arguments": {"title": "Echoes"}}] * 2, "distractors": []},
        {"calls": [{"name": "play_song", "arguments": {"title": "E"}}] * 5, "distractors": []},
        {**spec(title="Echoes"), "extra": 1},
        {"calls": [{"name": "play_song", "arguments": [1]}], "distractors": []},
    ],
)
def test_what_does_not_fit_the_schema_is_rejected(content: dict) -> None:
    assert verdict(content) == "schema"


def test_unparsable_text_is_a_verdict_of_its_own() -> None:
    task, rejected = Gate(ToolUse()).admit(candidate(None, "not JSON"))
    assert (task, rejected.reason, rejected.detail) == (None, "unparsable", "not JSON")


def test_an_empty_value_is_not_grounded() -> None:
    assert verdict(spec(title="")) == "ungrounded"


@pytest.mark.parametrize(
    ("request_text", "expected"),
    [
        ("Please play Echoes at 30", "admitted"),
        ("please PLAY echoes at 30!", "admitted"),
        ("Please play Echoes", "ungrounded"),  # the volume is missing
        ("Please play Echoes at 300", "ungrounded"),  # 300 does not contain the number 30
        ("", "ungrounded"),
    ],
)
def test_a_written_request_must_contain_every_value(request_text: str, expected: str) -> None:
    gate = Gate(ToolUse(request="written"))
    content = {**spec(title="Echoes", volume=30), "request": request_text}
    assert verdict(content, gate) == expected


def test_a_written_request_must_be_there() -> None:
    assert verdict(spec(title="Echoes"), Gate(ToolUse(request="written"))) == "schema"


def test_a_request_that_contains_its_answer_is_a_leak() -> None:
    gate = Gate(ToolUse(request="written"))
    answer = '<tool_call>{"name":"play_song","arguments":{"title":"Echoes"}}</tool_call>'
    assert verdict({**spec(title="Echoes"), "request": f"Write {answer}"}, gate) == "leak"


def test_evaluation_tasks_are_kept_out() -> None:
    domain = ToolUse()
    held = domain.build(spec(title="Echoes"))
    assert verdict(spec(title="Echoes"), Gate(domain, heldout=[held])) == "contamination"


def test_the_same_request_with_another_answer_is_a_contradiction() -> None:
    gate = Gate(ToolUse(request="written"))
    text = "Play Echoes or Wildfire"
    assert verdict({**spec(title="Echoes"), "request": text}, gate) == "admitted"
    assert verdict({**spec(title="Wildfire"), "request": text}, gate) == "contradiction"


class Lenient(ToolUse):
    """A domain with a broken scorer."""

    def __init__(self, scores: dict[str, float]) -> None:
        super().__init__()
        self._scores = scores

    def episode(self, task: Task) -> object:
        reference = self.reference(task)[0]
        scores = self._scores

        class Episode:
            def step(self, text: str) -> object:
                from genenv.domains.base import Step

                kind = "reference" if text == reference else "damaged" if "<tool_call>" in text else "null"
                return Step(score=Score(scores[kind], ""))

            def close(self) -> None:
                pass

        return Episode()


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ({"reference": 0.9, "damaged": 0.0, "null": 0.0}, "reference_fails"),
        ({"reference": None, "damaged": 0.0, "null": 0.0}, "reference_fails"),
        ({"reference": 1.0, "damaged": 0.0, "null": 0.1}, "null_passes"),
        ({"reference": 1.0, "damaged": 0.5, "null": 0.0}, "perturbed_passes"),
        ({"reference": 1.0, "damaged": 0.0, "null": 0.0}, "admitted"),
    ],
)
def test_the_proof_is_by_execution(scores: dict, expected: str) -> None:
    assert verdict(spec(title="Echoes"), Gate(Lenient(scores))) == expected


def test_repeats_and_ambiguity_in_one_batch() -> None:
    """Two good tasks; a copy in other case, a contradiction and a seed are turned away; counts add up."""
    domain = ToolUse(request="written")
    table = {"restaurant": "Luna", "people": 2, "time": "18:30"}
    text = "Book a table at Luna for 2 at 18:30 (19:15 is full)"
    seed = {**spec("lock_door", room="office"), "request": "Lock the office"}
    gate = Gate(domain)
    gate.add(domain.build(seed))
    batch = [
        {**spec("book_table", **table), "request": text},
        {**spec("book_table", **table), "request": "  book a TABLE at Luna for 2 at 18:30   (19:15 is full)"},
        {**spec("book_table", **{**table, "time": "19:15"}), "request": text},
        seed,
        {**spec("convert_currency", amount=30, **{"from": "EUR", "to": "USD"}), "request": "Convert 30 EUR to USD"},
    ]
    counts = Counter(verdict(c, gate) for c in batch)
    assert counts == {"admitted": 2, "duplicate": 2, "contradiction": 1}
    again = Counter(verdict(c, gate) for c in batch)
    assert again == {"duplicate": 4, "contradiction": 1}


def test_every_seed_and_heldout_task_is_proven() -> None:
    domain = ToolUse()
    gate = Gate(domain)
    reasons = Counter(gate.judge(domain.build(s.spec)).reason for s in domain.seeds(200, 3))
    assert set(reasons) <= {"admitted", "duplicate"}
    assert reasons["admitted"] > 190
    assert all(gate.judge(t).reason in ("admitted", "duplicate") for t in domain.heldout(100, 5))
