"""ALFWorld: does every game open and say what its prompt says, what does a random agent win, speed and memory.

    python bench/alfworld.py [--data DIR] [--split valid_unseen] [--walkthroughs FILE] [--limit N] [--random SEED]

Opens the games of the split one after another in a random order; with `--random` plays the random agent as well: what
commands cost is the difference in the CPU time of the workers. Memory is printed for every 20 games. `--walkthroughs`
are JSON lines with `game` and `commands` that must all win. Needs the extra `alfworld` and the games, see
docs/benchmarks/alfworld.md.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from genenv.benchmarks.alfworld.benchmark import SPLITS, Alfworld
from genenv.benchmarks.base import Result
from genenv.contracts.types import Score, Task

BLOCK = 20


def rss_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def children_cpu() -> float:
    """CPU seconds of the workers that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def opened(benchmark: Alfworld, task: Task) -> Score:
    with closing(benchmark.episode(task)) as episode:
        return episode.score(0.0 if episode.possible() else None, "opened")


def over(benchmark: Alfworld, tasks: list[Task], play: Callable[[Task], Score]) -> tuple[list[Score], float]:
    """The scores, and the CPU seconds of the workers."""
    before, start = children_cpu(), time.monotonic()
    scores = []
    largest, together = 0.0, 0.0
    for number, task in enumerate(tasks, 1):
        scores.append(play(task))
        workers = [rss_mb(host._worker._child.pid) for host in benchmark._games._hosts]
        largest, together = max(largest, *workers, 0), max(together, sum(workers))
        if number % BLOCK == 0 or number == len(tasks):
            print(
                f"  {number:4} games {time.monotonic() - start:6.0f} s; MB: this process {rss_mb(os.getpid()):.0f},"
                f" largest worker {largest:.0f}, workers together {together:.0f}",
                flush=True,
            )
            largest, together = 0.0, 0.0
    while benchmark._games._hosts:
        benchmark._games._hosts.pop().close()
    return scores, children_cpu() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--split", choices=SPLITS, default="valid_unseen")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--walkthroughs", type=Path)
    parser.add_argument("--random", type=int, metavar="SEED")
    options = parser.parse_args()
    with closing(Alfworld(options.data, options.split)) as benchmark:
        start = time.process_time()
        tasks = list(benchmark.tasks())
        print(f"{len(tasks)} tasks of {options.split} read in {time.process_time() - start:.1f} s CPU")
        if options.walkthroughs is not None:
            known = {f"json_2.1.1/{task.spec['id']}/game.tw-pddl": task for task in tasks}
            lines = [json.loads(line) for line in options.walkthroughs.read_text("utf-8").splitlines()]
            wins = [benchmark.replay(known[line["game"]], line["commands"]).value == 1.0 for line in lines]
            print(f"walkthroughs: {sum(wins)} of {len(wins)} win", flush=True)
        tasks = random.Random(0).sample(tasks, options.limit or len(tasks))  # rooms of all sizes at all times
        print("opened only:")
        scores, opening = over(benchmark, tasks, lambda task: opened(benchmark, task))
        print(f"  opened {sum(s.value is not None for s in scores)} of {len(scores)}")
        print(f"  {opening / len(tasks):.2f} s CPU a game, workers' start included", flush=True)
        if options.random is None:
            return
        print("random agent:")
        scores, played = over(benchmark, tasks, lambda task: benchmark.random_attempt(task, options.random))
        results = [Result(task.spec["id"], task.family, score) for task, score in zip(tasks, scores, strict=True)]
        print(f"  wins {sum(r.value for r in results):.0f} of {len(results)}; {benchmark.summarize(results)}")
        print(f"  not scored: {[(r.id, r.score.reason) for r in results if r.score.value is None]}")
        steps = sum(r.score.checks["steps"] for r in results)
        print(f"  {steps} commands, {steps / (played - opening):.0f} a CPU second, {steps / played:.0f} with opening")


if __name__ == "__main__":
    main()
