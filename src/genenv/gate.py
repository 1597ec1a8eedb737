"""Admission: no task is played, and nobody is paid, before it is proven right.

A candidate is admitted if its text parses, its specification fits the domain's schema and is grounded in the request,
its reference solution earns full reward by really being executed, null and perturbed answers earn nothing, its answer
is not given away, and it neither repeats nor contradicts a known task nor touches the evaluation set. Every candidate
gets exactly one verdict: the first reason that applies, in the order of REASONS.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from genenv.domains.base import Domain, SpecError
from genenv.rewards import SOLVED
from genenv.types import Candidate, Score, Task, Verdict, canonical, content_id

REASONS = {
    "unparsable": "the simulator's text is not one JSON object",
    "schema": "the specification is not a task of this domain",
    "ungrounded": "the request lacks a value that the answer needs",
    "leak": "the request contains the answer itself",
    "reference_fails": "the reference solution does not earn full reward",
    "null_passes": "an empty answer or the copied request earns a reward",
    "perturbed_passes": "a damaged answer earns a reward",
    "contamination": "the task is in the evaluation set",
    "duplicate": "the task is known",
    "contradiction": "a known task has the same request and another answer",
    "admitted": "",
}


def request_key(task: Task) -> str:
    """The request as a reader sees it: case and white space do not make a new task."""
    return content_id([" ".join(m.content.split()).casefold() for m in task.messages if m.role == "user"])


class Gate:
    """The known tasks and the verdicts. `admit` adds what it admits to the known tasks."""

    def __init__(self, domain: Domain, heldout: Iterable[Task] = ()) -> None:
        self._domain = domain
        self._heldout = {request_key(t) for t in heldout}
        self._known: dict[str, str] = {}

    def add(self, task: Task) -> None:
        """Make a task known: a seed, or one admitted earlier."""
        self._known.setdefault(request_key(task), canonical(task.target))

    def admit(self, candidate: Candidate) -> tuple[Task | None, Verdict]:
        """The verdict on one candidate, and its task if it is one (admitted or not)."""
        if candidate.spec is None:
            return None, Verdict("unparsable", candidate.error)
        try:
            task = self._domain.build(candidate.spec)
        except SpecError as error:
            return None, Verdict(error.reason, error.detail)
        return task, self.judge(task)

    def judge(self, task: Task) -> Verdict:
        """The verdict on a built task; an admitted one becomes known."""
        verdict = self._prove(task) or self._compare(task) or Verdict("admitted")
        if verdict.admitted:
            self.add(task)
        return verdict

    def _prove(self, task: Task) -> Verdict | None:
        request = "\n".join(m.content for m in task.messages if m.role == "user")
        reference = self._domain.reference(task)
        if any(turn.strip() and turn.strip() in request for turn in reference):
            return Verdict("leak")
        score = self.execute(task, reference)
        if score.value is None or score.value < SOLVED:
            return Verdict("reference_fails", score.reason)
        for answer in ("", request):
            if self.execute(task, [answer]).value != 0.0:
                return Verdict("null_passes", repr(answer[:40]))
        for turns in self._domain.perturbed(task):
            if self.execute(task, turns).value != 0.0:
                return Verdict("perturbed_passes", turns[-1][:120])
        return None

    def execute(self, task: Task, turns: Sequence[str]) -> Score:
        """Play fixed answers, turn by turn, in a fresh episode."""
        episode = self._domain.episode(task)
        try:
            for turn in turns:
                step = episode.step(turn)
                if step.score is not None:
                    return step.score
            return Score(0.0, "the episode did not end")
        finally:
            episode.close()

    def _compare(self, task: Task) -> Verdict | None:
        key = request_key(task)
        if key in self._heldout:
            return Verdict("contamination")
        known = self._known.get(key)
        if known is None:
            return None
        return Verdict("duplicate" if known == canonical(task.target) else "contradiction")
