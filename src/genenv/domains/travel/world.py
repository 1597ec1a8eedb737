"""A made-up country for `travel`: cities in states, ways between them, places to sleep, eat and see. All from one seed.

Sizes are parameters. A city of the held-out part has a name that no other city of any seed has. No name of a city is part
of another name, and no name of a place part of another in its city, since the rules look for parts of names.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations, product

from genenv.benchmarks.travelplanner.plan import HOUSE_RULES, ROOMS
from genenv.benchmarks.travelplanner.tables import Flight, Place, Restaurant, Road, Room, Tables
from genenv.contracts.errors import InputError


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


CUISINES = ("Thai", "Greek", "Indian", "French", "Mexican", "Chinese")


@dataclass(frozen=True)
class Names:
    """Words that names are made of. `hidden` are names of held-out cities. A place is an adjective and a noun."""

    cities: Sequence[str]
    hidden: Sequence[str]
    states: Sequence[str]
    adjectives: Sequence[str]
    rooms: Sequence[str]
    restaurants: Sequence[str]
    attractions: Sequence[str]


NAMES = Names(
    cities=_words(
        "Alba Brec Corin Delmar Estby Fenton Garda Hollin Ister Jarrow Kelmot Lunden Marle Norvik Oster Pellan"
        " Quill Rosk Sorel Tamsin Ulver Varna Wexley Yarm"
    ),
    hidden=_words("Zarko Bexon Drimmel Fosk Gremby Huskin Jolva Plinth"),
    states=_words("Norland Sudmark Westria Eastfold Midvale Highmoor Lowshire Farrowan"),
    adjectives=_words("Blue Red Old New Green Grand Little Golden Quiet Royal Silver Sunny"),
    rooms=_words("Inn Loft Lodge Cabin House Villa"),
    restaurants=_words("Kettle Fork Table Pot Spoon Grill Kitchen Oven"),
    attractions=_words("Museum Park Tower Bridge Garden Castle"),
)


@dataclass(frozen=True, eq=False)
class World:
    """Everything that can be looked up. Ways have a direction; `km` is None where there is no road."""

    states: Mapping[str, str]
    flights: Mapping[tuple[str, str], tuple[Flight, ...]]
    km: Mapping[tuple[str, str], float | None]
    rooms: Mapping[str, tuple[Room, ...]]
    restaurants: Mapping[str, tuple[Restaurant, ...]]
    attractions: Mapping[str, tuple[Place, ...]]

    @functools.cached_property
    def tables(self) -> Tables:
        """The same rows as the benchmark's rules want them."""
        return Tables(
            flights=(flight for flights in self.flights.values() for flight in flights),
            rooms=(room for rooms in self.rooms.values() for room in rooms),
            restaurants=(place for places in self.restaurants.values() for place in places),
            attractions=(place for places in self.attractions.values() for place in places),
            roads=(Road(origin, destination, km) for (origin, destination), km in self.km.items()),
            states=self.states,
        )

    @functools.cached_property
    def all_states(self) -> list[str]:
        return sorted(set(self.states.values()))

    def cities(self, state: str) -> tuple[str, ...]:
        return tuple(city for city, own in self.states.items() if own == state)

    def without(self, hidden: Sequence[str]) -> World:
        """The part of the world that has nothing to do with some cities."""
        gone = set(hidden)
        return World(
            states={city: state for city, state in self.states.items() if city not in gone},
            flights={way: flights for way, flights in self.flights.items() if gone.isdisjoint(way)},
            km={way: km for way, km in self.km.items() if gone.isdisjoint(way)},
            rooms={city: rows for city, rows in self.rooms.items() if city not in gone},
            restaurants={city: rows for city, rows in self.restaurants.items() if city not in gone},
            attractions={city: rows for city, rows in self.attractions.items() if city not in gone},
        )


@dataclass(frozen=True)
class Size:
    """How large a world is; `restaurants`, `attractions` and `rooms` are numbers a city. One city in six is hidden."""

    cities: int = 12
    states: int = 3
    restaurants: int = 5
    attractions: int = 3
    rooms: int = 3

    @property
    def hidden(self) -> int:
        return max(1, round(self.cities / 6))

    def check(self, names: Names) -> None:
        """Raises InputError where there cannot be such a world."""
        low: Sequence[tuple[str, int, int]] = (
            ("states", self.states, 1),
            ("cities", self.cities - self.hidden, max(2, self.states)),
            ("restaurants", self.restaurants, 3),
            ("attractions", self.attractions, 1),
            ("rooms", self.rooms, 1),
        )
        for name, value, least in low:
            if value < least:
                raise InputError(f"travel: {name}: too small a world: {value} where at least {least} are needed")
        for name, value, words in (
            ("states", self.states, len(names.states)),
            ("restaurants", self.restaurants, len(names.adjectives) * len(names.restaurants)),
            ("attractions", self.attractions, len(names.adjectives) * len(names.attractions)),
            ("rooms", self.rooms, len(names.adjectives) * len(names.rooms)),
        ):
            if value > words:
                raise InputError(f"travel: {name}: expected at most {words}, found {value}")


def make_world(seed: int, size: Size, names: Names = NAMES) -> tuple[World, tuple[str, ...]]:
    """A world and its hidden cities."""
    size.check(names)
    rng = random.Random(f"travel world {seed}")
    known = _cities(names.cities, size.cities - size.hidden, names.hidden, rng)
    hidden = _cities(names.hidden, size.hidden, [*names.cities, *known], rng)
    chosen = rng.sample(names.states, size.states)
    # the hidden ones come last, so that they are spread over the states as the others are
    states = {city: chosen[i % size.states] for i, city in enumerate([*known, *hidden])}
    flights, km = _ways(states, rng)
    rooms, restaurants, attractions = {}, {}, {}
    for city in states:
        rooms[city] = _rooms(city, _places(names.adjectives, names.rooms, size.rooms, rng), rng)
        restaurants[city] = _restaurants(city, _places(names.adjectives, names.restaurants, size.restaurants, rng), rng)
        attractions[city] = tuple(
            Place(n, city) for n in _places(names.adjectives, names.attractions, size.attractions, rng)
        )
    return World(states, flights, km, rooms, restaurants, attractions), tuple(hidden)


def made_up_name(rng: random.Random) -> str:
    """A word of two syllables with a capital."""
    syllables = (rng.choice("bdfghklmnprstvz") + rng.choice("aeiou") + rng.choice("lmnrst") for _ in range(2))
    return "".join(syllables).capitalize()


def _cities(pool: Sequence[str], count: int, others: Sequence[str], rng: random.Random) -> list[str]:
    """`count` names, from the pool as far as it goes."""
    names = rng.sample(pool, min(count, len(pool)))
    while len(names) < count:
        name = made_up_name(rng)
        if not any(name in other or other in name for other in [*names, *others]):
            names.append(name)
    return names


def _places(adjectives: Sequence[str], nouns: Sequence[str], count: int, rng: random.Random) -> list[str]:
    return [f"{adjective} {noun}" for adjective, noun in rng.sample(list(product(adjectives, nouns)), count)]


def _ways(
    states: Mapping[str, str], rng: random.Random
) -> tuple[dict[tuple[str, str], tuple[Flight, ...]], dict[tuple[str, str], float | None]]:
    """Inside a state there is mostly a road, between states often only a flight; a few cities are not connected."""
    pairs = list(combinations(states, 2))
    longest = len(str(4 * len(pairs)))
    numbers = iter(rng.sample(range(10**longest, 10 ** (longest + 1)), 4 * len(pairs)))
    km: dict[tuple[str, str], float | None] = {}
    flights: dict[tuple[str, str], tuple[Flight, ...]] = {}
    for a, b in pairs:
        near = states[a] == states[b]
        road = rng.random() < (0.95 if near else 0.6)
        km[a, b] = km[b, a] = float(10 * rng.randint(8, 30) if near else 10 * rng.randint(30, 90)) if road else None
        flown = rng.random() < (0.4 if near else 0.85)
        for origin, destination in permutations((a, b)):
            flights[origin, destination] = tuple(
                Flight(f"F{next(numbers)}", float(5 * rng.randint(10, 50)), origin, destination)
                for _ in range(rng.choice((1, 1, 2)) if flown else 0)
            )
    return flights, km


def _dealt(kinds: Sequence[str], count: int, rng: random.Random) -> list[str]:
    """`count` of them in any order, each about as often: so most limits can be kept in most cities."""
    rounds = -(-count // len(kinds))
    return [kind for _ in range(rounds) for kind in rng.sample(kinds, len(kinds))][:count]


def _rooms(city: str, names: Sequence[str], rng: random.Random) -> tuple[Room, ...]:
    return tuple(
        Room(
            name=name,
            city=city,
            price=float(5 * rng.randint(8, 40)),
            type=kind,
            rules=" & ".join(f"No {rule}" for rule in HOUSE_RULES if rng.random() < 0.2),
            minimum_nights=float(rng.choice((1, 1, 1, 2, 2, 3))),
            occupancy=rng.choice((1, 2, 2, 3, 4)),
        )
        for name, kind in zip(names, _dealt(list(ROOMS.values()), len(names), rng), strict=True)
    )


def _restaurants(city: str, names: Sequence[str], rng: random.Random) -> tuple[Restaurant, ...]:
    rows = []
    for name, cuisine in zip(names, _dealt(CUISINES, len(names), rng), strict=True):
        served = dict.fromkeys((cuisine, rng.choice(CUISINES))) if rng.random() < 0.4 else (cuisine,)
        rows.append(Restaurant(name, city, float(rng.randint(8, 60)), ", ".join(served)))
    return tuple(rows)
