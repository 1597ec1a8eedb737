"""How many tasks a round asks for, and tasks that are not written anew: a fixed set, played again and again.

A set passes the gate in round 1. It is the candidates of that round that were admitted, so that it stands in the store like any other task, and which of it a
round plays is a function of the round's number: nothing else is remembered, and a resumed run goes on exactly.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

from genenv.config.sections import Config
from genenv.contracts.errors import InputError
from genenv.contracts.types import Candidate, Sample, Seed, Task, derive_seed

SET_SEED = "privileged set"
"""Apart from the held-out tasks, which the same stream gives under another seed."""

ASKS = 8
"""How often candidates are asked for until there are as many tasks as are needed."""


def groups(tasks: int, replay: float) -> int:
    """Groups of a round: fresh tasks and `replay` old ones for each, rounded."""
    return tasks + round(replay * tasks)


def quota(config: Config, number: int, seeds: int, tried: int) -> tuple[int, int]:
    """(tasks that round `number` needs, how often it may ask for candidates), with `tried` tasks in D_train to replay."""
    tasks, replay, curriculum = config.simulator.tasks, config.agent.replay, config.curriculum
    if curriculum.source == "simulator":
        if not config.simulator.fill:
            return tasks, 1
        return groups(tasks, replay) - min(round(replay * tasks), tried), ASKS
    if number > 1:
        return 0, 0
    return (seeds, 1) if curriculum.source == "seeds" else (round(curriculum.set_size * seeds), ASKS)


def given(seed: Seed) -> Candidate:
    """A known specification as a candidate that no policy wrote: no tokens, so none are counted."""
    text = json.dumps(seed.spec, separators=(",", ":"), ensure_ascii=False)
    return Candidate(
        (), Sample((), (), stopped=True, policy_version=-1), text, seed.family, "similar", seed.id, seed.spec
    )


def turn(tasks: Sequence[Task], number: int, count: int, seed: int) -> list[Task]:
    """Which `count` tasks of a set round `number` (from 1) plays: the next ones of one shuffled epoch after the other.

    Every epoch has each task once. Those that a round has from the end of one epoch come last in the next, so that no
    task comes twice in a round. Raises InputError if the set is smaller than a round.
    """
    if len(tasks) < count:
        raise InputError(
            f"the set has {len(tasks)} admitted tasks, a round plays {count}: lower simulator.tasks, or raise "
            "curriculum.set_size or the number of seeds"
        )
    places: list[int] = []
    while len(places) < number * count:
        begun = set(places[len(places) // count * count :])
        order = list(range(len(tasks)))
        random.Random(derive_seed(seed, "epoch", len(places) // len(tasks))).shuffle(order)
        places += sorted(order, key=begun.__contains__)
    return [tasks[i] for i in places[(number - 1) * count : number * count]]
