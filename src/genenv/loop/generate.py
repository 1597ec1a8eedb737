"""Stage 1: pi_env writes candidates, and the gate says which of them are tasks."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence

from genenv.contracts.types import Candidate, Seed, derive_seed
from genenv.loop.alarms import alarms, variety
from genenv.loop.game import Game, Round
from genenv.loop.simulator import plan, write
from genenv.loop.sources import SET_SEED, given, quota
from genenv.runs.records import CandidateRecord


def generate(game: Game, this: Round) -> None:
    """pi_env writes candidates, in each round or a set in round 1; the gate admits some."""
    count, asks = quota(game.config, this.number, sum(map(len, game.seeds.values())), len(game.pools.train))
    for ask in range(asks):
        if missing := count - sum(r.verdict.admitted for r in this.records):
            if game.config.curriculum.source == "privileged":
                _draw(game, this, missing, ask)
            else:
                _admit(game, this, _ask(game, this, missing, ask))
    reasons = Counter(r.verdict.reason for r in this.records)
    admitted = reasons.pop("admitted", 0)
    this.metrics |= {
        "round": this.number,
        "candidates": len(this.records),
        "admitted": admitted,
        "rejected": dict(sorted(reasons.items())),
        "simulator_tokens": sum(len(r.candidate.sample.tokens) for r in this.records),
    }
    _watch(game, this)


def _ask(game: Game, this: Round, count: int, ask: int) -> list[Candidate]:
    """The first candidates of a round (`ask` 0), or some more. All seeds come at once."""
    config, curriculum = game.config.simulator, game.config.curriculum
    if curriculum.source == "seeds":
        return [given(seed) for family in sorted(game.seeds) for seed in game.seeds[family]]
    again = (ask,) if ask else ()
    orders = plan(
        game.seeds, game.pools, functools.partial(_parent, game), curriculum, count, game.key(this, "plan", *again)
    )
    key = game.key(this, "write", *again)
    return write(game.simulator, game.simulator.chat, game.domain, orders, config, key)


def _draw(game: Game, this: Round, count: int, ask: int) -> None:
    """Tasks as held-out tasks are drawn, with what simulators may not use in them, through the gate's proof."""
    for task in game.domain.heldout(count, derive_seed(SET_SEED, game.config.seed, ask)):
        candidate = given(Seed(task.family, task.spec))
        this.records.append(CandidateRecord(candidate, game.gate.judge(task), task))


def _admit(game: Game, this: Round, candidates: Sequence[Candidate]) -> None:
    for candidate in candidates:
        edited = game.store.task(candidate.parent) if candidate.parent is not None else None
        task, verdict = game.gate.admit(candidate, edited)
        this.records.append(CandidateRecord(candidate, verdict, task))


def _watch(game: Game, this: Round) -> None:
    """Alarms about all tasks of the round, rejected duplicates included."""
    curriculum = game.config.curriculum
    built = [(r.task.family, r.candidate.family, r.verdict.cluster) for r in this.records if r.task is not None]
    written, asked, clusters = ([b[i] for b in built] for i in range(3))
    found = alarms(written, asked, clusters, game.usual_variety, curriculum.alarm_share, curriculum.alarm_variety)
    this.metrics |= {"variety": variety(clusters), "alarms": found}
    for message in found:
        game.progress("alarm", {"round": this.number, "message": message})


def _parent(game: Game, task_id: str) -> tuple[Seed, float | None]:
    task, first = game.store.task(task_id), game.store.first_success(task_id)
    return Seed(task.family, task.spec), first[1] if first else None
