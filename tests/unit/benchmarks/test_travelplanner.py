"""TravelPlanner as a benchmark: files, texts, rates; and, where the official data is present, the official verdicts."""

from __future__ import annotations

import ast
import contextlib
import csv
import dataclasses
import json
import os
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import genenv
from genenv.benchmarks.base import Result
from genenv.benchmarks.travelplanner.benchmark import TravelPlanner, find_plan
from genenv.benchmarks.travelplanner.data import load_queries, load_tables
from genenv.benchmarks.travelplanner.plan import Query, read_plan
from genenv.benchmarks.travelplanner.rules import COMMONSENSE, HARD, evaluate, hard_checks
from genenv.contracts.errors import InputError
from genenv.contracts.types import Score

DATA = Path(os.environ.get("GENENV_DATA") or Path(genenv.__file__).parents[3] / "shared" / "data") / "travelplanner"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"no official data in {DATA}")

TABLES = {
    "flights/flights_subset.csv": [
        ["Flight Number", "Price", "FlightDate", "OriginCityName", "DestCityName"],
        ["F1", "120", "2022-03-01", "Alba", "Brec"],
        ["F2", "90", "2022-03-03", "Brec", "Alba"],
    ],
    "accommodations/clean_accommodations_2022.csv": [
        ["", "NAME", "room type", "price", "minimum nights", "house_rules", "maximum occupancy", "city", "stars"],
        ["0", "Loft", "Private room", "80.0", "2.0", "No pets", "2", "Brec", "4.0"],
        ["1", "Nameless", "Private room", "80.0", "2.0", "", "2", "Brec", "4.0"],
        ["2", "Starless", "Private room", "80.0", "2.0", "No pets", "2", "Brec", "NA"],
    ],
    "restaurants/clean_restaurant_2022.csv": [
        ["", "Name", "City", "Cuisines", "Average Cost"],
        ["0", "Kettle", "Brec", "Tea", "10"],
        ["1", "Corner", "Brec", "BBQ", "20"],
        ["2", "Pier", "Brec", "Fish", "30"],
    ],
    "attractions/attractions.csv": [["Name", "City"], ["Museum", "Brec"], ["Harbour", "Brec"]],
    "googleDistanceMatrix/distance.csv": [
        ["origin", "destination", "cost", "duration", "distance"],
        ["Alba", "Brec", "", "10 hours", "1,144 km"],
        ["Brec", "Alba", "", "1 day 3 hours", "3,022 km"],
        ["Alba", "Cora", "", "", ""],
    ],
}
ROW = {
    "org": "Alba",
    "dest": "Brec",
    "days": "3",
    "visiting_city_number": "1",
    "date": "['2022-03-01', '2022-03-02', '2022-03-03']",
    "people_number": "1",
    "local_constraint": "{'house rule': None, 'cuisine': ['Tea'], 'room type': None, 'transportation': None}",
    "budget": "430",
    "query": "Three days in Brec, please.",
    "level": "medium",
    "reference_information": "[{'Description': 'Flight from Alba to Brec', 'Content': 'Number\\nF1'}]",
}
FLY = "Flight Number: {}, from {} to {}".format
PLAN = [
    {"days": 1, "current_city": "from Alba to Brec", "transportation": FLY("F1", "Alba", "Brec"), "breakfast": "-",
     "attraction": "-", "lunch": "-", "dinner": "-", "accommodation": "Loft, Brec"},
    {"days": 2, "current_city": "Brec", "transportation": "-", "breakfast": "Kettle, Brec",
     "attraction": "Museum, Brec;", "lunch": "Corner, Brec", "dinner": "Pier, Brec", "accommodation": "Loft, Brec"},
    {"days": 3, "current_city": "from Brec to Alba", "transportation": FLY("F2", "Brec", "Alba"), "breakfast": "-",
     "attraction": "Harbour, Brec;", "lunch": "-", "dinner": "-", "accommodation": "-"},
]  # fmt: skip
COST = 120 + 90 + 10 + 20 + 30 + 2 * 80


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as handle:
        csv.writer(handle).writerows(rows)


@pytest.fixture
def folder(tmp_path):
    """A whole data folder as the authors lay it out, with two queries as the hub writes them."""
    for name, rows in TABLES.items():
        write(tmp_path / "database" / name, rows)
    states = tmp_path / "database" / "background" / "citySet_with_states.txt"
    states.parent.mkdir()
    states.write_text("Alba\tOhio\nBrec\tTexas\nCora\tTexas")
    free = str(dict.fromkeys(["house rule", "cuisine", "room type", "transportation"]))
    rows = [ROW, {**ROW, "level": "easy", "budget": str(COST - 1), "local_constraint": free}]
    write(tmp_path / "validation.csv", [list(ROW), *(row.values() for row in rows)])
    return tmp_path


@pytest.fixture
def planner(folder):
    return TravelPlanner(folder)


def test_hub_files_become_tasks(planner):
    first, second = planner.tasks()
    assert (first.spec["id"], first.family, second.spec["id"], second.family) == ("1", "medium", "2", "easy")
    assert [m.role for m in first.messages] == ["system", "user"]
    assert first.messages[1].content == (
        "Reference information:\n\nFlight from Alba to Brec\nNumber\nF1\n\nQuery: Three days in Brec, please."
    )
    assert first.id != second.id or first.messages == second.messages


def test_tables_drop_rows_with_missing_cells_and_roads_of_more_than_a_day(planner):
    assert [room.name for room in planner.tables.rooms.find(", Brec")] == ["Loft"]
    assert planner.tables.km == {("Alba", "Brec"): 1144.0, ("Brec", "Alba"): None, ("Alba", "Cora"): None}
    assert planner.tables.fare("self-driving", "Alba", "Brec") == 57


def test_the_full_flights_come_first(folder, planner):
    full = [TABLES["flights/flights_subset.csv"][0], ["F7", "1", "2022-03-01", "Alba", "Brec"]]
    write(folder / "database" / "flights" / "clean_Flights_2022.csv", full)
    assert list(planner.tables.flights) == ["F7"]


@pytest.mark.parametrize("wrap", ["{}", "Here it is [1] [{{}}]:\n```json\n{}\n```", '[{{"days": 1}}]\nBetter:\n{}'])
def test_a_good_plan_earns_one_as_a_list_and_as_text(planner, wrap):
    task = planner.tasks()[0]
    scores = [planner.replay(task, PLAN), planner.episode(task).step(wrap.format(json.dumps(PLAN, indent=1))).score]
    for score in scores:
        assert (score.value, score.reason) == (1.0, "passed")
        assert score.checks == {
            "delivery": True,
            **dict.fromkeys(COMMONSENSE, True),
            **dict.fromkeys(HARD),
            "valid_cuisine": True,
            "valid_cost": True,
            "cost": COST,
        }


def test_over_budget_fails_one_check_and_says_why(planner):
    score = planner.replay(planner.tasks()[1], PLAN)
    assert (score.value, score.reason) == (0.0, "valid_cost: costs 430, budget 429")
    assert [name for name, passed in score.checks.items() if passed is False] == ["valid_cost"]


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("I would rather not.", "no JSON array of objects in the text"),
        ("[]", "no JSON array of objects in the text"),
        (json.dumps(PLAN)[:-5], "not JSON: Expecting value at character "),
        (json.dumps(PLAN) + " or, cheaper, [{'days': 1}]", "not JSON: Expecting property name"),
        ('[{"days": 1, "days": 2}]', "repeated key"),
        ('[{"days": NaN}]', "NaN is not JSON"),
        ('[{"a":' + "[" * 100_000, "nested too deeply"),
        (None, "expected a list of days"),
        ({"plan": PLAN}, "expected a list of days"),
        ([], "empty plan"),
        ([PLAN[0], 7], "day 2: expected an object"),
    ],
)
def test_what_cannot_be_read_is_not_delivered(planner, output, reason):
    score = planner.replay(planner.tasks()[0], output)
    assert (score.value, score.checks["delivery"]) == (0.0, False)
    assert score.reason.startswith(f"no plan: {reason}")
    assert {score.checks[name] for name in [*COMMONSENSE, *HARD, "cost"]} == {None}


def test_the_plan_in_a_text_is_the_last_array_of_objects():
    assert find_plan('[{"a": 1}] then [ \n {"b": 2}] [3]') == [{"b": 2}]


def test_rates_by_hand(planner):
    first, second = planner.tasks()
    results = [
        Result("1", "medium", planner.replay(first, PLAN)),  # 8 of 8, 2 of 2
        Result("2", "easy", planner.replay(second, PLAN)),  # 8 of 8, 0 of 1
        Result("2", "easy", planner.replay(second, [*PLAN[:2], {**PLAN[2], "dinner": "Inn, Brec"}])),  # 7 of 8
        Result("1", "medium", planner.replay(first, "no")),
        Result("1", "medium", Score(None, "the engine failed")),
    ]
    assert planner.summarize(results) == {
        "score": 1 / 5,
        "delivery": 3 / 5,
        "commonsense_micro": 23 / 40,
        "commonsense_macro": 2 / 5,
        "hard_micro": 2 / 8,
        "hard_macro": 1 / 5,
        "final_pass": 1 / 5,
        "mean_of_four": pytest.approx((23 / 40 + 2 / 5 + 2 / 8 + 1 / 5) / 4),
        "denominators": {"queries": 5, "commonsense_checks": 40, "hard_checks": 8},
        "final_pass_by_level": {"medium": pytest.approx(1 / 3), "easy": 0.0},
    }
    assert planner.summarize([])["mean_of_four"] == 0.0


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ({"days": "three"}, "record 1: days: "),
        ({"level": "impossible"}, "record 1: level: "),
        ({"local_constraint": "{"}, "record 1: local_constraint: "),
        ({"local_constraint": "__import__('os')"}, "record 1: local_constraint: "),
        ({"reference_information": "[]"}, "record 1: no reference_information"),
    ],
)
def test_damaged_queries(folder, damage, message):
    write(folder / "validation.csv", [list(ROW), {**ROW, **damage}.values()])
    with pytest.raises(InputError, match=re.escape(message)):
        TravelPlanner(folder).tasks()


@pytest.mark.parametrize(
    ("name", "rows", "message"),
    [
        ("attractions/attractions.csv", [["Name", "Town"], ["Museum", "Brec"]], "no column 'City'"),
        ("attractions/attractions.csv", [["Name", "City"], ["Museum"]], "expected 2 columns, found 1"),
        (
            "restaurants/clean_restaurant_2022.csv",
            [["Name", "City", "Average Cost", "Cuisines"], list("abcd")],
            "damaged",
        ),
        ("googleDistanceMatrix/distance.csv", [["from", "to"], ["Alba", "Brec"]], "no column 'origin'"),
    ],
)
def test_damaged_tables(folder, name, rows, message):
    write(folder / "database" / name, rows)
    with pytest.raises(InputError, match=message):
        load_tables(folder / "database")


def test_missing_files_are_one_clear_line(folder, tmp_path_factory):
    empty = tmp_path_factory.mktemp("empty")
    with pytest.raises(InputError, match=r"has none of validation\.csv"):
        TravelPlanner(empty).tasks()
    with pytest.raises(InputError, match="cannot read"):
        load_tables(empty)
    with pytest.raises(InputError, match="expected validation or train"):
        load_queries(folder, "test")  # type: ignore[arg-type]


@given(st.text(alphabet='[]{}":,\\ \nadys1', max_size=60))
@settings(max_examples=300, deadline=None)
def test_any_text_is_an_array_of_objects_or_refused(text):
    with contextlib.suppress(ValueError):
        assert isinstance(find_plan(text)[0], dict)


# From here on with the official data


@pytest.fixture(scope="module")
def official():
    return TravelPlanner(DATA)


def lines(name):
    return [json.loads(line) for line in (DATA / name).read_text("utf-8").splitlines()]


def sample_plans():
    return {record["idx"]: record["plan"] for record in lines("validation/example_evaluation.jsonl")}


@needs_data
def test_the_official_verdict_on_every_plan_check_by_check(official):
    tasks = {task.spec["id"]: task for task in official.tasks()}
    plans = sample_plans()
    verdicts = lines("validation/official_verdicts.jsonl")
    assert len(verdicts) == 123
    for verdict in verdicts:
        plan = plans[verdict["idx"]] if isinstance(verdict["plan"], str) else verdict["plan"]
        checks = official.replay(tasks[str(verdict["idx"])], plan).checks
        assert checks["delivery"] == verdict["delivered"]
        assert {name: checks[name] for name in COMMONSENSE} == (verdict["commonsense"] or dict.fromkeys(COMMONSENSE))
        assert {name: checks[name] for name in HARD} == (verdict["hard"] or dict.fromkeys(HARD))


@needs_data
def test_a_hand_made_plan_passes_and_repeated_or_invented_restaurants_do_not(official):
    task = official.tasks()[0]
    good, repeated, invented = (v["plan"] for v in lines("validation/official_verdicts.jsonl")[-3:])
    assert official.replay(task, good).value == 1.0
    assert official.replay(task, repeated).checks["is_valid_restaurants"] is False
    assert official.replay(task, invented).checks["is_valid_information_in_sandbox"] is False


@needs_data
def test_the_sample_has_the_official_rates(official, tmp_path):
    """The counts are what the official `eval_score` gives for these 120 plans; it divides by the whole validation set."""
    plans = sample_plans()
    results = [
        Result(task.spec["id"], task.family, official.replay(task, plans[int(task.spec["id"])]))
        for task in official.tasks()
    ]
    rates = official.summarize(results)
    assert rates["denominators"] == {"queries": 120, "commonsense_checks": 960, "hard_checks": 360}
    names = ("delivery", "commonsense_micro", "commonsense_macro", "hard_micro", "hard_macro", "final_pass")
    assert [rates[name] for name in names] == [105 / 120, 572 / 960, 2 / 120, 39 / 360, 6 / 120, 0.0]

    # the same with 60 easy queries that were not delivered
    records = lines("validation/validation_medium_hard_120.jsonl")
    free = dict.fromkeys(records[0]["local_constraint"])
    easy = [{**records[0], "idx": i, "level": "easy", "local_constraint": free} for i in range(1, 61)]
    with (tmp_path / "validation.jsonl").open("w") as handle:
        for record in easy + records:
            handle.write(json.dumps({**record, "reference_information": [{}]}) + "\n")
    whole = TravelPlanner(tmp_path)
    missing = [Result(str(i), "easy", Score(0.0, "no plan", checks={"delivery": False})) for i in range(1, 61)]
    rates = whole.summarize(missing + results)
    assert rates["denominators"] == {"queries": 180, "commonsense_checks": 1440, "hard_checks": 420}
    assert [rates[name] for name in names] == [105 / 180, 572 / 1440, 2 / 180, 39 / 420, 6 / 180, 0.0]


def gold_queries(states):
    """(query, gold plan) of the 45 training queries; what the checks need is read off the reference information."""
    for reference, record in zip(
        lines("train/train_ref_info.jsonl"), lines("train/std_travelplanner.jsonl"), strict=True
    ):
        plan = ast.literal_eval(record["messages"][-1]["content"])
        cities = [key.removeprefix("Attractions in ") for key in reference if key.startswith("Attractions in ")]
        flights = [re.fullmatch(r"Flight from (.+) to (.+) on 2022-(\d\d)-(\d\d)", key) for key in reference]
        days = sum(day != {} for day in plan)
        dest = cities[0] if days == 3 else states[cities[0]]
        org = next(flight[1] for flight in flights if flight)
        text = record["messages"][1]["content"]
        assert dest in text.rpartition("Query:")[2]
        yield Query("1", org, dest, days, (), len(cities), 1, 1e9, None, (), None, None, "easy", ""), plan


@needs_data
def test_all_gold_plans_pass_the_commonsense_checks(official):
    golds = list(gold_queries(official.tables.states))
    assert len(golds) == 45
    for query, plan in golds:
        verdict = evaluate(query, read_plan(plan, query), official.tables)
        assert verdict.failures == {}
        assert verdict.passed


@needs_data
def test_reference_information_of_the_hub_is_a_literal():
    """The training prompts hold it as the hub's CSV does."""
    for record in lines("train/std_travelplanner.jsonl"):
        text = record["messages"][1]["content"].partition("[{")[2].rpartition("\nQuery:")[0]
        assert all(part.keys() == {"Description", "Content"} for part in ast.literal_eval("[{" + text))


@needs_data
def test_the_subset_is_complete(official):
    tasks = official.tasks()
    assert [task.spec["id"] for task in tasks] == [str(i) for i in range(61, 181)]
    assert [sum(task.family == level for task in tasks) for level in ("easy", "medium", "hard")] == [0, 60, 60]
    queries = [query for query, _ in load_queries(DATA, "validation")]
    assert sum(hard_checks(query) for query in queries) == 360
    assert dataclasses.replace(queries[0], text="") == Query(
        id="61",
        org="New York",
        dest="Reno",
        days=3,
        dates=("2022-03-14", "2022-03-15", "2022-03-16"),
        cities=1,
        people=4,
        budget=11300,
        house_rule="children under 10",
        cuisines=(),
        room_type=None,
        transportation=None,
        level="medium",
        text="",
    )


@needs_data
def test_hostile_plans_get_a_verdict(official):
    task = official.tasks()[-1]
    day = dict.fromkeys(("current_city", "transportation", "attraction"), "from " * 100_000)
    for plan in (
        [{}] * 10_000,
        [day] * 10_000,
        [{"current_city": "x", **{str(i): float("nan") for i in range(100_000)}}],
        [{"current_city": "from x" + " to" * 600, "transportation": "taxi from" + " " * 1900, "attraction": ",New York;" * 200}] * 7,
        "[" * 1_000_000,
        "[{" * 500_000,
    ):  # fmt: skip
        assert official.replay(task, plan).value == 0.0
