"""Stages 4 and 5: the two updates, GRPO for the agent and RWR for the simulator, and the warm-up before round 1."""

from __future__ import annotations

import json
import random

from genenv.config.sections import WARMUP_BATCH
from genenv.contracts.engine import AdamParams, Loss
from genenv.contracts.errors import StaleSampleError
from genenv.contracts.types import Chat, Datum
from genenv.loop.game import Game, Round, mean
from genenv.loop.rollouts import demonstration
from genenv.loop.updates import grpo_data, has_signal, normalized, rwr_data, rwr_weights, scaled, shared, with_kl


def update_agent(game: Game, this: Round) -> None:
    """GRPO on the groups with variance, in `steps` optimizer steps."""
    config = game.config.agent
    for trajectory in (t for g in this.groups for t in g.trajectories):
        if trajectory.policy_version != game.agent.version:
            raise StaleSampleError(
                f"a rollout has policy version {trajectory.policy_version}, the agent is at {game.agent.version}"
            )
    useful = [g for g in this.groups if has_signal(g) and g.task.id not in this.dropped]
    random.Random(game.key(this, "shuffle")).shuffle(useful)
    loss = Loss(config.loss, config.clip)
    lr = config.lr * (1.0 - (1.0 - config.lr_final) * (this.number - 1) / max(1, game.config.rounds - 1))
    norms, kls, ratios, clipped = [], [], [], []
    steps = min(config.steps, len(useful)) if config.train else 0
    for step in range(steps):
        data = grpo_data(useful[step::steps], config.normalize)
        if config.kl:
            anchored = with_kl(data, game.engine.base_logprobs(data), config.kl)
            data = anchored.data
            kls.append(anchored.kl)
        stats = game.agent.forward_backward(data, loss)
        if (norm := game.agent.optim_step(AdamParams(lr))) is not None:
            norms.append(norm)
        ratios.append(stats.ratio)
        clipped.append(stats.clipped)
    this.metrics |= {
        "agent_lr": lr,
        "agent_grad_norm": mean(norms),
        "agent_kl": mean(kls),
        "agent_ratio": mean(ratios),
        "agent_clipped": mean(clipped),
        "agent_version": game.agent.version,
    }


def update_simulator(game: Game, this: Round) -> None:
    """RWR on this round's tasks, with replay from D_env and an anchor of seeds where configured."""
    config, curriculum = game.config.simulator, game.config.curriculum
    rewarded = [r for r in this.records if r.reward is not None and r.p_hat is not None]
    chosen = [r for r in rewarded if not curriculum.mixed_only or 0.0 < (r.p_hat or 0.0) < 1.0]
    chosen = [r for r in chosen if r.task is not None and r.task.id not in this.dropped]
    success = this.metrics["success"]
    aligned = success is not None and (curriculum.k_min is None or abs(success - curriculum.alpha) <= curriculum.k_min)
    norm = kl = None
    update = config.train and aligned and bool(chosen)
    if update:
        rng = random.Random(game.key(this, "simulator"))
        old = game.pools.env.draw(round(config.replay * len(chosen)), rng)
        candidates = [r.candidate for r in chosen] + [game.store.candidate(i) for i in old]
        # D_env was drawn in proportion to R_env already, so its share of the weight is even
        weights = rwr_weights([r.reward or 0.0 for r in chosen], config.weight_temperature)
        weights = shared(weights, [this.divisor(r) for r in chosen])
        data = rwr_data(candidates, weights + [1.0] * len(old))
        seeds = anchor(game, this, round(config.anchor * len(chosen)))
        if config.kl:
            fresh = data[: len(chosen)]
            anchored = with_kl(fresh, game.engine.base_logprobs(fresh), config.kl)
            data = anchored.data + data[len(chosen) :]
            kl = anchored.kl
        if seeds:
            share = len(seeds) / (len(seeds) + len(data))
            data = scaled(data, 1.0 - share) + scaled(normalized(seeds), share)
        game.simulator.forward_backward(data, Loss("cross_entropy"))
        norm = game.simulator.optim_step(AdamParams(config.lr))
    this.metrics |= {
        "simulator_updated": update,
        "simulator_trained_on": len(chosen) if update else 0,
        "simulator_grad_norm": norm,
        "simulator_kl": kl,
        "simulator_version": game.simulator.version,
    }


def warm_up(game: Game) -> None:
    """Supervised steps on the seeds, for base models that do not know the formats yet."""
    this = Round(0)
    agent, simulator = game.config.agent, game.config.simulator
    known = sorted((s for family in game.seeds.values() for s in family), key=lambda s: s.id)
    for step in range(agent.warmup):
        chosen = random.Random(game.key(this, "warmup", step)).sample(known, min(WARMUP_BATCH, len(known)))
        solved = [demonstration(game.engine.chat, game.domain, game.domain.build(s.spec)) for s in chosen]
        game.agent.forward_backward(normalized(solved), Loss("cross_entropy"))
        game.agent.optim_step(AdamParams(agent.warmup_lr))
        game.progress("warm_up", {"step": step + 1})
    for step in range(simulator.warmup):
        data = normalized(anchor(game, this, WARMUP_BATCH, step))
        game.simulator.forward_backward(data, Loss("cross_entropy"))
        game.simulator.optim_step(AdamParams(simulator.warmup_lr))
        game.progress("warm_up", {"step": agent.warmup + step + 1})


def anchor(game: Game, this: Round, count: int, step: int = 0) -> list[Datum]:
    """Seeds as the simulator would have to write them: what keeps imitation of oneself from drifting."""
    data = []
    rng = random.Random(game.key(this, "anchor", step))
    families = sorted(game.seeds)
    for i in range(count):
        family = families[i % len(families)]
        example, target = rng.choice(game.seeds[family]), rng.choice(game.seeds[family])
        way, success = game.domain.direction(example, target), game.pools.success(family)
        chat, _ = game.domain.simulator_chat(example, success, way, game.key(this, "anchor", step, i), target)
        data.append(_supervised(game, chat, json.dumps(target.spec, separators=(",", ":"), ensure_ascii=False)))
    return data


def _supervised(game: Game, chat: Chat, text: str) -> Datum:
    """A chat and the text that is to follow it, weight 1 on each token of the text and its end."""
    prompt = game.engine.chat.encode(chat)
    own = (*game.engine.chat.encode_text(text), game.engine.chat.eos)
    return Datum(prompt + own, (0.0,) * len(prompt) + (1.0,) * len(own), len(prompt))
