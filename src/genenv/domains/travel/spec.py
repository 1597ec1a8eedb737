"""What a task of `travel` is made from: the specification, its JSON schemas, and the query in words."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from genenv.benchmarks.travelplanner.plan import Query
from genenv.contracts.domain import object_schema
from genenv.contracts.types import Json
from genenv.domains.travel.world import CUISINES

CITIES = {3: 1, 5: 2, 7: 3}
"""Cities to visit by days, as in the benchmark: up to three days one city, then cities of one state."""
LEVELS = {"easy": 0, "medium": 1, "hard": 3}
"""Number of limits besides the budget."""
SLACK = range(5, 105, 5)
"""Percent that a budget lies above the cheapest trip, as the simulator may choose."""
MAX_PEOPLE = 8
MAX_CUISINES = 2

HouseRule = Literal["smoking", "parties", "children under 10", "visitors", "pets"]
RoomType = Literal["shared room", "not shared room", "private room", "entire room"]
Transportation = Literal["no flight", "no self-driving"]
LIMITS: Mapping[str, Sequence[Json]] = {
    "house_rule": get_args(HouseRule),
    "cuisines": [list(some) for n in range(1, MAX_CUISINES + 1) for some in itertools.combinations(CUISINES, n)],
    "room_type": get_args(RoomType),
    "transportation": get_args(Transportation),
}
"""The values of each limit, in the order in which limits are written."""


class TravelSpec(BaseModel):
    """What the simulator writes. A limit that is None is no limit."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    org: str
    dest: str
    days: Literal[3, 5, 7]
    people: int = Field(ge=1, le=MAX_PEOPLE)
    slack: int = Field(ge=0, le=100)
    house_rule: HouseRule | None = None
    cuisines: list[str] | None = Field(default=None, min_length=1, max_length=MAX_CUISINES)
    room_type: RoomType | None = None
    transportation: Transportation | None = None

    @property
    def limits(self) -> list[str]:
        return [name for name in LIMITS if getattr(self, name) is not None]

    def query(self, budget: int = 0) -> Query:
        """What the rules and the solver are asked; its level is one of LEVELS, empty if there is none."""
        return Query(
            id="",
            org=self.org,
            dest=self.dest,
            days=self.days,
            dates=(),
            cities=CITIES[self.days],
            people=self.people,
            budget=budget,
            house_rule=self.house_rule,
            cuisines=tuple(self.cuisines or ()),
            room_type=self.room_type,
            transportation=self.transportation,
            level=next((level for level, count in LEVELS.items() if count == len(self.limits)), ""),
            text="",
        )


def request(query: Query) -> str:
    """A query in words: everything that is checked is said."""
    people = "one person" if query.people == 1 else f"{query.people} people"
    where = f"to {query.dest}" if query.cities == 1 else f"to {query.cities} cities in {query.dest}"
    texts = [f"Plan a {query.days}-day trip from {query.org} {where} for {people}. Budget: ${query.budget:g}."]
    if query.house_rule:
        texts.append(f"Rooms must allow {query.house_rule}.")
    if query.cuisines:
        texts.append(f"We want to eat {' and '.join(query.cuisines)}.")
    if query.room_type:
        texts.append("No shared room." if query.room_type == "not shared room" else f"Only {query.room_type}s.")
    if query.transportation:
        texts.append(f"{query.transportation.capitalize()}.")
    return " ".join(texts)


def task_schema(days: int, level: str, origins: Sequence[str], destinations: Sequence[str]) -> Json:
    """The JSON schema of a new specification: any choice of limits that makes the level."""
    values = _values(origins, destinations)
    fields = {name: {"const": days} if name == "days" else {"enum": list(values[name])} for name in values}
    return {
        "anyOf": [
            object_schema({name: schema for name, schema in fields.items() if name not in LIMITS or name in chosen})
            for chosen in itertools.combinations(LIMITS, LEVELS[level])
        ]
    }


def edit_schema(spec: Mapping[str, Json], origins: Sequence[str], destinations: Sequence[str]) -> Json:
    """The JSON schema of a specification with one value changed, all others as they are."""
    values = _values(origins, destinations)
    kept = {name: {"const": value} for name, value in spec.items()}
    others = {name: [value for value in values[name] if value != spec[name]] for name in spec}
    return {"anyOf": [object_schema({**kept, name: {"enum": changed}}) for name, changed in others.items() if changed]}


def _values(origins: Sequence[str], destinations: Sequence[str]) -> dict[str, Sequence[Json]]:
    """What may stand in each field, in the order of writing. The number of days is given with the family."""
    people = range(1, MAX_PEOPLE + 1)
    return {"org": origins, "dest": destinations, "days": (), "people": people, "slack": SLACK, **LIMITS}
