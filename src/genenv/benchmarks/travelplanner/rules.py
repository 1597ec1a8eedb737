"""TravelPlanner's rules over tables that may come from anywhere: eight commonsense checks, five hard ones, the cost.

Verdicts are those of the official checker (OSU-NLP-Group/TravelPlanner, `evaluation/`), check by check, its quirks
included: each one is marked "Quirk" below. The names of checks are the official ones.

Where the official code stops with an error it has no verdict for anybody's plan. Here the check that cannot be finished
is failed, and says why.

    plan = read_plan(days, query)          # PlanError if it is no list of days
    verdict = evaluate(query, plan, tables)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

from genenv.benchmarks.travelplanner.plan import (
    FIELDS,
    HOUSE_RULES,
    MEALS,
    NOT_NEEDED,
    ROOMS,
    SEATS,
    Day,
    Plan,
    Query,
    Unreadable,
    from_to,
    leg,
)
from genenv.benchmarks.travelplanner.tables import Room, Tables, before_parenthesis, name_and_city
from genenv.reading.parsing import shorten

Check = Callable[[Query, Plan, Tables], str]
"""Why the plan fails, empty if it does not."""


def _quoted(text: str) -> str:
    return repr(shorten(text))


def _attractions(day: Day) -> list[str]:
    """Quirk: what stands behind the last semicolon is not looked at."""
    return day.planned("attraction").split(";")[:-1]


def _route(query: Query, plan: Plan, tables: Tables) -> str:
    stops: list[str] = []
    for i, day in enumerate(plan):
        cities = day.cities()
        if i == 0 and day.travels and cities[0] != query.org:
            return f"starts at {_quoted(cities[0])}"
        stops += cities
    last = len(stops) - 1
    if stops[0] != stops[last]:
        return "does not return"
    if last < 2:
        return "leads nowhere"
    seen: set[str] = set()
    start = 0
    for city, run in groupby(stops):
        end = start + len(list(run))
        if city in seen and start not in (0, last):
            return f"{_quoted(city)} twice"
        if end - start == 1 and 0 < start < last:
            return f"{_quoted(city)} is left at once"
        seen.add(city)
        start = end
    for i, city in enumerate(stops):
        if city not in tables.states:
            return f"{_quoted(city)} is no city"
        if 0 < i < last and query.days > 3 and tables.states[city] != query.dest:
            return f"{_quoted(city)} is not in {query.dest}"
    return ""


def _restaurants(query: Query, plan: Plan, tables: Tables) -> str:
    return _repeated(day.planned(meal) for day in plan for meal in MEALS if day.planned(meal))


def _attraction_repeats(query: Query, plan: Plan, tables: Tables) -> str:
    return _repeated(name for day in plan for name in _attractions(day))


def _repeated(names: Iterable[str]) -> str:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return f"{_quoted(name)} twice"
        seen.add(name)
    return ""


def _minimum_nights(query: Query, plan: Plan, tables: Tables) -> str:
    """Quirks: a room that is not found, or found twice, passes; the last day counts as a night."""
    if any("accommodation" not in day.fields for day in plan):
        return "no accommodation"
    for room, nights in groupby(plan, key=lambda day: day.fields["accommodation"]):
        if room in ("", "-"):
            continue
        if room is None:
            raise Unreadable("no accommodation")
        found = tables.rooms.find(room)
        if len(found) == 1 and len(list(nights)) < found[0].minimum_nights:
            return f"{_quoted(room)} is for {found[0].minimum_nights:g} nights or more"
    return ""


def _transport_conflict(query: Query, plan: Plan, tables: Tables) -> str:
    if "transportation" not in plan[0].fields:
        raise Unreadable("no transportation")
    texts = [day.planned("transportation").lower() for day in plan]
    if not texts[0]:
        return "no transportation on day 1"
    modes = {next((mode for mode in ("taxi", "self-driving", "flight") if mode in text), "") for text in texts}
    return "own car and another" if "self-driving" in modes and modes & {"taxi", "flight"} else ""


def _current_city(query: Query, plan: Plan, tables: Tables) -> str:
    for i, day in enumerate(plan, 1):
        # Quirk: on a day in one city, any letter of its name will do for "names the city"
        cities = day.cities() if day.travels else before_parenthesis(day.text("current_city"))
        travel = day.planned("transportation")
        if travel and not all(city in travel for city in cities):
            return f"day {i}: transportation of another city"
        for text in [day.planned(meal) for meal in MEALS if day.planned(meal)] + _attractions(day):
            if not any(city in text for city in cities):
                return f"day {i}: {_quoted(text)} is of another city"
        if room := day.planned("accommodation"):
            if not cities:
                raise Unreadable("no current_city")
            if cities[-1] not in room:
                return f"day {i}: accommodation of another city"
    return ""


def _mode(text: str) -> str:
    """What a text on transportation is checked as."""
    lower = text.lower()
    return next((mode for mode in ("flight number", "self-driving", "taxi") if mode in lower), "")


def _flight_number(text: str) -> str:
    _, found, rest = text.partition("Flight Number: ")
    if not found:
        raise Unreadable("no 'Flight Number: '")
    return rest.partition(",")[0].partition("Flight Number: ")[0]


def _in_tables(query: Query, plan: Plan, tables: Tables) -> str:
    for i, day in enumerate(plan, 1):
        if "transportation" not in day.fields:
            raise Unreadable("no transportation")
        if (travel := day.planned("transportation")) and not _exists(travel, day, tables):
            return f"day {i}: {_quoted(travel)} is not in the tables"
        for meal in MEALS:
            if (name := day.planned(meal)) and not tables.restaurants.find(name):
                return f"day {i}: {_quoted(name)} is not in the tables"
        for name in _attractions(day):
            if not tables.attractions.find(name):
                return f"day {i}: {_quoted(name)} is not in the tables"
        if (name := day.planned("accommodation")) and not tables.rooms.find(name):
            return f"day {i}: {_quoted(name)} is not in the tables"
    return ""


def _exists(travel: str, day: Day, tables: Tables) -> bool:
    """Quirk: what is neither flight, own car nor taxi is not looked up; the date of a flight is not looked at."""
    mode = _mode(travel)
    cities = from_to(travel) or from_to(day.text("current_city"))
    if mode == "flight number":
        return any((f.origin, f.destination) == leg(cities) for f in tables.flights.get(_flight_number(travel), ()))
    return not mode or (cities is not None and tables.fare(mode, *cities) is not None)


def _complete(query: Query, plan: Plan, tables: Tables) -> str:
    if len(plan) < query.days:
        return f"{len(plan)} of {query.days} days"
    if any(day.text("current_city") == NOT_NEEDED for day in plan):
        return "a day without a plan"
    cities: set[str] = set()
    for i, day in enumerate(plan):
        stops = day.cities()
        if i == 0 and day.travels and stops[0] != query.org:
            return f"starts at {_quoted(stops[0])}"
        cities.update(stops)
    if len(cities - {query.org}) != query.cities:
        return f"{len(cities - {query.org})} of {query.cities} cities"
    for i, day in enumerate(plan, 1):
        if missing := [name for name in FIELDS if name not in day.fields]:
            return f"day {i}: no {missing[0]}"
        city = day.text("current_city")
        if ("from " in city or "to " in city) and day.blank("transportation"):
            return f"day {i}: no transportation"
        if "from " not in city and " to " not in city and day.blank("attraction"):
            return f"day {i}: no attraction"
        if i < query.days and day.blank("accommodation"):
            return f"day {i}: no accommodation"
        if "from " not in city and any(day.blank(meal) for meal in MEALS):
            return f"day {i}: a meal is missing"
    return "half of it is missing" if sum(day.filled for day in plan) < 0.5 * 6 * query.days else ""


def _cuisines(query: Query, plan: Plan, tables: Tables) -> str:
    served: set[str] = set()
    for day in plan:
        for meal in MEALS:
            if not (text := day.planned(meal)):
                continue
            if name_and_city(text)[1] == query.org:
                break  # Quirk: a meal at home ends the day
            if found := tables.restaurants.find(text):
                served.update(cuisine for cuisine in query.cuisines if cuisine in found[0].cuisines)
    missing = [cuisine for cuisine in query.cuisines if cuisine not in served]
    return f"no {missing[0]} food" if missing else ""


def _rooms(plan: Plan, tables: Tables) -> Iterator[Room]:
    """The room of each night, so far as it is known."""
    for day in plan:
        if (text := day.planned("accommodation")) and (found := tables.rooms.find(text)):
            yield found[0]


def _house_rule(query: Query, plan: Plan, tables: Tables) -> str:
    if query.house_rule in HOUSE_RULES:
        for room in _rooms(plan, tables):
            if f"No {query.house_rule}" in room.rules:
                return f"{room.name!r} allows no {query.house_rule}"
    return ""


def _room_type(query: Query, plan: Plan, tables: Tables) -> str:
    for room in _rooms(plan, tables):
        shared = query.room_type == "not shared room" and room.type == ROOMS["shared room"]
        if shared or room.type != ROOMS.get(query.room_type or "", room.type):
            return f"{room.name!r} is a {room.type.lower()}"
    return ""


def _transportation(query: Query, plan: Plan, tables: Tables) -> str:
    """Quirk: case counts here."""
    word = {"no flight": "Flight", "no self-driving": "Self-driving"}.get(query.transportation or "")
    return (
        f"{query.transportation} was asked for"
        if word and any(word in d.planned("transportation") for d in plan)
        else ""
    )


def _budget(query: Query, plan: Plan, tables: Tables) -> str:
    total = cost(query, plan, tables)
    return f"costs {total:,.0f}, budget {query.budget:,.0f}" if not total <= query.budget else ""


def cost(query: Query, plan: Plan, tables: Tables) -> float:
    """Dollars for all people: flights and meals each, cars by seats (5, a taxi 4), rooms by occupancy, night by night.

    What is not in the tables is free; `evaluate` asks for the cost only of plans that name nothing unknown. Attractions
    are free. Quirk: the last day's accommodation is paid as well.
    """
    total = 0.0
    for day in plan:
        travel = day.planned("transportation")
        mode = _mode(travel)
        if mode and (cities := from_to(travel) or from_to(day.text("current_city"))):
            if mode == "flight number":
                flights = tables.flights.get(_flight_number(travel))
                total += flights[0].price * query.people if flights else 0.0
            else:
                total += (tables.fare(mode, *cities) or 0) * math.ceil(query.people / SEATS[mode])
        for meal in MEALS:
            if (text := day.planned(meal)) and (found := tables.restaurants.find(text)):
                total += found[0].cost * query.people
    return total + sum(r.price * math.ceil(query.people / r.occupancy) for r in _rooms(plan, tables))


COMMONSENSE: Mapping[str, Check] = {
    "is_reasonable_visiting_city": _route,
    "is_valid_restaurants": _restaurants,
    "is_valid_attractions": _attraction_repeats,
    "is_valid_accommodation": _minimum_nights,
    "is_valid_transportation": _transport_conflict,
    "is_valid_information_in_current_city": _current_city,
    "is_valid_information_in_sandbox": _in_tables,
    "is_not_absent": _complete,
}
HARD: Mapping[str, tuple[Callable[[Query], object], Check]] = {
    "valid_cuisine": (lambda query: query.cuisines or None, _cuisines),
    "valid_room_rule": (lambda query: query.house_rule, _house_rule),
    "valid_transportation": (lambda query: query.transportation, _transportation),
    "valid_room_type": (lambda query: query.room_type, _room_type),
    "valid_cost": (lambda query: query.budget, _budget),
}
"""For each hard check, the constraint it is about: None means that the check does not apply."""
GATES = ("is_not_absent", "is_valid_information_in_sandbox")
"""The commonsense checks without which no hard one is made."""


def hard_checks(query: Query) -> int:
    """Number of hard checks that apply to a query."""
    return sum(limit(query) is not None for limit, _ in HARD.values())


@dataclass(frozen=True)
class Verdict:
    """Why each check fails: empty means passed, None that it does not apply. `hard` and `cost` are None if not made."""

    commonsense: Mapping[str, str]
    hard: Mapping[str, str | None] | None
    cost: float | None

    @property
    def failures(self) -> dict[str, str]:
        return {name: why for name, why in {**self.commonsense, **(self.hard or {})}.items() if why}

    @property
    def passed(self) -> bool:
        """The final pass: every check that applies, commonsense and hard."""
        return self.hard is not None and not self.failures


def evaluate(query: Query, plan: Plan, tables: Tables) -> Verdict:
    """All checks of one plan, which must have come from `read_plan` for this query."""

    def run(check: Check) -> str:
        try:
            return check(query, plan, tables)
        except Unreadable as error:
            return f"cannot be read: {error}"

    commonsense = {name: run(check) for name, check in COMMONSENSE.items()}
    if any(commonsense[gate] for gate in GATES):
        return Verdict(commonsense, None, None)
    hard = {name: run(check) if limit(query) is not None else None for name, (limit, check) in HARD.items()}
    return Verdict(commonsense, hard, cost(query, plan, tables))
