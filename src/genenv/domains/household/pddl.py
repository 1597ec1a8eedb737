"""A world as a game file of ALFWorld, for the TextWorld engine: its domain and grammar, our problem."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from genenv.contracts.errors import MissingExtraError
from genenv.contracts.types import Json
from genenv.domains.household.things import OBJECTS, OPENABLE, PLACES
from genenv.domains.household.world import CHANGES, LAMP, Goal, World

_STATES = {"clean": "isClean", "hot": "isHot", "cool": "isCool"}
_CAN = {
    "clean": "cleanable",
    "heat": "heatable",
    "cool": "coolable",
    "slice": "sliceable",
    "hollow": "isReceptacleObject",
}


@cache
def _official(name: str) -> str:
    """A data file of the package alfworld, which is not imported for it. Raises MissingExtraError."""
    found = importlib.util.find_spec("alfworld")
    if found is None or not found.submodule_search_locations:
        raise MissingExtraError("alfworld", "alfworld", "the TextWorld engine of the world household")
    return (Path(found.submodule_search_locations[0]) / "data" / name).read_text("utf-8")


def game(world: World) -> dict[str, Json]:
    """What a `game.tw-pddl` holds. Raises MissingExtraError."""
    return {
        "pddl_domain": _official("alfred.pddl"),
        "grammar": _official("alfred.twl2").replace("UNKNOWN GOAL.", world.goal.text),
        "pddl_problem": problem(world),
        "solvable": True,
    }


def problem(world: World) -> str:
    """The PDDL problem: every receptacle is at a location of its own, the agent starts at one without."""
    return "\n".join(
        [
            "(define (problem house) (:domain alfred) (:objects agent1 - agent start - location",
            *_objects(world),
            ") (:init (atLocation agent1 start) (= (total-cost) 0)",
            *_facts(world),
            f") (:goal {_goal(world.goal)}) (:metric minimize (total-cost)))",
        ]
    )


def _objects(world: World) -> Iterator[str]:
    yield from (f"{kind}Type - rtype" for kind in PLACES)
    yield from (f"{kind}Type - otype" for kind in OBJECTS)
    yield from (f"{thing.id} - object" for thing in world.objects)
    yield from (f"{place.id} - receptacle loc_bar_{i} - location" for i, place in enumerate(world.places))


def _facts(world: World) -> Iterator[str]:
    at = {place.name: (place.id, f"loc_bar_{i}") for i, place in enumerate(world.places)}
    for place in world.places:
        yield f"(receptacleType {place.id} {place.kind}Type) (receptacleAtLocation {place.id} {at[place.name][1]})"
        if place.kind in OPENABLE:
            yield f"(openable {place.id})"
    for kind, thing_kind in OBJECTS.items():
        yield from (f"(canContain {place}Type {kind}Type)" for place in thing_kind.places)
    for thing in world.objects:
        receptacle, location = at[world.where[thing.name]]
        yield f"(objectType {thing.id} {thing.kind}Type)"
        yield f"(inReceptacle {thing.id} {receptacle}) (objectAtLocation {thing.id} {location})"
        can = OBJECTS[thing.kind].can
        yield from (f"({predicate} {thing.id})" for word, predicate in _CAN.items() if word in can)
        yield f"(toggleable {thing.id})" if thing.kind == LAMP else f"(pickupable {thing.id})"
        if thing.name in world.states:
            yield f"({_STATES[world.states[thing.name]]} {thing.id})"


def _goal(goal: Goal) -> str:
    kind = f"{goal.object}Type"
    if goal.do == "look":
        return (
            "(and (exists (?t - object ?r - receptacle ?a - agent ?l - location) (and"
            f" (objectType ?t {LAMP}Type) (isToggled ?t) (receptacleAtLocation ?r ?l) (atLocation ?a ?l)"
            f" (inReceptacle ?t ?r))) (exists (?o - object ?a - agent) (and (objectType ?o {kind}) (holds ?a ?o))))"
        )
    inside = f"(receptacleType ?r {goal.to}Type) (objectType ?o {kind}) (inReceptacle ?o ?r)"
    if goal.do == "two":
        return (
            f"(exists (?r - receptacle ?o - object ?p - object) (and {inside} (objectType ?p {kind})"
            " (inReceptacle ?p ?r) (not (= ?o ?p))))"
        )
    state = f" ({_STATES[CHANGES[goal.do][0]]} ?o)" if goal.do in CHANGES else ""
    return f"(exists (?r - receptacle ?o - object) (and {inside}{state}))"
