"""The travel world: one whole episode to the letter, every reason to turn a task down, hostile texts, and an independent check."""

from __future__ import annotations

import dataclasses
import importlib
import json
import random
import sys
from collections import Counter
from itertools import permutations
from pathlib import Path

import jsonschema
import llguidance
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import ANY_TEXT, examples
from travel_oracle import cheapest_by_trying, query_in_words, second_verdict

import genenv
from genenv.benchmarks.travelplanner.plan import PlanError, read_plan
from genenv.benchmarks.travelplanner.rules import evaluate
from genenv.benchmarks.travelplanner.tables import Flight, Place, Restaurant, Room
from genenv.contracts.domain import SpecError
from genenv.contracts.errors import InputError, MissingExtraError
from genenv.contracts.types import Message, Score, Seed
from genenv.domains.travel import solver as _travel_solver
from genenv.domains.travel.domain import Travel
from genenv.domains.travel.plan import inexact, official, read_compact, write_compact
from genenv.domains.travel.solver import cheapest_trip
from genenv.domains.travel.spec import LIMITS, TravelSpec, request
from genenv.domains.travel.tools import look_up
from genenv.domains.travel.trip import NoTrip
from genenv.domains.travel.world import NAMES, Names, Size, World, make_world
from genenv.loop.gate import Gate
from genenv.reading.parsing import Call, format_tool_calls

COMPACT = Travel(days=(3,), plan="compact")
OFFICIAL = Travel()
SPEC = {"org": "Varna", "dest": "Garda", "days": 3, "people": 5, "slack": 30, "house_rule": "children under 10",
        "room_type": "entire room", "transportation": "no self-driving"}  # fmt: skip
PLAN = (
    "1|Varna to Garda|Flight F9498|New Inn\n"
    "2|Garda|-|New Inn|Green Oven|Golden Kitchen|Royal Oven|Sunny Park\n"
    "3|Garda to Varna|Taxi"
)


def score(domain, task, *turns):
    """The score of some turns, of which only the last one ends the episode."""
    episode = domain.episode(task)
    steps = [episode.step(turn) for turn in turns]
    assert [step.done for step in steps] == [False] * (len(turns) - 1) + [True]
    return steps[-1].score


# -- one episode ---------------------------------------------------------------------------------------------------


def test_one_episode_to_the_letter():
    task = COMPACT.build(SPEC)
    assert (task.family, task.spec, task.target["cheapest"]) == ("3-day hard", SPEC, 2205)
    assert [tool["function"]["name"] for tool in task.tools] == [
        "flights",
        "roads",
        "rooms",
        "restaurants",
        "attractions",
    ]
    assert task.messages[1].content == (
        "Plan a 3-day trip from Varna to Garda for 5 people. Budget: $2867. Rooms must allow children under 10."
        " Only entire rooms. No self-driving."
    )
    episode = COMPACT.episode(task)
    calls = (
        '<tool_call>{"name":"flights","arguments":{"origin":"Varna","destination":"Garda"}}</tool_call>'
        '<tool_call>{"name":"flights","arguments":{"origin":"Garda","destination":"Varna"}}</tool_call>'
        '<tool_call>{"name":"roads","arguments":{"origin":"Varna","destination":"Garda"}}</tool_call>'
        '<tool_call>{"name":"rooms","arguments":{"city":"Garda"}}</tool_call>'
        '<tool_call>{"name":"restaurants","arguments":{"city":"Garda"}}</tool_call>'
        '<tool_call>{"name":"attractions","arguments":{"city":"Garda"}}</tool_call>'
    )
    assert list(COMPACT.reference(task)) == [calls, PLAN]
    step = episode.step(calls)
    assert step.score is None
    assert step.messages == (
        Message("tool", "F4586: Varna to Garda, $130\nF9498: Varna to Garda, $105"),
        Message("tool", "F3852: Garda to Varna, $195"),
        Message("tool", "Varna to Garda: Self-driving $20 for 5, Taxi $410 for 4"),
        Message(
            "tool",
            "New Inn: entire, $140 for 4, min 2 nights\nGrand Lodge: shared, $90 for 2, min 2 nights, no visitors\n"
            "Quiet Villa: private, $80 for 2, min 3 nights",
        ),
        Message(
            "tool",
            "Green Oven: Thai, $19\nBlue Kettle: Chinese, $35\nGolden Kitchen: Indian, $30\nRoyal Oven: Greek, $11\n"
            "New Pot: Mexican, $41",
        ),
        Message("tool", "Sunny Park\nGolden Tower\nGrand Bridge"),
    )
    found = episode.step(PLAN).score
    # 5 x 105 there, 2 taxis back, 2 rooms for 2 nights, 5 x (19 + 30 + 11) for meals
    assert (found.value, found.reason, found.checks["cost"]) == (1.0, "passed", 525 + 820 + 560 + 300)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("Royal Oven", "Green Oven", "is_valid_restaurants: 'Green Oven, Garda' twice"),
        ("Royal Oven", "Royal Spoon", "is_valid_information_in_sandbox: day 2: 'Royal Spoon, Garda' is not in the tables"),
        ("Royal Oven", "Royal", "inexact: day 2: dinner: no restaurant 'Royal, Garda' in Garda"),
        ("Sunny Park", "Park", "inexact: day 2: attraction: no attraction 'Park, Garda' in Garda"),
        ("New Inn", "Grand Lodge", "valid_room_type: 'Grand Lodge' is a shared room"),
        ("\n3|Garda to Varna|Taxi", "", "is_reasonable_visiting_city: does not return; is_not_absent: 2 of 3 days"),
        ("Taxi", "Flight F4586", "is_valid_information_in_sandbox: day 3: 'Flight Number: F4586, from Garda to Varna' is not in"
         " the tables"),
        ("Taxi", "Bus", "inexact: day 3: transportation: 'Bus, from Garda to Varna' is no way between the day's two cities"),
        ("Flight F9498", "Self-driving", "is_valid_transportation: own car and another; valid_transportation: no self-driving"
         " was asked for"),
        ("\n3|", "\n4|", "no plan: day 4 where day 3 was expected"),
        ("1|", "1|-|-|-|-|-|", "no plan: day 1: more than 8 columns"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_plan_is_said(old, new, reason):
    assert old in PLAN
    found = score(COMPACT, COMPACT.build(SPEC), PLAN.replace(old, new))
    assert (found.value, found.reason) == (0.0, reason)


def test_a_plan_over_the_budget_fails():
    # all the rows that are dearest: 5 x (35 + 30 + 41) for meals, 5 x (130 + 195) for flights
    dear = PLAN.replace("Green Oven", "Blue Kettle").replace("Royal Oven", "New Pot").replace("Taxi", "Flight F3852")
    task = COMPACT.build({**SPEC, "slack": 0})
    assert task.target["budget"] == 2205
    assert score(COMPACT, task, PLAN).value == 1.0
    assert score(COMPACT, task, dear).reason == "valid_cost: costs 2,590, budget 2,205"


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        (Call("hotels", {"city": "Garda"}), "error: no function 'hotels'"),
        (Call("rooms", {"town": "Garda"}), "error: rooms needs city"),
        (Call("rooms", {"city": 7}), "error: rooms needs city"),
        (Call("flights", {"origin": "Garda"}), "error: flights needs origin and destination"),
        (Call("flights", {"origin": "Garda", "destination": "Atlantis"}), "error: no city 'Atlantis'"),
        (Call("roads", {"origin": "Garda", "destination": "Garda"}), "nothing found"),
        (Call("rooms", {"city": "Fosk"}), "error: no city 'Fosk'"),  # hidden from all but held-out tasks
        (Call("cities", {"state": "Midvale"}), "Garda\nYarm\nTamsin"),
        (Call("cities", {"state": "Nowhere"}), "nothing found"),
    ],
)
def test_a_look_up_says_what_is_wrong(call, answer):
    assert look_up(OFFICIAL.world("simulator"), call) == answer


def test_a_look_up_that_fails_does_not_end_the_episode():
    episode = COMPACT.episode(COMPACT.build(SPEC))
    assert episode.step("<tool_call>{").messages == (
        Message("tool", "error: not JSON: Expecting property name enclosed in double quotes at character 12"),
    )
    many = episode.step(format_tool_calls([Call("rooms", {"city": "Garda"})] * 25)).messages
    assert len(many) == 25
    assert many[-1].content == "error: more than 24 calls in a turn"
    # with a call in it a text is no plan yet
    assert not episode.step(format_tool_calls([Call("attractions", {"city": "Garda"})]) + "\n" + PLAN).done
    assert episode.step(PLAN).score.value == 1.0


def test_the_official_form_is_read_as_the_benchmark_does():
    task = OFFICIAL.build(SPEC)
    days = task.target["plan"]
    assert [list(day) for day in days] == [["days", "current_city", "transportation", "breakfast", "attraction", "lunch",
                                            "dinner", "accommodation"]] * 3  # fmt: skip
    assert score(OFFICIAL, task, f"Here it is:\n{json.dumps(days, indent=1)}").value == 1.0
    assert score(OFFICIAL, task, "no idea").reason == "no plan: no JSON array of objects in the text"
    assert score(OFFICIAL, task, PLAN).reason == "no plan: no JSON array of objects in the text"
    sight = OFFICIAL.world("seed").attractions["Varna"][0].name
    for field, value, reason in [
        ("lunch", None, 'inexact: day 2: lunch: expected a text, or "-"'),
        ("attraction", "Atlantis", "inexact: day 2: attraction: no attraction 'Atlantis' in Garda"),
        ("attraction", "Sunny Park, Garda;Atlantis", "inexact: day 2: attraction: no attraction 'Atlantis' in Garda"),
        ("transportation", "Bus in Garda", "inexact: day 2: transportation: 'Bus in Garda' is no way between the day's two"
         " cities"),
        ("dinner", "Green Pot, Varna", "inexact: day 2: dinner: no restaurant 'Green Pot, Varna' in Garda"),
        ("attraction", "{}, Varna;", "inexact: day 2: attraction: no attraction '{}, Varna' in Garda"),
        ("dinner", ", Garda", "inexact: day 2: dinner: no restaurant ', Garda' in Garda"),
    ]:  # fmt: skip
        changed = [dict(day) for day in days]
        changed[1][field] = value and value.format(sight)
        assert evaluate(
            OFFICIAL.query(task), read_plan(changed, OFFICIAL.query(task)), OFFICIAL.world("seed").tables
        ).passed
        assert (found := score(OFFICIAL, task, json.dumps(changed))).value == 0.0
        assert found.reason == reason.format(sight)


# -- building ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "reason", "detail"),
    [
        ({"people": 0}, "schema", "people: Input should be greater than or equal to 1"),
        ({"people": "2"}, "schema", "people: Input should be a valid integer"),
        ({"slack": 101}, "schema", "slack: Input should be less than or equal to 100"),
        ({"days": 4}, "schema", "days: Input should be 3, 5 or 7"),
        ({"room_type": "suite"}, "schema", "room_type: Input should be"),
        ({"date": "2022-03-01"}, "schema", "date: Extra inputs are not permitted"),
        ({"org": "Atlantis"}, "schema", "org: no city 'Atlantis'"),
        ({"org": "Fosk"}, "schema", "org: no city 'Fosk'"),
        ({"dest": "Varna"}, "schema", "dest: no trip of 3 days goes from Varna to 'Varna'"),
        ({"dest": "Midvale"}, "schema", "dest: no trip of 3 days goes from Varna to 'Midvale'"),
        ({"days": 5}, "schema", "dest: no trip of 5 days goes from Varna to 'Garda'"),
        ({"days": 5, "dest": "Lowshire"}, "schema", "dest: no trip of 5 days goes from Varna to 'Lowshire'"),
        ({"room_type": None}, "schema", "2 limits: expected none, one or three"),
        (
            {"room_type": None, "cuisines": ["Thai", "Thai"]},
            "schema",
            "cuisines: expected different ones of Thai, Greek",
        ),
        ({"room_type": None, "cuisines": ["Martian"]}, "schema", "cuisines: expected different ones of Thai, Greek"),
        ({"cuisines": []}, "schema", "cuisines: List should have at least 1 item"),
        ({"room_type": "private room"}, "reference_fails", "no trip keeps all limits (infeasible)"),
    ],
)
def test_what_is_no_task_is_turned_down_with_its_reason(change, reason, detail):
    with pytest.raises(SpecError) as raised:
        OFFICIAL.build({**SPEC, **change})
    assert raised.value.reason == reason
    assert raised.value.detail.startswith(detail)


def test_days_that_the_domain_does_not_have_are_turned_down():
    with pytest.raises(SpecError, match=r"days: expected one of \(3,\), found 5"):
        COMPACT.build({**SPEC, "days": 5, "dest": "Midvale"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"days": (4,)}, "days: expected some of 3, 5, 7, found [4]"),
        ({"days": ()}, "days: expected some of"),
        ({"days": (7,), "size": Size(cities=6)}, "trips of 7 days need two states of 3 cities, found [1, 2, 2]"),
        ({"size": Size(restaurants=2)}, "restaurants: too small a world: 2 where at least 3 are needed"),
        ({"size": Size(states=9)}, "states: expected at most 8, found 9"),
    ],
)
def test_impossible_worlds_are_refused(options, message):
    with pytest.raises(InputError) as raised:
        Travel(**options)
    assert message in str(raised.value)


def test_a_world_without_ways_ends_with_a_clear_error(monkeypatch):
    domain = Travel(days=(3,))
    monkeypatch.setattr(
        domain, "_open", dataclasses.replace(domain._open, flights={}, km=dict.fromkeys(domain._open.km))
    )
    with pytest.raises(InputError, match="no 3-day easy trip found in this world"):
        domain.seeds(1, 0)


def test_without_highs_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "highspy", None)
    monkeypatch.delitem(sys.modules, _travel_solver.__name__)
    with pytest.raises(MissingExtraError, match=r"the domain travel needs highspy: pip install 'genenv-rl\[travel\]'"):
        Travel()


# -- the world -----------------------------------------------------------------------------------------------------


@given(st.integers(0, 10**6))
@examples(8)
def test_a_world_is_what_its_size_says_and_no_name_is_part_of_another(seed):
    size = Size(cities=40, states=4, restaurants=6, attractions=2, rooms=4)
    world, hidden = make_world(seed, size)
    assert (len(world.states), len(hidden), len(world.all_states)) == (40, 7, 4)
    assert not set(hidden) & set(NAMES.cities)
    assert not any(a in b for a, b in permutations(world.states, 2))
    for city in world.states:
        places = [world.rooms[city], world.restaurants[city], world.attractions[city]]
        assert [len(rows) for rows in places] == [4, 6, 2]
        for rows in places:
            names = [row.name for row in rows]
            assert not any(a in b for a, b in permutations(names, 2))
    numbers = [flight.number for flights in world.flights.values() for flight in flights]
    assert len(set(numbers)) == len(numbers)
    assert all(world.km[a, b] == world.km[b, a] for a, b in world.km)
    again, _ = make_world(seed, size)
    assert dataclasses.astuple(again) == dataclasses.astuple(world)


def test_seeds_never_see_a_hidden_city_and_heldout_tasks_do():
    hidden = set(OFFICIAL._whole.states) - set(OFFICIAL._open.states)
    assert hidden == {"Huskin", "Fosk"}
    seeds, heldout = OFFICIAL.seeds(90, 0), OFFICIAL.heldout(90, 0)
    assert [s.family for s in seeds[:9]] == list(OFFICIAL.families)
    assert Counter(t.family for t in heldout) == dict.fromkeys(OFFICIAL.families, 10)
    seen = json.dumps([[s.spec, OFFICIAL.build(s.spec).target] for s in seeds])
    assert not any(city in seen for city in hidden)
    touched = [any(city in json.dumps([t.spec, t.target]) for city in hidden) for t in heldout]
    assert 0.25 < sum(touched) / 90 < 0.75
    assert OFFICIAL.seeds(9, 4) == Travel().seeds(9, 4) != OFFICIAL.seeds(9, 5)
    assert [t.id for t in OFFICIAL.heldout(9, 4)] == [t.id for t in Travel().heldout(9, 4)]
    for task in heldout:
        assert OFFICIAL.episode(task).step(OFFICIAL.reference(task)[-1]).score.value == 1.0


# -- the solver ----------------------------------------------------------------------------------------------------

ROWS = World(
    states={"Alba": "Ohio", "Brec": "Utah", "Cora": "Utah"},
    flights={("Alba", "Brec"): (Flight("F1", 50, "Alba", "Brec"), Flight("F2", 40, "Alba", "Brec")),
             ("Brec", "Alba"): (Flight("F3", 60, "Brec", "Alba"),), ("Cora", "Alba"): (Flight("F4", 10, "Cora", "Alba"),)},
    km={("Alba", "Brec"): 1000.0, ("Brec", "Alba"): 1000.0, ("Brec", "Cora"): 100.0, ("Cora", "Brec"): 100.0,
        ("Alba", "Cora"): None, ("Cora", "Alba"): None},
    rooms={"Alba": (), "Brec": (Room("Loft", "Brec", 30, "Private room", "No pets", 1, 1),
                                Room("Barn", "Brec", 50, "Shared room", "", 1, 4),
                                Room("Hut", "Brec", 1, "Entire home/apt", "", 3, 9)),
           "Cora": (Room("Inn", "Cora", 20, "Entire home/apt", "", 1, 2),)},
    restaurants={"Alba": (), "Brec": tuple(Restaurant(n, "Brec", c, k) for n, c, k in [
        ("Pot", 9, "Thai"), ("Oven", 5, "Thai"), ("Grill", 7, "Greek"), ("Mill", 6, "Thai"), ("Pier", 30, "Indian, Greek")]),
        "Cora": tuple(Restaurant(n, "Cora", 10, "Thai") for n in ("Fork", "Table", "Spoon"))},
    attractions={"Alba": (), "Brec": (Place("Park", "Brec"), Place("Dunes", "Brec")), "Cora": (Place("Fort", "Cora"),)},
)  # fmt: skip
FREE = TravelSpec(org="Alba", dest="Brec", days=3, people=1, slack=0).query()


@pytest.mark.parametrize(
    ("changes", "cost", "picked"),
    [
        # own car: 50 each way; two nights in the loft; the three cheapest meals
        ({}, 100 + 60 + 18, ("Self-driving", "Loft", "Oven Grill Mill")),
        ({"transportation": "no self-driving"}, 100 + 60 + 18, ("Flight", "Loft", "Oven Grill Mill")),
        ({"house_rule": "pets"}, 100 + 100 + 18, ("Self-driving", "Barn", "Oven Grill Mill")),
        # nine people: two cars, three shared rooms, flights for each
        ({"people": 9}, 200 + 300 + 162, ("Self-driving", "Barn", "Oven Grill Mill")),
        ({"cuisines": ("Indian",)}, 100 + 60 + 41, ("Self-driving", "Loft", "Oven Mill Pier")),
        ({"cuisines": ("Greek", "Indian")}, 100 + 60 + 41, ("Self-driving", "Loft", "Oven Mill Pier")),
        # there by car, on by car, and no car home from Cora: so a flight and a taxi, or the other way round
        (
            {"days": 5, "dest": "Utah", "cities": 2},
            40 + 60 + 100 + 40 + 10 + 18 + 30,
            ("Flight", "Loft", "Oven Grill Mill"),
        ),
    ],
)
def test_the_cheapest_trip_by_hand(changes, cost, picked):
    trip = cheapest_trip(ROWS, dataclasses.replace(FREE, **changes))
    mode, room, meals = picked
    assert trip.cost == cost
    assert (trip.rides[0].mode, trip.stops[0].room.name) == (mode, room)
    assert " ".join(place.name for place in trip.stops[0].meals) == meals


def test_where_no_room_fits_there_is_no_trip():
    with pytest.raises(NoTrip):
        cheapest_trip(ROWS, dataclasses.replace(FREE, room_type="entire room"))  # the hut takes nobody for two nights


def test_a_missing_cuisine_is_eaten_on_the_day_of_arrival():
    rows = dataclasses.replace(ROWS, restaurants={**ROWS.restaurants, "Brec": tuple(
        Restaurant(n, "Brec", c, k) for n, c, k in [("Pot", 9, "Thai"), ("Oven", 5, "Greek"), ("Grill", 7, "Indian"),
                                                    ("Mill", 1, "French")])})  # fmt: skip
    query = dataclasses.replace(FREE, cuisines=("Thai", "Greek", "Indian", "French"), budget=9999)
    days = official(cheapest_trip(rows, query))
    assert write_compact(days).splitlines()[:2] == [
        "1|Alba to Brec|Self-driving|Loft|-|-|Mill",
        "2|Brec|-|Loft|Pot|Oven|Grill|Park",
    ]
    assert evaluate(query, read_plan(days, query), rows.tables).passed


@pytest.mark.parametrize(
    ("days", "size", "count"),
    [
        (3, Size(), 20),
        (3, Size(cities=6, restaurants=4), 30),
        (5, Size(cities=9, restaurants=3, attractions=2, rooms=2), 6),
    ],
)
def test_trying_all_plans_finds_nothing_cheaper(days, size, count):
    domain, rng = Travel(3, (days,), size=size), random.Random(7)
    costs = []
    for i in range(count):
        query = TravelSpec.model_validate(domain.random_spec(domain.families[i % 3], "seed", rng)).query()
        world = domain.world("seed")
        try:
            costs.append(cheapest_trip(world, query).cost)
        except NoTrip:
            costs.append(None)
        assert costs[-1] == cheapest_by_trying(query, world)
    assert None in costs
    assert len(set(costs)) > 2


# -- the gate ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("domain", [COMPACT, OFFICIAL], ids=["compact", "official"])
def test_what_the_gate_admits_passes_a_second_time_elsewhere(domain):
    fresh = Travel(days=domain.days)
    gate, rng, reasons = Gate(domain, domain.heldout(30, 1)), random.Random(0), Counter()
    for _ in range(150):
        try:
            task = domain.build(domain.random_spec(rng.choice(domain.families), "simulator", rng))
        except SpecError as error:
            reasons[error.reason] += 1
            continue
        verdict = gate.judge(task)
        assert verdict.reason in ("admitted", "duplicate", "contamination"), verdict
        reasons[verdict.reason] += 1
        assert second_verdict(domain, fresh, task) == {}
    assert reasons["admitted"] > 90
    assert reasons["reference_fails"] > 10


@pytest.mark.parametrize("domain", [COMPACT, OFFICIAL], ids=["compact", "official"])
def test_damage_of_every_kind_earns_nothing(domain):
    failed: Counter[str] = Counter()
    for seed in domain.seeds(36, 1):
        task = domain.build(seed.spec)
        damaged = domain.perturbed(task)
        assert len({turns[0] for turns in damaged}) == len(damaged) > 8
        for turns in damaged:
            found = score(domain, task, *turns)
            assert found.value == 0.0
            failed.update(part.partition(":")[0] for part in found.reason.split("; "))
    assert failed.keys() >= {
        "is_reasonable_visiting_city", "is_valid_restaurants", "is_valid_accommodation", "is_valid_transportation",
        "is_valid_information_in_sandbox", "is_not_absent", "valid_cuisine", "valid_room_rule", "valid_transportation",
        "valid_room_type", "valid_cost", "inexact",
    }  # fmt: skip


# -- hostile texts -------------------------------------------------------------------------------------------------

PIECES = st.sampled_from([
    "1|", "2|", "3|", "|", "-", "\n", "Garda", "Varna to Garda", " to ", "from ", "Flight F9498", "Taxi", "New Inn", ";", ", ",
    "<tool_call>", "</tool_call>", '{"name":"rooms","arguments":{"city":"Garda"}}', '[{"days":1,', '"current_city":"from "',
    "null", "}]", "[{", "\ud800", "\x00", "99|" * 40, "1|" + "x" * 3000, "[" * 200,
])  # fmt: skip


@examples(400)
@given(st.lists(st.one_of(ANY_TEXT, st.lists(PIECES, max_size=25).map("".join)), max_size=4), st.booleans())
def test_no_text_of_the_agent_raises(texts, compact):
    domain = COMPACT if compact else OFFICIAL
    episode = domain.episode(domain.build(SPEC))
    for text in texts:
        step = episode.step(text)
        assert step.done or step.messages
        if step.done:
            assert step.score.value == 0.0
            assert len(step.score.reason) < 2000
            break


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda x: st.lists(x, max_size=3)
)
FIELD = st.sampled_from(["from Varna to Garda", "Garda", "New Inn, Garda", "Sunny Park, Garda;", "-", "", ";", ", Garda",
                         "Taxi, from Varna to Garda", "Flight Number: F9498, from Varna to Garda", "from ", None])  # fmt: skip


@examples(150)
@given(
    st.lists(
        st.dictionaries(st.sampled_from(["days", *OFFICIAL.build(SPEC).target["plan"][0]]), FIELD | VALUES), max_size=4
    )
)
def test_no_json_of_the_agent_raises(days):
    task = OFFICIAL.build(SPEC)
    assert isinstance(score(OFFICIAL, task, json.dumps(days)), Score)


SPECS = st.fixed_dictionaries(
    {}, optional={**{name: VALUES | st.sampled_from([SPEC[name]]) for name in SPEC}, "x": VALUES}
)


@examples(150)
@given(SPECS)
def test_any_specification_is_a_task_or_turned_down(spec):
    reason = "admitted"
    try:
        task = OFFICIAL.build(spec)
    except SpecError as error:
        reason = error.reason
    else:
        assert second_verdict(OFFICIAL, OFFICIAL, task) == {}
    assert reason in ("admitted", "schema", "reference_fails")


def test_compact_lines_are_bounded():
    with pytest.raises(PlanError, match="more than 32 days"):
        read_compact("\n".join(f"{i}|Garda" for i in range(1, 40)))
    with pytest.raises(PlanError, match="no line of a day"):
        read_compact("one | two")


@examples(100)
@given(st.integers(0, 10**6))
def test_compact_lines_say_what_the_official_form_says(seed):
    rng = random.Random(seed)
    task = OFFICIAL.random_task(rng.choice(OFFICIAL.families), "heldout", rng)
    days = task.target["plan"]
    assert read_compact(f"The plan:\n{write_compact(days)}\nGood night.") == days
    assert inexact(days, OFFICIAL.world("heldout")) == ""
    query = OFFICIAL.query(task)
    assert dataclasses.replace(query_in_words(request(query)), level=query.level) == query


# -- the simulator's side ------------------------------------------------------------------------------------------


def test_the_simulators_chat_to_the_letter():
    seed = Seed("3-day hard", SPEC)
    chat, _ = COMPACT.simulator_chat(seed, 0.4, "harder", 0)
    first, *rest = chat.messages[1].content.splitlines()
    assert first == "Cities: Corin, Ulver, Pellan, Garda, Quill, Varna."
    assert rest == [
        'Example: {"org":"Varna","dest":"Garda","days":3,"people":5,"slack":30,"house_rule":"children under 10",'
        '"room_type":"entire room","transportation":"no self-driving"}',
        "Family: 3-day hard. Solved: 40%. Write a new task, harder.",
    ]
    for direction, wish in [
        ("harder", "Change one thing in it so that it gets harder."),
        ("easier", "Change one thing in it so that it gets easier."),
        ("similar", "Change one thing in it, equally hard."),
    ]:
        chat, _ = COMPACT.simulator_chat(seed, None, direction, 0, edit=True)
        assert chat.messages[1].content.endswith(f"Family: 3-day hard. Solved: unknown. {wish}")


@pytest.mark.parametrize("domain", [COMPACT, OFFICIAL], ids=["compact", "official"])
def test_the_schemas_take_what_may_be_written_and_nothing_else(domain):
    seeds = domain.seeds(36, 0)
    for i, (seed, target) in enumerate(zip(seeds, seeds[len(domain.families) :], strict=False)):
        assert seed.family == target.family
        _, task = domain.simulator_chat(seed, 0.5, "similar", i, target)
        _, edit = domain.simulator_chat(seed, 0.5, "similar", i, edit=True)
        for schema in (task, edit):
            assert not llguidance.LLMatcher.validate_grammar(llguidance.LLMatcher.grammar_from_json_schema(schema))
        task, edit = jsonschema.Draft202012Validator(task), jsonschema.Draft202012Validator(edit)
        assert task.is_valid(target.spec)
        assert not task.is_valid({**target.spec, "org": "Fosk"})
        assert not task.is_valid({k: v for k, v in target.spec.items() if k != "slack"})
        # exactly one change
        assert not edit.is_valid(seed.spec)
        harder = {**seed.spec, "slack": 5 if seed.spec["slack"] > 5 else 10}
        assert edit.is_valid(harder)
        assert not edit.is_valid({**harder, "people": seed.spec["people"] % 8 + 1})
        assert domain.build(harder).family == seed.family


@pytest.mark.parametrize(
    ("change", "direction"),
    [({"slack": 20}, "harder"), ({"slack": 25}, "similar"), ({"slack": 40}, "easier"), ({"people": 8}, "similar"),
     ({"cuisines": ["Thai"]}, "harder"), ({"cuisines": ["Thai"], "slack": 50}, "similar")],
)  # fmt: skip
def test_less_slack_and_more_cuisines_are_harder(change, direction):
    example = Seed("3-day hard", SPEC)
    assert COMPACT.direction(example, Seed("3-day hard", {**SPEC, **change})) == direction


def test_one_person_and_every_limit_in_words():
    spec = TravelSpec(org="Alba", dest="Utah", days=5, people=1, slack=0, cuisines=["Thai", "Greek"],
                      room_type="not shared room", transportation="no flight")  # fmt: skip
    assert request(spec.query(700)) == (
        "Plan a 5-day trip from Alba to 2 cities in Utah for one person. Budget: $700. We want to eat Thai and Greek."
        " No shared room. No flight."
    )
    assert {name: len(values) for name, values in LIMITS.items()} == {
        "house_rule": 5, "cuisines": 21, "room_type": 4, "transportation": 2
    }  # fmt: skip


def test_names_of_ones_own():
    words = [
        ("Xara", "Yent", "Zoll"),
        ("Wump",),
        ("North", "South"),
        ("Big", "Wee"),
        ("Bed", "Cot"),
        ("Pan", "Cup"),
        ("Hill", "Lake"),
    ]
    domain = Travel(1, (3,), size=Size(cities=4, states=2, restaurants=3, attractions=1, rooms=2), names=Names(*words))
    assert sorted(domain._open.states) == ["Xara", "Yent", "Zoll"]
    assert [place.name.split()[0] in ("Big", "Wee") for place in domain._open.restaurants["Xara"]] == [True] * 3


def test_the_training_text_is_real_play_and_knows_no_hidden_city(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(genenv.__file__).parents[2] / "scripts"))
    text = importlib.import_module("base_text_travel")
    some = [e for e, _ in zip(text.examples(random.Random(0)), range(150), strict=False)]
    assert some == [e for e, _ in zip(text.examples(random.Random(0)), range(150), strict=False)]
    played = [e for e in some if e.chat.tools]
    assert 90 < len(played) < 120
    assert all(turn.answer for e in played for turn in e.turns[:-1])
    assert not any(name in repr(some) for name in NAMES.hidden)
    rates = text.success(60)
    assert rates["3-day easy"] > rates["3-day hard"] > 0.1
    assert rates["3-day easy"] < 0.7


@pytest.mark.parametrize("number", [None, "2", 3, True, 2.5])
def test_a_plan_numbers_its_days(number):
    task = OFFICIAL.build(SPEC)
    days = [dict(day) for day in task.target["plan"]]
    assert OFFICIAL.episode(task).step(json.dumps(days)).score.value == 1.0
    days[1]["days"] = number
    score = OFFICIAL.episode(task).step(json.dumps(days)).score
    assert (score.value, score.reason) == (0.0, "inexact: day 2: days: expected 2")
