"""What every stage of a round is given: who plays by which rules, what the run remembers, and the round so far."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from genenv.config.sections import Config
from genenv.contracts.domain import Domain
from genenv.contracts.engine import ChatFormat, Engine
from genenv.contracts.types import Chat, Group, Json, Seed, Task, derive_seed
from genenv.loop.alarms import usual_variety
from genenv.loop.gate import Gate
from genenv.loop.pools import Pools
from genenv.loop.rollouts import PlayConfig
from genenv.loop.seeds import by_family
from genenv.runs.records import CandidateRecord
from genenv.runs.store import Store

Progress = Callable[[str, Mapping[str, Json]], None]
"""Called with the name of a finished stage and its figures; "round" comes with the round's metrics, "alarm" with a
`message` when the simulator shows signs of collapse."""


@dataclass
class Round:
    """What one round has produced so far."""

    number: int
    records: list[CandidateRecord] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    divisors: dict[str, float] = field(default_factory=dict)
    dropped: set[str] = field(default_factory=set)
    metrics: dict[str, Json] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def fresh(self) -> list[Group]:
        return [g for g in self.groups if not g.replayed]

    def divisor(self, record: CandidateRecord) -> float:
        """What a rewarded task's weight is divided by: near-identical tasks, itself included; more in a stuck family."""
        assert record.task is not None
        return self.divisors[record.task.id]


class Game:
    """Configuration, engine, domain and the state that grows: the policies, the pools, the gate's known tasks."""

    def __init__(
        self, config: Config, engine: Engine, domain: Domain, seeds: Sequence[Seed], store: Store, progress: Progress
    ) -> None:
        self.config = config
        self.engine = engine
        self.domain = domain
        self.store = store
        self.progress = progress
        self.seeds = by_family(seeds)
        self.heldout = domain.heldout(config.eval.tasks, derive_seed("heldout"))
        self.gate = self._new_gate()
        clusters = [self.gate.add(domain.build(seed.spec)) for seed in seeds]
        if config.curriculum.source == "seeds":
            self.gate = self._new_gate()  # they are the candidates
        self.usual_variety = usual_variety(clusters, config.simulator.tasks, random.Random(derive_seed("variety")))
        self.pools = Pools()
        self.agent = engine.policy("agent")
        self.simulator = engine.policy("simulator")
        self.playing = PlayConfig(
            config.agent.group_size, config.agent.max_tokens, config.agent.max_turns, context=engine.context
        )

    def _new_gate(self) -> Gate:
        return Gate(self.domain, self.heldout, fitting(self.engine.chat, self.config.agent.max_prompt_tokens))

    def key(self, this: Round, *parts: object) -> int:
        """The seed of one random choice in a round."""
        return derive_seed(self.config.seed, this.number, *parts)


def fitting(chat: ChatFormat, limit: int | None) -> Callable[[Task], bool]:
    """Whether a task's prompt has at most `limit` tokens."""
    return lambda task: limit is None or len(chat.encode(Chat(task.messages, task.tools))) <= limit


def mean(values: Sequence[float]) -> float | None:
    """None where there is nothing to average."""
    return fmean(values) if values else None
