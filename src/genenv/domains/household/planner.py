"""The shortest way to win a world, found by trying every object and every receptacle that may take part.

Nothing but a few choices is free: which objects of the wanted kind, where to change their state, where to put them. For
each choice the commands follow: walk, open what is closed, take, change, put. All plans are written down and the shortest
is taken; `tests/unit/test_household.py` compares its length with a search over all commands.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from genenv.domains.household.things import OPENABLE
from genenv.domains.household.world import CHANGES, LAMP, World


def plan(world: World) -> list[str] | None:
    """The commands of a shortest plan; of equal ones the first in order of the things' identifiers. None: no way."""
    return min(_plans(world), key=len, default=None)


class _Walk:
    """Commands in the making: where the agent is and what it has opened."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._at = ""
        self._opened: set[str] = set()
        self.commands: list[str] = []

    def go(self, place: str, inside: bool = True) -> None:
        """Walk to a receptacle and, for what is to be done inside, open it."""
        if place != self._at:
            self.commands.append(f"go to {place}")
            self._at = place
        if inside and self._world.kinds[place] in OPENABLE and place not in self._opened:
            self.commands.append(f"open {place}")
            self._opened.add(place)

    def take(self, name: str) -> None:
        self.go(self._world.where[name])
        self.commands.append(f"take {name} from {self._at}")

    def put(self, name: str, place: str) -> None:
        self.go(place)
        self.commands.append(f"move {name} to {place}")


def _plans(world: World) -> Iterator[list[str]]:
    goal = world.goal
    objects = [thing.name for thing in world.objects if thing.kind == goal.object]
    ends = [place.name for place in world.places if place.kind == goal.to]
    if goal.do == "look":
        lamps = [thing.name for thing in world.objects if thing.kind == LAMP]
        for name, lamp in itertools.product(objects, lamps):
            walk = _Walk(world)
            walk.take(name)
            walk.go(world.where[lamp])
            yield [*walk.commands, f"use {lamp}"]
    elif goal.do == "two":
        for first, second, end in itertools.product(objects, objects, ends):
            if first != second:
                walk = _Walk(world)
                for name in (first, second):
                    if world.where[name] != end:
                        walk.take(name)
                        walk.put(name, end)
                yield walk.commands
    elif goal.do == "place":
        for name, end in itertools.product(objects, ends):
            walk = _Walk(world)
            walk.take(name)
            walk.put(name, end)
            yield walk.commands
    else:
        _, kind = CHANGES[goal.do]
        appliances = [place.name for place in world.places if place.kind == kind]
        for name, appliance, end in itertools.product(objects, appliances, ends):
            walk = _Walk(world)
            walk.take(name)
            walk.go(appliance, inside=False)
            walk.commands.append(f"{goal.do} {name} with {appliance}")
            walk.put(name, end)
            yield walk.commands
