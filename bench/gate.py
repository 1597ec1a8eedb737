"""Speed of the gate: declarative decisions a second with many known tasks, and the index alone at a million.

    python bench/gate.py [--known 100000] [--index 1000000] [--runs 5]

Goal: 2,000 decisions a second on one core with 100,000 known tasks. A decision is a candidate's specification built,
proven by execution and compared; candidates are those of an honest simulator with one repeat in ten. Times are CPU time
of one thread, so that other work on the same core does not count.
"""

from __future__ import annotations

import argparse
import random
import resource
import statistics
import time

from genenv.domains.tool_use.domain import ToolUse
from genenv.loop.gate import Gate
from genenv.loop.near import Known, fingerprint, signature

WORDS = [f"{a}{b}" for a in ("ba", "ke", "li", "mo", "nu", "ra", "se", "ti", "vo", "zu") for b in "bdfgklmnprstvz"]


def request(rng: random.Random) -> str:
    return f"{' '.join(rng.choices(WORDS, k=rng.randint(8, 20)))} at {rng.randrange(1000)}"


def memory_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def decisions(known: int, runs: int) -> None:
    domain = ToolUse()
    gate = Gate(domain)
    rng = random.Random(0)
    start = time.process_time()
    for i in range(known):
        mark = fingerprint(request(rng), [str(i)])
        gate._known.add(mark, f"{i:016x}", gate._known.leader(mark))
    print(f"index of {known:,} filled in {time.process_time() - start:.0f} s, {gate._known.clusters:,} clusters")
    rates = []
    for run in range(runs):
        specs = [s.spec for s in domain.seeds(1000, 1000 + run)]
        specs = [specs[i - 5] if i % 10 == 9 else s for i, s in enumerate(specs)]
        start = time.process_time()
        admitted = sum(gate.judge(domain.build(s)).admitted for s in specs)
        rates.append(len(specs) / (time.process_time() - start))
    print(
        f"decisions  {statistics.median(rates):.0f}/s ({min(rates):.0f} to {max(rates):.0f}, goal 2000),"
        f" {admitted} of {len(specs)} admitted in the last run"
    )


def index(size: int, runs: int) -> None:
    known, rng = Known(), random.Random(1)
    before = memory_mb()
    start = time.process_time()
    for i in range(size):
        mark = fingerprint(request(rng), [str(i)])
        known.add(mark, f"{i:016x}", known.leader(mark))
    seconds = time.process_time() - start
    leaders = known._leaders
    print(f"index of {size:,}: {1e6 * seconds / size:.0f} us a task to fill, {memory_mb() - before:.0f} MB in all,"
          f" {leaders.nbytes / 2**20:.0f} MB of it signatures and tables")  # fmt: skip
    marks = [signature(request(rng)) for _ in range(2000)]
    times = []
    for _ in range(runs):
        start = time.process_time()
        for mark in marks:
            leaders.find(mark)
        times.append((time.process_time() - start) / len(marks))
    print(f"query      {1e6 * statistics.median(times):.0f} us ({1e6 * min(times):.0f} to {1e6 * max(times):.0f})")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--known", type=int, default=100_000)
    parser.add_argument("--index", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    decisions(options.known, options.runs)
    index(options.index, options.runs)
