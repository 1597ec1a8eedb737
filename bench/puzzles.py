"""Every data set of reasoning-gym through the gate: `python bench/puzzles.py [PUZZLES_EACH] [MAX_LEVEL] > table.md`."""

from __future__ import annotations

import random
import sys
import time
from collections import Counter

from reasoning_gym.factory import DATASETS

from genenv.contracts.domain import SpecError, released
from genenv.contracts.types import derive_seed
from genenv.domains.reasoning_gym.domain import REFUSED, ReasoningGym
from genenv.loop.gate import Gate

TIMEOUT = 10.0


def verdicts(domain: ReasoningGym, name: str, count: int) -> tuple[Counter[str], str, float]:
    """Verdicts on `count` specifications with even levels and seeds, an example of why not, seconds each."""
    reasons: Counter[str] = Counter()
    detail, began = "", time.perf_counter()
    gate, rng = Gate(domain), random.Random(derive_seed("bench", name))
    for _ in range(count):
        try:
            verdict = gate.judge(domain.build(domain.random_spec(name, rng).model_dump()))
            reason, why = verdict.reason, verdict.detail
        except SpecError as error:
            reason, why = error.reason, error.detail
        reasons[reason] += 1
        if reason != "admitted":
            detail = " ".join(why.replace("|", "/").split())[:90] or detail
    return reasons, detail, (time.perf_counter() - began) / count


def main() -> None:
    count, max_level = (int(x) for x in [*sys.argv[1:], "20", "4"][:2])
    print("| data set | admitted | otherwise | for example | seconds each |\n|---|---|---|---|---|")
    names = sorted(DATASETS.keys() - REFUSED)
    with released(ReasoningGym(names, max_level, timeout=TIMEOUT)) as domain:
        for name in names:
            reasons, detail, seconds = verdicts(domain, name, count)
            others = ", ".join(f"{reason} {n}" for reason, n in reasons.most_common() if reason != "admitted")
            print(f"| `{name}` | {reasons['admitted']} | {others} | {detail} | {seconds:.2f} |", flush=True)


if __name__ == "__main__":
    main()
