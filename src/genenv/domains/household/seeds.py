"""Random houses: a room with its usual receptacles, the goal's objects where they are likely to be, and distractors."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence

from genenv.contracts.types import Json
from genenv.domains.household.things import (
    HELDOUT_OBJECTS,
    HELDOUT_PLACES,
    OBJECTS,
    PLACES,
    ROOMS,
    SEVERAL,
)
from genenv.domains.household.world import CHANGES, LAMP, MAX_KIND, Action

MIN_PLACES = 4
_ROOMS: dict[Action, tuple[str, ...]] = {
    "place": ("kitchen", "bathroom", "bedroom", "living room"),
    "look": ("bedroom", "living room"),
    "clean": ("kitchen", "kitchen", "bathroom"),
    "heat": ("kitchen",),
    "cool": ("kitchen",),
    "two": ("kitchen", "bathroom", "bedroom", "living room"),
}


def known(heldout: bool) -> tuple[list[str], list[str]]:
    """The kinds of objects and of receptacles that may occur: all, or those that training may see."""
    objects = [name for name in OBJECTS if heldout or name not in HELDOUT_OBJECTS]
    return objects, [name for name in PLACES if heldout or name not in HELDOUT_PLACES]


def random_spec(do: Action, rng: random.Random, max_places: int, heldout: bool = False) -> dict[str, Json]:
    """A specification with `MIN_PLACES` to `max_places` receptacles. Almost always a task; `build` has the last word."""
    objects, places = known(heldout)
    room_places, room_objects = ROOMS[rng.choice(_ROOMS[do])]
    room = [kind for kind in room_places.split() if kind in places]
    home = [kind for kind in room_objects.split() if kind in objects]
    target, to = _goal(do, home, room, rng)
    # in one task of ten the object is where it has to go already, but not in the state that is wanted
    source = _likely(target, [kind for kind in room if kind != to or (do in CHANGES and rng.random() < 0.1)], rng)
    needed = [source] + ([] if do == "look" else [to]) + ([CHANGES[do][1]] if do in CHANGES else [])
    lamp = _likely(LAMP, room, rng)
    counts = _receptacles(needed + [lamp] * (do == "look"), room, rng.randint(MIN_PLACES, max_places), rng)
    entries = [_entry(target, _spot(source, counts, rng), do, rng, goal=True)]
    if do == "two":
        elsewhere = [kind for kind in counts if kind != to or rng.random() < 0.3]
        entries.append([target, _spot(_likely(target, elsewhere, rng), counts, rng)])
    if do == "look":
        entries.append([LAMP, _spot(lamp, counts, rng)])
    fitting = [kind for kind in home if set(OBJECTS[kind].places) & counts.keys() and kind != target]
    others = rng.choices(fitting, k=rng.randint(1, max(2, sum(counts.values()) // 2)))
    if do in CHANGES and rng.random() < 0.2:
        others[0] = target
    for kind in others:
        entries.append(_entry(kind, _spot(_likely(kind, counts, rng), counts, rng), do, rng, goal=kind == target))
    rng.shuffle(entries)
    return {
        "goal": {"do": do, "object": target, "to": to},
        "places": {kind: counts[kind] for kind in sorted(counts)},
        "objects": entries,
    }


def _goal(do: Action, home: Sequence[str], room: Sequence[str], rng: random.Random) -> tuple[str, str]:
    """What to take and where to: an object that is at home in the room, a receptacle that can hold it."""
    fit = [kind for kind in home if len(set(OBJECTS[kind].places) & set(room)) > 1]
    target = rng.choice([kind for kind in fit if do not in CHANGES or do in OBJECTS[kind].can])
    return target, LAMP if do == "look" else rng.choice([kind for kind in OBJECTS[target].places if kind in room])


def _likely(kind: str, room: Collection[str], rng: random.Random) -> str:
    """A receptacle of the room for an object, likely ones more often."""
    possible = [place for place in OBJECTS[kind].places if place in room]
    return rng.choices(possible, [1.0 / (2 + i) for i in range(len(possible))])[0]


def _receptacles(needed: Sequence[str], room: Sequence[str], size: int, rng: random.Random) -> dict[str, int]:
    counts = dict.fromkeys(needed, 1)
    while sum(counts.values()) < size:
        kind = rng.choice([*room, *(k for k in room if k in SEVERAL)])
        if counts.get(kind, 0) < (MAX_KIND if kind in SEVERAL else 1):
            counts[kind] = counts.get(kind, 0) + 1
    return counts


def _spot(kind: str, counts: Mapping[str, int], rng: random.Random) -> str:
    return f"{kind} {rng.randint(1, counts[kind])}"


def _entry(kind: str, place: str, do: Action, rng: random.Random, goal: bool) -> list[str]:
    """An object where it stands, now and then in a state."""
    states = [
        state for action, (state, _) in CHANGES.items() if action in OBJECTS[kind].can and not (goal and action == do)
    ]
    return [kind, place, rng.choice(states)] if states and rng.random() < 0.06 else [kind, place]
