"""The two engines of household say the same, byte for byte, and take the same commands. Skipped without ALFWorld."""

from __future__ import annotations

import importlib.util
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import closing

import pytest

from genenv.benchmarks.alfworld.games import Games
from genenv.contracts.types import Json
from genenv.domains.household.domain import Household
from genenv.domains.household.house import House
from genenv.domains.household.pddl import game
from genenv.domains.household.planner import plan
from genenv.domains.household.world import FAMILIES, World, parse
from genenv.loop.gate import Gate

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("textworld") is None or importlib.util.find_spec("alfworld") is None,
    reason="needs the extra alfworld",
)

WORLDS = 36
STEPS = 14

WORDS = [
    "",
    "Look",
    "look around",
    "go",
    "go to",
    "go to the fridge 1",
    "take from",
    "help me",
    "examine",
    "use",
    "put it",
]


@pytest.fixture(scope="module")
def games() -> Iterator[Games]:
    with closing(Games()) as workers:
        yield workers


def worlds(count: int) -> list[World]:
    """Of all six types, with held-out things too, the last ones as large as ALFWorld's own."""
    small, large = Household().heldout(count - 6, seed=11), Household(max_places=25).heldout(6, seed=12)
    return [parse(task.spec) for task in (*small, *large)]


def nonsense(world: World, rng: random.Random) -> str:
    """What may look like a command: often of the right form, seldom possible."""
    places, objects = [t.name for t in world.places], [t.name for t in world.objects]
    o, p, q = rng.choice(objects), rng.choice(places), rng.choice(objects)
    return rng.choice(
        [
            *WORDS,
            f"take {o} from {p}",
            f"move {o} to {p}",
            f"open {p}",
            f"close {p}",
            f"examine {o}",
            f"examine {p}",
            f"use {o}",
            f"slice {o} with {q}",
            f"put {o} in/on {p}",
            f"go to {o}",
            f"  go to {p} ",
            f"go to  {p}",
            *(f"{verb} {o} with {p}" for verb in ("heat", "cool", "clean")),
        ]
    )


def a_possible(house: House, rng: random.Random) -> str:
    """A command that does something: a verb, then one of its commands, for most commands are ways to go."""
    verb = rng.choice(sorted({command.split()[0] for command in house.possible()}))
    return rng.choice([command for command in house.possible() if command.split()[0] == verb])


def compare(games: Games, world: World, commands: list[str] | None, seed: int) -> Counter[str]:
    """Play both engines side by side; returns how often each verb did something."""
    rng, done = random.Random(seed), Counter[str]()
    with closing(games.open(game(world))) as theirs:
        ours = House(world)
        assert ours.first() == theirs.first()
        for step in range(len(commands) if commands else STEPS):
            assert ours.possible() == theirs.possible()
            drawn = a_possible(ours, rng) if rng.random() < 0.7 else nonsense(world, rng)
            command = commands[step] if commands else drawn
            said = ours.do(command)
            assert said == theirs.do(command), command
            if said[0] != "Nothing happens.":
                done[command.split()[0]] += 1
            if said[1]:
                assert commands is None or step == len(commands) - 1
                return done
        assert commands is None
        assert ours.possible() == theirs.possible()
        return done


@pytest.mark.slow
def test_plans_and_random_commands_on_many_worlds(games: Games) -> None:
    found, done = worlds(WORLDS), Counter[str]()
    assert Counter(world.family for world in found) == dict.fromkeys(FAMILIES.values(), WORLDS // 6)
    for seed, world in enumerate(found):
        shortest = plan(world)
        assert shortest is not None
        done += compare(games, world, shortest, seed) + compare(games, world, None, seed)
    assert {"go", "open", "take", "move", "heat", "cool", "clean", "use", "look", "inventory", "help"} <= done.keys()


KITCHEN: Json = {
    "goal": {"do": "heat", "object": "apple", "to": "garbagecan"},
    "places": {"countertop": 1, "desk": 1, "fridge": 1, "garbagecan": 1, "microwave": 1, "sinkbasin": 1},
    "objects": [
        *(["apple", "fridge 1", "cool"], ["apple", "countertop 1"], ["knife", "countertop 1"], ["mug", "countertop 1"]),
        *(["butterknife", "sinkbasin 1", "clean"], ["desklamp", "desk 1"], ["pencil", "desk 1"], ["pen", "desk 1"]),
        *(["potato", "microwave 1", "hot"], ["egg", "countertop 1", "clean"]),
    ],
}


def test_every_rule_once(games: Games) -> None:
    fetch = ["go to countertop 1", "take apple 2 from countertop 1"]
    script = [
        *("look", "go to countertop 1", "go to countertop 1", "look", "take mug 1 from countertop 1", "examine mug 1"),
        *("take knife 1 from countertop 1", "move mug 1 to countertop 1", "take egg 1 from countertop 1"),
        *("examine egg 1", "go to fridge 1", "cool egg 1 with fridge 1", "examine egg 1", "move egg 1 to fridge 1"),
        *("go to microwave 1", "heat egg 1 with microwave 1", "examine egg 1", "examine potato 1", "open microwave 1"),
        *("move egg 1 to microwave 1", "take potato 1 from microwave 1", "examine potato 1", "close microwave 1"),
        *("go to fridge 1", "cool potato 1 with fridge 1", "examine potato 1", "open fridge 1", "open fridge 1"),
        *("move potato 1 to fridge 1", "take apple 1 from fridge 1", "examine apple 1", "go to sinkbasin 1"),
        *("clean apple 1 with sinkbasin 1", "clean apple 1 with sinkbasin 1", "examine apple 1"),
        *("move apple 1 to sinkbasin 1", "take butterknife 1 from sinkbasin 1", "examine butterknife 1"),
        *("slice apple 1 with butterknife 1", "slice apple 1 with butterknife 1", "go to fridge 1", "close fridge 1"),
        *("slice potato 1 with butterknife 1", "go to sinkbasin 1", "move butterknife 1 to sinkbasin 1"),
        *(
            "take apple 1 from sinkbasin 1",
            "examine apple 1",
            "go to desk 1",
            "move apple 1 to desk 1",
            "use desklamp 1",
        ),
        *(
            "use desklamp 1",
            "examine desklamp 1",
            "take desklamp 1 from desk 1",
            "use pen 1",
            "inventory",
            "examine desk 1",
        ),
        *("go to sinkbasin 1", "move apple 1 to sinkbasin 1", *fetch, "examine apple 2", "help"),
        *("go to microwave 1", "heat apple 2 with microwave 1", "go to garbagecan 1", "move apple 2 to garbagecan 1"),
    ]
    done = compare(games, parse(KITCHEN), script, 0)
    assert done["slice"] == 3
    assert done["examine"] == 12


def test_the_domain_in_both_engines() -> None:
    """The gate's proof, scores and records are the same, whatever plays."""
    with closing(Household("textworld")) as theirs:
        ours = Household()
        tasks = [theirs.build(seed.spec) for seed in ours.seeds(6, seed=5)]
        assert tasks == [ours.build(task.spec) for task in tasks]
        assert Gate(theirs).judge(tasks[0]) == Gate(ours).judge(tasks[0])
        for task in tasks:
            for turns in (theirs.reference(task), theirs.perturbed(task)[-1]):
                assert Gate(theirs).execute(task, turns) == Gate(ours).execute(task, turns)
        never = Gate(theirs).execute(tasks[1], ["look"] * 50)
        assert never == Gate(ours).execute(tasks[1], ["look"] * 50)
        assert never.reason == "not won within 50 commands"
