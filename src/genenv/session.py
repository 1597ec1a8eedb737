"""From a configuration to the objects of a run: the one place that knows which class serves which name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from genenv.config.sections import Config, DomainConfig, EngineConfig, ServerConfig
from genenv.contracts.domain import Domain
from genenv.contracts.engine import Engine
from genenv.contracts.errors import InputError, need
from genenv.contracts.types import Seed, derive_seed
from genenv.domains.isolated import Isolated
from genenv.domains.own import load
from genenv.domains.python_checker import PythonChecker
from genenv.domains.tool_use.domain import ToolUse
from genenv.engines.openai import OpenAIPolicy, Taught
from genenv.loop.coevolve import CoEvolution
from genenv.loop.game import Progress, fitting
from genenv.loop.gate import Gate
from genenv.loop.seeds import load_seeds
from genenv.models import resolve
from genenv.runs.store import Store

WORLDS: Mapping[str, str] = {
    "household": "genenv.domains.household.domain:Household",
    "multihop_qa": "genenv.domains.multihop_qa.domain:MultihopQa",
    "travel": "genenv.domains.travel.domain:Travel",
}


def make_domain(config: DomainConfig) -> Domain:
    """Raises InputError. What it returns is to be given to `contracts.domain.release` in the end."""
    if ":" in config.name:
        domain = load(config.name, config.options)
        return Isolated(domain, config.name, config.options, config.timeout) if config.timeout else domain
    if config.name == "reasoning_gym":
        return load("genenv.domains.reasoning_gym.domain:ReasoningGym", {**config.options, "timeout": config.timeout})
    if config.name in WORLDS:
        return load(WORLDS[config.name], config.options)
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
    """The seeds of the chosen families that fit into the agent's prompt and are no evaluation tasks. Raises InputError if none is left."""
    seeds = make_seeds(config.domain, domain)
    limit = config.agent.max_prompt_tokens
    fits = fitting(engine.chat, limit)
    families = config.domain.families
    wanted = [s for s in seeds if not families or s.family in families]
    built = [(s, domain.build(s.spec)) for s in wanted]
    fit = [(s, task) for s, task in built if fits(task)]
    gate = Gate(domain, domain.heldout(config.eval.tasks, derive_seed("heldout")))
    left = [s for s, task in fit if not gate.contaminated(task)]
    if len(left) < len(seeds):
        dropped = [
            (len(seeds) - len(wanted), f"by domain.families = {', '.join(families)}"),
            (len(wanted) - len(fit), f"by agent.max_prompt_tokens = {limit}"),
            (len(fit) - len(left), "that are in the evaluation set"),
        ]
        counts = ", ".join(f"{n} dropped {why}" for n, why in dropped if n)
        source = config.domain.seeds or config.domain.tasks or "the domain's own seeds"
        message = f"{source}: {len(seeds)} read, {counts}, {len(left)} left"
        if not left:
            raise InputError(message)
        progress("alarm", {"round": 0, "message": message})
    return left


def make_engine(config: EngineConfig, seed: int) -> Engine:
    """Raises InputError if the model cannot be found or used."""
    try:
        return _tinker_engine(config, seed) if config.kind == "tinker" else _local_engine(config, seed)
    except (OSError, ValueError) as error:  # what the model libraries raise for missing and damaged files
        raise InputError(f"model {config.model} cannot be loaded: {' '.join(str(error).split())[:300]}") from error


def make_served(config: ServerConfig, warn: Callable[[str], None]) -> OpenAIPolicy:
    """The model behind a server. Raises InputError if nobody answers there."""
    assert config.model is not None
    settings = config.model_dump(exclude={"model"})
    policy = OpenAIPolicy(config.model, **settings, warn=warn)
    policy.check()
    return policy


def make_players(config: Config, progress: Progress) -> Engine:
    """The engine, with the teacher as its simulator if there is one. Raises InputError."""
    if config.teacher.model is None:
        return make_engine(config.engine, config.seed)
    teacher = make_served(config.teacher, lambda message: progress("alarm", {"round": 0, "message": message}))
    return Taught(make_engine(config.engine, config.seed), teacher)


def _local_engine(config: EngineConfig, seed: int) -> Engine:
    need("local", "a model in this process", "torch", "transformers", "peft", "safetensors", "llguidance")
    from genenv.engines.local.engine import LocalEngine  # torch takes seconds to import

    return LocalEngine(
        resolve(config.model),
        rank=config.rank,
        lora_alpha=config.lora_alpha,
        seed=seed,
        dtype=config.dtype,
        threads=config.threads,
        token_budget=config.token_budget,
    )


def _tinker_engine(config: EngineConfig, seed: int) -> Engine:
    need("tinker", "engine.kind = 'tinker'", "torch", "transformers")
    from genenv.engines.tinker.engine import LORA_ALPHA, TinkerEngine
    from genenv.engines.tinker.server import connect

    if config.lora_alpha != LORA_ALPHA:
        raise InputError(
            f"engine.lora_alpha = {config.lora_alpha}: Tinker servers scale all adapters with {LORA_ALPHA}"
        )
    model = resolve(config.model)
    return TinkerEngine(
        model,
        connect(config.base_url),
        base_model=config.base_model or model,
        rank=config.rank,
        seed=seed,
        token_budget=config.token_budget,
        reduction=config.reduction,
    )


def new_run(config: Config, folder: Path, progress: Progress) -> CoEvolution:
    """Everything is checked and loaded before the run folder comes into being."""
    domain = make_domain(config.domain)
    make_seeds(config.domain, domain)  # before a model is loaded, which may take long
    engine = make_players(config, progress)
    seeds = usable_seeds(config, domain, engine, progress)
    return CoEvolution(config, engine, domain, seeds, Store.create(folder, config), progress)


def resumed_run(folder: Path, progress: Progress) -> CoEvolution:
    store = Store.resume(folder)
    config = store.config
    domain = make_domain(config.domain)
    engine = make_players(config, progress)
    seeds = usable_seeds(config, domain, engine, progress)
    return CoEvolution(config, engine, domain, seeds, store, progress)
