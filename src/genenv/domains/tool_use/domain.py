"""tool_use: turn a request into one to four function calls.

The simulator's specification is compact: the calls that solve the task and the names of distractor functions. The
request is rendered from the calls, so it can neither omit nor contradict an argument; with `request = "written"` the
simulator words it itself and every argument value must then be found in its text. A family is a number of calls.

Scoring (Eq. 1 for structured actions): 1 if the agent's calls equal the target's as a multiset, typed by their JSON
schemas (`grading.calls`), else 0. Nothing is paid for a part of the calls.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import jsonschema
from pydantic import ValidationError

from genenv.contracts.domain import SpecError, Step, fault, order_line
from genenv.contracts.errors import InputError
from genenv.contracts.types import Chat, Direction, Json, Message, Origin, Score, Seed, Task
from genenv.domains.tool_use.catalogue import load_catalogue
from genenv.domains.tool_use.functions import (
    Catalogue,
    Function,
    random_call,
    random_value,
    render_request,
    surely_valid,
)
from genenv.domains.tool_use.grounding import check_grounding
from genenv.domains.tool_use.spec import MAX_CALLS, ToolSpec, functions_of, spec_schema
from genenv.grading.calls import CallMatcher
from genenv.reading.parsing import Call, format_tool_calls, parse_tool_calls

SHOWN = 6
"""Functions that the simulator may choose from, at least."""
DRAWS = 1000
"""Random specifications of which one must be a task."""

AGENT_INSTRUCTIONS = (
    "Make the function calls that the user asks for, each as "
    '<tool_call>{"name": ..., "arguments": {...}}</tool_call>. Write nothing else.'
)
SIMULATOR_INSTRUCTIONS = (
    "You write tasks for an agent that calls functions. Answer with one JSON object: "
    '"calls" is the list of function calls that solve the task, "distractors" names unneeded functions.'
)
WRITTEN_INSTRUCTIONS = ' "request" is what the user says; it must contain every argument value.'


class ToolUse:
    """The domain. `catalogue` is a file of functions (None: the built-in ones).

    `shots` solved one-call examples precede each request, for models that do not know the format.
    """

    name = "tool_use"
    max_turns = 1

    def __init__(
        self,
        catalogue: Path | Catalogue | None = None,
        request: Literal["rendered", "written"] = "rendered",
        max_calls: int = MAX_CALLS,
        shots: int = 0,
    ) -> None:
        self.catalogue = catalogue if isinstance(catalogue, Mapping) else load_catalogue(catalogue)
        self.request = request
        self.families = tuple(f"{n}-call" for n in range(1, max_calls + 1))
        self._train = [f for f in self.catalogue.values() if f.split == "train"]
        self._validators: dict[str, jsonschema.Draft202012Validator] = {}
        self._matched: tuple[Task, CallMatcher] | None = None
        self._shots = tuple(self._solved_examples(shots))

    def _solved_examples(self, count: int) -> Iterator[Message]:
        rng = random.Random(0)
        for function in rng.sample(self._train, min(count, len(self._train))):
            call = random_call(function, rng)
            yield Message("user", render_request([call], self.catalogue))
            yield Message("assistant", format_tool_calls([call]))

    # -- seeds and evaluation ----------------------------------------------------------------------------------

    def random_spec(self, calls: int, functions: Sequence[Function], rng: random.Random) -> dict[str, Json]:
        """A valid specification with `calls` calls over `functions`."""
        chosen = self._choose(calls, functions, rng)
        distractors = self._distractors({f.name for f in chosen}, functions, rng.randint(0, 4), rng)
        made = [random_call(f, rng) for f in chosen]
        spec: dict[str, Json] = {
            "calls": [c.as_json() for c in made],
            "distractors": [f.name for f in distractors],
        }
        if self.request == "written":
            spec["request"] = render_request(made, self.catalogue)
        return spec

    def _choose(self, count: int, functions: Sequence[Function], rng: random.Random) -> list[Function]:
        """`count` functions for calls: half of the time from one field, and seldom the same one twice."""
        first = rng.choice(functions)
        near = [f for f in functions if f.field == first.field]
        pool = near if rng.random() < 0.5 else functions
        return [first] + [rng.choice(pool) for _ in range(count - 1)]

    def _distractors(
        self, used: set[str], functions: Sequence[Function], count: int, rng: random.Random
    ) -> list[Function]:
        """Functions that the task does not need, the fields of the needed ones first."""
        fields = {self.catalogue[n].field for n in used}
        free = [f for f in functions if f.name not in used]
        rng.shuffle(free)
        return sorted(free, key=lambda f: f.field not in fields or rng.random() < 0.4)[:count]

    def _stream(self, functions: Sequence[Function], seed: int, origin: Origin) -> Iterator[Task]:
        rng = random.Random(seed)
        while True:
            for calls in range(1, len(self.families) + 1):
                yield self._random_task(calls, functions, rng, origin)

    def _random_task(self, calls: int, functions: Sequence[Function], rng: random.Random, origin: Origin) -> Task:
        refused = ""
        for _ in range(DRAWS):
            try:
                return self._build(self.random_spec(calls, functions, rng), origin)
            except SpecError as error:  # two equal calls by chance, or a value without words
                refused = str(error)
        raise InputError(f"catalogue: {DRAWS} random tasks of {calls}-call are none, the last one: {refused}")

    def seeds(self, count: int, seed: int) -> list[Seed]:
        stream = self._stream(self._train, seed, "seed")
        return [Seed(t.family, t.spec) for t, _ in zip(stream, range(count), strict=False)]

    def heldout(self, count: int, seed: int) -> list[Task]:
        """Tasks over the whole catalogue, including the functions that neither seeds nor simulator know."""
        stream = self._stream(list(self.catalogue.values()), seed, "heldout")
        return [t for t, _ in zip(stream, range(count), strict=False)]

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
        rng = random.Random(seed)
        names = functions_of(example.spec) if target is None else functions_of(target.spec)
        functions = [self.catalogue[n] for n in names]
        near = {c["name"] for c in example.spec["calls"]} | set(names)
        functions += self._distractors(near, self._train, max(2, SHOWN - len(functions)), rng)
        rng.shuffle(functions)
        shown = {k: v for k, v in example.spec.items() if k != "request" or self.request == "written"}
        text = (
            f"Example: {json.dumps(shown, separators=(',', ':'), ensure_ascii=False)}\n"
            f"{order_line(example.family, success, direction, edit)}"
        )
        system = SIMULATOR_INSTRUCTIONS + (WRITTEN_INSTRUCTIONS if self.request == "written" else "")
        chat = Chat((Message("system", system), Message("user", text)), tuple(f.tool for f in functions))
        return chat, spec_schema(functions, len(self.families), self.request == "written")

    def direction(self, example: Seed, other: Seed) -> Direction:
        """By the number of arguments and distractors."""

        def size(spec: Mapping[str, Json]) -> int:
            return sum(len(c["arguments"]) for c in spec["calls"]) + len(spec.get("distractors", ()))

        change = size(other.spec) - size(example.spec)
        return "harder" if change > 1 else "easier" if change < -1 else "similar"

    def build(self, spec: Mapping[str, Json]) -> Task:
        return self._build(spec, "simulator")

    def _build(self, spec: Mapping[str, Json], origin: Origin) -> Task:
        try:
            parsed = ToolSpec.model_validate(spec)
        except ValidationError as error:
            raise SpecError("schema", fault(error)) from None
        calls = [Call(c.name, c.arguments) for c in parsed.calls]
        if len(calls) > len(self.families):
            raise SpecError("schema", f"{len(calls)} calls, at most {len(self.families)} are asked for")
        self._check_calls(calls, parsed.distractors)
        if parsed.request is None and self.request == "written":
            raise SpecError("schema", "request: the simulator must word it")
        request = render_request(calls, self.catalogue) if parsed.request is None else parsed.request
        check_grounding(calls, request, written=parsed.request is not None)
        names = list(dict.fromkeys([c.name for c in calls] + parsed.distractors))
        # shown in an order that gives nothing away, and the same for the same task
        random.Random(request).shuffle(names)
        return Task(
            family=f"{len(calls)}-call",
            messages=(Message("system", AGENT_INSTRUCTIONS), *self._shots, Message("user", request)),
            tools=tuple(self.catalogue[n].tool for n in names),
            target=[c.as_json() for c in calls],
            spec=dict(spec),
            origin=origin,
        )

    def _check_calls(self, calls: Sequence[Call], distractors: Sequence[str]) -> None:
        for name in [*(c.name for c in calls), *distractors]:
            if name not in self.catalogue:
                raise SpecError("schema", f"unknown function {name!r}")
        for i, call in enumerate(calls):
            if (error := self._check(call)) is not None:
                raise SpecError("schema", f"{call.name}: {error.message[:120]}")
            if any(call.name == other.name and self._same([call], [other]) for other in calls[:i]):
                raise SpecError("schema", f"{call.name} is called twice with the same arguments")

    def _check(self, call: Call) -> jsonschema.ValidationError | None:
        """The first fault of a call's arguments by its function's schema."""
        parameters = self.catalogue[call.name].parameters
        if surely_valid(call.arguments, parameters):
            return None
        validator = self._validators.get(call.name)
        if validator is None:
            checker = jsonschema.FormatChecker()
            validator = jsonschema.Draft202012Validator(dict(parameters), format_checker=checker)
            self._validators[call.name] = validator
        return next(iter(validator.iter_errors(call.arguments)), None)

    def _same(self, target: Sequence[Call], answer: Sequence[Call]) -> bool:
        schemas = {c.name: self.catalogue[c.name].parameters for c in target}
        return not CallMatcher(target, schemas).difference(answer)

    # -- the agent's side --------------------------------------------------------------------------------------

    def reference(self, task: Task) -> Sequence[str]:
        return [format_tool_calls(_target(task))]

    def perturbed(self, task: Task) -> Sequence[Sequence[str]]:
        """One call dropped, one doubled, one renamed; in the last call an argument dropped, and one changed."""
        calls = _target(task)
        rng = random.Random(task.id)
        last = calls[-1]
        rest, whole = format_tool_calls(calls[:-1]), format_tool_calls([last])
        same = CallMatcher([last], {last.name: self.catalogue[last.name].parameters})
        damaged = [rest, rest + whole + whole, rest + format_tool_calls([Call(last.name + "_", last.arguments)])]
        if last.arguments:
            name = rng.choice(sorted(last.arguments))
            schema = self.catalogue[last.name].properties[name]
            values = itertools.chain((random_value(schema, rng) for _ in range(20)), [None])
            changed = (Call(last.name, {**last.arguments, name: v}) for v in values)
            fewer = Call(last.name, {k: v for k, v in last.arguments.items() if k != name})
            # leaving out an argument that equals its default is no damage
            if same.difference([fewer]):
                damaged.append(rest + format_tool_calls([fewer]))
            damaged.append(rest + format_tool_calls([next(c for c in changed if same.difference([c]))]))
        return [[text] for text in damaged]

    def episode(self, task: Task) -> ToolEpisode:
        # the gate and the members of a group ask for the same task again and again
        if self._matched is None or self._matched[0] is not task:
            schemas = {t["function"]["name"]: t["function"]["parameters"] for t in task.tools}
            self._matched = task, CallMatcher(_target(task), schemas)
        return ToolEpisode(self._matched[1])


class ToolEpisode:
    """One turn: the agent's calls are parsed and compared with the target."""

    def __init__(self, matcher: CallMatcher) -> None:
        self._matcher = matcher

    def step(self, text: str) -> Step:
        parsed = parse_tool_calls(text)
        answer = [c.as_json() for c in parsed.calls]
        if parsed.error:
            return Step(score=Score(0.0, f"malformed: {parsed.error}"))
        difference = self._matcher.difference(parsed.calls)
        return Step(score=Score(0.0 if difference else 1.0, difference or "right", answer))

    def close(self) -> None:
        """Nothing to release."""


def _target(task: Task) -> list[Call]:
    return [Call(c["name"], c["arguments"]) for c in task.target]
