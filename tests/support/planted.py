"""Domains with a planted difficulty, and a seeded agent whose success on them is known."""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from genenv.contracts.domain import SpecError, Step
from genenv.contracts.engine import AdamParams, ChatFormat, Player
from genenv.contracts.types import Chat, Direction, Json, Message, Score, Seed, Task
from genenv.engines.scripted import ScriptedPolicy

if TYPE_CHECKING:
    from genenv.engines.local.engine import LocalEngine  # imports torch, which scripted players do without

LEVELS = range(10)


class Levels:
    """A task has a level from 0 to 9, and a serial number so that no two are the same. Right answer: `ok SERIAL`."""

    name = "levels"
    families = ("level",)

    def seeds(self, count: int, seed: int) -> list[Seed]:
        rng = random.Random(seed)
        return [
            Seed("level", {"level": rng.choice(LEVELS), "serial": f"{rng.randrange(10**6):06d}"}) for _ in range(count)
        ]

    def heldout(self, count: int, seed: int) -> list[Task]:
        return [self.build(s.spec) for s in self.seeds(count, seed + 1)]

    def simulator_chat(
        self,
        example: Seed,
        success: float | None,
        direction: Direction,
        seed: int,
        target: Seed | None = None,
        edit: bool = False,
    ) -> tuple[Chat, Json]:
        serial = f"{seed % 10**6:06d}"  # given, so that the level is all that the simulator decides
        schema = {
            "type": "object",
            "properties": {"level": {"enum": list(LEVELS)}, "serial": {"const": serial}},
            "required": ["level", "serial"],
            "additionalProperties": False,
        }
        return Chat((Message("user", "write"),)), schema

    def direction(self, example: Seed, other: Seed) -> Direction:
        return "similar"

    def build(self, spec: Mapping[str, Json]) -> Task:
        if spec.get("level") not in LEVELS or not re.fullmatch("[0-9]{6}", str(spec.get("serial"))):
            raise SpecError("schema", "level or serial")
        text = f"level {spec['level']} serial {spec['serial']}"
        return Task("level", (Message("user", text),), (), f"ok {spec['serial']}", dict(spec))

    def reference(self, task: Task) -> Sequence[str]:
        return [task.target]

    def perturbed(self, task: Task) -> Sequence[Sequence[str]]:
        return [[task.target + "0"]]

    def episode(self, task: Task) -> ExactEpisode:
        return ExactEpisode(task.target)


class ExactEpisode:
    def __init__(self, target: str) -> None:
        self._target = target

    def step(self, text: str) -> Step:
        return Step(score=Score(float(text == self._target), "right" if text == self._target else "wrong", text))

    def close(self) -> None:
        pass


def guess(prompt: str, seed: int) -> str:
    """An agent that solves level L with probability 1 - L / 10."""
    level, serial = re.search(r"level (\d) serial (\d+)", prompt).groups()
    return f"ok {serial}" if random.Random(seed).random() > int(level) / 10 else "no"


def write(prompt: str, seed: int) -> str:
    """A simulator of valid tasks; one in five is not."""
    rng = random.Random(seed)
    if rng.random() < 0.2:
        return rng.choice(["not JSON", '{"level": 12, "serial": "000000"}'])
    return json.dumps({"level": rng.randrange(10), "serial": f"{rng.randrange(10**6):06d}"})


class SkilledAgent(ScriptedPolicy):
    """Solves level L with probability 1 / (1 + exp(L - skill)); `gain` is added to its skill at each step."""

    def __init__(self, chat: ChatFormat, skill: float, gain: float = 0.0) -> None:
        super().__init__(chat, self._try)
        self.skill = skill
        self._gain = gain

    def _try(self, prompt: str, seed: int) -> str:
        level, serial = re.search(r"level (\d) serial (\d+)", prompt).groups()
        solved = random.Random(seed).random() < 1 / (1 + math.exp(int(level) - self.skill))
        return f"ok {serial}" if solved else "no"

    def optim_step(self, params: AdamParams) -> float:
        self.skill += self._gain
        return super().optim_step(params)


class HalfScripted:
    """A real simulator against a scripted agent."""

    def __init__(self, local: LocalEngine, skill: float, gain: float = 0.0) -> None:
        self.chat = local.chat
        self.model_name = local.model_name
        self.context, self.concurrent = local.context, local.concurrent
        self.base_logprobs = local.base_logprobs
        self.agent = SkilledAgent(local.chat, skill, gain)
        self._local = local

    def policy(self, player: Player) -> object:
        return self.agent if player == "agent" else self._local.policy("simulator")

    def close(self) -> None:
        self._local.close()
