"""Specifications written by a world's built-in simulator, through the gate and then through a second run of another kind.

    python bench/worlds_simulator.py household|multihop_qa|travel [--specs 1000] [--seed 0]

The simulator is the built-in base model of the world as it ships, before any training, asked for new tasks of all families
in all directions. The second run is that of `bench/worlds_<world>.py`: rules and parsers of their own.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

ROOT = Path(__file__).parents[1]
# before this folder, whose alfworld.py is not the package
sys.path[:1] = [str(ROOT / "tests" / "support"), str(ROOT / "bench")]

from genenv.config.load import build_config  # noqa: E402
from genenv.contracts.types import Direction, Task, derive_seed  # noqa: E402
from genenv.loop.gate import Gate  # noqa: E402
from genenv.loop.simulator import Order, write  # noqa: E402
from genenv.session import make_domain, make_engine  # noqa: E402

BATCH = 100
OPTIONS = {"travel": {"days": [3], "plan": "compact"}}


def second_run(world: str, domain: Any) -> Callable[[Task], bool]:
    """Whether an admitted task is solved by its reference, by other means than the domain's own."""
    if world == "household":
        import house_oracle

        return lambda task: house_oracle.wins(task.spec, domain.reference(task))
    if world == "multihop_qa":
        import worlds_multihop_qa as qa

        return lambda task: qa.second_run(domain, task) == 1.0 and qa.looked_up(task) == task.target["answer"]
    from travel_oracle import second_verdict

    fresh = make_domain(build_config({"domain": {"name": world, "options": OPTIONS[world]}}, "bench").domain)
    return lambda task: not second_verdict(domain, fresh, task)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("world", choices=["household", "multihop_qa", "travel"])
    parser.add_argument("--specs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    world = options.world
    raw = {
        "domain": {"name": world, "options": OPTIONS.get(world, {})},
        "engine": {"model": f"builtin:{world}", "threads": options.threads},
    }
    config = build_config(raw, "bench")
    domain, engine = make_domain(config.domain), make_engine(config.engine, options.seed)
    gate, holds = Gate(domain, domain.heldout(60, derive_seed("heldout"))), second_run(world, domain)
    rng = random.Random(options.seed)
    seeds = domain.seeds(200, derive_seed("seeds"))
    reasons: Counter[str] = Counter()
    failed, written, start = 0, 0, time.perf_counter()
    while written < options.specs:
        count = min(BATCH, options.specs - written)
        orders = [Order(rng.choice(seeds), rng.random(), rng.choice(get_args(Direction))) for _ in range(count)]
        key = derive_seed(options.seed, written)
        policy = engine.policy("simulator")
        for candidate in write(policy, policy.chat, domain, orders, config.simulator, key):
            task, verdict = gate.admit(candidate)
            reasons[verdict.reason] += 1
            failed += verdict.admitted and task is not None and not holds(task)
        written += count
    seconds = time.perf_counter() - start
    print(f"{world}: {written} specifications by the simulator in {seconds:.0f} s: {dict(reasons.most_common())}")
    print(f"admitted {reasons['admitted'] / written:.1%}; of them failed the second run: {failed}")


if __name__ == "__main__":
    main()
