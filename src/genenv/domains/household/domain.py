"""household: do something in a house of ALFWorld, command by command.

The simulator's specification is a goal, the receptacles and what stands in them; the agent sees the receptacles and the
goal and has to find the rest. Prompt, commands, wording and limit are those of the benchmark (`benchmarks.alfworld`), and
so is the score: 1 if the game is won within 50 commands, else 0. A family is one of ALFRED's six types of task.

Two engines play the same texts: the built-in one, and TextWorld with ALFWorld's own domain and grammar in workers.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from genenv.benchmarks.alfworld.games import INSTRUCTIONS, CommandEpisode, Games, need_packages
from genenv.contracts.domain import SpecError, object_schema, order_line
from genenv.contracts.errors import InputError
from genenv.contracts.types import Chat, Direction, Json, Message, Origin, Seed, Task
from genenv.domains.household.house import House
from genenv.domains.household.pddl import game
from genenv.domains.household.planner import plan
from genenv.domains.household.seeds import MIN_PLACES, known, random_spec
from genenv.domains.household.things import OBJECTS
from genenv.domains.household.world import CHANGES, FAMILIES, LAMP, MAX_PLACES, Action, World, parse

SIMULATOR_INSTRUCTIONS = (
    "You write household tasks for an agent. Answer with one JSON object: "
    '"goal" is what to do with which object and where to put it, "places" counts the receptacles, '
    '"objects" is what stands where, with its state if it has one.'
)
SHOWN = 4
"""Receptacles of one kind that the simulator may write, at least."""
MAX_ENTRIES = 12
"""Objects that the simulator may write, at least."""

ACTIONS: dict[str, Action] = {family: action for action, family in FAMILIES.items()}


class Household:
    """The domain. Seeds and held-out tasks have at most `max_places` receptacles; ALFWorld's own games have up to 50.

    The engine `textworld` plays in workers, which `close` ends. Raises MissingExtraError where it is not installed,
    InputError for a number of receptacles that no specification may have.
    """

    name = "household"
    families = tuple(ACTIONS)

    def __init__(self, engine: Literal["builtin", "textworld"] = "builtin", max_places: int = 8) -> None:
        if not MIN_PLACES <= max_places <= MAX_PLACES:
            raise InputError(f"household: max_places: expected {MIN_PLACES} to {MAX_PLACES}, found {max_places}")
        self._max_places = max_places
        self._played: tuple[str, World] | None = None
        self._games: Games | None = None
        if engine == "textworld":
            need_packages("the TextWorld engine of the world household")
            self._games = Games()

    # -- seeds and evaluation ----------------------------------------------------------------------------------

    def seeds(self, count: int, seed: int) -> list[Seed]:
        stream = self._stream(random.Random(seed), "seed")
        return [Seed(t.family, t.spec) for t, _ in zip(stream, range(count), strict=False)]

    def heldout(self, count: int, seed: int) -> list[Task]:
        """Tasks over all kinds of things, including those that neither seeds nor simulator know."""
        stream = self._stream(random.Random(f"heldout {seed}"), "heldout")
        return [t for t, _ in zip(stream, range(count), strict=False)]

    def _stream(self, rng: random.Random, origin: Origin) -> Iterator[Task]:
        while True:
            for action in FAMILIES:
                while True:
                    try:
                        spec = random_spec(action, rng, self._max_places, heldout=origin == "heldout")
                        task = self._build(spec, origin)
                    except SpecError:
                        continue  # the goal holds from the start by chance
                    break
                yield task

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
        shown = json.dumps(dict(example.spec), separators=(",", ":"))
        text = f"Example: {shown}\n{order_line(family, success, direction, edit)}"
        chat = Chat((Message("system", SIMULATOR_INSTRUCTIONS), Message("user", text)))
        return chat, _schema(ACTIONS[family], [example.spec] + ([target.spec] if target else []))

    def direction(self, example: Seed, other: Seed) -> Direction:
        """By the length of the shortest plan and the number of receptacles to search, one step for each two of them."""

        def effort(seed: Seed) -> float:
            world = parse(seed.spec)
            return len(plan(world) or ()) + len(world.places) / 2

        change = effort(other) - effort(example)
        return "harder" if change >= 1 else "easier" if change <= -1 else "similar"

    def build(self, spec: Mapping[str, Json]) -> Task:
        return self._build(spec, "simulator")

    def _build(self, spec: Mapping[str, Json], origin: Origin) -> Task:
        world = parse(spec)
        house = House(world)
        if house.won:
            raise SpecError("null_passes", "the goal holds from the start")
        commands = plan(world)
        if commands is None:
            raise SpecError("reference_fails", _missing(world))
        return Task(
            family=world.family,
            messages=(Message("system", INSTRUCTIONS), Message("user", house.first())),
            tools=(),
            target={"plan": commands, "depth": len(commands), "objects": spec["objects"]},
            spec=dict(spec),
            origin=origin,
        )

    def identity(self, task: Task) -> str:
        """What makes two tasks the same: the goal, the receptacles and what stands where, which the request does not say.

        Worlds that differ only in what is hidden have the same request and rightly different solutions.
        """
        world = self._world(task)
        places = " ".join(f"{kind} {count}" for kind, count in Counter(place.kind for place in world.places).items())
        things = ", ".join(sorted(" ".join(map(str, entry)) for entry in task.spec["objects"]))
        return f"{world.goal.do} {world.goal.object} {world.goal.to}. {places}. {things}."

    # -- the agent's side --------------------------------------------------------------------------------------

    def reference(self, task: Task) -> Sequence[str]:
        """A shortest plan. It knows where things are, which an agent has to find out."""
        return list(task.target["plan"])

    def perturbed(self, task: Task) -> Sequence[Sequence[str]]:
        """The plan without its last command, without the change of state or the second object, with another object, with
        another receptacle; each only if it does not win all the same."""
        world, commands = self._world(task), self.reference(task)
        return [damaged for damaged in _damaged(world, commands) if not _wins(world, damaged)]

    def episode(self, task: Task) -> CommandEpisode:
        """With TextWorld a worker's failure leaves an attempt without a score."""
        world = self._world(task)
        return CommandEpisode(task, House(world) if self._games is None else self._games.open(game(world)))

    def close(self) -> None:
        if self._games is not None:
            self._games.close()

    def _world(self, task: Task) -> World:
        # the gate and the members of a group ask for the same task again and again
        if self._played is None or self._played[0] != task.id:
            self._played = task.id, parse(task.spec)
        return self._played[1]


def _wins(world: World, commands: Sequence[str]) -> bool:
    house = House(world)
    return any(house.do(text)[1] for text in commands)


def _missing(world: World) -> str:
    """Why there is no plan."""
    goal, kinds = world.goal, [thing.kind for thing in (*world.objects, *world.places)]
    if kinds.count(goal.object) < (2 if goal.do == "two" else 1):
        return f"too few objects of kind {goal.object}"
    if goal.to not in kinds:
        return f"there is no {goal.to}"
    return f"there is no {CHANGES[goal.do][1]}"


def _damaged(world: World, commands: Sequence[str]) -> Iterator[list[str]]:
    goal, where = world.goal, world.where
    yield list(commands[:-1])
    if goal.do in CHANGES:
        yield [c for c in commands if not c.startswith(f"{goal.do} ")]
    if goal.do == "two":
        half = next(i for i, c in enumerate(commands) if c.startswith("move ")) + 1
        yield list(commands[:half])
    at = next(i for i, c in enumerate(commands) if c.startswith("take "))
    taken = commands[at].removeprefix("take ").partition(" from ")[0]
    for other in (t.name for t in world.objects if t.kind not in (goal.object, LAMP)):
        fetched = [f"go to {where[other]}", f"open {where[other]}", f"take {other} from {where[other]}"]
        yield fetched + [c.replace(f" {taken} ", f" {other} ") for c in commands[at + 1 :]]
        break
    for place in (p.name for p in world.places if p.kind != goal.to and p.kind in OBJECTS[goal.object].places):
        if goal.do != "look":
            moved = commands[-1].partition(" to ")[0]
            yield [*commands[:-1], f"go to {place}", f"open {place}", f"{moved} to {place}"]
        break


def _schema(action: Action, shown: Sequence[Mapping[str, Json]]) -> Json:
    """JSON schema of a specification of one family, properties in the order they are to be written."""
    objects, places = known(heldout=False)
    top = max(SHOWN, *(count for spec in shown for count in spec["places"].values()))
    most = max(MAX_ENTRIES, *(len(spec["objects"]) for spec in shown))
    numbers = "|".join(map(str, range(1, top + 1)))

    def goal(kind: str) -> Json:
        to = [LAMP] if action == "look" else [place for place in OBJECTS[kind].places if place in places]
        return object_schema({"do": {"const": action}, "object": {"const": kind}, "to": {"enum": to}})

    def entry(kind: str) -> Json:
        at = "|".join(place for place in OBJECTS[kind].places if place in places)
        items: list[Json] = [{"const": kind}, {"type": "string", "pattern": f"^({at}) ({numbers})$"}]
        states = [state for change, (state, _) in CHANGES.items() if change in OBJECTS[kind].can]
        if states:
            items.append({"enum": states})
        return {"type": "array", "prefixItems": items, "minItems": 2, "maxItems": len(items), "items": False}

    wanted = [kind for kind in objects if "fixed" not in OBJECTS[kind].can]
    if action in CHANGES:
        wanted = [kind for kind in wanted if action in OBJECTS[kind].can]
    count: Json = {"type": "integer", "minimum": 1, "maximum": top}
    return object_schema(
        {
            "goal": {"anyOf": [goal(kind) for kind in wanted]},
            "places": {
                "type": "object",
                "properties": dict.fromkeys(places, count),
                "required": [CHANGES[action][1]] if action in CHANGES else [],
                "additionalProperties": False,
            },
            "objects": {
                "type": "array",
                "items": {"anyOf": [entry(kind) for kind in objects]},
                "minItems": 2,
                "maxItems": most,
            },
        }
    )
