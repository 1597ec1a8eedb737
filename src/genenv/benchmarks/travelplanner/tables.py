"""What TravelPlanner's plans are checked against: rows of any origin, and the tables they make up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Generic, NamedTuple, Protocol, TypeVar

DOLLARS_PER_KM = {"self-driving": 0.05, "taxi": 1.0}


class Flight(NamedTuple):
    number: str
    price: float
    origin: str
    destination: str


class Place(NamedTuple):
    """An attraction."""

    name: str
    city: str


class Restaurant(NamedTuple):
    name: str
    city: str
    cost: float
    cuisines: str


class Room(NamedTuple):
    """An accommodation. `price` is for one night and room, `rules` a text such as "No pets & No smoking"."""

    name: str
    city: str
    price: float
    type: str
    rules: str
    minimum_nights: float
    occupancy: int


class Road(NamedTuple):
    """A drive in one direction. `km` is None where there is none, or none within a day."""

    origin: str
    destination: str
    km: float | None


class _Named(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def city(self) -> str: ...


Row = TypeVar("Row", bound=_Named)


class Directory(Generic[Row]):
    """Rows by city. A text "NAME, CITY" means every row of that city whose name contains NAME."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows: dict[str, list[Row]] = {}
        for row in rows:
            self._rows.setdefault(row.city, []).append(row)

    def find(self, text: str) -> list[Row]:
        """Quirk: a part of a name will do, even an empty one, and the first row of several is the one that counts."""
        name, city = name_and_city(text)
        return [row for row in self._rows.get(city, ()) if name in row.name]


class Tables:
    """What plans are checked against. Of flights with one number, and of roads between the same cities, the first counts."""

    def __init__(
        self,
        flights: Iterable[Flight],
        rooms: Iterable[Room],
        restaurants: Iterable[Restaurant],
        attractions: Iterable[Place],
        roads: Iterable[Road],
        states: Mapping[str, str],
    ) -> None:
        self.flights: dict[str, list[Flight]] = {}
        for flight in flights:
            self.flights.setdefault(flight.number, []).append(flight)
        self.rooms = Directory(rooms)
        self.restaurants = Directory(restaurants)
        self.attractions = Directory(attractions)
        self.km: dict[tuple[str, str], float | None] = {}
        for road in roads:
            self.km.setdefault((road.origin, road.destination), road.km)
        self.states = states

    def fare(self, mode: str, origin: str, destination: str) -> int | None:
        """Dollars for one car, None if there is no such drive. `mode` is a key of DOLLARS_PER_KM."""
        km = self.km.get((origin, destination))
        return None if km is None else int(km * DOLLARS_PER_KM[mode])


def name_and_city(text: str) -> tuple[str, str]:
    """ "A, B, City(State)" is ("A, B", "City"); without a comma ("-", "-"), which is nowhere."""
    name, comma, city = text.rpartition(",")
    if not comma or not city:
        return "-", "-"
    return name.rpartition("\n")[2].strip(), before_parenthesis(city.strip()).strip()


def before_parenthesis(text: str) -> str:
    """ "City(State)" is "City"."""
    start = text.find("(")
    return text[:start] if 0 <= start < text.find(")", start) and "\n" not in text[:start] else text
