"""What a domain is: the contract between the game and a field of tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar

from pydantic import ValidationError

from genenv.contracts.types import Chat, Direction, Json, Message, Score, Seed, Task


class SpecError(ValueError):
    """A specification that is no task of this domain. `reason` is a key of `contracts.types.REASONS`."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True)
class Step:
    """What the environment answers to one turn of the agent: new messages, or the end with a score."""

    messages: tuple[Message, ...] = ()
    score: Score | None = None

    @property
    def done(self) -> bool:
        return self.score is not None


class Episode(Protocol):
    """One attempt at one task, single use. `step` gets exactly the text that the agent wrote in this turn."""

    def step(self, text: str) -> Step: ...

    def close(self) -> None: ...


class Playable(Protocol):
    """Whatever tasks can be played in: a domain, a benchmark."""

    def episode(self, task: Task) -> Episode: ...


class Domain(Playable, Protocol):
    """A field of tasks. Deterministic: every method with a `seed` gives the same result for the same seed."""

    name: str
    families: tuple[str, ...]

    def seeds(self, count: int, seed: int) -> list[Seed]:
        """`count` known good specifications, evenly over the families."""
        ...

    def heldout(self, count: int, seed: int) -> list[Task]:
        """Evaluation tasks, evenly over the families; nothing here is ever shown to the simulator."""
        ...

    def simulator_chat(
        self,
        example: Seed,
        success: float | None,
        direction: Direction,
        seed: int,
        target: Seed | None = None,
        edit: bool = False,
    ) -> tuple[Chat, Json]:
        """What the simulator reads, and the JSON schema of the specification that it is to write.

        `success` is the agent's recent success on the family of `example` in [0, 1], None if unknown. With a `target`
        the chat is one that `target` answers: for training on known good specifications. For an `edit` it asks for the
        example with one thing changed instead of a new task, and `success` is that on the example itself.
        """
        ...

    def direction(self, example: Seed, other: Seed) -> Direction:
        """Whether `other` is easier or harder than `example`, as far as the specifications alone tell."""
        ...

    def build(self, spec: Mapping[str, Json]) -> Task:
        """Turn a specification into a task. Raises SpecError if it is not one."""
        ...

    def reference(self, task: Task) -> Sequence[str]:
        """The reference solution: what a perfect agent writes, turn by turn."""
        ...

    def perturbed(self, task: Task) -> Sequence[Sequence[str]]:
        """Answers close to the reference that must not earn anything."""
        ...


def fault(error: ValidationError) -> str:
    """The first fault that a model found in what was written, on one line, with its place."""
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


def object_schema(properties: Mapping[str, Json]) -> Json:
    """JSON schema of an object with these properties, in this order, all of them and no others."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def order_line(family: str, success: float | None, direction: Direction, edit: bool = False) -> str:
    """The last line of what the simulator reads: what is wanted."""
    solved = "unknown" if success is None else f"{round(100 * success)}%"
    if edit:
        wish = "equally hard" if direction == "similar" else f"so that it gets {direction}"
        comma = "," if direction == "similar" else ""
        return f"Family: {family}. Solved: {solved}. Change one thing in it{comma} {wish}."
    return f"Family: {family}. Solved: {solved}. Write a new task, {direction}."


def identity(domain: Domain, task: Task) -> str | None:
    """The text that the gate compares tasks by: of the domain's method `identity`, None where it has none.

    Without it that is the request. Where an agent does not see everything at once, tasks with one request may rightly have
    different solutions, and the text has to tell them apart.
    """
    own = getattr(domain, "identity", None)
    return None if own is None else str(own(task))


def turn_limit(playable: Playable) -> int | None:
    """Turns that an attempt can have at most, where there is such a limit: its attribute `max_turns`."""
    limit: int | None = getattr(playable, "max_turns", None)
    return limit


PURE_REPEATS = 1


def repeats(domain: Domain) -> int:
    """How often the gate repeats its proof to see whether the verdict stays the same, and how much nonsense it tries.

    A domain whose score is a function of task and answer needs no more than a look, which catches episodes that leak
    state into each other. One that runs code which others wrote sets `repeats` to a number that makes chance visible.
    """
    return int(getattr(domain, "repeats", PURE_REPEATS))


def release(domain: Playable) -> None:
    """Close a domain that has something to close, such as worker processes. Most have not."""
    close = getattr(domain, "close", None)
    if close is not None:
        close()


AnyDomain = TypeVar("AnyDomain", bound=Playable)


@contextmanager
def released(domain: AnyDomain) -> Iterator[AnyDomain]:
    """The domain for as long as it is used."""
    try:
        yield domain
    finally:
        release(domain)
