"""The gate: one verdict per candidate, each reason reached by a candidate made for it."""

from __future__ import annotations

from collections import Counter

import pytest

from genenv.contracts.domain import Step
from genenv.contracts.types import Candidate, Sample, Score, Task, Verdict
from genenv.domains.tool_use.domain import ToolUse
from genenv.loop.gate import Gate, gives_away
from genenv.loop.near import digest


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
                from genenv.contracts.domain import Step

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


class Judged(ToolUse):
    """A domain whose scores come from a function of the answer's text and the number of the attempt."""

    def __init__(self, judge: object, repeats: int = 1) -> None:
        super().__init__()
        self.repeats = repeats
        self._judge = judge
        self._attempts = 0

    def episode(self, task: Task) -> object:
        outer = self

        class Episode:
            def step(self, text: str) -> Step:
                outer._attempts += 1
                return Step(score=Score(outer._judge(text, outer._attempts), "said so"))

            def close(self) -> None:
                pass

        return Episode()


REFERENCE = '<tool_call>{"name":"play_song","arguments":{"title":"Echoes"}}</tool_call>'


def right(text: str) -> float:
    return float(text == REFERENCE)


def test_a_score_that_changes_is_unstable() -> None:
    """A reference that passes first and fails later, and a wrong answer that passes at a second look."""
    proof = 0

    def count(text: str, attempt: int) -> float:
        nonlocal proof
        proof = attempt
        return right(text)

    assert verdict(spec(title="Echoes"), Gate(Judged(count))) == "admitted"
    # the last two attempts are the repetition
    assert verdict(spec(title="Echoes"), Gate(Judged(lambda t, n: right(t) if n < proof - 1 else 0.0))) == "unstable"
    assert verdict(spec(title="Echoes"), Gate(Judged(lambda t, n: right(t) if n < proof else 0.5))) == "unstable"
    late = Judged(lambda t, n: right(t) if n < proof + 6 else 0.0, repeats=5)
    assert verdict(spec(title="Echoes"), Gate(late)) == "unstable"


def test_what_cannot_be_run_is_not_taken_for_a_wrong_answer() -> None:
    def fails(text: str, attempt: int) -> float | None:
        return None if attempt == 3 else right(text)

    assert verdict(spec(title="Echoes"), Gate(Judged(fails))) == "unscored"

    def raises(text: str, attempt: int) -> float:
        raise OSError("gone")

    _, rejected = Gate(Judged(raises)).admit(candidate(spec(title="Echoes")))
    assert (rejected.reason, rejected.detail) == ("reference_fails", "environment error: OSError: gone")


def test_a_coin_tossed_by_the_answer_is_caught() -> None:
    """It is the same every time, so only the number of wrong answers shows it."""
    reasons = Counter()
    for salt in range(60):

        def toss(text: str, attempt: int, salt: int = salt) -> float:
            return float(digest(text, str(salt)) % 2)

        reasons[verdict(spec(title="Echoes"), Gate(Judged(toss, repeats=8)))] += 1
    assert reasons["admitted"] == 0
    assert reasons["reference_fails"] > 15
    assert reasons["null_passes"] > 15


@pytest.mark.parametrize(
    ("request_text", "reference", "expected"),
    [
        ("The capital of France is Paris. What is it?", ["Paris"], True),
        ("Spell PARIS backwards", ["paris"], True),
        ("Which is larger, Parisian or Paris-like?", ["parisia"], False),  # part of a word
        ("What is 3 + 4 - 7?", ["7"], False),  # too short to tell
        ("Is it true that 7 is prime?", ["true"], False),  # an offer, not a gift
        ("Say: first this,   then\nthat", ["first this, then that"], True),
        ("Go to the fridge and open it", ["go to the fridge", "open it"], True),
        ("Go to the fridge", ["go to the fridge", "take the apple"], False),  # a part of the solution
        ("anything", [], False),
    ],
)
def test_what_gives_the_answer_away(request_text: str, reference: list[str], expected: bool) -> None:
    assert gives_away(request_text, reference) == expected


def test_a_task_that_does_not_fit_is_told_apart() -> None:
    gate = Gate(ToolUse(), fits=lambda task: len(task.tools) < 2)
    assert verdict(spec(title="Echoes", distractors=("set_volume",)), gate) == "too_long"
    assert verdict(spec(title="Echoes"), gate) == "admitted"


def test_a_rewording_is_a_duplicate_and_another_number_joins_the_cluster() -> None:
    gate = Gate(ToolUse(request="written"))
    first = {**spec(title="Echoes", volume=30), "request": "Please play the song Echoes at a volume of 30 for me"}
    task, verdict_ = gate.admit(candidate(first))
    assert verdict_.cluster == task.id
    again = {**first, "request": "Please play me the song Echoes at a volume of 30 for me"}
    assert verdict(again, gate) == "duplicate"
    other = {**spec(title="Echoes", volume=31), "request": first["request"].replace("30", "31")}
    assert gate.admit(candidate(other))[1] == Verdict("admitted", "", task.id)
    assert verdict({**other, "request": "So p" + other["request"][8:]}, gate) == "duplicate"


def test_a_rewording_of_an_evaluation_task_is_contamination() -> None:
    domain = ToolUse(request="written")
    text = "Please play the song Echoes at a volume of 30 for me"
    held = domain.build({**spec(title="Echoes", volume=30), "request": text})
    gate = Gate(domain, heldout=[held])
    assert verdict({**spec(title="Echoes", volume=30), "request": text + " now"}, gate) == "contamination"
    assert verdict({**spec(title="Echoes"), "request": text}, gate) == "contamination"  # whatever the answer
    # the same pattern with another number is not the evaluation task
    assert verdict({**spec(title="Echoes", volume=31), "request": text.replace("30", "31")}, gate) == "admitted"
    assert gate.contaminated(held)


def test_the_order_of_verdicts_does_not_depend_on_the_process() -> None:
    """A gate that is filled again from what was admitted gives the same verdicts and clusters."""
    domain = ToolUse()
    specs = [s.spec for s in domain.seeds(150, 4)]
    specs += [spec("set_volume", level=i) for i in range(20)]
    first = Gate(domain)
    verdicts = [first.admit(candidate(s)) for s in specs]
    for cut in (50, 160):
        again = Gate(domain)
        for task, v in verdicts[:cut]:
            if v.admitted:
                again.add(task)
        assert [again.admit(candidate(s)) for s in specs[cut:]] == verdicts[cut:]


def test_a_domain_with_written_requests_makes_its_own_seeds() -> None:
    domain = ToolUse(request="written")
    assert all(verdict(s.spec, Gate(domain)) == "admitted" for s in domain.seeds(8, 1))
    assert len(domain.heldout(4, 1)) == 4
