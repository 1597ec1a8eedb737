"""Stage 6: what a round leaves behind in D_train, D_env and the families' posteriors."""

from __future__ import annotations

from genenv.contracts.types import SOLVED
from genenv.loop.game import Game, Round
from genenv.loop.pools import MIN_LAG
from genenv.loop.rewards import empirical_success
from genenv.loop.updates import shared


def remember(game: Game, this: Round) -> None:
    """D_train gets every tried task, D_env what it earned; the families' posteriors and gains move."""
    curriculum = game.config.curriculum
    rewarded = [r for r in this.records if r.reward is not None]
    earned = shared([1.0] * len(rewarded), [this.divisor(r) for r in rewarded])
    for group in this.fresh:
        if empirical_success(group.rewards) is not None:
            game.pools.train.put(group.task.id, 1.0)
    for record, factor in zip(rewarded, earned, strict=True):
        if record.reward is not None and record.task is not None:
            game.pools.env.put(record.task.id, record.reward * factor)
    game.pools.remember_clusters([r.verdict.cluster for r in rewarded], curriculum.share)
    counts: dict[str, tuple[int, int]] = {}
    for group in this.groups:
        scored = [r for r in group.rewards if r is not None]
        wins, losses = counts.get(group.task.family, (0, 0))
        won = sum(r >= SOLVED for r in scored)
        counts[group.task.family] = (wins + won, losses + len(scored) - won)
    game.pools.observe(counts, curriculum.memory)
    game.pools.measured_again(_measured_again(game, this))
    this.metrics |= {
        "pool_train": len(game.pools.train),
        "pool_env": len(game.pools.env),
        "stuck_families": game.pools.stuck(),
    }


def _measured_again(game: Game, this: Round) -> dict[str, list[tuple[float, float]]]:
    """(first, present) success of the replayed tasks that have been trained on for a while, by family."""
    pairs: dict[str, list[tuple[float, float]]] = {}
    for group in (g for g in this.groups if g.replayed):
        now, first = empirical_success(group.rewards), game.store.first_success(group.task.id)
        if now is not None and first is not None and this.number - first[0] >= MIN_LAG:
            pairs.setdefault(group.task.family, []).append((first[1], now))
    return pairs
