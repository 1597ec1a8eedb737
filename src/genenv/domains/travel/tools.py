"""What the agent of `travel` can look up: functions over a world, with compact answers, one row a line."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from genenv.benchmarks.travelplanner.plan import SEATS
from genenv.benchmarks.travelplanner.tables import Restaurant, Room
from genenv.contracts.types import Json
from genenv.domains.travel.world import World
from genenv.reading.parsing import Call, shorten

TYPES = {"Shared room": "shared", "Private room": "private", "Entire home/apt": "entire"}


class LookupFailed(Exception):
    """A look-up that cannot be made; the message is for the agent."""


def _city(world: World, name: str) -> str:
    if name not in world.states:
        raise LookupFailed(f"no city {shorten(name)!r}")
    return name


def _way(world: World, origin: str, destination: str) -> tuple[str, str]:
    return _city(world, origin), _city(world, destination)


def _flights(world: World, origin: str, destination: str) -> list[str]:
    flights = world.flights.get(_way(world, origin, destination), ())
    return [f"{f.number}: {f.origin} to {f.destination}, ${f.price:g}" for f in flights]


def _roads(world: World, origin: str, destination: str) -> list[str]:
    way = _way(world, origin, destination)
    fares = [(mode, world.tables.fare(mode, *way)) for mode in SEATS]
    cars = [f"{mode.capitalize()} ${fare} for {SEATS[mode]}" for mode, fare in fares if fare is not None]
    return [f"{origin} to {destination}: {', '.join(cars)}"] if cars else []


def _room(room: Room) -> str:
    least = [f"min {room.minimum_nights:g} nights"] if room.minimum_nights > 1 else []
    rules = [rule.lower() for rule in room.rules.split(" & ") if rule]
    return f"{room.name}: " + ", ".join([TYPES[room.type], f"${room.price:g} for {room.occupancy}", *least, *rules])


def _restaurant(place: Restaurant) -> str:
    return f"{place.name}: {place.cuisines}, ${place.cost:g}"


TOOLS: Mapping[str, tuple[tuple[str, ...], str, Callable[..., list[str]]]] = {
    "flights": (("origin", "destination"), "Price per person.", _flights),
    "roads": (("origin", "destination"), "Price of a car, either way.", _roads),
    "rooms": (("city",), "Price per night.", lambda w, city: [_room(r) for r in w.rooms[_city(w, city)]]),
    "restaurants": (
        ("city",),
        "Price per person.",
        lambda w, city: [_restaurant(r) for r in w.restaurants[_city(w, city)]],
    ),
    "attractions": (("city",), "Free.", lambda w, city: [a.name for a in w.attractions[_city(w, city)]]),
    "cities": (("state",), "Cities of a state.", lambda w, state: list(w.cities(state))),
}
"""Each function's parameters, what it is for, and its rows."""
IN_CITY = ("rooms", "restaurants", "attractions")


def declaration(name: str) -> Json:
    """A function as the agent's chat template wants it."""
    parameters, description, _ = TOOLS[name]
    schema = {
        "type": "object",
        "properties": {parameter: {"type": "string"} for parameter in parameters},
        "required": list(parameters),
    }
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


def look_up(world: World, call: Call) -> str:
    """The answer to one call, an error included."""
    if call.name not in TOOLS:
        return f"error: no function {shorten(call.name)!r}"
    parameters, _, rows = TOOLS[call.name]
    given = call.arguments
    if set(given) != set(parameters) or not all(isinstance(value, str) for value in given.values()):
        return f"error: {call.name} needs {' and '.join(parameters)}"
    try:
        return "\n".join(rows(world, **given)) or "nothing found"
    except LookupFailed as error:
        return f"error: {error}"
