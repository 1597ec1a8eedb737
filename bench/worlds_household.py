"""The world household: what the gate admits of random specifications, and how fast its two engines play.

    python bench/worlds_household.py [--specs 1000] [--episodes 300] [--games 12] [--seed 0]

A quarter of the specifications is broken on purpose in one place. Each admitted one is executed once more by rules of
their own (`tests/support/house_oracle.py`), which must agree that the reference wins with its last command. Then the same for
edits of admitted specifications. TextWorld is measured where ALFWorld is installed.
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

ROOT = Path(__file__).parents[1]
# instead of this folder, whose alfworld.py is not the package
sys.path[:1] = [str(ROOT / "tests" / "support"), str(ROOT / "scripts")]

import house_oracle  # noqa: E402
from base_text_household import edited  # noqa: E402

from genenv.contracts.domain import SpecError  # noqa: E402
from genenv.contracts.types import Json  # noqa: E402
from genenv.domains.household.domain import Household  # noqa: E402
from genenv.domains.household.seeds import random_spec  # noqa: E402
from genenv.domains.household.things import OBJECTS, PLACES  # noqa: E402
from genenv.domains.household.world import FAMILIES  # noqa: E402
from genenv.loop.gate import Gate  # noqa: E402

BROKEN = 0.25


def broken(spec: Json, rng: random.Random) -> Json:
    """`spec` with one thing that may make it no task."""
    spec = copy.deepcopy(spec)
    goal, places, objects = spec["goal"], spec["places"], spec["objects"]
    entry = rng.choice(objects)
    match rng.randrange(12):
        case 0:
            goal["object"] = rng.choice([*OBJECTS, "unicorn"])
        case 1:
            goal["to"] = rng.choice(PLACES)
        case 2:
            goal["do"] = rng.choice([*FAMILIES, "eat"])
        case 3:
            del places[rng.choice(sorted(places))]
        case 4:
            places[rng.choice(["castle", *PLACES])] = rng.choice([0, 1, 21, -1, "1", 1.0, None])
        case 5:
            entry[0] = rng.choice([*OBJECTS, "unicorn"])
        case 6:
            entry[1] = f"{rng.choice(PLACES)} {rng.randint(0, 3)}"
        case 7:
            entry[2:] = [rng.choice(["clean", "hot", "cool", "burnt"])]
        case 8:
            spec["objects"] = [e for e in objects if e[0] != goal["object"]]
        case 9:
            del spec[rng.choice(sorted(spec))]
        case 10:
            objects.append(rng.choice([[], None, ["apple"], "apple", [1, 2]]))
        case 11:
            spec[rng.choice(["goal", "places", "objects", "more"])] = rng.choice([None, [], {}, 1, "x"])
    return spec


def judge(name: str, gate: Gate, specs: Sequence[Json]) -> list[Json]:
    domain, reasons, admitted, wrong = Household(), Counter[str](), [], 0
    start = time.process_time()
    for spec in specs:
        try:
            task = domain.build(spec)
        except SpecError as error:
            reasons[error.reason] += 1
            continue
        reasons[(verdict := gate.judge(task)).reason] += 1
        if verdict.admitted:
            admitted.append(spec)
            wrong += not house_oracle.wins(spec, domain.reference(task))
    seconds = time.process_time() - start
    print(
        f"{name}: {len(admitted)} of {len(specs)} admitted, {gate._known.clusters} clusters, {len(specs) / seconds:.0f}/s"
    )
    print(f"  {dict(reasons.most_common())}")
    print(f"  admitted whose reference fails in the second run: {wrong}")
    return admitted


def speed(domain: Household, episodes: int, seed: int, clock: Callable[[], float]) -> None:
    tasks = [domain.build(s.spec) for s in domain.seeds(episodes, seed)]
    start, steps, won = clock(), 0, 0
    for task in tasks:
        with closing(domain.episode(task)) as episode:
            for turn in domain.reference(task):
                step = episode.step(turn)
                steps += 1
            won += step.score is not None and step.score.value == 1.0
    seconds = clock() - start
    print(f"  {episodes / seconds:.1f} episodes/s, {steps / seconds:.1f} steps/s, {won} of {episodes} won")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--specs", type=int, default=1000)
    parser.add_argument("--episodes", type=int, default=3000)
    parser.add_argument("--games", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng, domain = random.Random(options.seed), Household()
    specs: list[Json] = []
    for i in range(options.specs):
        spec = random_spec(list(FAMILIES)[i % len(FAMILIES)], rng, max_places=25 if i % 10 == 9 else 8)
        specs.append(broken(spec, rng) if rng.random() < BROKEN else spec)
    heldout = domain.heldout(60, options.seed)
    gate = Gate(domain, heldout)
    admitted = judge("random specifications", gate, specs)
    edits = [edit for spec in admitted for edit in [edited(spec, rng)] if edit != spec][:300]
    judge("edits of admitted ones", gate, edits)
    lengths = [domain.build(spec).target["depth"] for spec in admitted]
    print(f"depth of the admitted: mean {statistics.mean(lengths):.1f}, {min(lengths)} to {max(lengths)} commands")
    print("built-in engine, the reference as agent, CPU time")
    speed(domain, options.episodes, options.seed, time.process_time)
    if importlib.util.find_spec("alfworld") is None:
        print("TextWorld: not installed")
        return
    print("TextWorld, one game at a time, loading included, wall time")
    with closing(Household("textworld")) as games:
        speed(games, options.games, options.seed, time.perf_counter)


if __name__ == "__main__":
    main()
