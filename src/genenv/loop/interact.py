"""Stage 2: pi_agent tries every task G times; and the same on the held-out tasks, from which nobody learns."""

from __future__ import annotations

import random
from dataclasses import replace
from statistics import fmean

from genenv.contracts.types import Group, derive_seed
from genenv.loop.game import Game, Round
from genenv.loop.rollouts import play
from genenv.loop.sources import groups, turn


def interact(game: Game, this: Round) -> None:
    """pi_agent tries every admitted task, and some from D_train again: first those that were edited."""
    fresh = [r.task for r in this.records if r.verdict.admitted and r.task is not None]
    if game.config.curriculum.source != "simulator":
        whole = fresh or list(game.store.admitted())
        fresh = turn(whole, this.number, game.config.simulator.tasks, game.config.seed)
    rng = random.Random(game.key(this, "replay"))
    edited = dict.fromkeys(t.parent for t in fresh if t.parent is not None)
    wanted = game.config.simulator.tasks if game.config.simulator.fill else len(fresh)
    count = groups(wanted, game.config.agent.replay) - len(fresh)
    drawn = [i for i in game.pools.train.draw(count, rng) if i not in edited]
    ids = [*edited, *drawn[: max(0, count - len(edited))]]
    tasks = fresh + [game.store.task(i) for i in ids]
    attempts = play(game.agent, game.engine.chat, game.domain, tasks, game.playing, game.key(this, "play"))
    this.groups = [
        Group(task, tuple(trajectories), replayed=i >= len(fresh))
        for i, (task, trajectories) in enumerate(zip(tasks, attempts, strict=True))
    ]


def evaluate(game: Game, number: int) -> float | None:
    """Mean score on the held-out tasks; an unscored attempt counts as wrong here."""
    config = game.config.eval
    if not game.heldout:
        return None
    settings = replace(game.playing, group_size=config.rollouts, temperature=config.temperature)
    attempts = play(
        game.agent,
        game.engine.chat,
        game.domain,
        game.heldout,
        settings,
        derive_seed(game.config.seed, "eval", number),
    )
    game.store.commit_evaluation(number, game.heldout, attempts)
    score = fmean(t.score.value or 0.0 for group in attempts for t in group)
    game.progress("evaluate", {"round": number, "heldout": score})
    return score
