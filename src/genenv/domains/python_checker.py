"""python_checker: any task whose answer a Python function can judge.

A task is a prompt, a reference answer and the source of `def check(answer) -> bool | float`; `answer` is the agent's text,
unchanged. Seeds come from a JSONL file with one such specification per line, with optional `family` (a group of tasks of
like difficulty) and `"split": "heldout"` for evaluation. The checkers run in `sandbox`.

Scoring: the checker's verdict, 0 to 1. A checker that crashes or times out on an answer gives 0 with that reason if it
works on the reference, for then the answer is at fault. If it does not, the task is invalid and the attempt unscored; so
the reference of such a task earns no 1 and the gate turns it away. A failure of the sandbox leaves an attempt unscored.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from genenv.contracts.domain import SpecError, Step, fault, object_schema, order_line
from genenv.contracts.errors import InputError, MissingExtraError
from genenv.contracts.types import Chat, Direction, Json, Message, Origin, Score, Seed, Task
from genenv.reading.parsing import parse_json_object
from genenv.reading.records import read_lines
from genenv.sandbox.outcome import Outcome
from genenv.sandbox.pool import Sandbox

MAX_PROMPT = 4000
MAX_REFERENCE = 2000
MAX_CHECKER = 8000

AGENT_INSTRUCTIONS = "Solve the task. Write the answer and nothing else."
SIMULATOR_INSTRUCTIONS = (
    "You write tasks for an agent. Answer with one JSON object: "
    '"family" as in the example, "prompt" is what the agent reads and must not give the answer away, "reference" is a '
    'right answer, "checker" is the source of a Python function check(answer) that gets the agent\'s text and returns True '
    "if it is right, else False. It must accept every right answer and no other."
)


class CheckerSpec(BaseModel):
    """What the simulator writes."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    family: str = Field(default="default", min_length=1, max_length=60)
    prompt: str = Field(min_length=1, max_length=MAX_PROMPT)
    reference: str = Field(min_length=1, max_length=MAX_REFERENCE)
    checker: str = Field(min_length=1, max_length=MAX_CHECKER)


class _Line(CheckerSpec):
    """A line of the user's file."""

    split: Literal["train", "heldout"] = "train"

    @property
    def spec(self) -> dict[str, Json]:
        return self.model_dump(exclude={"split"})


class PythonChecker:
    """The domain. `tasks` is the user's JSONL file; the sandbox is shared by all episodes and closed by its owner.

    Without a file there are no seeds, and specifications may be of any family and have a `split`: for looking at files.
    """

    name = "python_checker"
    max_turns = 1
    repeats = 8
    """Checkers are foreign code: one that tosses a coin by clock or entropy passes the gate once in 2^16."""

    def __init__(self, tasks: Path | None, sandbox: Sandbox | None = None) -> None:
        self.sandbox = sandbox or Sandbox()
        self._any = tasks is None
        lines = _read(tasks) if tasks is not None else []
        self._train = [x for x in lines if x.split == "train"]
        self._heldout = [x for x in lines if x.split == "heldout"]
        if tasks is not None and not self._train:
            raise InputError(f'{tasks}: expected at least one task that is not "heldout", found none')
        self.families = tuple(dict.fromkeys(x.family for x in self._train))

    # -- seeds and evaluation ----------------------------------------------------------------------------------

    def seeds(self, count: int, seed: int) -> list[Seed]:
        """Every task once in a shuffled order, then again from the start if there are fewer than `count`."""
        order = _evenly(self._train, random.Random(seed))
        return [Seed(x.family, x.spec) for x in (order[i % len(order)] for i in range(count))]

    def heldout(self, count: int, seed: int) -> list[Task]:
        """At most `count`: no task twice, which would only pretend to be a larger sample."""
        return [self._task(x, "heldout") for x in _evenly(self._heldout, random.Random(seed))[:count]]

    # -- the simulator's side ----------------------------------------------------------------------------------

    def simulator_chat(
        self,
        example: Seed,
        success: float | None,
        direction: Direction,
        seed: int,
        target: Seed | None = None,
        edit: bool = False,
    ) -> tuple[Chat, Json]:
        family = example.family if target is None else target.family
        text = (
            f"Example: {json.dumps(dict(example.spec), separators=(',', ':'), ensure_ascii=False)}\n"
            f"{order_line(family, success, direction, edit)}"
        )
        properties: dict[str, Json] = {
            "family": {"const": family},
            "prompt": {"type": "string", "minLength": 1, "maxLength": MAX_PROMPT},
            "reference": {"type": "string", "minLength": 1, "maxLength": MAX_REFERENCE},
            "checker": {"type": "string", "minLength": 1, "maxLength": MAX_CHECKER},
        }
        return Chat((Message("system", SIMULATOR_INSTRUCTIONS), Message("user", text))), object_schema(properties)

    def direction(self, example: Seed, other: Seed) -> Direction:
        """A specification does not tell how hard its task is."""
        return "similar"

    def build(self, spec: Mapping[str, Json]) -> Task:
        try:
            parsed = (_Line if self._any else CheckerSpec).model_validate(spec)
        except ValidationError as error:
            raise SpecError("schema", fault(error)) from None
        if not self._any and parsed.family not in self.families:
            raise SpecError("schema", f"family: unknown family {parsed.family!r}")
        return self._task(parsed, "simulator")

    def _task(self, parsed: CheckerSpec, origin: Origin) -> Task:
        return Task(
            family=parsed.family,
            messages=(Message("system", AGENT_INSTRUCTIONS), Message("user", parsed.prompt)),
            tools=(),
            target={"reference": parsed.reference, "checker": parsed.checker},
            spec=parsed.model_dump(exclude={"split"}),
            origin=origin,
        )

    # -- the agent's side --------------------------------------------------------------------------------------

    def reference(self, task: Task) -> Sequence[str]:
        return [task.target["reference"]]

    def perturbed(self, task: Task) -> Sequence[Sequence[str]]:
        """Nothing, "null", the prompt itself, and the reference with one digit or else one letter changed."""
        reference: str = task.target["reference"]
        answers = ["", "null", task.messages[-1].content, altered(reference, random.Random(task.id))]
        return [[a] for a in answers if a != reference]

    def episode(self, task: Task) -> CheckerEpisode:
        return CheckerEpisode(task, self.sandbox)


@dataclass(frozen=True)
class CheckerEpisode:
    """One turn: the checker judges the agent's text."""

    task: Task
    sandbox: Sandbox

    def step(self, text: str) -> Step:
        outcome = self._check(text)
        if outcome.status in ("scored", "infrastructure"):
            return Step(score=Score(outcome.value, outcome.reason, text))
        reference = outcome
        if text != self.task.target["reference"]:
            reference = self._check(self.task.target["reference"])
        if reference.status == "infrastructure":
            return Step(score=Score(None, reference.reason, text))
        if reference.value == 1.0:
            return Step(score=Score(0.0, outcome.reason, text))
        return Step(score=Score(None, f"invalid task: the reference does not earn 1: {reference.reason}", text))

    def _check(self, answer: str) -> Outcome:
        """A simulator's checker that no backend here can run is one more bad candidate; a user's is the user's to mend."""
        try:
            return self.sandbox.check(self.task.target["checker"], answer)
        except InputError as error:
            if self.task.origin != "simulator" or isinstance(error, MissingExtraError):
                raise
            return Outcome("crash", None, str(error), "none")

    def close(self) -> None:
        """Nothing to release: the sandbox is not the episode's."""


def _read(path: Path) -> list[_Line]:
    lines = []
    for number, text in read_lines(path):
        try:
            lines.append(_Line.model_validate(parse_json_object(text)))
        except ValidationError as error:
            raise InputError(f"{path}:{number}: {fault(error)}") from None
        except ValueError as error:
            raise InputError(f"{path}:{number}: expected a JSON object, found: {error}") from None
    return lines


def _evenly(lines: Sequence[_Line], rng: random.Random) -> list[_Line]:
    """All lines, shuffled, the families in turn."""
    shuffled = rng.sample(list(lines), len(lines))
    turns: dict[str, int] = {}
    keyed = []
    for line in shuffled:
        turn = turns[line.family] = turns.get(line.family, -1) + 1
        keyed.append((turn, line))
    return [line for _, line in sorted(keyed, key=lambda pair: pair[0])]


def altered(text: str, rng: random.Random) -> str:
    """`text` with one character changed: a digit by one, so that a number changes in parity too, else a letter."""
    digits = [i for i, c in enumerate(text) if c in "0123456789"]
    letters = [i for i, c in enumerate(text) if c.isalpha()]
    if digits:
        at = digits[-1]
        new = str((int(text[at]) + 1) % 10)
    elif letters:
        at = rng.choice(letters)
        new = "x" if text[at].casefold() != "x" else "y"
    else:
        return text + "x"
    return text[:at] + new + text[at + 1 :]
