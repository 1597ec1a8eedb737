"""Speed of scoring recorded predictions: the gold answers of each benchmark whose official files are there.

    GENENV_DATA=DIR python bench/benchmarks.py [--runs 5]

Goal: less than 10 s for each benchmark on one core. Times are CPU time of one thread, reading the files included. A
benchmark whose files are missing is skipped and said to be.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

from genenv.benchmarks import make_benchmark
from genenv.benchmarks.base import Result
from genenv.contracts.errors import InputError
from genenv.contracts.types import Json, Task


def api_bank(task: Task) -> Json:
    return f"<think>so</think>\n<tool_call>\n{json.dumps(task.target)}\n</tool_call>"


def bamboogle(task: Task) -> Json:
    return f"I think so. <answer>{task.target}</answer>"


GOLD: dict[str, Callable[[Task], Json]] = {"api-bank": api_bank, "bamboogle": bamboogle}
"""The right prediction for a task, by benchmark."""


def score_gold(name: str) -> tuple[int, float]:
    """How many predictions were scored, and the score."""
    benchmark = make_benchmark(name)
    try:
        tasks = benchmark.tasks()
        results = [Result(str(t.spec["id"]), t.family, benchmark.replay(t, GOLD[name](t))) for t in tasks]
        return len(tasks), benchmark.summarize(results)["score"]
    finally:
        benchmark.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    for name in GOLD:
        times = []
        try:
            for _ in range(options.runs):
                start = time.process_time()
                count, score = score_gold(name)
                times.append(time.process_time() - start)
        except InputError as error:
            print(f"{name:<13} skipped: {error}")
            continue
        print(f"{name:<13} {count} answers in {statistics.median(times):.2f} s ({min(times):.2f} to {max(times):.2f}),"
              f" score {100 * score:.1f} %")  # fmt: skip
