"""household: the text game, plans, specifications, and what the gate makes of them."""

from __future__ import annotations

import copy
import importlib.util
import itertools
import json
import random
from collections import deque
from contextlib import closing

import house_oracle
import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genenv.benchmarks.alfworld.games import INSTRUCTIONS, CommandEpisode
from genenv.contracts.domain import SpecError, Step
from genenv.contracts.errors import InputError, MissingExtraError
from genenv.contracts.types import Json, Message, Score, Seed
from genenv.domains.household.domain import Household
from genenv.domains.household.house import House
from genenv.domains.household.planner import plan
from genenv.domains.household.seeds import random_spec
from genenv.domains.household.things import HELDOUT_OBJECTS, HELDOUT_PLACES, OBJECTS, PLACES, ROOMS
from genenv.domains.household.world import FAMILIES, World, parse
from genenv.loop.gate import Gate, user_turns

KITCHEN: Json = {
    "goal": {"do": "heat", "object": "apple", "to": "countertop"},
    "places": {"cabinet": 2, "countertop": 1, "fridge": 1, "garbagecan": 1, "microwave": 1},
    "objects": [["apple", "fridge 1"], ["mug", "countertop 1"], ["apple", "garbagecan 1", "cool"], ["egg", "fridge 1"]],
}
FIRST = (
    "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room. Looking quickly around you, you see"
    " a cabinet 2, a cabinet 1, a countertop 1, a fridge 1, a garbagecan 1, and a microwave 1.\n\n"
    "Your task is to: heat some apple and put it in countertop."
)
SCRIPT = [
    ("look", "You are in the middle of a room. Looking quickly around you, you see nothing."),
    ("open fridge 1", "Nothing happens."),
    ("I think the fridge has it.\n> go to fridge 1", "You arrive at fridge 1. The fridge 1 is closed."),
    ("take apple 1 from fridge 1", "Nothing happens."),
    ("open fridge 1", "You open the fridge 1. The fridge 1 is open. In it, you see a apple 1, and a egg 1."),
    ("take apple 1 from fridge 1", "You pick up the apple 1 from the fridge 1."),
    ("take egg 1 from fridge 1", "Nothing happens."),
    ("inventory", "You are carrying: a apple 1."),
    ("cool apple 1 with fridge 1", "You cool the apple 1 using the fridge 1."),
    ("examine apple 1", "This is a cold apple 1."),
    ("close fridge 1", "You close the fridge 1."),
    ("go to microwave 1", "You arrive at microwave 1. The microwave 1 is closed."),
    ("heat apple 2 with microwave 1", "Nothing happens."),
    ("heat apple 1 with microwave 1", "You heat the apple 1 using the microwave 1."),
    ("examine apple 1", "This is a hot apple 1."),
    ("look", "You are facing the microwave 1. Next to it, you see nothing."),
    ("go to countertop 1", "You arrive at countertop 1. On the countertop 1, you see a mug 1."),
]
PLAN = ["go to garbagecan 1", "take apple 2 from garbagecan 1", "go to microwave 1", "heat apple 2 with microwave 1"]
PLAN += ["go to countertop 1", "move apple 2 to countertop 1"]


def changed(**fields: Json) -> Json:
    return {**copy.deepcopy(KITCHEN), **fields}


# -- the game ------------------------------------------------------------------------------------------------------


def test_one_whole_episode() -> None:
    domain = Household()
    task = domain.build(KITCHEN)
    assert task.messages == (Message("system", INSTRUCTIONS), Message("user", FIRST))
    assert task.family == "pick_heat_then_place_in_recep"
    assert task.target == {"plan": PLAN, "depth": 6, "objects": KITCHEN["objects"]}
    with closing(domain.episode(task)) as episode:
        for text, answer in SCRIPT:
            assert episode.step(text) == Step((Message("user", answer),))
        commands = [text.rpartition("> ")[2] for text, _ in SCRIPT] + ["move apple 1 to countertop 1"]
        assert episode.step("move apple 1 to countertop 1") == Step(score=Score(1.0, "won", commands, {"steps": 18}))


def test_fifty_commands_and_no_more() -> None:
    domain = Household()
    episode = domain.episode(domain.build(KITCHEN))
    assert all(episode.step("look").score is None for _ in range(49))
    assert episode.step("look").score == Score(0.0, "not won within 50 commands", ["look"] * 50, {"steps": 50})


def test_episodes_do_not_share_state() -> None:
    domain = Household()
    task = domain.build(KITCHEN)
    one, two = domain.episode(task), domain.episode(task)
    for command in PLAN[:-1]:
        one.step(command)
    assert two.step("inventory") == Step((Message("user", "You are not carrying anything."),))


def test_possible_commands() -> None:
    house = House(parse(KITCHEN))
    assert house.possible() == sorted([*(f"go to {t.name}" for t in house.world.places), "help", "inventory", "look"])
    for command in PLAN[:3]:
        house.do(command)
    assert house.possible() == [
        *("examine apple 2", "examine microwave 1", "go to cabinet 1", "go to cabinet 2", "go to countertop 1"),
        *("go to fridge 1", "go to garbagecan 1", "heat apple 2 with microwave 1", "help", "inventory", "look"),
        "open microwave 1",
    ]


def test_a_command_does_something_exactly_if_it_is_possible() -> None:
    rng = random.Random(3)
    for seed in Household().seeds(6, seed=3):
        world = parse(seed.spec)
        places, objects = [t.name for t in world.places], [t.name for t in world.objects]
        commands = [
            f"{verb} {name}" for verb in ("open", "close", "examine", "go to", "use") for name in places + objects
        ]
        for verb, word in (("take", "from"), ("move", "to"), ("heat", "with"), ("cool", "with"), ("clean", "with")):
            commands += [f"{verb} {o} {word} {p}" for o, p in itertools.product(objects, places)]
        commands += [f"slice {o} with {k}" for o, k in itertools.product(objects, objects)]
        house = House(world)
        for _ in range(12):
            known = set(house.possible()) - {"look", "help", "inventory"}
            for command in commands:
                said = copy.deepcopy(house).do(command)[0]
                assert (said != "Nothing happens.") == (command in known), command
            house.do(rng.choice(sorted(known)))


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.text() | st.sampled_from([*PLAN, "go to ", "take from", "move to", "heat with", "slice with"]), max_size=60
    )
)
def test_no_text_breaks_an_episode(texts: list[str]) -> None:
    domain = Household()
    episode = domain.episode(domain.build(KITCHEN))
    for text in texts:
        step = episode.step(text)
        if step.score is not None:
            assert step.score.value in (0.0, 1.0)
            break
        assert step.messages


# -- plans ---------------------------------------------------------------------------------------------------------


def shortest(world: World) -> int:
    """The length of the shortest plan, by breadth-first search over all commands that change something."""

    def state(house: House) -> object:
        inside = tuple((p, tuple(names)) for p, names in house.inside.items())
        states = tuple(tuple(sorted(s)) for s in house.states.values())
        return house.at, house.held, frozenset(house.opened), frozenset(house.used), inside, states

    queue, seen = deque([(House(world), 0)]), set()
    while queue:
        house, length = queue.popleft()
        for command in house.possible():
            if command.split()[0] in ("look", "help", "inventory", "examine", "slice", "close"):
                continue
            after = copy.copy(house)
            after.opened, after.used = set(house.opened), set(house.used)
            after.inside = {p: list(names) for p, names in house.inside.items()}
            after.states = {o: set(states) for o, states in house.states.items()}
            if after.do(command)[1]:
                return length + 1
            if (key := state(after)) not in seen:
                seen.add(key)
                queue.append((after, length + 1))
    raise AssertionError("no plan")


def test_plans_are_shortest() -> None:
    rng, lengths = random.Random(8), []
    for do in FAMILIES:
        tried = 0
        while tried < 6:
            spec = random_spec(do, rng, max_places=4)
            spec["objects"] = [e for e in spec["objects"] if e[0] in (spec["goal"]["object"], "desklamp")][:3]
            world = parse(spec)
            found = plan(world)
            if found is None or House(world).won:
                continue
            assert len(found) == shortest(world), spec
            lengths.append(len(found))
            tried += 1
    assert min(lengths) <= 4
    assert max(lengths) >= 8


def test_a_lamp_beside_the_object_and_two_in_one_drawer() -> None:
    look: Json = {
        "goal": {"do": "look", "object": "pen", "to": "desklamp"},
        "places": {"desk": 1, "drawer": 1},
        "objects": [["pen", "desk 1"], ["desklamp", "desk 1"]],
    }
    assert plan(parse(look)) == ["go to desk 1", "take pen 1 from desk 1", "use desklamp 1"]
    two: Json = {
        "goal": {"do": "two", "object": "pen", "to": "desk"},
        "places": {"desk": 2, "drawer": 1},
        "objects": [["pen", "drawer 1"], ["pen", "desk 2"]],
    }
    assert plan(parse(two)) == [
        *("go to drawer 1", "open drawer 1", "take pen 1 from drawer 1", "go to desk 2", "move pen 1 to desk 2"),
    ]


# -- specifications ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "reason", "detail"),
    [
        ({}, "schema", "goal: Field required"),
        (changed(extra=1), "schema", "extra: Extra inputs are not permitted"),
        (changed(goal={"do": "eat", "object": "apple", "to": "fridge"}), "schema", "goal.do: Input should be"),
        (changed(goal={"do": "heat", "object": "unicorn", "to": "fridge"}), "schema", "unknown object 'unicorn'"),
        (changed(goal={"do": "place", "object": "desklamp", "to": "desk"}), "schema", "unknown object 'desklamp'"),
        (changed(goal={"do": "heat", "object": "fork", "to": "drawer"}), "schema", "one cannot heat a fork"),
        (changed(goal={"do": "heat", "object": "apple", "to": "drawer"}), "schema", "a apple cannot stand in 'drawer'"),
        (changed(goal={"do": "look", "object": "apple", "to": "fridge"}), "schema", "takes a desklamp, found 'fridge'"),
        (changed(places={"castle": 1, "fridge": 1}), "schema", "unknown receptacle 'castle'"),
        (changed(places={"fridge": 0}), "schema", "places.fridge: Input should be greater than or equal to 1"),
        (changed(places={"fridge": 21}), "schema", "places.fridge: Input should be less than or equal to 20"),
        (changed(places={"fridge": True}), "schema", "places.fridge: Input should be a valid integer"),
        (
            {
                "goal": {"do": "place", "object": "pen", "to": "desk"},
                "places": {"desk": 1},
                "objects": [["pen", "desk 1"]],
            },
            "schema",
            "1 receptacles, expected 2 to 40",
        ),
        (changed(places={"cabinet": 20, "drawer": 20}), "schema", " receptacles, expected 2 to 40"),
        (changed(places={}), "schema", "places: Dictionary should have at least 1 item"),
        (changed(objects=[]), "schema", "objects: List should have at least 1 item"),
        (changed(objects=[["apple", "fridge 1"]] * 41), "schema", "objects: List should have at most 40 items"),
        (changed(objects=[["apple"]]), "schema", "objects.0"),
        (changed(objects=[["unicorn", "fridge 1"]]), "schema", "unknown object 'unicorn'"),
        (changed(objects=[["apple", "fridge 21"]]), "schema", "there is no receptacle 'fridge 21'"),
        (changed(objects=[["apple", "fridge 02"]]), "schema", "there is no receptacle 'fridge 02'"),
        (changed(objects=[["apple", "castle 1"]]), "schema", "there is no receptacle 'castle 1'"),
        (changed(objects=[["fork", "fridge 1"]]), "schema", "a fork cannot stand in 'fridge 1'"),
        (changed(objects=[["fork", "countertop 1", "hot"]]), "schema", "a fork cannot be hot"),
        (changed(objects=[["apple", "fridge 1", "burnt"]]), "schema", "objects.0"),
        (changed(objects=[["apple", "fridge 1", "hot"]]), "schema", "a apple is hot from the start"),
        (changed(objects=[["egg", "fridge 1"]]), "reference_fails", "too few objects of kind apple"),
        (changed(goal={"do": "look", "object": "apple", "to": "desklamp"}), "reference_fails", "there is no desklamp"),
        (
            changed(goal={"do": "two", "object": "mug", "to": "cabinet"}),
            "reference_fails",
            "too few objects of kind mug",
        ),
        (
            changed(goal={"do": "place", "object": "apple", "to": "fridge"}),
            "null_passes",
            "the goal holds from the start",
        ),
    ],
)
def test_what_is_no_task(spec: Json, reason: str, detail: str) -> None:
    with pytest.raises(SpecError) as error:
        Household().build(spec)
    assert error.value.reason == reason
    assert detail in error.value.detail


def test_a_house_has_what_its_goal_and_objects_name() -> None:
    spec = {
        "goal": {"do": "clean", "object": "mug", "to": "shelf"},
        "places": {"shelf": 1, "cabinet": 1},
        "objects": [["mug", "cabinet 3"], ["apple", "fridge 1"]],
    }
    names = sorted(place.name for place in parse(spec).places)
    assert names == ["cabinet 1", "cabinet 2", "cabinet 3", "fridge 1", "shelf 1", "sinkbasin 1"]
    assert Household().build(spec).family == "pick_clean_then_place_in_recep"


def test_the_catalogue_holds_together() -> None:
    for places, objects in ROOMS.values():
        assert set(places.split()) <= set(PLACES)
        assert set(objects.split()) <= OBJECTS.keys()
    assert all(set(kind.places) <= set(PLACES) for kind in OBJECTS.values())
    assert OBJECTS.keys() >= HELDOUT_OBJECTS
    assert set(PLACES) >= HELDOUT_PLACES
    assert list(PLACES) == sorted(PLACES)


def words(spec: Json) -> set[str]:
    return {spec["goal"]["object"], spec["goal"]["to"], *spec["places"], *(entry[0] for entry in spec["objects"])}


def test_seeds_and_heldout_tasks() -> None:
    domain = Household()
    seeds = domain.seeds(60, seed=4)
    assert [s.family for s in seeds] == list(domain.families) * 10
    assert seeds == domain.seeds(60, seed=4)
    assert seeds != domain.seeds(60, seed=5)
    hidden = HELDOUT_OBJECTS | HELDOUT_PLACES
    assert not any(words(s.spec) & hidden for s in seeds)
    heldout = domain.heldout(60, seed=4)
    assert [t.family for t in heldout] == list(domain.families) * 10
    share = sum(bool(words(t.spec) & hidden) for t in heldout) / 60
    assert 0.3 < share < 0.9
    assert not {t.messages for t in heldout} & {domain.build(s.spec).messages for s in seeds}
    sizes = [sum(s.spec["places"].values()) for s in domain.seeds(120, seed=1)]
    assert (min(sizes), max(sizes)) == (4, 8)
    assert max(sum(s.spec["places"].values()) for s in Household(max_places=25).seeds(60, seed=1)) > 20


# -- the simulator -------------------------------------------------------------------------------------------------


def test_what_the_simulator_reads() -> None:
    domain, example = Household(), Seed("pick_heat_then_place_in_recep", KITCHEN)
    chat, schema = domain.simulator_chat(example, 0.4, "harder", seed=1)
    assert chat.messages[1].content == (
        f"Example: {json.dumps(KITCHEN, separators=(',', ':'))}\n"
        "Family: pick_heat_then_place_in_recep. Solved: 40%. Write a new task, harder."
    )
    assert list(schema["properties"]) == ["goal", "places", "objects"]
    last = [
        domain.simulator_chat(example, None, direction, seed=1, edit=True)[0]
        .messages[1]
        .content.rpartition("Solved: ")[2]
        for direction in ("easier", "similar", "harder")
    ]
    assert last == [
        "unknown. Change one thing in it so that it gets easier.",
        "unknown. Change one thing in it, equally hard.",
        "unknown. Change one thing in it so that it gets harder.",
    ]
    target = next(s for s in domain.seeds(6, seed=0) if s.family == "look_at_obj_in_light")
    chat, schema = domain.simulator_chat(example, 0.4, "similar", seed=1, target=target)
    assert "Family: look_at_obj_in_light." in chat.messages[1].content
    jsonschema.Draft202012Validator(schema).validate(json.loads(json.dumps(target.spec)))


@pytest.mark.parametrize("max_places", [8, 25])
def test_seeds_fit_their_schema(max_places: int) -> None:
    domain = Household(max_places=max_places)
    for seed in domain.seeds(6, seed=6):
        _, schema = domain.simulator_chat(seed, 0.5, "similar", seed=0)
        validator = jsonschema.Draft202012Validator(schema)
        validator.validate(json.loads(json.dumps(seed.spec)))
        assert not validator.is_valid({**seed.spec, "goal": {**seed.spec["goal"], "object": "potato"}})
        assert not validator.is_valid({**seed.spec, "objects": [["egg", "safe 1"]] * 2})


def test_harder_and_easier() -> None:
    domain = Household()
    seed = Seed("pick_heat_then_place_in_recep", KITCHEN)
    shut_in = Seed(seed.family, changed(objects=[["apple", "fridge 1"], ["mug", "countertop 1"]]))
    wider = Seed(seed.family, changed(places={**KITCHEN["places"], "drawer": 2}))
    fuller = Seed(seed.family, changed(objects=[*KITCHEN["objects"], ["fork", "countertop 1"]]))
    assert len(domain.build(shut_in.spec).target["plan"]) == 7
    assert [domain.direction(seed, other) for other in (shut_in, wider, fuller)] == ["harder", "harder", "similar"]
    assert [domain.direction(other, seed) for other in (shut_in, wider, fuller)] == ["easier", "easier", "similar"]


# -- the gate ------------------------------------------------------------------------------------------------------


def test_every_task_of_a_stream_is_proven() -> None:
    """`bench/worlds_household.py` does the same with more."""
    domain = Household()
    gate = Gate(domain)
    for seed in domain.seeds(240, seed=9):
        task = domain.build(seed.spec)
        verdict = gate.judge(task)
        assert verdict.reason in ("admitted", "duplicate", "contradiction"), verdict
        assert house_oracle.wins(task.spec, domain.reference(task))
        assert len(domain.reference(task)) == task.target["depth"] <= 14


def test_perturbed_plans() -> None:
    domain = Household()
    task = domain.build(KITCHEN)
    assert domain.perturbed(task) == [
        PLAN[:-1],
        [*PLAN[:3], *PLAN[4:]],
        [
            *("go to fridge 1", "open fridge 1", "take egg 1 from fridge 1", "go to microwave 1"),
            *("heat egg 1 with microwave 1", "go to countertop 1", "move egg 1 to countertop 1"),
        ],
        [*PLAN[:-1], "go to fridge 1", "open fridge 1", "move apple 2 to fridge 1"],
    ]
    two = next(t for t in (domain.build(s.spec) for s in domain.seeds(6, seed=2)) if t.family.startswith("pick_two"))
    moves = [sum(c.startswith("move ") for c in turns) for turns in domain.perturbed(two)]
    assert moves[:2] == [1, 1]


def test_worlds_that_differ_in_what_is_hidden() -> None:
    """Their requests are equal; `identity` tells them apart."""
    domain = Household()
    task = domain.build(KITCHEN)
    moved = domain.build(changed(objects=[["apple", "fridge 1"], ["mug", "cabinet 1"], ["egg", "fridge 1"]]))
    assert user_turns(task) == user_turns(moved)
    assert task.id != moved.id
    assert domain.identity(task) == (
        "heat apple countertop. cabinet 2 countertop 1 fridge 1 garbagecan 1 microwave 1."
        " apple fridge 1, apple garbagecan 1 cool, egg fridge 1, mug countertop 1."
    )
    gate = Gate(domain)
    assert [gate.judge(t).reason for t in (task, moved, task)] == ["admitted", "admitted", "duplicate"]


def test_textworld_needs_its_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'genenv-rl\[alfworld\]'"):
        Household("textworld")
    Household().close()


@pytest.mark.parametrize("max_places", [3, 41])
def test_the_size_of_houses_has_limits(max_places: int) -> None:
    with pytest.raises(InputError, match=f"max_places: expected 4 to 40, found {max_places}"):
        Household(max_places=max_places)
    assert Household(max_places=40).seeds(6, seed=0)


def test_episodes_are_the_benchmark_s() -> None:
    domain = Household()
    assert isinstance(domain.episode(domain.build(KITCHEN)), CommandEpisode)
