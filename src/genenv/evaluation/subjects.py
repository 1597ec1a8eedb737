"""What can be evaluated: a run, a model in this process, a model behind a server, nothing at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from genenv import session
from genenv.config.load import build_config
from genenv.config.sections import Config, DomainConfig
from genenv.contracts.engine import Engine, Policy
from genenv.contracts.errors import InputError
from genenv.engines.scripted import ScriptedEngine
from genenv.runs.store import Store

EMPTY, RANDOM = "baseline:empty", "baseline:random"
"""Subjects that write nothing, and what chance draws from the possible: what a benchmark gives away."""
SERVED, TINKER = "openai:", "tinker:"


@dataclass(frozen=True)
class Subject:
    """An agent to be evaluated: a model as it is, or with the adapter of a run's checkpoint."""

    name: str
    config: Config
    warn: Callable[[str], None]
    round: int | None = None
    adapter: Path | None = None

    @property
    def title(self) -> str:
        return self.name if self.round is None else f"{self.name} round {self.round}"

    def load(self) -> tuple[Policy | None, int | None]:
        """The agent (None: chance) and its context in tokens (None: unknown). Raises InputError if it cannot be used."""
        if self.name == RANDOM:
            return None, None
        if self.name.startswith(SERVED):
            return session.make_served(self.config.teacher, self.warn), None
        if self.name == EMPTY:
            engine: Engine = ScriptedEngine(lambda prompt, seed: "", lambda prompt, seed: "")
        else:
            engine = session.make_engine(self.config.engine, self.config.seed)
        agent = engine.policy("agent")
        if self.adapter is not None:
            agent.load_state(self.adapter)
        return agent, engine.context


def find_subject(
    name: str, catalogue: Path | None, server: Mapping[str, Any], number: int | None, warn: Callable[[str], None]
) -> Subject:
    """The agent called `name`: a run folder, a model, openai:MODEL, tinker:MODEL, or a baseline.

    `server` says where a model behind one is (`base_url`, `concurrency`); `number` asks for the checkpoint of that round,
    else it is the newest that is whole. Raises InputError.
    """
    if (Path(name) / "run.sqlite").exists():
        if server:
            raise InputError(f"{', '.join(server)}: not for a run, which says itself where its models are")
        return _run(name, number, warn)
    if number is not None:
        raise InputError(f"--round {number}: {name} is no run folder")
    if name.startswith("baseline:") and name not in (EMPTY, RANDOM):
        raise InputError(f"{name}: expected {EMPTY} or {RANDOM}")
    if server and not name.startswith((SERVED, TINKER)):
        raise InputError(f"{', '.join(server)}: {name} is not behind a server, as {SERVED}MODEL and {TINKER}MODEL are")
    raw: dict[str, Any] = {"domain": DomainConfig(catalogue=catalogue).model_dump()}
    if name.startswith(SERVED):
        # the one section that describes such a model; its rule that teachers are not trained holds here trivially
        raw |= {"teacher": {"model": name.removeprefix(SERVED), **server}, "simulator": {"train": False}}
    elif name.startswith(TINKER):
        model = name.removeprefix(TINKER)
        raw["engine"] = {"kind": "tinker", "model": model, "base_model": model, **server}
    else:
        raw["engine"] = {"model": name}
    return Subject(name, build_config(raw, "command line"), warn)


def _run(name: str, number: int | None, warn: Callable[[str], None]) -> Subject:
    store = Store.read(Path(name))
    config = store.config
    checkpoint = store.checkpoints.latest(warn) if number is None else (number, store.checkpoints.of_round(number))
    store.close()
    if checkpoint is None:
        raise InputError(f"{name} has no complete checkpoint yet")
    return Subject(name, config, warn, checkpoint[0], checkpoint[1] / "agent")
