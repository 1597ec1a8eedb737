"""The specification of a house and the world that it stands for, whatever engine plays it.

Things have the names that an agent reads, a kind and a number. Each also has an identifier of the form of ALFWorld's
PDDL: the game lists things in the order of the identifiers and numbers those of one kind downwards.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from genenv.contracts.domain import SpecError, fault
from genenv.contracts.types import Json, derive_seed
from genenv.domains.household.things import OBJECTS, PLACES

MAX_KIND = 20
"""Receptacles of one kind."""
MAX_PLACES = 40
MAX_OBJECTS = 40

Action = Literal["place", "look", "clean", "heat", "cool", "two"]
State = Literal["clean", "hot", "cool"]

FAMILIES: dict[Action, str] = {
    "place": "pick_and_place_simple",
    "look": "look_at_obj_in_light",
    "clean": "pick_clean_then_place_in_recep",
    "heat": "pick_heat_then_place_in_recep",
    "cool": "pick_cool_then_place_in_recep",
    "two": "pick_two_obj_and_place",
}
"""ALFRED's name of what is to be done."""

TEMPLATES: dict[Action, tuple[str, str]] = {
    "place": ("put a {object} in {to}", "put some {object} on {to}"),
    "look": ("look at {object} under the {to}", "examine the {object} with the {to}"),
    "clean": ("put a clean {object} in {to}", "clean some {object} and put it in {to}"),
    "heat": ("put a hot {object} in {to}", "heat some {object} and put it in {to}"),
    "cool": ("put a cool {object} in {to}", "cool some {object} and put it in {to}"),
    "two": ("put two {object} in {to}", "find two {object} and put them in {to}"),
}
"""ALFRED's wordings."""

CHANGES: dict[Action, tuple[State, str]] = {
    "clean": ("clean", "sinkbasin"),
    "heat": ("hot", "microwave"),
    "cool": ("cool", "fridge"),
}
"""The state that an action ends in and the receptacle that it needs."""
LAMP = "desklamp"

Entry = tuple[str, str] | tuple[str, str, State]


class Goal(BaseModel):
    """What is to be done with which kind of object; `to` is a kind of receptacle, the lamp where it is `look`."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    do: Action
    object: str
    to: str

    @property
    def text(self) -> str:
        """One of ALFRED's two wordings, always the same for the same goal."""
        wording = TEMPLATES[self.do][derive_seed(self.do, self.object, self.to) % 2]
        return f"{wording.format(object=self.object, to=self.to)}."


class HouseSpec(BaseModel):
    """What the simulator writes. `places` counts receptacles; what goal and objects name besides is there as well."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    goal: Goal
    places: dict[str, Annotated[int, Field(strict=True, ge=1, le=MAX_KIND)]] = Field(min_length=1)
    objects: list[Entry] = Field(min_length=1, max_length=MAX_OBJECTS)


@dataclass(frozen=True)
class Thing:
    """A receptacle or an object."""

    name: str
    kind: str
    id: str


@dataclass(frozen=True)
class World:
    """A house before the first command. Places and objects come in the order of their identifiers."""

    goal: Goal
    places: tuple[Thing, ...]
    objects: tuple[Thing, ...]
    where: Mapping[str, str]
    """The receptacle that an object stands in at the start, by names."""
    states: Mapping[str, State]

    @functools.cached_property
    def kinds(self) -> dict[str, str]:
        return {thing.name: thing.kind for thing in (*self.places, *self.objects)}

    @functools.cached_property
    def order(self) -> dict[str, int]:
        """The rank of each object when several are listed."""
        return {thing.name: i for i, thing in enumerate(self.objects)}

    @property
    def family(self) -> str:
        return FAMILIES[self.goal.do]


def identifier(kind: str, number: int, count: int) -> str:
    """The identifier of the `number`th of `count` things of one kind: the first in order has the highest number."""
    stem, basin = kind.removesuffix("basin"), "_bar_basin" * kind.endswith("basin")
    return f"{stem}_bar_{count - number:02d}{basin}"


def parse(spec: Mapping[str, Json]) -> World:
    """Raises SpecError where a specification is no house with a goal; whether it can be reached is not looked at."""
    try:
        parsed = HouseSpec.model_validate(spec)
    except ValidationError as error:
        raise SpecError("schema", fault(error)) from None
    _check_goal(parsed.goal)
    counts = _counted(parsed)
    if unknown := counts.keys() - set(PLACES):
        raise SpecError("schema", f"places: unknown receptacle {min(unknown)!r}")
    if not 2 <= sum(counts.values()) <= MAX_PLACES:
        raise SpecError("schema", f"places: {sum(counts.values())} receptacles, expected 2 to {MAX_PLACES}")
    places = [
        Thing(f"{kind} {number}", kind, identifier(kind, number, count))
        for kind, count in counts.items()
        for number in range(1, count + 1)
    ]
    kinds = {place.name: place.kind for place in places}
    totals = Counter(entry[0] for entry in parsed.objects)
    seen: Counter[str] = Counter()
    objects, where, states = [], {}, {}
    for kind, place, *state in parsed.objects:
        _check_object(kind, place, kinds, *state)
        if kind == parsed.goal.object and parsed.goal.do in CHANGES and state == [CHANGES[parsed.goal.do][0]]:
            raise SpecError("schema", f"objects: a {kind} is {state[0]} from the start")
        seen[kind] += 1
        thing = Thing(f"{kind} {seen[kind]}", kind, identifier(kind, seen[kind], totals[kind]))
        objects.append(thing)
        where[thing.name] = place
        if state:
            states[thing.name] = state[0]
    by_id = sorted(places, key=lambda t: t.id), sorted(objects, key=lambda t: t.id)
    return World(parsed.goal, tuple(by_id[0]), tuple(by_id[1]), where, states)


def _counted(spec: HouseSpec) -> dict[str, int]:
    """Receptacles by kind: as many as `places` says, and those that goal and objects cannot do without."""
    goal = spec.goal
    named = [(kind, 1) for kind in ([goal.to] if goal.do != "look" else [])]
    named += [(CHANGES[goal.do][1], 1)] if goal.do in CHANGES else []
    for _, place, *_ in spec.objects:
        kind, _, number = place.rpartition(" ")
        if kind in PLACES and number in _NUMBERS:
            named.append((kind, int(number)))
    counts = dict(spec.places)
    for needed, least in named:
        counts[needed] = max(counts.get(needed, 0), least)
    return counts


_NUMBERS = frozenset(map(str, range(1, MAX_KIND + 1)))


def _check_goal(goal: Goal) -> None:
    kind = OBJECTS.get(goal.object)
    if kind is None or "fixed" in kind.can:
        raise SpecError("schema", f"goal: unknown object {goal.object!r}")
    if goal.do in CHANGES and goal.do not in kind.can:
        raise SpecError("schema", f"goal: one cannot {goal.do} a {goal.object}")
    if goal.do == "look":
        if goal.to != LAMP:
            raise SpecError("schema", f"goal: to look at something takes a {LAMP}, found {goal.to!r}")
    elif goal.to not in kind.places:
        raise SpecError("schema", f"goal: a {goal.object} cannot stand in {goal.to!r}")


_STATE_NEEDS: dict[State, str] = {state: action for action, (state, _) in CHANGES.items()}


def _check_object(kind: str, place: str, kinds: Mapping[str, str], state: State | None = None) -> None:
    if kind not in OBJECTS:
        raise SpecError("schema", f"objects: unknown object {kind!r}")
    if place not in kinds:
        raise SpecError("schema", f"objects: there is no receptacle {place!r}")
    if kinds[place] not in OBJECTS[kind].places:
        raise SpecError("schema", f"objects: a {kind} cannot stand in {place!r}")
    if state is not None and _STATE_NEEDS[state] not in OBJECTS[kind].can:
        raise SpecError("schema", f"objects: a {kind} cannot be {state}")
