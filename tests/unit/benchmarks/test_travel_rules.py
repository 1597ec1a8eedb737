"""TravelPlanner's rules on tables small enough to check by hand. No official data is needed here."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genenv.benchmarks.travelplanner.plan import MAX_FIELD, PlanError, Query, from_to, read_plan
from genenv.benchmarks.travelplanner.rules import cost, evaluate, hard_checks
from genenv.benchmarks.travelplanner.tables import (
    Flight,
    Place,
    Restaurant,
    Road,
    Room,
    Tables,
    before_parenthesis,
    name_and_city,
)

TABLES = Tables(
    flights=[Flight("F1", 120, "Alba", "Brec"), Flight("F2", 90, "Brec", "Alba"), Flight("F3", 70, "Alba", "Cora")],
    rooms=[
        Room("Loft", "Brec", 80, "Entire home/apt", "No pets & No smoking", 2, 4),
        Room("Barn", "Brec", 30, "Shared room", "No parties", 1, 1),
        Room("Hut", "Brec", 10, "Private room", "No parties", 3, 2),
        Room("Twin", "Brec", 20, "Private room", "No visitors", 9, 2),
        Room("Twin II", "Brec", 25, "Private room", "No visitors", 9, 2),
        Room("Cabin", "Cora", 60, "Private room", "No visitors", 1, 2),
    ],
    restaurants=[
        Restaurant("Blue Kettle", "Brec", 10, "Tea, Bakery"),
        Restaurant("Noodle Corner", "Brec", 25, "Chinese, BBQ"),
        Restaurant("Lantern", "Brec", 40, "Mexican"),
        Restaurant("Mill", "Cora", 15, "French"),
        Restaurant("Oven", "Cora", 20, "Italian"),
        Restaurant("Pier", "Cora", 30, "Chinese"),
        Restaurant("Home Grill", "Alba", 5, "American"),
    ],
    attractions=[Place("Clock Museum", "Brec"), Place("Old Harbour", "Brec"), Place("Dunes", "Cora")],
    roads=[
        Road("Alba", "Brec", 1030.5),
        Road("Brec", "Alba", 1030.5),
        Road("Brec", "Cora", 219.0),
        Road("Cora", "Alba", 999.0),
        Road("Alba", "Cora", None),
        Road("Alba", "Cora", 500.0),
    ],
    states={"Alba": "Ohio", "Brec": "Texas", "Cora": "Texas", "Dunn": "Maine"},
)
# dates and text play no part in the verdict
QUERY = Query("1", "Alba", "Brec", 3, (), 1, 6, 2030, "parties", ("Chinese", "Tea"), "entire room", None, "hard", "")
STATE = dataclasses.replace(QUERY, dest="Texas", days=5, cities=2, people=2, budget=9999, room_type=None, cuisines=())
KEYS = ("current_city", "transportation", "breakfast", "attraction", "lunch", "dinner", "accommodation")
ROUTE, MEALS, SIGHTS, NIGHTS = (
    "is_reasonable_visiting_city",
    "is_valid_restaurants",
    "is_valid_attractions",
    "is_valid_accommodation",
)
TRANSPORT, CITY, TABLE, WHOLE = (
    "is_valid_transportation",
    "is_valid_information_in_current_city",
    "is_valid_information_in_sandbox",
    "is_not_absent",
)


def days(*rows):
    return [{"days": i, **dict(zip(KEYS, row, strict=True))} for i, row in enumerate(rows, 1)]


def good():
    """Three days, one city."""
    return days(
        ("from Alba to Brec", "Flight Number: F1, from Alba to Brec", "-", "-", "-", "-", "Loft, Brec"),
        ("Brec", "-", "Blue Kettle, Brec", "Clock Museum, Brec;", "Noodle Corner, Brec", "Lantern, Brec", "Loft, Brec"),
        ("from Brec to Alba", "Flight Number: F2, from Brec to Alba", "-", "Old Harbour, Brec;", "-", "-", "-"),
    )


def tour():
    """Five days, two cities of one state, by car."""
    drive = "Self-driving, from {} to {}".format
    return days(
        ("from Alba to Brec", drive("Alba", "Brec"), "-", "-", "-", "-", "Loft, Brec"),
        ("Brec", "-", "Blue Kettle, Brec", "Clock Museum, Brec;", "Noodle Corner, Brec", "Lantern, Brec", "Loft, Brec"),
        ("from Brec to Cora", drive("Brec", "Cora"), "-", "-", "-", "-", "Cabin, Cora"),
        ("Cora", "-", "Mill, Cora", "Dunes, Cora;", "Oven, Cora", "Pier, Cora", "Cabin, Cora"),
        ("from Cora to Alba", drive("Cora", "Alba"), "-", "-", "-", "-", "-"),
    )


def judge(plan, query=QUERY):
    return evaluate(query, read_plan(plan, query), TABLES)


def failed(plan, query=QUERY):
    return set(judge(plan, query).failures)


def changed(plan, day, **fields):
    plan[day - 1].update(fields)
    return plan


def test_a_good_plan_passes_everything_and_its_cost_is_the_sum_by_hand():
    verdict = judge(good())
    assert verdict.passed
    assert verdict.hard == {
        "valid_cuisine": "",
        "valid_room_rule": "",
        "valid_transportation": None,
        "valid_room_type": "",
        "valid_cost": "",
    }
    # flights (120 + 90) x 6, meals (10 + 25 + 40) x 6, two nights of two rooms at 80
    assert verdict.cost == 1260 + 450 + 320 == 2030
    assert failed(good(), dataclasses.replace(QUERY, budget=2029)) == {"valid_cost"}


def test_a_tour_passes_and_costs_what_it_should():
    verdict = judge(tour(), STATE)
    assert verdict.passed
    # one car: int(51.525) + int(10.95) + int(49.95); meals (10+25+40 + 15+20+30) x 2; rooms 80, 80, 60, 60
    assert verdict.cost == 51 + 10 + 49 + 280 + 280


@pytest.mark.parametrize(
    ("travel", "people", "dollars"),
    [
        ("Self-driving, from Alba to Brec", 5, 51),
        ("Self-driving, from Alba to Brec", 6, 2 * 51),
        ("Taxi, from Alba to Brec", 4, 1030),
        ("Taxi, from Alba to Brec", 5, 2 * 1030),
        ("taxi after Self-driving, from Alba to Brec", 5, 51),
        ("Flight Number: F1, from nowhere to Brec", 3, 360),
        ("Flight Number: F9, from Alba to Brec", 3, 0),
        ("Train, from Alba to Brec", 3, 0),
        ("Self-driving, from Alba to Cora", 1, 0),
    ],
)
def test_what_travel_costs(travel, people, dollars):
    query = dataclasses.replace(QUERY, people=people, days=1)
    plan = read_plan(days(("from Alba to Brec", travel, "-", "-", "-", "-", "-")), query)
    assert cost(query, plan, TABLES) == dollars


@pytest.mark.parametrize(
    ("room", "people", "dollars"),
    [("Loft, Brec", 4, 80), ("Loft, Brec", 5, 160), ("Barn, Brec", 3, 90), ("Twin, Brec", 2, 20), ("Inn, Brec", 2, 0)],
)
def test_what_a_night_costs(room, people, dollars):
    query = dataclasses.replace(QUERY, people=people, days=1)
    assert cost(query, read_plan(days(("Brec", "-", "-", "-", "-", "-", room)), query), TABLES) == dollars


@pytest.mark.parametrize(
    ("day", "fields", "expected"),
    [
        # the route
        (1, {"current_city": "from Cora to Brec"}, {ROUTE, CITY, WHOLE}),
        (1, {"current_city": "Brec"}, {ROUTE, WHOLE}),  # no start: not closed; no attraction and meals on a city day
        (2, {"current_city": "Alba"}, {ROUTE, CITY}),  # home in between
        (3, {"current_city": "from Brec"}, {ROUTE, CITY, WHOLE}),  # cannot be read
        # restaurants and attractions
        (2, {"lunch": "Blue Kettle, Brec"}, {MEALS, "valid_cuisine"}),
        (3, {"dinner": "Lantern, Brec"}, {MEALS}),
        (3, {"attraction": "Clock Museum, Brec;"}, {SIGHTS}),
        (3, {"attraction": "Clock Museum, Brec"}, set()),  # the piece behind the last semicolon is dropped
        (3, {"attraction": "Old Harbour, Brec;Old Harbour, Brec;"}, {SIGHTS}),
        # tables
        (2, {"dinner": "Invented Diner, Brec"}, {TABLE}),
        (2, {"dinner": "Mill, Brec"}, {TABLE}),
        (2, {"dinner": "antern, Brec(Texas)"}, set()),  # a part of the name will do
        (2, {"dinner": "Lantern"}, {TABLE}),
        (3, {"attraction": "Dunes, Brec;"}, {TABLE}),
        (1, {"transportation": "Flight Number: F9, from Alba to Brec"}, {TABLE}),
        (1, {"transportation": "Flight Number: F2, from Alba to Brec"}, {TABLE}),
        (1, {"transportation": "Flight Number: F1 to Brec, near Alba"}, {TABLE}),  # "F1 to Brec" is no number
        (1, {"transportation": "Flight Number: F1, Alba - Brec"}, set()),  # the cities are those of the day
        (1, {"transportation": "flight number F1, from Alba to Brec"}, {TABLE}),  # cannot be read
        (1, {"transportation": "Train, from Alba to Brec"}, set()),
        # the current city
        (3, {"breakfast": "Mill, Cora"}, {CITY}),
        (3, {"transportation": "Flight Number: F2"}, {CITY}),
        (1, {"accommodation": "Cabin, Cora"}, {CITY, NIGHTS, "valid_room_type"}),  # the loft is for two nights
        (2, {"breakfast": "Mill, Cora"}, {"valid_cuisine"}),  # a letter of "Brec" is enough
        # rooms
        (2, {"accommodation": "Hut, Brec"}, {NIGHTS, "valid_room_type", "valid_room_rule"}),
        (2, {"accommodation": "-"}, {NIGHTS, WHOLE}),
        # transport
        (1, {"transportation": "-"}, {TRANSPORT, WHOLE}),
        (1, {"transportation": "Self-driving, from Alba to Brec"}, {TRANSPORT}),
        (1, {"transportation": "Taxi, from Alba to Brec"}, set()),
        (1, {"transportation": "Self-driving, no taxi, from Alba to Brec"}, set()),  # a taxi all the same
        # completeness
        (2, {"lunch": "-"}, {WHOLE}),
        (2, {"attraction": ""}, {WHOLE}),
        (2, {"attraction": None}, set()),  # null is not blank
        (
            2,
            {"current_city": "You don't need to fill in the information for this or later days."},
            {ROUTE, CITY, WHOLE},
        ),
    ],
)
def test_one_change_of_the_good_plan(day, fields, expected):
    assert failed(changed(good(), day, **fields), dataclasses.replace(QUERY, budget=9999)) == expected


def test_an_own_car_goes_with_no_taxi():
    plan = changed(tour(), 5, transportation="Taxi, from Cora to Alba")
    assert failed(plan, STATE) == {TRANSPORT}


def test_rooms_that_are_found_twice_pass_the_minimum_of_nights():
    twin = good()
    for day in twin[:2]:
        day["accommodation"] = "Twin, Brec"
    assert failed(twin) == {"valid_room_type"}
    for day in twin[:2]:
        day["accommodation"] = "Twin II, Brec"
    assert failed(twin) == {NIGHTS, "valid_room_type"}


@pytest.mark.parametrize("key", KEYS)
def test_a_missing_key_is_incomplete(key):
    plan = good()
    del plan[1][key]
    assert WHOLE in failed(plan)
    assert judge(plan).hard is None


def test_half_of_the_information_must_be_there():
    bare = days(
        ("from Alba to Brec", "Train", "-", "-", "-", "-", "Loft, Brec"),
        ("from Brec to Brec", "Train", "-", "-", "-", "-", "Loft, Brec"),
        ("from Brec to Alba", "Train", "-", "-", "-", "-", "-"),
    )
    # 4 + 4 + 3 of 18; the numbers of the days count
    assert WHOLE not in failed(bare)
    for day in bare:
        del day["days"]
    assert WHOLE in failed(bare)
    bare[0]["note"] = "of the model's own"
    assert WHOLE not in failed(bare)


def test_too_few_days_are_incomplete_and_more_are_not_looked_at():
    assert WHOLE in failed(good()[:2])
    assert failed([*good(), "not even a day"]) == set()


@pytest.mark.parametrize(
    ("cities", "fails"),
    [
        (["from Alba to Brec", "Brec", "from Brec to Cora", "Cora", "from Cora to Alba"], False),
        (["from Alba to Brec", "from Brec to Cora", "Cora", "Cora", "from Cora to Alba"], False),
        (["from Alba to Brec", "Cora", "Cora", "Cora", "from Cora to Alba"], True),  # Brec is left at once
        (["from Alba to Brec", "from Brec to Cora", "from Cora to Brec", "Brec", "from Brec to Alba"], True),
        (["from Alba to Dunn", "Dunn", "from Dunn to Cora", "Cora", "from Cora to Alba"], True),  # another state
        (["from Alba to Ezra", "Ezra", "from Ezra to Cora", "Cora", "from Cora to Alba"], True),  # no city
        (["from Alba to Brec", "Brec", "from Brec to Cora", "Cora", "Cora"], True),  # does not return
        (["from Alba(Ohio) to Brec(Texas)", "Brec(Texas)", "from Brec to Cora", "Cora", "from Cora to Alba"], False),
        (["from Alba (Ohio) to Brec", "Brec", "from Brec to Cora", "Cora", "from Cora to Alba"], True),  # "Alba "
    ],
)
def test_routes(cities, fails):
    plan = tour()
    for day, city in zip(plan, cities, strict=True):
        day["current_city"] = city
    assert (ROUTE in failed(plan, STATE)) == fails


def test_the_state_counts_from_four_days_on():
    query = dataclasses.replace(QUERY, dest="Elsewhere")
    assert ROUTE not in failed(good(), query)
    assert ROUTE in failed(tour(), dataclasses.replace(STATE, dest="Elsewhere"))


def test_the_number_of_cities_is_part_of_completeness():
    assert WHOLE in failed(tour(), dataclasses.replace(STATE, cities=3))


@pytest.mark.parametrize(
    ("limit", "check"),
    [
        ({"house_rule": "pets"}, "valid_room_rule"),
        ({"house_rule": "smoking"}, "valid_room_rule"),
        ({"house_rule": "visitors"}, ""),
        ({"room_type": "shared room"}, "valid_room_type"),
        ({"room_type": "private room"}, "valid_room_type"),
        ({"room_type": "not shared room"}, ""),
        ({"cuisines": ("French",)}, "valid_cuisine"),
        ({"cuisines": ("Mexican", "BBQ")}, ""),
        ({"transportation": "no flight"}, "valid_transportation"),
        ({"transportation": "no self-driving"}, ""),
    ],
)
def test_hard_constraints(limit, check):
    assert failed(good(), dataclasses.replace(QUERY, **limit)) == ({check} if check else set())


def test_shared_rooms_only_where_they_are_asked_for():
    plan = good()
    for day in plan[:2]:
        day["accommodation"] = "Barn, Brec"
    query = dataclasses.replace(QUERY, house_rule=None, budget=9999)
    assert failed(plan, dataclasses.replace(query, room_type="shared room")) == set()
    assert failed(plan, dataclasses.replace(query, room_type="not shared room")) == {"valid_room_type"}
    assert failed(tour(), dataclasses.replace(STATE, transportation="no self-driving")) == {"valid_transportation"}


def test_a_meal_at_home_ends_the_day_for_cuisines():
    plan = changed(good(), 2, breakfast="Home Grill, Alba")
    assert "valid_cuisine" in failed(plan, dataclasses.replace(QUERY, cuisines=("Mexican",)))
    plan = changed(good(), 2, dinner="Home Grill, Alba")
    assert "valid_cuisine" not in failed(plan, dataclasses.replace(QUERY, cuisines=("Chinese",)))


def test_a_check_without_a_constraint_does_not_apply():
    free = dataclasses.replace(QUERY, house_rule=None, cuisines=(), room_type=None)
    verdict = judge(good(), free)
    assert verdict.passed
    assert [name for name, why in (verdict.hard or {}).items() if why is not None] == ["valid_cost"]
    assert (hard_checks(free), hard_checks(QUERY)) == (1, 4)


def test_a_cost_that_is_no_number_is_over_budget():
    room = Room("Loft", "Brec", math.nan, "Entire home/apt", "", 2, 4)
    tables = Tables([], [room], [], [], [], {})
    plan = read_plan(days(("Brec", "-", "-", "-", "-", "-", "Loft, Brec")), QUERY)
    assert not cost(QUERY, plan, tables) <= 1e300


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "expected a list of days"),
        ({"plan": []}, "expected a list of days"),
        ([], "empty plan"),
        ([1], "day 1: expected an object"),
        ([{}, {"lunch": 3}], "day 2: lunch: expected text"),
        ([{"lunch": ["x"]}], "day 1: lunch: expected text"),
        ([{"lunch": "x" * (MAX_FIELD + 1)}], "day 1: lunch: expected at most 2,000 characters"),
    ],
)
def test_what_is_no_plan(value, reason):
    with pytest.raises(PlanError) as error:
        read_plan(value, QUERY)
    assert str(error.value) == reason


def test_how_texts_are_read():
    assert name_and_city("A, B, Brec(Texas)") == ("A, B", "Brec")
    assert name_and_city("Brec") == name_and_city("Brec,") == ("-", "-")
    assert name_and_city("Cost: 3\nPier, Cora (Texas)") == ("Pier", "Cora")
    assert before_parenthesis("Brec(Texas) x (y)") == "Brec"
    assert before_parenthesis("Brec(Texas") == "Brec(Texas"
    assert from_to("Taxi, from Alba to Brec(Texas), 3 h") == ("Alba", "Brec")
    assert from_to("from here from Alba to St. to to Brec") == ("here from Alba", "St. to to Brec")
    assert from_to("From Alba to Brec") is None


NASTY = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(
        ["-", "", ",", ";;;", "from ", "from  to ", "Flight Number: ", "taxi", "Loft, Brec", "\n,", "(", "(),"]
    ),
    st.lists(st.integers(), max_size=2),
)


@given(
    st.one_of(
        NASTY,
        st.lists(st.one_of(NASTY, st.dictionaries(st.sampled_from([*KEYS, "days", "x"]), NASTY)), max_size=6),
        st.lists(
            st.fixed_dictionaries({key: st.one_of(st.none(), st.text(max_size=9), st.sampled_from(
                [value for day in good() + tour() for value in day.values() if isinstance(value, str)]
            )) for key in KEYS}),
            max_size=4,
        ),
    )
)  # fmt: skip
@settings(max_examples=300, deadline=None)
def test_no_plan_makes_the_rules_fail_to_answer(value):
    try:
        plan = read_plan(value, QUERY)
    except PlanError:
        return
    verdict = evaluate(QUERY, plan, TABLES)
    assert verdict.passed <= (verdict.hard is not None)
