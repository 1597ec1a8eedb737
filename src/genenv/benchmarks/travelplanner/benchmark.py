"""TravelPlanner (Xie et al. 2024, arXiv 2402.01622): a whole plan for a trip, sole-planning mode, official verdicts.

One turn: the agent reads the query with the official reference information and writes the plan as JSON. The official
pipeline lets a second model turn free text into that JSON; here the agent writes it itself. The plan is the JSON array
that the last `[` followed by `{` opens, read strictly: no array there, or a malformed one, is no plan, even after a
complete one. A plan that cannot be read is not delivered.

`Score.checks` holds "delivery", the official checks by their official names (true, false, null where a check does not
apply or was not made) and "cost" in dollars. `value` is the final pass, 1 or 0.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from pathlib import Path

from genenv.benchmarks.base import Result, data_folder, mean_by
from genenv.benchmarks.travelplanner.data import HOW, Split, load_queries, load_tables
from genenv.benchmarks.travelplanner.plan import PlanError, Query, read_plan
from genenv.benchmarks.travelplanner.rules import COMMONSENSE, HARD, evaluate, hard_checks
from genenv.benchmarks.travelplanner.tables import Tables
from genenv.contracts.domain import Step
from genenv.contracts.types import Json, Message, Score, Task
from genenv.reading.parsing import decode_json

FLIGHT = "Flight Number: F1234567, from A to B"
PLAN_FORMAT = f"""\
the whole plan as one JSON array, one object for each day in order, with exactly these keys, all values but "days" text:
"days": the number of the day.
"current_city": the city, or "from A to B" on a day on which you move from city A to city B.
"transportation": "{FLIGHT}", or "Self-driving, from A to B", or "Taxi, from A to B".
"breakfast", "lunch", "dinner", "accommodation": "Name, City".
"attraction": one or more, each as "Name, City;".
Use "-" for what is not needed, such as transportation on a day in one city or a room after the return.
Example of one day: {{"days": 2, "current_city": "Springvale", "transportation": "-", "breakfast": "Blue Kettle, \
Springvale", "attraction": "Clock Museum, Springvale;Old Harbour, Springvale;", "lunch": "Noodle Corner, Springvale", \
"dinner": "The Lantern, Springvale", "accommodation": "Loft by the river, Springvale"}}
The array must be the last thing that you write."""
"""How a plan is written, for tables without times; the official ones have them."""
INSTRUCTION = (
    "You plan trips. Take every flight, restaurant, attraction and accommodation from the reference information, and write "
    + PLAN_FORMAT.replace(FLIGHT, f"{FLIGHT}, Departure Time: 08:15, Arrival Time: 10:05")
)

_ARRAY = re.compile(r"\[[ \t\r\n]*\{")


class TravelPlanner:
    """The benchmark. `data` holds `database/` and the queries of `split`. Nothing is read before it is needed."""

    name = "travelplanner"
    max_turns = 1
    max_tokens = 4096

    def __init__(self, data: Path | None, split: Split = "validation") -> None:
        self._folder = data_folder(self.name, data, HOW)
        self._split = split
        self.protocol = (
            f"{split} queries, sole-planning, one turn, the agent writes the JSON itself; official verdicts; score is"
            " the final pass rate"
        )

    @functools.cached_property
    def tables(self) -> Tables:
        return load_tables(self._folder / "database")

    @functools.cached_property
    def _records(self) -> dict[str, tuple[Query, Json]]:
        """Query and reference information by official id."""
        return {query.id: (query, reference) for query, reference in load_queries(self._folder, self._split)}

    def tasks(self) -> Sequence[Task]:
        return [_task(query, reference) for query, reference in self._records.values()]

    def episode(self, task: Task) -> _Episode:
        return _Episode(self, task)

    def replay(self, task: Task, output: Json) -> Score:
        """`output` is the plan, a list of days with the official keys, or the text that the agent wrote."""
        query, _ = self._records[task.spec["id"]]
        try:
            return judge(find_plan(output) if isinstance(output, str) else output, query, self.tables)
        except ValueError as error:
            return undelivered(str(error))

    def summarize(self, results: Sequence[Result]) -> dict[str, Json]:
        """The six official rates (`evaluation/eval.py`) and what they were divided by.

        A check that does not apply counts as passed in the macro rates and as nothing in the micro rates. A plan for which
        no hard checks were made enters no macro rate. For the 180 validation queries the denominators are the official
        180, 1,440 and 420; for fewer they are what these queries add to them.
        """
        n = len(results)
        limits = sum(hard_checks(self._records[result.id][0]) for result in results)
        checks = [result.score.checks for result in results]
        judged = [c for c in checks if c.get("valid_cost") is not None]  # the one hard check that always applies

        def rate(count: int, of: int) -> float:
            return count / of if of else 0.0

        def passes(group: Sequence[str]) -> tuple[int, int]:
            """Checks of the group that were passed, and plans that failed none."""
            micro = sum(c.get(name) is True for c in checks for name in group)
            return micro, sum(not any(c[name] is False for name in group) for c in judged)

        commonsense, hard = passes(list(COMMONSENSE)), passes(list(HARD))
        final = rate(sum(result.value == 1.0 for result in results), n)
        four = {
            "commonsense_micro": rate(commonsense[0], len(COMMONSENSE) * n),
            "commonsense_macro": rate(commonsense[1], n),
            "hard_micro": rate(hard[0], limits),
            "hard_macro": rate(hard[1], n),
        }
        return {
            "score": final,
            "delivery": rate(sum(c.get("delivery") is True for c in checks), n),
            **four,
            "final_pass": final,
            "mean_of_four": sum(four.values()) / 4,
            "denominators": {"queries": n, "commonsense_checks": len(COMMONSENSE) * n, "hard_checks": limits},
            "final_pass_by_level": mean_by(results),
        }

    def close(self) -> None:
        pass


class _Episode:
    def __init__(self, benchmark: TravelPlanner, task: Task) -> None:
        self._benchmark = benchmark
        self._task = task

    def step(self, text: str) -> Step:
        return Step(score=self._benchmark.replay(self._task, text))

    def close(self) -> None:
        pass


def _task(query: Query, reference: Json) -> Task:
    texts = "\n\n".join(f"{part.get('Description', '')}\n{part.get('Content', '')}" for part in reference)
    messages = (
        Message("system", INSTRUCTION),
        Message("user", f"Reference information:\n\n{texts}\n\nQuery: {query.text}"),
    )
    return Task(query.level, messages, (), None, {"id": query.id}, origin="heldout")


def find_plan(text: str) -> Json:
    """The plan in a text, by the module's rule. Raises ValueError with a short reason."""
    start = max((found.start() for found in _ARRAY.finditer(text)), default=None)
    if start is None:
        raise PlanError("no JSON array of objects in the text")
    return decode_json(text, start)[0]


def judge(value: Json, query: Query, tables: Tables) -> Score:
    """The verdict on a plan, a list of days with the official keys. Raises PlanError."""
    plan = read_plan(value, query)
    verdict = evaluate(query, plan, tables)
    hard = verdict.hard or dict.fromkeys(HARD)
    passed = {name: None if why is None else not why for name, why in {**verdict.commonsense, **hard}.items()}
    reason = "; ".join(f"{name}: {why}" for name, why in verdict.failures.items()) or "passed"
    checks = {"delivery": True, **passed, "cost": verdict.cost}
    return Score(float(verdict.passed), reason, [dict(day.fields) for day in plan], checks)


def undelivered(why: str) -> Score:
    """What is earned where there is no plan."""
    return Score(0.0, f"no plan: {why}", checks={"delivery": False, **dict.fromkeys([*COMMONSENSE, *HARD, "cost"])})
