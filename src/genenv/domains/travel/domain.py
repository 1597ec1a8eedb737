"""travel: plan a trip of 3, 5 or 7 days within a budget, with look-ups in a made-up world. Maps to TravelPlanner.

The simulator writes a query. The rules are the benchmark's (`benchmarks/travelplanner/rules.py`), the tables are made from a seed
(`world.py`), and HiGHS finds the cheapest trip (`solver.py`): the budget lies `slack` percent above it, so that a
task can be solved, and how hard it is stands in its specification. A family is a number of days and a level as in the
benchmark: "easy" (a budget), "medium" (one limit more) or "hard" (three).

The agent looks things up in as many turns as it likes and then writes its plan, in the benchmark's JSON or in compact
lines (`plan.py`). Score: 1 if the plan passes every official check and names things exactly as the tables do, else 0.
Flights go daily, so queries have no dates: no official check looks at them.
"""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from pydantic import ValidationError

from genenv.benchmarks.travelplanner.benchmark import PLAN_FORMAT, find_plan, judge, undelivered
from genenv.benchmarks.travelplanner.plan import Query
from genenv.contracts.domain import SpecError, Step, fault, order_line
from genenv.contracts.errors import InputError, MissingExtraError
from genenv.contracts.types import Chat, Direction, Json, Message, Origin, Score, Seed, Task
from genenv.domains.travel.damage import damaged
from genenv.domains.travel.plan import COMPACT, inexact, official, read_compact, write_compact
from genenv.domains.travel.spec import CITIES, LEVELS, LIMITS, SLACK, TravelSpec, edit_schema, request, task_schema
from genenv.domains.travel.tools import IN_CITY, TOOLS, declaration, look_up
from genenv.domains.travel.trip import NoTrip, Trip
from genenv.domains.travel.world import CUISINES, NAMES, Names, Size, World, make_world
from genenv.reading.parsing import Call, format_tool_calls, parse_tool_calls

SHOWN = 6
"""Places that the simulator may choose from."""
MAX_TRIES = 1000
MAX_CALLS = 24
"""Look-ups that are answered in one turn."""

INSTRUCTIONS = (
    "You plan trips. Look things up with calls, each as"
    ' <tool_call>{"name": ..., "arguments": {...}}</tool_call>. Needed: ways there and back, a room each night, three meals'
    " and an attraction on full days, nothing twice. Then write only "
)
SIMULATOR_INSTRUCTIONS = (
    'You write queries for an agent that plans trips, as one JSON object: from "org" to "dest", "slack" is the percent that'
    ' the budget lies above the cheapest plan, "house_rule" is what rooms must allow, "cuisines" what must be eaten.'
)


class Travel:
    """The domain. `world` is the seed of the country; `plan` says how the agent writes its answer.

    Raises InputError for a world too small for the days, MissingExtraError without HiGHS.
    """

    name = "travel"

    def __init__(
        self,
        world: int = 0,
        days: Sequence[int] = (3, 5, 7),
        plan: Literal["official", "compact"] = "official",
        size: Size | None = None,
        names: Names = NAMES,
    ) -> None:
        try:
            from genenv.domains.travel.solver import cheapest_trip
        except ModuleNotFoundError:
            raise MissingExtraError("highspy", "travel", "the domain travel") from None
        if not days or not set(days) <= set(CITIES):
            raise InputError(f"travel: days: expected some of {', '.join(map(str, CITIES))}, found {list(days)}")
        size = size or Size()
        self.days = tuple(sorted(set(days)))
        self.compact = plan == "compact"
        self._whole, hidden = make_world(world, size, names)
        self._open = self._whole.without(hidden)
        least = CITIES[self.days[-1]]
        states = [len(self._open.cities(state)) for state in self._open.all_states]
        if self.days[-1] > 3 and (min(states) < least or len(states) < 2):
            raise InputError(
                f"travel: trips of {self.days[-1]} days need two states of {least} cities, found {sorted(states)}"
            )
        self._system = Message("system", INSTRUCTIONS + (COMPACT if self.compact else PLAN_FORMAT))
        tools = [name for name in TOOLS if name != "cities" or self.days[-1] > 3]
        self._tools = tuple(declaration(name) for name in tools)
        self.families = tuple(f"{n}-day {level}" for n in self.days for level in LEVELS)

        @functools.lru_cache(maxsize=4096)
        def solved(world: World, query: Query) -> Trip | str:
            """The cheapest trip, or why there is none: whatever the budget, so edits of the slack cost nothing."""
            try:
                return cheapest_trip(world, query)
            except NoTrip as error:
                return str(error)

        self._solved = solved

    def world(self, origin: Origin) -> World:
        """What can be looked up in a task: only held-out tasks know of the hidden cities."""
        return self._whole if origin == "heldout" else self._open

    # -- seeds and evaluation ----------------------------------------------------------------------------------

    def random_spec(self, family: str, origin: Origin, rng: random.Random) -> dict[str, Json]:
        """A specification of a family, which may ask for the impossible."""
        days, level = _family(family)
        world = self.world(origin)
        org = rng.choice(list(world.states))
        spec: dict[str, Json] = {
            "org": org,
            "dest": rng.choice(self._destinations(world, days, org)),
            "days": days,
            "people": rng.choice((1, 1, 2, 2, 2, 3, 4, 5, 6, 8)),
            "slack": rng.choice(SLACK),
        }
        chosen = rng.sample(list(LIMITS), LEVELS[level])
        return spec | {name: rng.choice(LIMITS[name]) for name in LIMITS if name in chosen}

    def _destinations(self, world: World, days: int, org: str) -> list[str]:
        if CITIES[days] == 1:
            return [city for city in world.states if city != org]
        return [state for state in world.all_states if state != world.states[org]]

    def _stream(self, seed: int, origin: Origin) -> Iterator[Task]:
        rng = random.Random(f"travel {origin} {seed}")
        while True:
            for family in self.families:
                yield self.random_task(family, origin, rng)

    def random_task(self, family: str, origin: Origin, rng: random.Random) -> Task:
        """A task of a family. Raises InputError where the world seems to have none."""
        for _ in range(MAX_TRIES):
            try:
                return self._build(self.random_spec(family, origin, rng), origin)
            except SpecError:
                continue  # no such trip
        raise InputError(f"travel: no {family} trip found in this world: try another seed or a larger world")

    def seeds(self, count: int, seed: int) -> list[Seed]:
        return [Seed(t.family, t.spec) for t, _ in zip(self._stream(seed, "seed"), range(count), strict=False)]

    def heldout(self, count: int, seed: int) -> list[Task]:
        """Tasks over the whole world, including the cities that neither seeds nor simulator know."""
        return [task for task, _ in zip(self._stream(seed, "heldout"), range(count), strict=False)]

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
        family = example.family if target is None or edit else target.family
        used = [example.spec] if target is None else [target.spec, example.spec]
        days, level = _family(family)
        # a destination is a city too, or else a state
        places = [place for spec in used for place in (spec["org"], spec["dest"])]
        cities = self._shown(places, list(self._open.states), rng)
        destinations = cities if CITIES[days] == 1 else self._shown(places, self._open.all_states, rng)
        known = f"Cities: {', '.join(cities)}." + (f" States: {', '.join(destinations)}." if CITIES[days] > 1 else "")
        shown = json.dumps(dict(example.spec), separators=(",", ":"), ensure_ascii=False)
        text = f"{known}\nExample: {shown}\n{order_line(family, success, direction, edit)}"
        chat = Chat((Message("system", SIMULATOR_INSTRUCTIONS), Message("user", text)))
        if edit:
            return chat, edit_schema(example.spec, cities, destinations)
        return chat, task_schema(days, level, cities, destinations)

    def _shown(self, used: Sequence[str], known: Sequence[str], rng: random.Random) -> list[str]:
        """Up to SHOWN known places in any order, those in use among them."""
        needed = [place for place in dict.fromkeys(used) if place in known]
        others = [place for place in known if place not in needed]
        chosen = needed + rng.sample(others, min(len(others), max(0, SHOWN - len(needed))))
        return rng.sample(chosen, len(chosen))

    def direction(self, example: Seed, other: Seed) -> Direction:
        """By the slack of the budget and the number of cuisines: one of them weighs as much as 20 percent."""

        def weight(spec: Mapping[str, Json]) -> int:
            return 20 * len(spec.get("cuisines") or ()) - int(spec["slack"])

        change = weight(other.spec) - weight(example.spec)
        return "harder" if change >= 10 else "easier" if change <= -10 else "similar"

    def build(self, spec: Mapping[str, Json]) -> Task:
        return self._build(spec, "simulator")

    def _build(self, spec: Mapping[str, Json], origin: Origin) -> Task:
        try:
            parsed = TravelSpec.model_validate(dict(spec))
        except ValidationError as error:
            raise SpecError("schema", fault(error)) from None
        self._check(parsed, self.world(origin))
        found = self._solved(self.world(origin), parsed.query())
        if isinstance(found, str):
            raise SpecError("reference_fails", found)
        # whole dollars, rounded up
        query = parsed.query(-(-found.cost * (100 + parsed.slack) // 100))
        return Task(
            family=f"{query.days}-day {query.level}",
            messages=(self._system, Message("user", request(query))),
            tools=self._tools,
            target={"budget": query.budget, "cheapest": found.cost, "plan": official(found)},
            spec=parsed.model_dump(exclude_none=True),
            origin=origin,
        )

    def _check(self, spec: TravelSpec, world: World) -> None:
        """Raises SpecError for what no schema of a single field can say."""
        if spec.days not in self.days:
            raise SpecError("schema", f"days: expected one of {self.days}, found {spec.days}")
        if not spec.query().level:
            raise SpecError("schema", f"{len(spec.limits)} limits: expected none, one or three")
        if spec.org not in world.states:
            raise SpecError("schema", f"org: no city {spec.org[:40]!r}")
        if spec.dest not in self._destinations(world, spec.days, spec.org):
            raise SpecError("schema", f"dest: no trip of {spec.days} days goes from {spec.org} to {spec.dest[:40]!r}")
        cuisines = spec.cuisines or []
        if not set(cuisines) <= set(CUISINES) or len(set(cuisines)) < len(cuisines):
            raise SpecError("schema", f"cuisines: expected different ones of {', '.join(CUISINES)}")

    # -- the agent's side --------------------------------------------------------------------------------------

    def write(self, days: Sequence[Mapping[str, Json]]) -> str:
        """Official days as the agent is to write them."""
        return write_compact(days) if self.compact else json.dumps(days, ensure_ascii=False)

    def reference(self, task: Task) -> Sequence[str]:
        """Look-ups of everything that the plan names, then the plan: two turns, three where cities are to be found."""
        moves = [_move(day) for day in task.target["plan"] if day["current_city"].startswith("from ")]
        cities = [city for _, city in moves[:-1]]
        first = [Call("cities", {"state": task.spec["dest"]})] if len(cities) > 1 else []
        calls = [Call("flights", {"origin": a, "destination": b}) for a, b in moves]
        # a road is the same both ways
        roads = moves if len(cities) > 1 else moves[:1]
        calls += [Call("roads", {"origin": a, "destination": b}) for a, b in roads]
        calls += [Call(name, {"city": city}) for city in cities for name in IN_CITY]
        return [
            *([format_tool_calls(first)] if first else []),
            format_tool_calls(calls),
            self.write(task.target["plan"]),
        ]

    def perturbed(self, task: Task) -> Sequence[Sequence[str]]:
        """Damaged plans, each without look-ups. See `damage.py`."""
        query = self.query(task)
        return [[self.write(days)] for days in damaged(query, task.target["plan"], self.world(task.origin))]

    def query(self, task: Task) -> Query:
        """The query of a task as the rules want it."""
        return TravelSpec.model_validate(dict(task.spec)).query(task.target["budget"])

    def episode(self, task: Task) -> TravelEpisode:
        return TravelEpisode(self.world(task.origin), self.query(task), self.compact)


class TravelEpisode:
    """Look-ups until a text without a call comes, which is the plan."""

    def __init__(self, world: World, query: Query, compact: bool) -> None:
        self._world, self._query, self._compact = world, query, compact

    def step(self, text: str) -> Step:
        parsed = parse_tool_calls(text)
        if parsed.error:
            return Step((Message("tool", f"error: {parsed.error}"),))
        if parsed.calls:
            answers = [look_up(self._world, call) for call in parsed.calls[:MAX_CALLS]]
            if len(parsed.calls) > MAX_CALLS:
                answers.append(f"error: more than {MAX_CALLS} calls in a turn")
            return Step(tuple(Message("tool", answer) for answer in answers))
        try:
            days = read_compact(text) if self._compact else find_plan(text)
            score = judge(days, self._query, self._world.tables)
        except ValueError as error:
            return Step(score=undelivered(str(error)))
        if score.value and (why := inexact(days[: self._query.days], self._world)):
            score = Score(0.0, f"inexact: {why}", score.answer, score.checks)
        return Step(score=score)

    def close(self) -> None:
        """Nothing to release."""


def _family(family: str) -> tuple[int, str]:
    """ "3-day easy" is (3, "easy")."""
    days, _, level = family.partition("-day ")
    return int(days), level


def _move(day: Mapping[str, Json]) -> tuple[str, str]:
    origin, _, destination = day["current_city"].removeprefix("from ").partition(" to ")
    return origin, destination
