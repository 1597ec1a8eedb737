"""From a configuration to the objects of a run: the one place that knows which class serves which name."""

from __future__ import annotations

from pathlib import Path

from genenv.coevolve import CoEvolution, Progress
from genenv.config import Config, DomainConfig, EngineConfig
from genenv.domains.base import Domain
from genenv.domains.tool_use import ToolUse
from genenv.engines.base import Engine
from genenv.models import resolve
from genenv.seeds import load_seeds
from genenv.store import Store
from genenv.types import Seed, derive_seed


def make_domain(config: DomainConfig) -> Domain:
    return ToolUse(config.catalogue, config.request, config.max_calls, config.shots)


def make_seeds(config: DomainConfig, domain: Domain) -> list[Seed]:
    """The user's seeds, or some made by the domain."""
    if config.seeds is not None:
        return load_seeds(config.seeds, domain)
    return domain.seeds(config.seed_count, derive_seed("seeds"))


def make_engine(config: EngineConfig, seed: int) -> Engine:
    """Raises InputError if the model cannot be found or used."""
    from genenv.engines.local import LocalEngine  # torch takes seconds to import

    return LocalEngine(
        resolve(config.model),
        rank=config.rank,
        lora_alpha=config.lora_alpha,
        seed=seed,
        dtype=config.dtype,
        threads=config.threads,
        token_budget=config.token_budget,
    )


def new_run(config: Config, folder: Path, progress: Progress) -> CoEvolution:
    """Everything is checked and loaded before the run folder comes into being."""
    domain = make_domain(config.domain)
    seeds = make_seeds(config.domain, domain)
    engine = make_engine(config.engine, config.seed)
    return CoEvolution(config, engine, domain, seeds, Store.create(folder, config), progress)


def resumed_run(folder: Path, progress: Progress) -> CoEvolution:
    store = Store.resume(folder)
    config = store.config
    domain = make_domain(config.domain)
    engine = make_engine(config.engine, config.seed)
    return CoEvolution(config, engine, domain, make_seeds(config.domain, domain), store, progress)
