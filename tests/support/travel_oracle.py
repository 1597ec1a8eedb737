"""What `travel` is checked against: queries read back from their words, and trips found by trying them all."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import combinations, pairwise, permutations, product

from genenv.benchmarks.travelplanner.plan import Query, read_plan
from genenv.benchmarks.travelplanner.rules import evaluate
from genenv.contracts.types import Json, Task
from genenv.domains.travel.domain import Travel
from genenv.domains.travel.world import World

HEAD = re.compile(
    r"Plan a (\d)-day trip from (\w+) to (?:(\d) cities in )?(\w+) for (?:(one) person|(\d) people)\. Budget: \$(\d+)\."
)
LIMITS = {
    "house_rule": r"Rooms must allow ([a-z0-9 ]+)\.",
    "cuisines": r"We want to eat (\w+(?: and \w+)*)\.",
    "room_type": r"Only (\w+ room)s\.|(No shared room)\.",
    "transportation": r"(No flight|No self-driving)\.",
}


def query_in_words(text: str) -> Query:
    """The query that a request states, read without the domain's help. Every sentence must be understood."""
    head = HEAD.match(text)
    assert head, text
    rest, found = text[head.end() :], {}
    for name, pattern in LIMITS.items():
        match = re.search(pattern, rest)
        found[name] = next(filter(None, match.groups())) if match else None
        rest = rest.replace(match[0], "") if match else rest
    assert not rest.strip(), rest
    room = found["room_type"]
    return Query(
        id="", org=head[2], dest=head[4], days=int(head[1]), dates=(), cities=int(head[3] or 1),
        people=1 if head[5] else int(head[6]), budget=float(head[7]), house_rule=found["house_rule"],
        cuisines=tuple(found["cuisines"].split(" and ")) if found["cuisines"] else (),
        room_type="not shared room" if room == "No shared room" else room,
        transportation=found["transportation"] and found["transportation"].lower(), level="", text="",
    )  # fmt: skip


def spell_out(text: str) -> list[dict[str, Json]]:
    """The official days that compact lines stand for, read without the domain's help."""
    days = []
    for line in text.splitlines():
        number, city, ride, room, *rest = (line + "|-" * (7 - line.count("|"))).split("|")
        here = city.split(" to ")[-1]
        way = f", from {city}" if " to " in city else ""
        *meals, sights = ["-" if x == "-" else "".join(f"{y}, {here};" for y in x.split(";")) for x in rest]
        days.append({
            "days": int(number), "current_city": f"from {city}" if way else city,
            "transportation": "-" if ride == "-" else ride.replace("Flight ", "Flight Number: ") + way,
            **dict(zip(("breakfast", "lunch", "dinner"), [m.rstrip(";") for m in meals], strict=True)),
            "attraction": sights, "accommodation": "-" if room == "-" else f"{room}, {here}",
        })  # fmt: skip
    return days


def second_verdict(domain: Travel, fresh: Travel, task: Task) -> dict[str, str]:
    """Why the reference's text fails: the official rules, a query read from the prompt, tables generated again."""
    text = domain.reference(task)[-1]
    days = spell_out(text) if domain.compact else json.loads(text)
    query = query_in_words(task.messages[-1].content)
    verdict = evaluate(query, read_plan(days, query), fresh.world(task.origin).tables)
    return verdict.failures if verdict.hard is not None else {**verdict.failures, "hard": "not made"}


def all_plans(query: Query, world: World) -> Iterator[list[dict[str, Json]]]:
    """Every sensible plan: all routes, nights, rooms, rides and sets of restaurants, good or bad for the query's limits."""
    cities = [query.dest] if query.cities == 1 else [c for c, state in world.states.items() if state == query.dest]
    for route in permutations(cities, query.cities):
        for nights in product(range(1, query.days), repeat=query.cities):
            if sum(nights) == query.days - 1:
                yield from _plans(query, world, route, nights)


def _plans(
    query: Query, world: World, route: tuple[str, ...], nights: tuple[int, ...]
) -> Iterator[list[dict[str, Json]]]:
    stops = (query.org, *route, query.org)
    rides = []
    for a, b in pairwise(stops):
        flights = [f"Flight Number: {f.number}, from {a} to {b}" for f in world.flights.get((a, b), ())]
        rides.append([*flights, f"Taxi, from {a} to {b}", f"Self-driving, from {a} to {b}"])
    stays = [list(_stays(query, world, city, count)) for city, count in zip(route, nights, strict=True)]
    for ways in product(*rides):
        for chosen in product(*stays):
            days: list[dict[str, Json]] = []
            for i, way in enumerate(ways):
                arrival, *full = chosen[i] if i < len(chosen) else [{}]
                days.append(_day(f"from {stops[i]} to {stops[i + 1]}", transportation=way, **arrival))
                days += [_day(stops[i + 1], **day) for day in full]
            yield [{"days": n, **day} for n, day in enumerate(days, 1)]


def _day(city: str, **fields: str) -> dict[str, str]:
    empty = dict.fromkeys(("transportation", "breakfast", "attraction", "lunch", "dinner", "accommodation"), "-")
    return {"current_city": city, **empty, **fields}


def _stays(query: Query, world: World, city: str, nights: int) -> Iterator[list[dict[str, str]]]:
    """Fields of the day of arrival and of each full day."""
    full = nights - 1
    sights = [f"{place.name}, {city};" for place in world.attractions[city]]
    names = [f"{place.name}, {city}" for place in world.restaurants[city]]
    if len(sights) < full:
        return
    slots = ("breakfast", "lunch", "dinner")
    for room in world.rooms[city]:
        for count in range(3 * full, min(3 * full + len(query.cuisines), len(names)) + 1):
            for meals in combinations(names, count):
                where = {"accommodation": f"{room.name}, {city}"}
                arrival = {**where, **dict(zip(slots, meals[3 * full :], strict=False))}
                eaten = [dict(zip(slots, meals[3 * i : 3 * i + 3], strict=True)) for i in range(full)]
                yield [arrival, *({**where, "attraction": sights[i], **eaten[i]} for i in range(full))]


def cheapest_by_trying(query: Query, world: World) -> float | None:
    """The cost of the cheapest plan that the official rules pass whatever the budget; None if there is none."""
    best = None
    for days in all_plans(query, world):
        verdict = evaluate(query, read_plan(days, query), world.tables)
        failures = set(verdict.failures) - {"valid_cost"}
        if verdict.cost is not None and not failures and (best is None or verdict.cost < best):
            best = verdict.cost
    return best
