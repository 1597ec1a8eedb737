"""Speed of the sandbox: checks per second and the latency of one check, medians of several runs.

    python bench/sandbox.py [--runs 5] [--seconds 2]

Goals: 1000 checks a second in monty on one core, 100 a second under bubblewrap with warm workers on two cores.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from genenv.sandbox.pool import Backend, Sandbox

CHECKERS = {
    "short": "def check(answer):\n    return answer.strip() == '42'\n",
    "longer": (
        "import json, re\n"
        "def check(answer):\n"
        "    words = re.findall(r'[a-z]+', answer.lower())\n"
        "    counts = {}\n"
        "    for word in words:\n"
        "        counts[word] = counts.get(word, 0) + 1\n"
        "    best = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:3]\n"
        "    return json.dumps(best) == json.dumps([['the', 40], ['cat', 20], ['mat', 20]])\n"
    ),
}
ANSWERS = {"short": " 42\n", "longer": "The cat sat on the mat. " * 20}


def rate(check: Callable[[], None], threads: int, seconds: float) -> float:
    """Checks per second, all threads together."""
    end = time.perf_counter() + seconds

    def work(_: int) -> int:
        done = 0
        while time.perf_counter() < end:
            check()
            done += 1
        return done

    start = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        done = sum(pool.map(work, range(threads)))
    return done / (time.perf_counter() - start)


def latency(check: Callable[[], None], times: int) -> float:
    """Median seconds of one check."""
    measured = []
    for _ in range(times):
        start = time.perf_counter()
        check()
        measured.append(time.perf_counter() - start)
    return statistics.median(measured)


def measure(backend: Backend, threads: int, goal: int, runs: int, seconds: float) -> None:
    for name, source in CHECKERS.items():
        with Sandbox(backend=backend, workers=threads) as sandbox:

            def check(source: str = source, answer: str = ANSWERS[name], sandbox: Sandbox = sandbox) -> None:
                outcome = sandbox.check(source, answer)
                if outcome.value != 1.0:
                    raise SystemExit(f"{backend}: expected a right answer, found {outcome}")

            start = time.perf_counter()
            check()
            first = time.perf_counter() - start
            rates = sorted(rate(check, threads, seconds) for _ in range(runs))
            one = statistics.median(latency(check, 50) for _ in range(runs))
            print(
                f"{backend:10} {name:7} {threads} worker(s)  {statistics.median(rates):7.0f}/s "
                f"({rates[0]:.0f} to {rates[-1]:.0f}, goal {goal})  one check {1000 * one:.2f} ms, first {1000 * first:.0f} ms"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    options = parser.parse_args()
    measure("monty", 1, 1000, options.runs, options.seconds)
    if shutil.which("bwrap"):
        measure("bubblewrap", 2, 100, options.runs, options.seconds)
    else:
        print("bubblewrap: not installed, not measured")


if __name__ == "__main__":
    main()
