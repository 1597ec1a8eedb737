"""Plans close to a good one that the rules of `travel` must turn down, each for a reason that needs no scorer to see."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence

from genenv.benchmarks.travelplanner.plan import MEALS, Query, read_plan
from genenv.benchmarks.travelplanner.rules import cost
from genenv.benchmarks.travelplanner.tables import Restaurant, Room
from genenv.contracts.types import Json
from genenv.domains.travel.trip import allows
from genenv.domains.travel.world import World

Days = list[dict[str, Json]]
INVENTED = "Purple Zebra"


def damaged(query: Query, plan: Sequence[Mapping[str, Json]], world: World) -> list[Days]:
    """All kinds of damage that can be done to a plan."""
    days = [dict(day) for day in plan]
    full = next(i for i, day in enumerate(days) if day["attraction"] != "-")
    kinds: Sequence[Callable[[Query, Days, int, World], Iterator[Days]]] = (
        _whole_days, _fields, _other_rooms, _cuisines, _transport, _dearest,
    )  # fmt: skip
    return [bad for kind in kinds for bad in kind(query, days, full, world)]


def _with(days: Days, changes: Mapping[int, Mapping[str, Json]]) -> Days:
    changed = copy.deepcopy(days)
    for i, fields in changes.items():
        changed[i].update(fields)
    return changed


def _whole_days(query: Query, days: Days, full: int, world: World) -> Iterator[Days]:
    """The last day dropped; no way back; no way at all."""
    yield days[:-1]
    last = days[-2]["current_city"]
    yield _with(days, {len(days) - 1: {"current_city": last.partition(" to ")[2] or last, "transportation": "-"}})
    yield _with(days, {0: {"transportation": "-"}})


def _fields(query: Query, days: Days, full: int, world: World) -> Iterator[Days]:
    """One field empty; one restaurant twice, invented, cut short, or of another city."""
    city = days[full]["current_city"]
    names = [place.name for place in world.restaurants[city]]
    elsewhere = (place for rows in world.restaurants.values() for place in rows)
    for field in ("lunch", "attraction", "accommodation"):
        yield _with(days, {full: {field: "-"}})
    yield _with(days, {full: {"dinner": days[full]["breakfast"]}})
    yield _with(days, {full: {"dinner": f"{INVENTED}, {city}"}})
    yield _with(days, {full: {"dinner": f"{days[full]['dinner'].split()[0][:-1]}, {city}"}})
    if foreign := next((place for place in elsewhere if place.name not in names), None):
        yield _with(days, {full: {"dinner": f"{foreign.name}, {foreign.city}"}})


def _stay(days: Days, full: int) -> list[int]:
    """The days with the room of a full day."""
    return [i for i, day in enumerate(days) if day["accommodation"] == days[full]["accommodation"]]


def _other_rooms(query: Query, days: Days, full: int, world: World) -> Iterator[Days]:
    """Another city's room; one that breaks a limit; one for more nights than one stays."""
    here, stay = days[full]["current_city"], _stay(days, full)
    names = [room.name for room in world.rooms[here]]
    elsewhere = (room for city, rooms in world.rooms.items() if city != here for room in rooms)
    found = [
        next((room for room in elsewhere if room.name not in names), None),
        next((room for room in world.rooms[here] if not allows(query, room)), None),
        next((room for room in world.rooms[here] if room.minimum_nights > len(stay)), None),
    ]
    for room in dict.fromkeys(found):
        if room is not None:
            # on the day of arrival the official rules would notice another city, on a full day they may not
            nights = stay if room.city == here else stay[1:]
            yield _with(days, {i: {"accommodation": f"{room.name}, {room.city}"} for i in nights})


def _cuisines(query: Query, days: Days, full: int, world: World) -> Iterator[Days]:
    """Nothing of one cuisine, where there is enough else to eat."""
    for cuisine in query.cuisines:
        changed = copy.deepcopy(days)
        used = {day[meal] for day in days for meal in MEALS}
        for day in changed:
            city = day["current_city"].rpartition(" to ")[2]
            rows = {f"{row.name}, {city}": row for row in world.restaurants.get(city, ())}
            for meal in MEALS:
                if day[meal] in rows and cuisine in rows[day[meal]].cuisines:
                    others = (name for name, row in rows.items() if cuisine not in row.cuisines and name not in used)
                    # on a day of travel no meal is needed
                    day[meal] = next(others, "-" if " to " in day["current_city"] else None)
                    used.add(day[meal])
        if all(day[meal] is not None for day in changed for meal in MEALS):
            yield changed


def _transport(query: Query, days: Days, full: int, world: World) -> Iterator[Days]:
    """What is nowhere in the tables: a bus, an unknown flight; and what the query forbids, where it exists."""
    move = days[0]["current_city"]
    origin, _, destination = move.removeprefix("from ").partition(" to ")
    ways = [f"Bus, {move}", f"Flight Number: F0, {move}"]
    if query.transportation == "no flight":
        ways += [
            f"Flight Number: {flight.number}, {move}" for flight in world.flights.get((origin, destination), ())[:1]
        ]
    if query.transportation == "no self-driving" and world.km.get((origin, destination)) is not None:
        ways.append(f"Self-driving, {move}")
    for way in ways:
        yield _with(days, {0: {"transportation": way}})


def _dearest(query: Query, days: Days, full: int, world: World) -> Iterator[Days]:
    """The dearest rooms and restaurants that the limits allow, if that is more than the budget."""
    changed = copy.deepcopy(days)
    for i, day in enumerate(changed):
        if day["attraction"] == "-":
            continue
        city, stay = day["current_city"], _stay(days, i)
        rooms = [r for r in world.rooms[city] if allows(query, r) and r.minimum_nights <= len(stay)]
        dear: Room = max(rooms, key=lambda r: r.price / r.occupancy)
        for night in stay:
            changed[night]["accommodation"] = f"{dear.name}, {city}"
    used = {day[meal] for day in days for meal in MEALS}
    for day in changed:
        city = day["current_city"]
        free = [r for r in world.restaurants.get(city, ()) if f"{r.name}, {city}" not in used]
        if day["attraction"] != "-" and free and not query.cuisines:
            best: Restaurant = max(free, key=lambda r: r.cost)
            day["dinner"] = f"{best.name}, {city}"
            used.add(day["dinner"])
    if cost(query, read_plan(changed, query), world.tables) > query.budget:
        yield changed
