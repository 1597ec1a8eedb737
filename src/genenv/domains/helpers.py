"""What fields with tools have in common, so that a user's own is a page: a `Spec`, a `World`, a `ToolDomain`.

A task is a world in a first state and a request. The public methods of the world are the agent's tools. The reference
solution is computed from the specification and executed; an attempt is right if the world's `result` is then the same.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
import json
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, validate_call

from genenv.contracts.domain import SpecError, Step, fault, order_line
from genenv.contracts.errors import InputError
from genenv.contracts.types import Chat, Direction, Json, Message, Score, Seed, Task, canonical, derive_seed
from genenv.reading.parsing import Call, format_tool_calls, parse_tool_calls, shorten

AGENT_INSTRUCTIONS = (
    "Do what the user asks for by calling functions, each as "
    '<tool_call>{"name": ..., "arguments": {...}}</tool_call>. You read their results before your next turn.'
)
SIMULATOR_INSTRUCTIONS = "You write tasks for an agent that calls functions. Answer with one JSON object."
MAX_PERTURBED = 8
DRAWS = 1000
"""Random specifications of which one must be a task."""


class Spec(BaseModel):
    """Base of a specification, which the simulator writes: typed to the letter, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class World:
    """Base of what the agent acts on. Public methods are its tools: typed arguments, a docstring, JSON or text returned.

    A ValueError is told to the agent, who may go on; any other exception leaves the attempt unscored. The attempt ends
    when a method sets `result`.
    """

    result: Json = None


S = TypeVar("S", bound=Spec)


class ToolDomain(ABC, Generic[S]):
    """A domain made from a `Spec`. A subclass says what is drawn, asked for and done; the rest follows."""

    name: str
    families: tuple[str, ...]
    spec_model: type[S]
    world: Callable[[S], World]
    """Makes the first state of a specification: as a rule the class of the world."""
    instructions: str = ""
    """What the simulator must know of a specification beyond its JSON schema."""

    @abstractmethod
    def random_spec(self, family: str, rng: random.Random) -> S:
        """A specification of a family. One that `solution` refuses is drawn again."""

    @abstractmethod
    def describe(self, spec: S) -> tuple[str, str]:
        """Its family, tasks of like difficulty, and what the user says.

        Two specifications with different solutions need different requests: say a name or a number that tells them apart.
        """

    @abstractmethod
    def solution(self, spec: S) -> Sequence[Sequence[Call]]:
        """The calls of a perfect agent, turn by turn. Raises SpecError if the specification is no task."""

    # -- seeds and evaluation ----------------------------------------------------------------------------------

    def seeds(self, count: int, seed: int) -> list[Seed]:
        return [Seed(t.family, t.spec) for t in self._drawn(count, derive_seed(seed, "seeds"))]

    def heldout(self, count: int, seed: int) -> list[Task]:
        return [dataclasses.replace(t, origin="heldout") for t in self._drawn(count, derive_seed(seed, "heldout"))]

    def _drawn(self, count: int, seed: int) -> list[Task]:
        rng = random.Random(seed)
        return [self._draw(self.families[i % len(self.families)], rng) for i in range(count)]

    def _draw(self, family: str, rng: random.Random) -> Task:
        refused = ""
        for _ in range(DRAWS):
            try:
                return self._task(self.random_spec(family, rng))
            except SpecError as error:
                refused = str(error)
        raise InputError(f"{self.name}: {DRAWS} random specifications of {family} are no tasks: {refused}")

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
        text = f"Example: {canonical(dict(example.spec))}\n{order_line(family, success, direction, edit)}"
        system = f"{SIMULATOR_INSTRUCTIONS} {self.instructions}".rstrip()
        return Chat((Message("system", system), Message("user", text))), self.spec_model.model_json_schema()

    def direction(self, example: Seed, other: Seed) -> Direction:
        """By the number of calls in the solution."""
        one, two = (sum(map(len, self.solution(self._parsed(s.spec)))) for s in (example, other))
        return "harder" if two > one else "easier" if two < one else "similar"

    def build(self, spec: Mapping[str, Json]) -> Task:
        try:
            return self._task(self._parsed(spec))
        except ValidationError as error:
            raise SpecError("schema", fault(error)) from None

    def _parsed(self, spec: Mapping[str, Json]) -> S:
        return self.spec_model.model_validate_json(canonical(dict(spec)))

    def _task(self, spec: S) -> Task:
        family, request = self.describe(spec)
        if family not in self.families:
            raise SpecError("schema", f"a specification of {family}: expected one of {', '.join(self.families)}")
        turns = self.solution(spec)
        world = self.world(spec)
        for call in itertools.chain.from_iterable(turns):
            if (answer := _make(world, call)).startswith(ERROR):
                raise SpecError("reference_fails", f"{call.name}: {answer}")
        if world.result is None:
            raise SpecError("reference_fails", "the solution ends without a result")
        return Task(
            family=family,
            messages=(Message("system", AGENT_INSTRUCTIONS), Message("user", request)),
            tools=tuple(declaration for declaration, _ in _tools(world).values()),
            target={"result": world.result, "turns": [[c.as_json() for c in turn] for turn in turns]},
            spec=spec.model_dump(mode="json"),
        )

    # -- the agent's side --------------------------------------------------------------------------------------

    def reference(self, task: Task) -> Sequence[str]:
        return [format_tool_calls(turn) for turn in _turns(task)]

    def perturbed(self, task: Task) -> Sequence[Sequence[str]]:
        """The reference with one call left out or one argument changed, where that leads to another result."""
        wrong = [turns for turns in _damaged(_turns(task)) if self._result(task, turns) != task.target["result"]]
        chosen = random.Random(task.id).sample(wrong, min(MAX_PERTURBED, len(wrong)))
        return [[format_tool_calls(turn) for turn in turns] for turns in chosen]

    def _result(self, task: Task, turns: Sequence[Sequence[Call]]) -> Json:
        world = self.world(self._parsed(task.spec))
        for call in itertools.chain.from_iterable(turns):
            _make(world, call)
            if world.result is not None:
                break
        return world.result

    def episode(self, task: Task) -> ToolEpisode:
        return ToolEpisode(self.world(self._parsed(task.spec)), task.target["result"])


class ToolEpisode:
    """One attempt: the calls of each turn are made in order until there is a result.

    A turn without a call, or one that cannot be read, is the agent's last and earns nothing.
    """

    def __init__(self, world: World, target: Json) -> None:
        self._world = world
        self._target = target

    def step(self, text: str) -> Step:
        parsed = parse_tool_calls(text)
        if parsed.error:
            return Step(score=Score(0.0, f"malformed: {parsed.error}"))
        answers = []
        for call in parsed.calls:
            answers.append(Message("tool", _make(self._world, call)))
            if (result := self._world.result) is not None:
                right = canonical(result) == canonical(self._target)
                return Step(score=Score(float(right), "right" if right else "another result", result))
        return Step(tuple(answers), None if answers else Score(0.0, "ended without a result"))

    def close(self) -> None:
        """Nothing to release."""


# -- tools -----------------------------------------------------------------------------------------------------------

ERROR = "error: "


def _tools(world: World) -> Mapping[str, tuple[Json, Callable[..., Any]]]:
    """Declaration and checked function of each tool, by name."""
    return _tools_of(type(world))  # type: ignore[arg-type]  # mypy takes a class's own __hash__ for its objects'


@functools.cache
def _tools_of(kind: type[World]) -> Mapping[str, tuple[Json, Callable[..., Any]]]:
    tools = {}
    for name, method in ((n, m) for c in reversed(kind.__mro__) for n, m in vars(c).items()):
        if name.startswith("_") or not inspect.isfunction(method):
            continue
        schema = TypeAdapter(method).json_schema()
        own = next(iter(inspect.signature(method).parameters))  # self
        properties = {n: {k: v for k, v in s.items() if k != "title"} for n, s in schema["properties"].items()}
        del properties[own]
        parameters = {**schema, "properties": properties, "required": [n for n in schema["required"] if n != own]}
        function = {"name": name, "description": inspect.getdoc(method) or "", "parameters": parameters}
        tools[name] = {"type": "function", "function": function}, validate_call(config=ConfigDict(strict=True))(method)
    return tools


def _make(world: World, call: Call) -> str:
    """Make one call; the answer as the agent reads it."""
    if call.name not in (tools := _tools(world)):
        return f"{ERROR}no function {shorten(call.name)}"
    try:
        answer = tools[call.name][1](world, **call.arguments)
    except ValidationError as error:
        return ERROR + fault(error)
    except ValueError as error:
        return f"{ERROR}{error}"
    if answer is None:
        return "done"
    return answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)


def _turns(task: Task) -> list[list[Call]]:
    return [[Call(c["name"], c["arguments"]) for c in turn] for turn in task.target["turns"]]


def _damaged(turns: Sequence[Sequence[Call]]) -> Iterator[list[list[Call]]]:
    """One call left out, or one number or text in it changed."""
    for i, turn in enumerate(turns):
        for j, call in enumerate(turn):
            changed = [[Call(call.name, {**call.arguments, n: v})] for n, v in _changed(call.arguments)]
            for instead in ([], *changed):
                yield [*map(list, turns[:i]), [*turn[:j], *instead, *turn[j + 1 :]], *map(list, turns[i + 1 :])]


def _changed(arguments: Mapping[str, Json]) -> Iterator[tuple[str, Json]]:
    for name, value in arguments.items():
        if isinstance(value, bool):
            yield name, not value
        elif isinstance(value, (int, float)):
            yield name, value + 1
        elif isinstance(value, str):
            yield name, value + "x"
