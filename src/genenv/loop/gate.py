"""Admission: no task is played, and nobody is paid, before it is proven right.

A candidate is admitted if its text parses, its specification fits the domain's schema and is grounded in the request, it
fits into the agent's prompt, its answer is not given away, its reference solution earns full reward by really being
executed, null, copied, nonsense and perturbed answers earn nothing, all this is so every time, and it neither repeats nor
contradicts a known task nor touches the evaluation set. Every candidate gets exactly one verdict: the first reason that
applies, in the order of REASONS. What counts as the same, a rewording or merely alike is defined in `near.py`.

- *Contamination*: the request is that of an evaluation task, whatever the answer, or a rewording of one.
- *Duplicate*: the same request with the same reference solution, or a rewording. Other distractors or tools, case, white
  space and punctuation make no new task. Other numbers do: `volume 31` after `volume 30` is admitted into its cluster,
  and the members of a cluster share one reward (`measure.py`).
- *Contradiction*: the same request with another reference solution. The known task stays, the new one is turned away.
  Requests that are merely alike never contradict each other: a changed name changes the answer rightly.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import replace

from genenv.contracts.domain import Domain, SpecError, identity, repeats
from genenv.contracts.errors import GenEnvError
from genenv.contracts.types import SOLVED, Candidate, Score, Task, Verdict
from genenv.grading.text import contains_words
from genenv.loop.edits import changed_fields
from genenv.loop.near import Known, Print, fingerprint

LEAK_CHARACTERS = 4
"""A shorter reference may stand in its request: `7` is in every other sum."""
NO_LEAK = frozenset({"true", "false", "none", "null"})
"""Answers that a request offers to choose from, rather than gives away."""
_LETTERS = str.maketrans("0123456789abcdef", "bcdfghklmnprstvw")


def user_turns(task: Task) -> list[str]:
    """What the user says; the last message where a domain speaks in another role."""
    return [m.content for m in task.messages if m.role == "user"] or [task.messages[-1].content]


def gives_away(request: str, reference: Sequence[str]) -> bool:
    """Whether every turn of the reference solution stands in the request, as whole words in any case."""
    text = " ".join(request.split()).casefold()
    turns = [" ".join(turn.split()).casefold() for turn in reference]
    return bool(turns) and all(
        len(turn) >= LEAK_CHARACTERS and turn not in NO_LEAK and contains_words(text, turn) for turn in turns
    )


def nonsense(task: Task, count: int) -> list[str]:
    """Random lower-case words of several lengths, the same for the same task: right for no honest task.

    A checker that tosses a coin by its answer, which no repetition shows, is caught by their number.
    """
    letters = hashlib.shake_256(task.id.encode()).hexdigest(10 * count).translate(_LETTERS)
    return [letters[20 * i :][: 7 + i % 8] for i in range(count)]


class Gate:
    """The known tasks and the verdicts. `judge` adds what it admits to the known tasks.

    `fits` tells whether a task's prompt is short enough for the agent.
    """

    def __init__(
        self, domain: Domain, heldout: Iterable[Task] = (), fits: Callable[[Task], bool] = lambda task: True
    ) -> None:
        self._domain = domain
        self._fits = fits
        self._repeats = repeats(domain)
        self._known, self._heldout = Known(), Known()
        for task in heldout:
            self._remember(self._heldout, task)

    def _print(self, task: Task, reference: Sequence[str]) -> Print:
        # solved examples come first in some prompts; the last message is the request itself
        return fingerprint(identity(self._domain, task) or user_turns(task)[-1], reference)

    def _remember(self, known: Known, task: Task) -> str:
        mark = self._print(task, self._domain.reference(task))
        return known.add(mark, task.id, known.leader(mark))

    def add(self, task: Task) -> str:
        """Make a task known, a seed or one admitted earlier; returns its cluster."""
        return self._remember(self._known, task)

    def contaminated(self, task: Task) -> bool:
        """Whether the task is one of the evaluation set, or a rewording of one."""
        return self._touches_heldout(self._print(task, self._domain.reference(task)))

    def _touches_heldout(self, mark: Print) -> bool:
        return self._heldout.same_request(mark) or self._heldout.reworded(mark, self._heldout.leader(mark))

    def admit(self, candidate: Candidate, edited: Task | None = None) -> tuple[Task | None, Verdict]:
        """The verdict on one candidate, and its task if it is one (admitted or not). `edited` is what it is an edit of."""
        if candidate.sample.error:
            return None, Verdict("unanswered", candidate.sample.error)
        if candidate.spec is None:
            return None, Verdict("unparsable", candidate.error)
        try:
            task = self._domain.build(candidate.spec)
        except SpecError as error:
            return None, Verdict(error.reason, error.detail)
        if edited is not None:
            task = replace(task, parent=edited.id)
            if len(changed := changed_fields(edited.spec, task.spec)) != 1:
                return task, Verdict("no_edit", f"changes {', '.join(changed) or 'nothing'}", task.id)
        return task, self.judge(task)

    def judge(self, task: Task) -> Verdict:
        """The verdict on a built task; an admitted one becomes known."""
        reference = self._domain.reference(task)
        mark = self._print(task, reference)
        leader = self._known.leader(mark)
        reason, detail = self._prove(task, reference) or (self._compare(mark, leader), "")
        if reason == "admitted":
            leader = self._known.add(mark, task.id, leader)
        return Verdict(reason, detail, leader or task.id)

    def _prove(self, task: Task, reference: Sequence[str]) -> tuple[str, str] | None:
        if not self._fits(task):
            return "too_long", ""
        requests = user_turns(task)
        if gives_away("\n".join(requests), reference):
            return "leak", ""
        score = self.execute(task, reference)
        if score.value is None or score.value < SOLVED:
            return "reference_fails", score.reason
        null = [
            [answer]
            for answer in dict.fromkeys(["", "\n".join(requests), requests[-1], *nonsense(task, self._repeats)])
        ]
        wrong: list[tuple[str, Sequence[str]]] = [("null_passes", turns) for turns in null]
        wrong += [("perturbed_passes", turns) for turns in self._domain.perturbed(task)]
        for reason, turns in wrong:
            score = self.execute(task, turns)
            if score.value is None:
                return "unscored", score.reason
            if score.value != 0.0:
                return reason, repr(turns[-1][:120] if turns else "")
        for i in range(self._repeats):
            again, wrongly = self.execute(task, reference), self.execute(task, wrong[i % len(wrong)][1])
            if again.value is None or wrongly.value is None:
                return "unscored", again.reason if again.value is None else wrongly.reason
            if again.value < SOLVED or wrongly.value != 0.0:
                return (
                    "unstable",
                    f"attempt {i + 2}: {again.value:g} for the reference, {wrongly.value:g} for a wrong answer",
                )
        return None

    def execute(self, task: Task, turns: Sequence[str]) -> Score:
        """Play fixed answers, turn by turn, in a fresh episode."""
        try:
            with closing(self._domain.episode(task)) as episode:
                for turn in turns:
                    step = episode.step(turn)
                    if step.score is not None:
                        return step.score
            return Score(0.0, "the episode did not end")
        except GenEnvError:
            raise
        except Exception as error:  # a domain is user code: what it raises is a verdict on one task, not a crash
            return Score(None, f"environment error: {type(error).__name__}: {error}")

    def _compare(self, mark: Print, leader: str | None) -> str:
        if self._touches_heldout(mark):
            return "contamination"
        if self._known.same_request(mark):
            return "duplicate" if self._known.same_answer(mark) else "contradiction"
        return "duplicate" if self._known.reworded(mark, leader) else "admitted"
