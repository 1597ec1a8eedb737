"""The world `travel` in figures: what the gate admits, whether it holds elsewhere, how fast all of it is.

    python bench/worlds_travel.py [--specs 1000] [--tried 150] [--seed 0] [--official]

Specifications come from a fuzzer; one in four is damaged so that most of those are no tasks. Everything admitted is judged
a second time by the official rules alone, with the query read from the prompt's words and tables generated again; for
`--tried` small queries all plans are tried and must agree with the solver on the cost of the cheapest one. Three-day trips
and compact plans as in the demo, or with `--official` trips of 3, 5 and 7 days and JSON. Times are CPU time of one thread.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from pathlib import Path

from genenv.contracts.domain import SpecError
from genenv.contracts.types import Json
from genenv.domains.travel.domain import Travel
from genenv.domains.travel.solver import cheapest_trip
from genenv.domains.travel.spec import TravelSpec
from genenv.domains.travel.trip import NoTrip
from genenv.domains.travel.world import Size
from genenv.loop.gate import Gate

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from travel_oracle import cheapest_by_trying, second_verdict

WRONG: list[Json] = [None, "", "Atlantis", -1, 0, 4, 9, 10**9, 0.5, True, [], ["Thai", "Thai"], {}, "x" * 5000]


def fuzzed(domain: Travel, rng: random.Random) -> dict[str, Json]:
    """A specification; a quarter of them with a field dropped, added or replaced by nonsense or another field's value."""
    spec = domain.random_spec(rng.choice(domain.families), "simulator", rng)
    if rng.random() < 0.25:
        name = rng.choice(list(spec))
        kind = rng.randrange(4)
        if kind == 0:
            del spec[name]
        elif kind == 1:
            spec["date"] = "2022-03-16"
        else:
            spec[name] = rng.choice(WRONG if kind == 2 else list(spec.values()))
    return spec


def admission(days: tuple[int, ...], compact: bool, specs: int, seed: int) -> None:
    form = "compact" if compact else "official"
    domain, fresh = Travel(days=days, plan=form), Travel(days=days, plan=form)
    gate, rng = Gate(domain, domain.heldout(200, seed + 1)), random.Random(seed)
    reasons: Counter[str] = Counter()
    tasks = []
    start = time.process_time()
    for _ in range(specs):
        try:
            task = domain.build(fuzzed(domain, rng))
        except SpecError as error:
            reasons[error.reason] += 1
            continue
        verdict = gate.judge(task)
        reasons[verdict.reason] += 1
        if verdict.admitted:
            tasks.append(task)
    seconds = time.process_time() - start
    failures = [why for task in tasks if (why := second_verdict(domain, fresh, task))]
    print(f"{specs} specifications, {', '.join(f'{n} {reason}' for reason, n in reasons.most_common())}")
    print(f"admitted {len(tasks) / specs:.1%}, {specs / seconds:.0f} decisions a second")
    print(f"fail in a second run: {len(failures)} {failures[:1] or ''}")
    start, turns = time.process_time(), 0
    for task in tasks:
        episode = domain.episode(task)
        for text in domain.reference(task):
            step, turns = episode.step(text), turns + 1
        assert step.score is not None
    seconds = time.process_time() - start
    print(f"{len(tasks) / seconds:.0f} episodes a second, {turns / len(tasks):.1f} turns each")


def solving(days: int, size: Size, tried: int, seed: int) -> None:
    """Times the solver on queries of one length and tries all plans of the first `tried`."""
    domain, rng = Travel(seed, (days,), size=size), random.Random(seed)
    world = domain.world("seed")
    specs = [domain.random_spec(domain.families[i % 3], "seed", rng) for i in range(max(tried, 200))]
    queries = [TravelSpec.model_validate(spec).query() for spec in specs]
    costs: list[int | None] = []
    start = time.process_time()
    for query in queries:
        try:
            costs.append(cheapest_trip(world, query).cost)
        except NoTrip:
            costs.append(None)
    rate = len(queries) / (time.process_time() - start)
    other = sum(cheapest_by_trying(q, world) != cost for q, cost in zip(queries[:tried], costs, strict=False))
    solved = sum(cost is not None for cost in costs)
    print(
        f"{days} days, {size.cities} cities, {size.restaurants} restaurants: {rate:.0f} solves a second, {solved} of"
        f" {len(queries)} have a trip; all plans tried for {tried}, {other} differ"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--specs", type=int, default=1000)
    parser.add_argument("--tried", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--official", action="store_true")
    options = parser.parse_args()
    admission((3, 5, 7) if options.official else (3,), not options.official, options.specs, options.seed)
    solving(3, Size(), options.tried, options.seed)
    solving(5, Size(cities=9, restaurants=3, attractions=2, rooms=2), options.tried // 5, options.seed)
    solving(7, Size(), 0, options.seed)
    solving(7, Size(cities=60, states=6, restaurants=12, attractions=6, rooms=8), 0, options.seed)
