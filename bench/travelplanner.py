"""Speed of TravelPlanner's scorer: reading the files, and scoring a set of plans.

    python bench/travelplanner.py DATA [--plans PREDICTIONS] [--runs 5] [--flights 0]

DATA is the folder of docs/benchmarks/travelplanner.md. PREDICTIONS is a file in the official form, one record a line with
"idx" and "plan"; by default the sample in DATA. `--flights N` measures a flight table of N invented rows as well, for the
time and memory that the full official file takes. Goal: a sample in less than 10 s on one core. Times are CPU time of
one thread, so that other work on the same core does not count.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import tempfile
import time
from pathlib import Path

from genenv.benchmarks.travelplanner.benchmark import TravelPlanner
from genenv.benchmarks.travelplanner.data import load_tables


def score(data: Path, plans: Path, runs: int) -> None:
    records = {str(r["idx"]): r["plan"] for r in map(json.loads, plans.read_text("utf-8").splitlines())}
    times: dict[str, list[float]] = {"queries": [], "tables": [], "scoring": []}
    for _ in range(runs):
        benchmark = TravelPlanner(data)
        start = time.process_time()
        tasks = [task for task in benchmark.tasks() if task.spec["id"] in records]
        times["queries"].append(time.process_time() - start)
        start = time.process_time()
        _ = benchmark.tables
        times["tables"].append(time.process_time() - start)
        start = time.process_time()
        for task in tasks:
            benchmark.replay(task, records[task.spec["id"]])
        times["scoring"].append(time.process_time() - start)
    for name, seconds in times.items():
        low, high = min(seconds), max(seconds)
        print(f"{name:8} {statistics.median(seconds):.3f} s ({low:.3f} to {high:.3f}), {len(tasks)} plans")
    print(f"in all   {sum(map(statistics.median, times.values())):.3f} s (goal 10)")


def flights(data: Path, count: int) -> None:
    cities = [line.split("\t")[0] for line in (data / "database/background/citySet_with_states.txt").open()]
    rng = random.Random(0)
    with tempfile.TemporaryDirectory() as name:
        database = Path(name)
        for table in (data / "database").iterdir():
            if table.name != "flights":
                (database / table.name).symlink_to(table.resolve())
        (database / "flights").mkdir()
        with (database / "flights" / "clean_Flights_2022.csv").open("w") as handle:
            handle.write("Flight Number,Price,DepTime,ArrTime,ActualElapsedTime,FlightDate,")
            handle.write("OriginCityName,DestCityName,Distance\n")
            for i in range(count):
                handle.write(f"F{i:07},{rng.randrange(20, 1500)},15:40,17:04,2 hours 24 minutes,2022-03-16,")
                handle.write(f"{rng.choice(cities)},{rng.choice(cities)},1049.0\n")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start = time.process_time()
        tables = load_tables(database)
        seconds = time.process_time() - start
        mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        print(f"{len(tables.flights):,} flights: {seconds:.1f} s, {mb:,.0f} MB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--plans", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--flights", type=int, default=0)
    options = parser.parse_args()
    score(options.data, options.plans or options.data / "validation" / "example_evaluation.jsonl", options.runs)
    if options.flights:
        flights(options.data, options.flights)
