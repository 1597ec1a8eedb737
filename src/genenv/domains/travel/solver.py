"""The cheapest trip for a query, as a small integer program that HiGHS solves to the optimum.

What is chosen: for each stop of the trip a city, a room and a number of nights; a ride to each stop and one back home; the
restaurants. What the rules leave open is settled once and loses nothing: one room a stop (the cheapest of several would
do for all nights), the cheapest of the flights between two cities. On days of travel no meal is planned, save on arrival
where a cuisine is missing. Attractions are free, so any will do. All nights are spent away: what the official rules would
also take, a last day at home, is no trip here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import highspy

from genenv.benchmarks.travelplanner.plan import MEALS, Query
from genenv.benchmarks.travelplanner.tables import Room
from genenv.domains.travel.trip import NoTrip, Ride, Stop, Trip, allows, nightly, rides
from genenv.domains.travel.world import World


class _Silent(highspy.Highs):
    """HiGHS without its banner, which it prints when callbacks are set up for the first time."""

    def enableCallbacks(self) -> None:  # noqa: N802
        self.silent()
        super().enableCallbacks()  # type: ignore[no-untyped-call]


class _Model:
    """The integer program of one query. Lists of (thing, variable) are what sums run over."""

    def __init__(self, world: World, query: Query, cities: Sequence[str], highs: highspy.Highs) -> None:
        self._world, self._query, self._highs = world, query, highs
        self._places = range(query.cities)
        self._stays: list[list[tuple[Room, int, Any]]] = [
            [
                (room, nights, highs.addBinary(obj=nights * nightly(query, room)))
                for city in cities
                for room in world.rooms[city]
                if allows(query, room)
                for nights in self._nights(city)
                if room.minimum_nights <= nights
            ]
            for _ in self._places
        ]
        self._rides: list[list[tuple[Ride, Any]]] = [
            [(ride, highs.addBinary(obj=ride.cost)) for a in self._ends(i, cities) for b in self._ends(i + 1, cities)
             for ride in rides(world, query, a, b)]
            for i in range(query.cities + 1)
        ]  # fmt: skip
        self._meals = [
            (place, highs.addBinary(obj=place.cost * query.people))
            for city in cities
            for place in world.restaurants[city]
        ]
        self._own_car = highs.addBinary()
        for city in cities:
            self._link(city)
        self._limit()

    def _nights(self, city: str) -> range:
        """How long one can stay: each full day needs three restaurants and an attraction that are not used yet."""
        full_days = min(len(self._world.restaurants[city]) // len(MEALS), len(self._world.attractions[city]))
        spare = self._query.days - 1 - (self._query.cities - 1)
        least = spare if self._query.cities == 1 else 1
        return range(least, min(spare, full_days + 1) + 1)

    def _ends(self, i: int, cities: Sequence[str]) -> Sequence[str]:
        """Where ride i may start, or ride i - 1 end."""
        return cities if 0 < i <= self._query.cities else (self._query.org,)

    def _link(self, city: str) -> None:
        """A city is reached, slept in and left; it is eaten in where one stays."""
        sum_of, add = self._highs.qsum, self._highs.addConstr
        for i in self._places:
            here = sum_of([x for room, _, x in self._stays[i] if room.city == city])
            add(sum_of([x for ride, x in self._rides[i] if ride.destination == city]) == here)
            add(sum_of([x for ride, x in self._rides[i + 1] if ride.origin == city]) == here)
        stays = [(nights, x) for stays in self._stays for room, nights, x in stays if room.city == city]
        meals = sum_of([x for place, x in self._meals if place.city == city])
        add(sum_of([x for _, x in stays]) <= 1)
        add(meals >= sum_of([len(MEALS) * (nights - 1) * x for nights, x in stays]))
        add(meals <= sum_of([len(MEALS) * nights * x for nights, x in stays]))

    def _limit(self) -> None:
        sum_of, add = self._highs.qsum, self._highs.addConstr
        for stays in self._stays:
            add(sum_of([x for _, _, x in stays]) == 1)
        add(sum_of([nights * x for stays in self._stays for _, nights, x in stays]) == self._query.days - 1)
        for options in self._rides:
            add(sum_of([x for _, x in options]) == 1)
            # whoever takes an own car keeps it to the end
            add(sum_of([x for ride, x in options if ride.mode == "Self-driving"]) == self._own_car)
        for cuisine in self._query.cuisines:
            add(sum_of([x for place, x in self._meals if cuisine in place.cuisines]) >= 1)

    def trip(self) -> Trip:
        """The trip of the values that were found."""
        values = self._highs.getSolution().col_value

        def on(variable: Any) -> bool:
            return bool(values[variable.index] > 0.5)

        eaten = [place for place, x in self._meals if on(x)]
        stops = []
        for stays in self._stays:
            room, nights = next((room, nights) for room, nights, x in stays if on(x))
            meals = tuple(place for place in eaten if place.city == room.city)
            stops.append(Stop(room, nights, meals, self._world.attractions[room.city][: nights - 1]))
        chosen = tuple(next(ride for ride, x in options if on(x)) for options in self._rides)
        return Trip(tuple(stops), chosen, round(self._highs.getInfo().objective_function_value))


def cheapest_trip(world: World, query: Query) -> Trip:
    """The optimum for a query, whose budget is not looked at. Raises NoTrip."""
    highs = _Silent()  # type: ignore[no-untyped-call]
    for option, value in (("threads", 1), ("mip_rel_gap", 0.0), ("mip_abs_gap", 0.0)):
        highs.setOptionValue(option, value)
    cities = [query.dest] if query.cities == 1 else world.cities(query.dest)
    model = _Model(world, query, cities, highs)
    highs.minimize()
    status = highs.getModelStatus()
    if status != highspy.HighsModelStatus.kOptimal:
        raise NoTrip(f"no trip keeps all limits ({highs.modelStatusToString(status).lower()})")
    return model.trip()
