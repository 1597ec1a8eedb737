"""An agent on a domain's held-out tasks: the score that `genenv eval` prints for a run."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from genenv.contracts.domain import Playable
from genenv.contracts.engine import Policy
from genenv.contracts.types import Json, Task, derive_seed
from genenv.evaluation.own_files import failures
from genenv.loop.rollouts import PlayConfig, play


def evaluate(agent: Policy, domain: Playable, tasks: Sequence[Task], config: PlayConfig, seed: int) -> dict[str, Json]:
    """Mean score over all attempts and by family, and how many could not be read or scored: these count as wrong."""
    attempts = play(agent, agent.chat, domain, tasks, config, derive_seed(seed, "eval"))
    scores: dict[str, list[float]] = {}
    for task, group in zip(tasks, attempts, strict=True):
        scores.setdefault(task.family, []).extend(t.score.value or 0.0 for t in group)
    return {
        "score": fmean(s for family in scores.values() for s in family),
        "families": {family: fmean(values) for family, values in sorted(scores.items())},
        "tasks": len(tasks),
        "rollouts": config.group_size,
        "temperature": config.temperature,
        **failures([t.score for g in attempts for t in g]),
    }
