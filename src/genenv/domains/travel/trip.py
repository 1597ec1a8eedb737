"""Trips in `travel`: where one sleeps and eats, how one gets there, and what a query allows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from genenv.benchmarks.travelplanner.plan import HOUSE_RULES, ROOMS, SEATS, Query
from genenv.benchmarks.travelplanner.tables import Flight, Place, Restaurant, Room
from genenv.domains.travel.world import World


class NoTrip(Exception):
    """There is no trip; the message says why."""


@dataclass(frozen=True)
class Ride:
    """`flight` is None for a car; `mode` is "Flight", "Taxi" or "Self-driving". `cost` is for all people."""

    origin: str
    destination: str
    mode: str
    cost: int
    flight: Flight | None = None


@dataclass(frozen=True)
class Stop:
    """Some nights in one city. `meals` are those of the full days, three each, then those of the day of arrival."""

    room: Room
    nights: int
    meals: tuple[Restaurant, ...]
    attractions: tuple[Place, ...]


@dataclass(frozen=True)
class Trip:
    """`rides` has one more entry than `stops`: the last one is the way back. `cost` is in dollars for all people."""

    stops: tuple[Stop, ...]
    rides: tuple[Ride, ...]
    cost: int


def rides(world: World, query: Query, origin: str, destination: str) -> Iterator[Ride]:
    """The ways between two cities that a query allows, of flights the cheapest."""
    flights = world.flights.get((origin, destination), ())
    if flights and query.transportation != "no flight":
        flight = min(flights, key=lambda f: f.price)
        yield Ride(origin, destination, "Flight", round(flight.price * query.people), flight)
    for mode, seats in SEATS.items():
        fare = world.tables.fare(mode, origin, destination)
        if fare is not None and query.transportation != f"no {mode}":
            yield Ride(origin, destination, mode.capitalize(), fare * math.ceil(query.people / seats))


def allows(query: Query, room: Room) -> bool:
    """Whether a room keeps the query's limits on rooms."""
    if query.house_rule in HOUSE_RULES and f"No {query.house_rule}" in room.rules:
        return False
    if query.room_type == "not shared room":
        return room.type != ROOMS["shared room"]
    return query.room_type is None or room.type == ROOMS[query.room_type]


def nightly(query: Query, room: Room) -> int:
    """Dollars a night for all people."""
    return round(room.price * math.ceil(query.people / room.occupancy))
