"""Speed of BFCL's official verdict: the 800 reference answers, one core, medians of several runs.

    python bench/bfcl.py [--runs 5]

Goal: 800 answers in 10 seconds.
"""

from __future__ import annotations

import argparse
import statistics
import time

from genenv.benchmarks.bfcl.benchmark import Bfcl

GOAL = 10.0
"""Seconds for all samples."""


def measure(runs: int) -> None:
    """Prints seconds to load the samples, to score the reference answers, and to play one step of an episode."""
    benchmark = Bfcl(None)
    start = time.perf_counter()
    tasks = benchmark.tasks()
    loading = time.perf_counter() - start
    answers = [[[[call] for call in turn] for turn in task.target["ground_truth"]] for task in tasks]

    start = time.perf_counter()
    benchmark.replay(tasks[0], answers[0])
    first = time.perf_counter() - start

    def score() -> float:
        start = time.perf_counter()
        values = [benchmark.replay(task, answer).value for task, answer in zip(tasks, answers, strict=True)]
        if values != [1.0] * len(tasks):
            raise SystemExit(f"expected {len(tasks)} valid reference answers, found {values.count(1.0)}")
        return time.perf_counter() - start

    def step() -> float:
        start = time.perf_counter()
        for task, answer in zip(tasks, answers, strict=True):
            benchmark.results(task, answer)
        return (time.perf_counter() - start) / len(tasks)

    scores = sorted(score() for _ in range(runs))
    one = statistics.median(step() for _ in range(runs))
    benchmark.close()
    print(
        f"bfcl: load {len(tasks)} samples {loading:.1f} s, start and first verdict {first:.2f} s, "
        f"{len(tasks)} verdicts {statistics.median(scores):.1f} s ({scores[0]:.1f} to {scores[-1]:.1f}, goal {GOAL:.0f}), "
        f"the last step of an episode {1000 * one:.1f} ms"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    measure(parser.parse_args().runs)
