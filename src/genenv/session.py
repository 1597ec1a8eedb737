"""From a configuration to the objects of a run: the one place that knows which class serves which name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from genenv.chat import ChatFormat
from genenv.coevolve import CoEvolution, Progress, fitting
from genenv.config import Config, DomainConfig, EngineConfig
from genenv.domains.base import Domain
from genenv.domains.python_checker import PythonChecker
from genenv.domains.tool_use import ToolUse
from genenv.engines.base import Engine, Policy
from genenv.engines.scripted import ScriptedEngine
from genenv.errors import InputError
from genenv.gate import Gate
from genenv.models import resolve
from genenv.seeds import load_seeds
from genenv.store import Store
from genenv.types import Seed, derive_seed


def make_domain(config: DomainConfig) -> Domain:
    if config.name == "python_checker":
        return PythonChecker(config.tasks)
    return ToolUse(config.catalogue, config.request, config.max_calls, config.shots)


def make_seeds(config: DomainConfig, domain: Domain) -> list[Seed]:
    """The user's seeds, or some made by the domain. Raises InputError if there are none."""
    if config.name == "python_checker" and config.tasks is None:
        raise InputError("domain.tasks: python_checker needs a JSONL file of tasks with their checkers")
    if config.seeds is not None:
        return load_seeds(config.seeds, domain)
    made = domain.seeds(config.seed_count, derive_seed("seeds"))
    return list({s.id: s for s in made}.values())


def usable_seeds(config: Config, domain: Domain, engine: Engine, progress: Progress) -> list[Seed]:
    """The seeds that fit into the agent's prompt and are no evaluation tasks. Raises InputError if none is left."""
    seeds = make_seeds(config.domain, domain)
    limit = config.agent.max_prompt_tokens
    fits = fitting(engine.chat, limit)
    fit = [s for s in seeds if fits(domain.build(s.spec))]
    gate = Gate(domain, domain.heldout(config.eval.tasks, derive_seed("heldout")))
    left = [s for s in fit if not gate.contaminated(domain.build(s.spec))]
    if len(left) < len(seeds):
        dropped = [(len(seeds) - len(fit), f"by agent.max_prompt_tokens = {limit}")]
        dropped.append((len(fit) - len(left), "that are in the evaluation set"))
        counts = ", ".join(f"{n} dropped {why}" for n, why in dropped if n)
        source = config.domain.seeds or config.domain.tasks or "the domain's own seeds"
        message = f"{source}: {len(seeds)} read, {counts}, {len(left)} left"
        if not left:
            raise InputError(message)
        progress("alarm", {"round": 0, "message": message})
    return left


def make_engine(config: EngineConfig, seed: int) -> Engine:
    """Raises InputError if the model cannot be found or used."""
    from genenv.engines.local import LocalEngine  # torch takes seconds to import

    try:
        return LocalEngine(
            resolve(config.model),
            rank=config.rank,
            lora_alpha=config.lora_alpha,
            seed=seed,
            dtype=config.dtype,
            threads=config.threads,
            token_budget=config.token_budget,
        )
    except (OSError, ValueError) as error:  # what the model libraries raise for missing and damaged files
        raise InputError(f"model {config.model} cannot be loaded: {' '.join(str(error).split())[:300]}") from error


BASELINE = "baseline:empty"
"""A subject that writes nothing: what a benchmark gives away."""


@dataclass(frozen=True)
class Subject:
    """An agent to be evaluated: a model as it is, or with the adapter of a run's newest checkpoint."""

    name: str
    config: Config
    round: int | None = None
    adapter: Path | None = None

    @property
    def title(self) -> str:
        return self.name if self.round is None else f"{self.name} round {self.round}"

    def load(self) -> tuple[Policy, ChatFormat, int | None]:
        """The agent, its chat format and its context (None: unknown). Raises InputError if the model cannot be used."""
        if self.name == BASELINE:
            engine: Engine = ScriptedEngine(lambda prompt, seed: "", lambda prompt, seed: "")
        else:
            engine = make_engine(self.config.engine, self.config.seed)
        agent = engine.policy("agent")
        if self.adapter is not None:
            agent.load_state(self.adapter)
        return agent, engine.chat, engine.context


def find_subject(name: str, catalogue: Path | None, warn: Callable[[str], None]) -> Subject:
    """The agent called `name`: a run folder, a model, `baseline:empty`. Raises InputError for a run without checkpoint."""
    if name.startswith("baseline:") and name != BASELINE:
        raise InputError(f"{name}: the only baseline is {BASELINE}")
    if not (Path(name) / "run.sqlite").exists():
        return Subject(name, Config(engine=EngineConfig(model=name), domain=DomainConfig(catalogue=catalogue)))
    store = Store.read(Path(name))
    config, checkpoint = store.config, store.latest_checkpoint(warn)
    store.close()
    if checkpoint is None:
        raise InputError(f"{name} has no complete checkpoint yet")
    return Subject(name, config, checkpoint[0], checkpoint[1] / "agent")


def new_run(config: Config, folder: Path, progress: Progress) -> CoEvolution:
    """Everything is checked and loaded before the run folder comes into being."""
    domain = make_domain(config.domain)
    make_seeds(config.domain, domain)  # before a model is loaded, which may take long
    engine = make_engine(config.engine, config.seed)
    seeds = usable_seeds(config, domain, engine, progress)
    return CoEvolution(config, engine, domain, seeds, Store.create(folder, config), progress)


def resumed_run(folder: Path, progress: Progress) -> CoEvolution:
    store = Store.resume(folder)
    config = store.config
    domain = make_domain(config.domain)
    engine = make_engine(config.engine, config.seed)
    seeds = usable_seeds(config, domain, engine, progress)
    return CoEvolution(config, engine, domain, seeds, store, progress)
