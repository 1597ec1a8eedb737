"""Plans as `travel` writes and reads them: trips to official days, days to compact lines and back, and exactness.

Compact, one line a day, columns that end in "-" left out; "A to B" is a day on which one moves:

    1|Alba to Brec|Flight F1234|Oak Inn
    2|Brec|-|Oak Inn|Blue Pot|Red Fork|Old Grill|Old Park;New Tower
    3|Brec to Alba|Flight F5678
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from genenv.benchmarks.travelplanner.plan import FIELDS, MEALS, PlanError
from genenv.benchmarks.travelplanner.tables import Place, Restaurant, Room
from genenv.contracts.types import Json
from genenv.domains.travel.trip import Ride, Trip
from genenv.domains.travel.world import World
from genenv.reading.parsing import shorten

COMPACT = (
    "the plan, a line a day: day|city|transportation|room|breakfast|lunch|dinner|attraction. When moving, city is"
    ' "A to B" and transportation Flight F1, Taxi or Self-driving; - is nothing.'
)
MAX_LINES = 32

_LINE = re.compile(r"^[ \t]*([0-9]{1,2})[ \t]*\|(.*)$", re.MULTILINE)
_MOVE = re.compile(r"from (\S.*) to (\S.*)")
_RIDE = re.compile(r"(?:Flight Number: ([^,]+)|(Taxi|Self-driving)), from ([^,]+) to ([^,]+)")

Day = Mapping[str, Json]


def _day(number: int, city: str, **fields: str) -> dict[str, Json]:
    return {"days": number, **{field: fields.get(field, "-") for field in FIELDS}, "current_city": city}


def _by_ride(ride: Ride) -> str:
    mode = ride.mode if ride.flight is None else f"Flight Number: {ride.flight.number}"
    return f"{mode}, from {ride.origin} to {ride.destination}"


def official(trip: Trip) -> list[dict[str, Json]]:
    """A trip as the official list of days."""
    days: list[dict[str, Json]] = []

    def move(ride: Ride, **fields: str) -> None:
        city = f"from {ride.origin} to {ride.destination}"
        days.append(_day(len(days) + 1, city, transportation=_by_ride(ride), **fields))

    for ride, stop in zip(trip.rides, trip.stops, strict=False):
        city = stop.room.city
        meals = [f"{place.name}, {city}" for place in stop.meals]
        full, extra = 3 * (stop.nights - 1), MEALS[::-1]
        room = f"{stop.room.name}, {city}"
        move(ride, accommodation=room, **dict(zip(extra, meals[full:], strict=False)))
        for i, place in enumerate(stop.attractions):
            eaten = dict(zip(MEALS, meals[3 * i : 3 * i + 3], strict=True))
            seen = f"{place.name}, {city};"
            days.append(_day(len(days) + 1, city, attraction=seen, accommodation=room, **eaten))
    move(trip.rides[-1])
    return days


def write_compact(days: Sequence[Day]) -> str:
    """Official days as compact lines."""
    return "\n".join(_compact_line(day) for day in days)


def _compact_line(day: Day) -> str:
    travel = day["transportation"].partition(", from ")[0].replace("Flight Number: ", "Flight ")
    names = [day[field].rpartition(", ")[0] or "-" for field in ("accommodation", *MEALS)]
    seen = ";".join(name.rpartition(", ")[0] for name in day["attraction"].split(";")[:-1]) or "-"
    columns = [str(day["days"]), day["current_city"].removeprefix("from "), travel, *names, seen]
    while columns[-1] == "-":
        columns.pop()
    return "|".join(columns)


def read_compact(text: str) -> list[dict[str, Json]]:
    """The official days of the compact lines in a text; other lines are not looked at. Raises PlanError."""
    lines = _LINE.findall(text)
    if not lines:
        raise PlanError("no line of a day in the text")
    if len(lines) > MAX_LINES:
        raise PlanError(f"more than {MAX_LINES} days")
    return [_read_line(i, int(number), rest) for i, (number, rest) in enumerate(lines, 1)]


def _read_line(place: int, number: int, rest: str) -> dict[str, Json]:
    if number != place:
        raise PlanError(f"day {number} where day {place} was expected")
    columns = [column.strip() or "-" for column in rest.split("|")]
    if len(columns) > 7:
        raise PlanError(f"day {number}: more than 8 columns")
    city, travel, room, breakfast, lunch, dinner, seen = columns + ["-"] * (7 - len(columns))
    before, moves, after = city.partition(" to ")
    here = after if moves else city

    def named(name: str) -> str:
        return name if name == "-" else f"{name}, {here}"

    if travel != "-":
        kind, _, flight = travel.partition(" ")
        mode = f"Flight Number: {flight}" if kind == "Flight" else travel
        travel = f"{mode}, from {before} to {after}" if moves else mode
    return _day(
        number,
        f"from {city}" if moves else city,
        transportation=travel,
        accommodation=named(room),
        breakfast=named(breakfast),
        lunch=named(lunch),
        dinner=named(dinner),
        attraction="-"
        if seen == "-"
        else "".join(f"{named(name.strip())};" for name in seen.split(";") if name.strip()),
    )


def inexact(days: Json, world: World) -> str:
    """What in an official plan is not written out exactly as the tables have it, empty if nothing is.

    The official checks are lenient: a bus is free and never looked up, a part of a name stands for it, null is a meal,
    on a day in one city any place is near, an attraction without its semicolon is anywhere. An agent in training would
    find such holes, so they are closed here.
    """
    for i, day in enumerate(days, 1):
        if day.get("days") != i or isinstance(day["days"], bool):
            return f"day {i}: days: expected {i}"
        for why in _inexact(day, world):
            return f"day {i}: {why}"
    return ""


def _inexact(day: Day, world: World) -> Iterator[str]:
    for field in FIELDS:
        if not isinstance(day.get(field), str) or not day[field]:
            yield f'{field}: expected a text, or "-"'
            return
    move = _MOVE.fullmatch(day["current_city"])
    here = move.groups() if move else (day["current_city"],)
    if day["transportation"] != "-":
        ride = _RIDE.fullmatch(day["transportation"])
        if move is None or ride is None or ride.groups()[2:] != here:
            yield f"transportation: {shorten(day['transportation'])!r} is no way between the day's two cities"
        elif ride[1] and ride[1] not in [flight.number for flight in world.flights.get((move[1], move[2]), ())]:
            yield f"transportation: no flight {shorten(ride[1])!r} from {shorten(move[1])} to {shorten(move[2])}"
    for meal in MEALS:
        if day[meal] != "-" and not _known(day[meal], here, world.restaurants):
            yield f"{meal}: no restaurant {shorten(day[meal])!r}{_in(here)}"
    if day["accommodation"] != "-" and not _known(day["accommodation"], here[-1:], world.rooms):
        yield f"accommodation: no room {shorten(day['accommodation'])!r}{_in(here[-1:])}"
    if day["attraction"] != "-":
        *names, rest = day["attraction"].split(";")
        unknown = next((name for name in names if not _known(name, here, world.attractions)), rest)
        if unknown or not names:
            yield f"attraction: no attraction {shorten(unknown)!r}{_in(here)}"


def _in(cities: Sequence[str]) -> str:
    return f" in {' or '.join(map(shorten, cities))}"


def _known(text: str, cities: Sequence[str], rows: Mapping[str, Sequence[Place | Restaurant | Room]]) -> bool:
    name, _, city = text.rpartition(", ")
    return city in cities and any(row.name == name for row in rows.get(city, ()))
