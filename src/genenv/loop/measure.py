"""Stage 3: what the attempts say of the tasks (Eq. 2), and what these earn the simulator (Eq. 3)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from statistics import fmean

from genenv.loop.edits import outcome
from genenv.loop.game import Game, Round, mean
from genenv.loop.rewards import empirical_success, task_reward, without_ends
from genenv.loop.updates import has_signal


def reward(game: Game, this: Round) -> None:
    """p_hat and R_env of the fresh tasks (Eq. 2 and 3). Rejected candidates have neither."""
    curriculum = game.config.curriculum
    success = {g.task.id: empirical_success(g.rewards) for g in this.fresh}
    known = [p for p in success.values() if p is not None]
    by_fam: dict[str, list[float]] = {}
    for group in this.fresh:
        if (p := success[group.task.id]) is not None:
            by_fam.setdefault(group.task.family, []).append(p)
    for i, record in enumerate(this.records):
        if record.task is None or not record.verdict.admitted or (own := success.get(record.task.id)) is None:
            continue
        p_hat = {"task": own, "family": fmean(by_fam[record.task.family]), "batch": fmean(known)}[curriculum.p_hat]
        reward = task_reward(curriculum.reward, p_hat, curriculum.alpha, curriculum.beta)
        this.records[i] = replace(record, p_hat=own, reward=reward)
    _judge_edits(game, this)
    measured = [(task, p) for task, p in success.items() if p is not None]
    kept = without_ends([p for _, p in measured], curriculum.drop)
    this.dropped = {task for task, _ in measured} - {measured[i][0] for i in kept}
    rewarded = [r for r in this.records if r.reward is not None]
    sizes = game.pools.cluster_sizes([r.verdict.cluster for r in rewarded], curriculum.share)
    stuck = set(game.pools.stuck())
    this.divisors = {
        r.task.id: n / (curriculum.stuck if r.task.family in stuck else 1.0)
        for r, n in zip(rewarded, sizes, strict=True)
        if r.task is not None
    }
    trajectories = [t for g in this.groups for t in g.trajectories]
    replayed = [p for g in this.groups if g.replayed and (p := empirical_success(g.rewards)) is not None]
    this.metrics |= {
        "success": fmean(known) if known else None,
        "success_replayed": fmean(replayed) if replayed else None,
        "families": {f: {"tasks": len(ps), "success": fmean(ps)} for f, ps in sorted(by_fam.items())},
        "solved_all": sum(p == 1.0 for p in known),
        "solved_none": sum(p == 0.0 for p in known),
        "tasks_in_band": sum(0.4 <= p <= 0.6 for p in known),
        "dropped": len(this.dropped),
        "useful_groups": sum(has_signal(g) for g in this.groups),
        "groups": len(this.groups),
        "unscored": sum(t.score.value is None for t in trajectories),
        "simulator_reward": mean([r.reward for r in rewarded if r.reward is not None]),
        "simulator_earned": sum((r.reward or 0.0) / this.divisor(r) for r in rewarded),
        "agent_rollouts": len(trajectories),
        "agent_tokens": sum(t.written for t in trajectories),
        "prompt_length": mean([t.prompt_length for t in trajectories]),
        "response_length": mean([t.written for t in trajectories]),
        "cut_off": sum(t.stop == "length" for t in trajectories),
    }


def _judge_edits(game: Game, this: Round) -> None:
    """Edits that did not move success as they were asked to earn nothing."""
    before = {g.task.id: empirical_success(g.rewards) for g in this.groups if g.replayed}
    counts: dict[str, Counter[str]] = {}
    for i, record in enumerate(this.records):
        if (parent := record.candidate.parent) is None:
            continue
        count = counts.setdefault(record.candidate.direction, Counter())
        count["asked"] += 1
        if record.verdict.admitted:
            found = outcome(record.candidate.direction, before[parent], record.p_hat)
            count["admitted"] += 1
            count[found] += 1
            reward = record.reward if found == "accepted" else None
            this.records[i] = replace(record, outcome=found, reward=reward)
    this.metrics["edits"] = {d: dict(sorted(c.items())) for d, c in sorted(counts.items())}
