"""Both players learn, with real gradients: a flipped sign or a dropped mask turns one of these red."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from statistics import fmean

import pytest
from planted import HalfScripted, Levels

from genenv.coevolve import CoEvolution
from genenv.config import Config, build_config
from genenv.domains.base import Step
from genenv.engines.base import AdamParams, Loss
from genenv.engines.local import LocalEngine
from genenv.rollouts import PlayConfig, play
from genenv.store import Store
from genenv.types import Datum, Group, Message, Score, Task
from genenv.updates import grpo_data, normalized, with_kl


def local(model: str, seed: int) -> LocalEngine:
    return LocalEngine(model, rank=8, lora_alpha=16, seed=seed, dtype="float32", threads=1)


class Digits:
    """Right: an answer whose first character is a digit or a capital letter. About one in eight at first."""

    name = "digits"

    def episode(self, task: Task) -> Digits:
        return self

    def step(self, text: str) -> Step:
        right = text[:1].isascii() and (text[:1].isdigit() or text[:1].isupper())
        return Step(score=Score(float(right), "right" if right else "wrong"))

    def close(self) -> None:
        pass


def success_after_grpo(model: str, seed: int, loss: str, kl: float = 0.0, steps: int = 12) -> tuple[float, float]:
    """(first, last) success of a real policy on one task."""
    engine = local(model, seed)
    policy = engine.policy("agent")
    tasks = [Task("x", (Message("user", f"t{i}"),), (), None, {}) for i in range(4)]
    history = []
    for step in range(steps):
        attempts = play(policy, engine.chat, Digits(), tasks, PlayConfig(16, 3, 1), seed=100 * seed + step)
        groups = [Group(task, tuple(t)) for task, t in zip(tasks, attempts, strict=True)]
        history.append(fmean(r for g in groups for r in g.rewards if r is not None))
        data = grpo_data(groups, normalize=True)
        if not data:
            break
        data = with_kl(data, engine.base_logprobs(data), kl).data
        policy.forward_backward(data, Loss(loss))
        policy.optim_step(AdamParams(lr=0.02))
    return history[0], history[-1]


@pytest.mark.parametrize("loss", ["importance_sampling", "ppo"])
@pytest.mark.parametrize("seed", [0, 1])
def test_grpo_teaches_the_agent(random_model: str, loss: str, seed: int) -> None:
    first, last = success_after_grpo(random_model, seed, loss)
    assert first < 0.4
    assert last > 0.9


def test_a_strong_kl_term_holds_the_agent_at_the_base(random_model: str) -> None:
    _, free = success_after_grpo(random_model, 0, "importance_sampling")
    _, held = success_after_grpo(random_model, 0, "importance_sampling", kl=30.0)
    assert held < free - 0.3


def planted(**curriculum: object) -> Config:
    return build_config(
        {
            "rounds": 30,
            "checkpoint_every": 30,
            "curriculum": {"parents": 0.0, **curriculum},
            "simulator": {"tasks": 32, "lr": 0.02, "anchor": 0.0, "replay": 0.0, "kl": 0.001, "max_tokens": 48},
            "agent": {"group_size": 8, "kl": 0.0, "replay": 0.0, "steps": 1, "max_tokens": 16},
            "eval": {"tasks": 0},
        },
        "planted",
    )


def warmed_up(engine: LocalEngine, seed: int) -> LocalEngine:
    """A simulator that writes valid specifications with even levels: what a base model brings along."""
    policy, domain = engine.policy("simulator"), Levels()
    for step in range(40):
        data = []
        for example in domain.seeds(16, 1000 * seed + step):
            prompt = engine.chat.encode(domain.simulator_chat(example, None, "similar", 0)[0])
            text = json.dumps(example.spec, separators=(",", ":"))
            own = (*engine.chat.encode_text(text), engine.chat.eos)
            data.append(Datum(prompt + own, (0.0,) * len(prompt) + (1.0,) * len(own), len(prompt)))
        policy.forward_backward(normalized(data), Loss("cross_entropy"))
        policy.optim_step(AdamParams(lr=0.02))
    return engine


def levels_by_round(model: str, folder: Path, config: Config, skill: float, gain: float, seed: int) -> list[float]:
    """Mean level that the simulator wrote, per round."""
    engine = HalfScripted(warmed_up(local(model, seed), seed), skill, gain)
    with closing(Store.create(folder / f"run{seed}", config.model_copy(update={"seed": seed}))) as store:
        game = CoEvolution(store.config, engine, Levels(), Levels().seeds(8, 0), store, lambda stage, figures: None)
        game.run()
        return [
            fmean(row.task.spec["level"] for row in store.candidates([r]) if row.task is not None)
            for r in range(1, config.rounds + 1)
        ]


@pytest.mark.parametrize("seed", [0, 1])
def test_rwr_moves_difficulty_to_alpha_against_a_constant_agent(random_model: str, tmp_path: Path, seed: int) -> None:
    means = levels_by_round(random_model, tmp_path, planted(), skill=1.5, gain=0.0, seed=seed)
    assert means[0] > 3.0
    assert means[-1] == pytest.approx(1.5, abs=1.0)


def test_rwr_follows_an_agent_that_learns(random_model: str, tmp_path: Path) -> None:
    means = levels_by_round(random_model, tmp_path, planted(), skill=1.0, gain=0.2, seed=0)
    # its skill rises from 1 to 7 over the run; the difficulty first falls to meet it, then rises with it
    assert min(means[:15]) < means[-1] - 1.5
    assert means[-1] > 4.0


def test_the_other_alpha_gives_the_other_difficulty(random_model: str, tmp_path: Path) -> None:
    easy = levels_by_round(random_model, tmp_path / "a", planted(), skill=4.5, gain=0.0, seed=0)
    assert easy[-1] == pytest.approx(4.5, abs=1.5)
