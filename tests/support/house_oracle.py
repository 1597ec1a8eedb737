"""A second opinion on plans and specifications of household: the rules of the house once more, from the JSON alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

CLOSED = ("cabinet", "drawer", "fridge", "microwave", "safe")
TOOLS = {"clean": "sinkbasin", "heat": "microwave", "cool": "fridge"}
RESULT = {"clean": "clean", "heat": "hot", "cool": "cool"}


def wins(spec: Any, commands: Sequence[str]) -> bool:
    """Whether commands win a house with their last one and not before. One that does nothing is an AssertionError."""
    goal, numbers, where, state = spec["goal"], Counter[str](), {}, {}
    for kind, place, *states in spec["objects"]:
        numbers[kind] += 1
        name = f"{kind} {numbers[kind]}"
        where[name], state[name] = place, set(states)
    last = [f"{kind} {count}" for kind, count in spec["places"].items()] + [place for _, place, *_ in spec["objects"]]
    last += [f"{kind} 1" for kind in (goal["to"], TOOLS.get(goal["do"])) if kind and kind != "desklamp"]
    places = {f"{name.split()[0]} {i}" for name in last for i in range(1, int(name.split()[1]) + 1)}
    here, hand, is_open, lit = "", "", set(), ""

    def reached() -> bool:
        if goal["do"] == "look":
            return bool(lit) and where[lit] == here and hand.split(" ")[0] == goal["object"]
        there = Counter(
            place
            for name, place in where.items()
            if name.split(" ")[0] == goal["object"]
            and place.split(" ")[0] == goal["to"]
            and RESULT.get(goal["do"]) in (None, *state[name])
        )
        return max(there.values(), default=0) >= (2 if goal["do"] == "two" else 1)

    assert not reached()
    for i, command in enumerate(commands):
        words = command.split(" ")
        verb, name, place = words[0], " ".join(words[1:3]), " ".join(words[4:])
        accessible = here.split(" ")[0] not in CLOSED or here in is_open
        if verb == "go":
            assert " ".join(words[2:]) in places - {here}
            here = " ".join(words[2:])
        elif verb == "open":
            assert (name, accessible) == (here, False)
            is_open.add(here)
        elif verb == "take":
            assert (hand, place, accessible) == ("", here, True)
            assert where[name] == here
            assert not name.startswith("desklamp ")
            hand, where[name] = name, ""
        elif verb == "move":
            assert (hand, place, accessible) == (name, here, True)
            hand, where[name] = "", here
        elif verb in TOOLS:
            assert (hand, place, here.split(" ")[0]) == (name, here, TOOLS[verb])
            state[name] = (state[name] & {"clean"}) | {RESULT[verb]} | (state[name] if verb == "clean" else set())
        else:
            assert (verb, where[name], words[1]) == ("use", here, "desklamp")
            lit = name
        if reached():
            return i == len(commands) - 1
    return False
