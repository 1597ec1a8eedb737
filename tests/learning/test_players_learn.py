"""Both players learn, with real gradients: a flipped sign or a dropped mask turns one of these red."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import pytest
import torch
from planted import HalfScripted, Levels
from transformers import AutoModelForCausalLM, AutoTokenizer

from genenv.config.load import build_config
from genenv.config.sections import Config
from genenv.contracts.domain import Step
from genenv.contracts.engine import AdamParams, Loss
from genenv.contracts.types import Group, Message, Score, Task
from genenv.engines.chat import TemplateFormat
from genenv.engines.local.engine import LocalEngine
from genenv.loop import train
from genenv.loop.coevolve import CoEvolution
from genenv.loop.rollouts import PlayConfig, play
from genenv.loop.updates import grpo_data, rwr_weights, with_kl
from genenv.runs.store import Store


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


@pytest.fixture(scope="module")
def planted_model(random_model: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The random model after plain training on specifications of every level: a base that can write tasks.

    Its levels are not quite even, as those of a real base would not be.
    """
    folder = tmp_path_factory.mktemp("planted")
    tokenizer = AutoTokenizer.from_pretrained(random_model)
    model = AutoModelForCausalLM.from_pretrained(random_model, dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    chat, domain = TemplateFormat(tokenizer), Levels()
    for step in range(80):
        rows = []
        for example in domain.seeds(32, step):
            prompt = chat.encode(domain.simulator_chat(example, None, "similar", 0)[0])
            rows.append((*prompt, *chat.encode_text(json.dumps(example.spec, separators=(",", ":"))), chat.eos))
        tokens = torch.tensor(rows)
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def planted(simulator: dict[str, object], **curriculum: object) -> Config:
    return build_config(
        {
            "rounds": 30,
            "checkpoint_every": 30,
            "curriculum": {"parents": 0.0, **curriculum},
            "simulator": {"tasks": 32, "lr": 0.01, "max_tokens": 48, **simulator},
            "agent": {"group_size": 8, "kl": 0.0, "replay": 0.0, "steps": 1, "max_tokens": 16},
            "eval": {"tasks": 0},
        },
        "planted",
    )


@dataclass(frozen=True)
class Course:
    """Figures per round of a planted run."""

    level: list[float]
    success: list[float]
    reward: list[float]


def course(model: str, folder: Path, config: Config, skill: float, gain: float, seed: int) -> Course:
    engine = HalfScripted(local(model, seed), skill, gain)
    with closing(Store.create(folder / f"run{seed}", config.model_copy(update={"seed": seed}))) as store:
        game = CoEvolution(store.config, engine, Levels(), Levels().seeds(40, 0), store, lambda stage, figures: None)
        game.run()
        levels = [
            fmean(row.task.spec["level"] for row in store.candidates([r]) if row.task is not None)
            for r in range(1, config.rounds + 1)
        ]
        metrics = store.metrics()
        return Course(levels, [m["success"] for m in metrics], [m["simulator_reward"] for m in metrics])


def late(values: list[float]) -> float:
    return fmean(values[-10:])


@pytest.mark.parametrize("gain", [0.0, 0.05], ids=["constant agent", "learning agent"])
@pytest.mark.parametrize("seed", [0, 1])
def test_rwr_moves_difficulty_towards_alpha(planted_model: str, tmp_path: Path, gain: float, seed: int) -> None:
    """Against the same run with a simulator that is never updated."""
    trained = course(planted_model, tmp_path / "trained", planted({}), 1.5, gain, seed)
    frozen = course(planted_model, tmp_path / "frozen", planted({"train": False}), 1.5, gain, seed)
    assert trained.level[0] == frozen.level[0]
    assert trained.success[0] < 0.3
    assert late(trained.reward) > late(frozen.reward) + 0.05
    assert abs(late(trained.success) - 0.5) < abs(late(frozen.success) - 0.5)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_papers_regression_prefers_tasks_near_alpha(
    planted_model: str, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """lambda = 1, beta = 2, KL anchor, no seeds: the mean reward ends above that of the same regression on -R_env.

    The batch filter is opened, since a batch far from alpha does not update at all.
    """
    config = planted({"anchor": 0.0, "replay": 1.0, "kl": 0.03, "weight_temperature": 1.0}, beta=2.0, k_min=0.5,
                     mixed_only=False)  # fmt: skip
    right = course(planted_model, tmp_path / "right", config, 2.5, 0.0, seed)
    monkeypatch.setattr(
        train, "rwr_weights", lambda rewards, temperature: rwr_weights([-r for r in rewards], temperature)
    )
    wrong = course(planted_model, tmp_path / "wrong", config, 2.5, 0.0, seed)
    assert late(right.reward) > late(wrong.reward) + 0.02
    assert late(right.success) > late(wrong.success)
