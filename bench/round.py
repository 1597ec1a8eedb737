"""What a round costs beside the agent's own work, and how it grows.

python bench/round.py overhead [--rounds 12]      share of simulator, gate, store and report in a round of the demo
python bench/round.py growth                      seconds and memory by tasks, group size, tokens per answer
python bench/round.py memory [--rounds 200]       resident memory over many rounds
python bench/round.py pool                        draws and memory of a pool of a million tasks
"""

from __future__ import annotations

import argparse
import random
import resource
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from genenv.config.load import load_config
from genenv.config.sections import Config
from genenv.loop.coevolve import CoEvolution
from genenv.loop.pools import Pool
from genenv.reports.run_page import write_report
from genenv.session import new_run

DEMO = Path("demo")
AGENT = ("interact", "update_agent")
BOOKS = ("gate", "store", "report")


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def clocked(owner: Any, name: str, spent: dict[str, float], key: str) -> None:
    """Add the time spent in a method of an object to `spent[key]`."""
    method: Callable[..., Any] = getattr(owner, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return method(*args, **kwargs)
        finally:
            spent[key] += time.perf_counter() - start

    setattr(owner, name, call)


def game(config: Config, folder: str, on_round: Callable[[dict[str, Any]], None] = lambda metrics: None) -> CoEvolution:
    return new_run(config, Path(folder) / "run", lambda stage, figures: on_round(dict(figures)) if stage == "round" else None)  # fmt: skip


def overhead(rounds: int, threads: int) -> None:
    config = load_config(DEMO, [f"rounds={rounds}", f"engine.threads={threads}", "eval.tasks=0"])
    with tempfile.TemporaryDirectory() as folder:
        run = game(config, folder)
        spent: dict[str, float] = defaultdict(float)
        clocked(run.gate, "admit", spent, "gate")
        for name in ("commit_round", "first_success"):
            clocked(run.store, name, spent, "store")
        clocked(run.store.checkpoints, "save", spent, "store")
        start = time.perf_counter()
        run.run()
        total = time.perf_counter() - start
        begin = time.perf_counter()
        write_report(run.store, Path(folder) / "report.html")
        spent["report"] = time.perf_counter() - begin
        for stage in run.store.timings():
            for name, seconds in stage["seconds"].items():
                spent[name] += seconds
        spent["generate"] -= spent["gate"]
        run.store.close()
    total += spent["report"]
    for name, seconds in sorted(spent.items(), key=lambda item: -item[1]):
        print(f"{name:<18} {seconds / rounds:7.3f} s a round  {100 * seconds / total:5.1f} %")
    agent, books = (sum(spent[n] for n in names) for names in (AGENT, BOOKS))
    print(f"beyond the agent's own work {100 * (total - agent) / total:.1f} % (goal 35)")
    print(f"gate, store and report      {100 * books / total:.1f} % (goal 5)")


def growth(threads: int) -> None:
    print("tasks  group  tokens   s/round  peak MiB so far")
    for tasks, group, tokens in [(8, 8, 160), (16, 8, 160), (32, 8, 160), (64, 8, 160), (16, 4, 160), (16, 16, 160),
                                 (16, 32, 160), (16, 8, 40), (16, 8, 80), (16, 8, 320)]:  # fmt: skip
        settings = [
            f"simulator.tasks={tasks}", f"agent.group_size={group}", f"agent.max_tokens={tokens}", "rounds=4",
            "eval.tasks=0", f"engine.threads={threads}",
        ]  # fmt: skip
        seconds: list[float] = []
        with tempfile.TemporaryDirectory() as folder:
            run = game(load_config(DEMO, settings), folder, lambda m, s=seconds: s.append(sum(m["seconds"].values())))
            run.run()
            run.store.close()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{tasks:5}  {group:5}  {tokens:6}  {statistics.median(seconds[1:]):8.2f}  {peak:8.0f}", flush=True)


def memory(rounds: int, threads: int) -> None:
    settings = [
        "simulator.tasks=8", "agent.group_size=4", "agent.max_tokens=80", f"rounds={rounds}", "eval.tasks=0",
        f"engine.threads={threads}",
    ]  # fmt: skip
    sizes: list[float] = []
    seconds: list[float] = []

    def note(metrics: dict[str, Any]) -> None:
        sizes.append(resident_mb())
        seconds.append(sum(metrics["seconds"].values()))
        if len(sizes) % max(1, rounds // 10) == 0:
            print(f"round {len(sizes):4}  {sizes[-1]:7.0f} MiB  {statistics.median(seconds[-20:]):6.2f} s", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        run = game(load_config(DEMO, settings), folder, note)
        run.run()
        run.store.close()
    half = len(sizes) // 2
    print(f"mean of the second quarter {statistics.mean(sizes[half // 2 : half]):.0f} MiB, of the last"
          f" {statistics.mean(sizes[half + half // 2 :]):.0f} MiB")  # fmt: skip


def pool() -> None:
    for size in (1_000, 10_000, 100_000, 1_000_000):
        rng = random.Random(0)
        before = resident_mb()
        tasks = Pool(capacity=2_000_000)
        start = time.perf_counter()
        for i in range(size):
            tasks.put(f"{i:016x}", rng.random())
        filled = time.perf_counter() - start
        times = []
        for _ in range(50):
            start = time.perf_counter()
            tasks.draw(16, rng)
            times.append(time.perf_counter() - start)
        print(f"{size:9,} tasks: {1e6 * filled / size:4.1f} us to put one, {1e3 * statistics.median(times):6.2f} ms to draw 16"
              f" (at most {1e3 * max(times):.2f}), {resident_mb() - before:.0f} MiB")  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["overhead", "growth", "memory", "pool"])
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    if options.what == "overhead":
        overhead(options.rounds or 12, options.threads)
    elif options.what == "growth":
        growth(options.threads)
    elif options.what == "memory":
        memory(options.rounds or 200, options.threads)
    else:
        pool()
