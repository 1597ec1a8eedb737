"""An agent learns over several turns: trained on generated one-hop questions, it answers others that it has not seen."""

from __future__ import annotations

from statistics import fmean

from genenv.contracts.engine import AdamParams, Loss
from genenv.contracts.types import Group, Task, Trajectory
from genenv.domains.multihop_qa.domain import MultihopQa
from genenv.engines.local.engine import LocalEngine
from genenv.loop.rollouts import PlayConfig, play
from genenv.loop.updates import grpo_data, has_signal
from genenv.models import resolve

GROUP = 6
STEPS = 4


def one_hop(domain: MultihopQa, count: int, seed: int) -> list[Task]:
    return [domain.build(s.spec) for s in domain.seeds(4 * count, seed) if s.family == "1-hop"]


def test_searching_and_answering_is_learned_from_the_end_of_episodes() -> None:
    domain = MultihopQa()
    engine = LocalEngine(resolve("builtin:multihop_qa"), rank=16, lora_alpha=32, seed=0, threads=1)
    agent = engine.policy("agent")
    settings = PlayConfig(GROUP, 64, 8, context=engine.context)

    def attempts(tasks: list[Task], seed: int) -> list[list[Trajectory]]:
        return play(agent, engine.chat, domain, tasks, settings, seed)

    def success(seed: int) -> float:
        return fmean(t.score.value or 0.0 for g in attempts(one_hop(domain, 12, 99), seed) for t in g)

    before = success(seed=1)
    for step in range(STEPS):
        tasks = one_hop(domain, 14, step)
        groups = [Group(t, tuple(g)) for t, g in zip(tasks, attempts(tasks, 10 + step), strict=True)]
        assert any(len(t.mask) - t.prompt_length > sum(t.mask) for g in groups for t in g.trajectories)
        agent.forward_backward(grpo_data([g for g in groups if has_signal(g)], normalize=True), Loss("ppo"))
        agent.optim_step(AdamParams(1.5e-3))
    after = success(seed=2)
    assert 0.1 < before < 0.6
    assert after > before + 0.2
