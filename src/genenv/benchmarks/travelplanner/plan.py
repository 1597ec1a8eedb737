"""What TravelPlanner asks for and what its plans are made of: queries, days and their fields, read from a model's JSON."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from genenv.benchmarks.travelplanner.tables import before_parenthesis
from genenv.contracts.types import Json

MEALS = ("breakfast", "lunch", "dinner")
FIELDS = ("current_city", "transportation", "breakfast", "attraction", "lunch", "dinner", "accommodation")
MAX_FIELD = 2_000
"""Characters in one field of a plan; the longest in the official sample has 204."""

NOT_NEEDED = "You don't need to fill in the information for this or later days."
ROOMS = {"shared room": "Shared room", "private room": "Private room", "entire room": "Entire home/apt"}
HOUSE_RULES = ("smoking", "parties", "children under 10", "visitors", "pets")
SEATS = {"self-driving": 5, "taxi": 4}

_FROM_TO = re.compile(r"from\s++(\S.*?)(?<=\S)\s++to\s+([^,]+)")


@dataclass(frozen=True)
class Query:
    """What is asked for. `dest` is a city for trips of up to three days, else a state; None is "no such constraint"."""

    id: str
    org: str
    dest: str
    days: int
    dates: tuple[str, ...]
    cities: int
    people: int
    budget: float
    house_rule: str | None
    cuisines: tuple[str, ...]
    room_type: str | None
    transportation: str | None
    level: str
    text: str


class PlanError(ValueError):
    """What was written is no plan; the message is a short reason."""


class Unreadable(Exception):
    """A check cannot be finished: the official code would stop here with an error."""


@dataclass(frozen=True)
class Day:
    """One day: the official fields that were given, and the number of all keys that hold something."""

    fields: Mapping[str, str | None]
    filled: int

    def text(self, field: str) -> str:
        value = self.fields.get(field)
        if value is None:
            raise Unreadable(f"no {field}")
        return value

    def planned(self, field: str) -> str:
        """The text of a field, empty if nothing is planned."""
        value = self.fields.get(field)
        return "" if value is None or value == "-" else value

    def blank(self, field: str) -> bool:
        """Quirk: null is not blank."""
        return self.fields.get(field) in ("", "-")

    @property
    def travels(self) -> bool:
        return "from" in self.text("current_city")

    def cities(self) -> tuple[str, ...]:
        """The one or two cities of the day."""
        city = self.text("current_city")
        return leg(from_to(city)) if self.travels else (before_parenthesis(city),)


Plan = Sequence[Day]


def read_plan(value: Json, query: Query) -> list[Day]:
    """The days that are checked: the first `query.days`. Raises PlanError."""
    if not isinstance(value, list):
        raise PlanError("expected a list of days")
    if not value:
        raise PlanError("empty plan")
    return [_read_day(day, i) for i, day in enumerate(value[: query.days], 1)]


def _read_day(day: Json, number: int) -> Day:
    if not isinstance(day, dict):
        raise PlanError(f"day {number}: expected an object")
    fields = {name: day[name] for name in FIELDS if name in day}
    for name, text in fields.items():
        if not (text is None or isinstance(text, str)):
            raise PlanError(f"day {number}: {name}: expected text")
        if text and len(text) > MAX_FIELD:
            raise PlanError(f"day {number}: {name}: expected at most {MAX_FIELD:,} characters")
    # Quirk: the number of the day and keys of the model's own count as information
    return Day(fields, sum(bool(text) and text != "-" for text in day.values()))


@functools.lru_cache(maxsize=1024)
def from_to(text: str) -> tuple[str, str] | None:
    """ "..., from A to B, ..." is (A, B), without what stands in parentheses; None if the text says no such thing."""
    found = _FROM_TO.search(text)
    return (before_parenthesis(found[1]), before_parenthesis(found[2])) if found else None


def leg(cities: tuple[str, str] | None) -> tuple[str, str]:
    if cities is None:
        raise Unreadable("no 'from A to B'")
    return cities
