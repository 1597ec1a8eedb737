"""The configuration: frozen, typed, unknown keys refused.

A TOML file plus `--set a.b=c` overrides gives one `Config`; the resolved copy is kept in the run folder. `recipe`
chooses defaults for the curriculum and both updates; whatever a file sets explicitly wins over the recipe.
"""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator

from genenv.errors import InputError
from genenv.rewards import Signal


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class EngineConfig(Section):
    """Which engine runs both players, and on which base model."""

    kind: Literal["local", "tinker"] = "local"
    model: str = Field("builtin:tiny", description="builtin:NAME, a folder, a hub id, or gguf:PACKAGE for a GGUF file")
    base_url: str | None = Field(
        None, pattern="^https?://", description="tinker: a server of your own; none: the hosted service"
    )
    base_model: str | None = Field(
        None, description="tinker: the server's name for the model; none: `model`, which gives tokenizer and template"
    )
    reduction: Literal["sum", "mean"] = Field(
        "sum", description="tinker: what the server does with losses; mean: SkyRL's JAX backend"
    )
    rank: int = Field(16, ge=1, le=512, description="LoRA rank of both adapters")
    lora_alpha: int = Field(32, ge=1)
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    threads: int = Field(0, ge=0, description="CPU threads, 0: all")
    token_budget: int = Field(
        16384, ge=256, description="tokens computed at once; bounds the memory (tinker: per training request)"
    )


class ServerConfig(Section):
    """A frozen model behind a server of the OpenAI chat API that writes the tasks, in place of a trained simulator."""

    model: str | None = Field(None, description="its name at the server; none: no teacher")
    base_url: str = "https://api.openai.com/v1"
    key_variable: str = Field("OPENAI_API_KEY", description="environment variable with the API key, if one is needed")
    concurrency: int = Field(8, ge=1, le=256, description="requests in flight")
    timeout: float = Field(600.0, gt=0, description="seconds after which a request is given up")


BuiltIn = Literal["tool_use", "python_checker", "reasoning_gym", "household", "multihop_qa", "travel"]
WITH_OPTIONS = ("reasoning_gym", "household", "multihop_qa", "travel")
"""Built-in domains that take `domain.options`, as those of a user's own do."""


def _known(name: str) -> str:
    if not re.fullmatch(r"[\w.]+:[\w.]+", name) and name not in get_args(BuiltIn):
        raise ValueError(f"expected {', '.join(get_args(BuiltIn))} or the path of a class, MODULE:CLASS")
    return name


DOMAIN_FILES = ("tasks", "catalogue", "seeds")
"""Settings of the section domain that are paths."""


class DomainConfig(Section):
    """The field of tasks."""

    name: Annotated[BuiltIn | str, AfterValidator(_known)] = Field(
        "tool_use", description="or MODULE:CLASS, a class of one's own"
    )
    options: dict[str, JsonValue] = Field(
        {}, description="MODULE:CLASS, reasoning_gym and worlds: what the class is called with"
    )
    timeout: float = Field(
        30.0,
        ge=0,
        description="MODULE:CLASS, reasoning_gym: seconds for one turn in a worker process; 0: in this process",
    )
    tasks: Path | None = Field(None, description="python_checker: JSONL of tasks with their checkers")
    catalogue: Path | None = Field(
        None, description="functions: JSONL, a JSON list of tools or an OpenAPI document; none: the built-in catalogue"
    )
    request: Literal["rendered", "written"] = "rendered"
    max_calls: int = Field(4, ge=1, le=4, description="tool_use: calls per task")
    shots: int = Field(0, ge=0, le=8, description="tool_use: solved examples before each request")
    seeds: Path | None = Field(None, description="JSONL of seed specifications; none: made from the catalogue")
    families: tuple[str, ...] = Field((), description="families of seeds to be used; none: all")
    seed_count: int = Field(200, ge=1, description="number of seeds made when no file is given")

    @model_validator(mode="after")
    def _options_have_a_taker(self) -> DomainConfig:
        if self.options and ":" not in self.name and self.name not in WITH_OPTIONS:
            raise ValueError(f"options: not for {self.name}, only for MODULE:CLASS and {', '.join(WITH_OPTIONS)}")
        return self


class CurriculumConfig(Section):
    """The alpha-curriculum: what the simulator is paid for and which families it is asked for."""

    source: Literal["simulator", "offline", "privileged", "seeds"] = Field(
        "simulator",
        description="where tasks come from: written in each round, or a set that round 1 fixes: written by the simulator "
        "(offline), drawn like the held-out tasks (privileged), the seeds themselves",
    )
    set_size: float = Field(1.0, gt=0, description="offline, privileged: tasks in the set per seed")
    reward: Signal = Field("alpha", description="what a task earns the simulator: Eq. 3, or the signal of other work")
    alpha: float = Field(0.5, gt=0, lt=1)
    beta: float = Field(8.0, gt=0, description="sharpness of R_env (Eq. 3)")
    p_hat: Literal["task", "family", "batch"] = Field("task", description="the success that R_env is computed from")
    k_min: float | None = Field(
        None, ge=0, description="skip the simulator's update if |p_hat - alpha| of the batch is larger"
    )
    mixed_only: bool = Field(True, description="leave tasks that were always or never solved out of the regression")
    families: Literal["reward", "even"] = Field("reward", description="draw families by R_env of their posterior")
    family_beta: float = Field(24.0, gt=0, description="sharpness of R_env where it draws families")
    floor: float = Field(0.05, ge=0, description="added to every family's weight")
    memory: float = Field(0.5, gt=0, le=1, description="share of the family counts that survives a round")
    parents: float = Field(0.25, ge=0, le=1, description="share of examples drawn from D_env instead of the seeds")
    edits: float = Field(0.0, ge=0, le=1, description="share of orders that ask for an edit of a task from D_train")
    drop: float = Field(
        0.0, ge=0, lt=0.5, description="share of a round's tasks, at each end of success, that neither player trains on"
    )
    share: int = Field(3, ge=0, description="near-identical tasks of so many rounds share one reward; 0: off")
    stuck: float = Field(
        0.25, gt=0, le=1, description="factor on families whose success does not rise with training; 1: off"
    )
    alarm_share: float = Field(
        0.9, ge=0, le=1, description="warn if the simulator writes more of one family, whatever is asked for; 1: off"
    )
    alarm_variety: float = Field(
        0.3, ge=0, le=1, description="warn if a round's variety is below this share of the seeds'; 0: off"
    )


class SimulatorConfig(Section):
    """pi_env: how many tasks it writes and how it learns (RWR)."""

    tasks: int = Field(24, ge=1, description="candidates a round")
    fill: bool = Field(
        False,
        description="write again for what was turned away: each round has exactly tasks * (1 + agent.replay) groups",
    )
    train: bool = True
    lr: float = Field(1e-3, gt=0)
    weight_temperature: float = Field(3.0, ge=0, description="lambda in w = exp(lambda R_env)")
    kl: float = Field(0.01, ge=0, description="KL anchor to the base model")
    anchor: float = Field(0.5, ge=0, description="seed specifications per admitted task in the same step")
    replay: float = Field(0.25, ge=0, description="tasks from D_env per admitted task in the same step")
    warmup: int = Field(0, ge=0, description="supervised steps on the seeds' specifications before round 1")
    warmup_lr: float = Field(5e-4, gt=0)
    max_tokens: int = Field(256, ge=8)
    temperature: float = Field(1.0, gt=0)


class AgentConfig(Section):
    """pi_agent: how it plays and how it learns (GRPO)."""

    group_size: int = Field(8, ge=1)
    train: bool = True
    lr: float = Field(1e-3, gt=0)
    lr_final: float = Field(1.0, ge=0, le=1, description="share of lr left in the last round; it falls linearly")
    loss: Literal["importance_sampling", "ppo"] = "ppo"
    clip: float = Field(0.2, gt=0)
    kl: float = Field(0.001, ge=0)
    normalize: bool = Field(True, description="divide advantages by the group's standard deviation")
    warmup: int = Field(0, ge=0, description="supervised steps on the seeds' reference solutions before round 1")
    warmup_lr: float = Field(5e-4, gt=0)
    steps: int = Field(2, ge=1, description="optimizer steps a round, each on a share of the groups")
    replay: float = Field(0.25, ge=0, description="tasks from D_train per fresh task")
    max_tokens: int = Field(160, ge=1, description="tokens per turn")
    max_prompt_tokens: int | None = Field(None, ge=1, description="longer prompts are no tasks; none: no limit")
    max_turns: int = Field(8, ge=1)


class EvalConfig(Section):
    """The held-out tasks."""

    tasks: int = Field(64, ge=0)
    rollouts: int = Field(4, ge=1)
    temperature: float = Field(1.0, ge=0)
    every: int = Field(10, ge=1, description="rounds between evaluations; the first and last round always have one")


WARMUP_BATCH = 4
"""Seeds in one supervised step."""


class LogConfig(Section):
    """Copies of the metrics to other tools."""

    tensorboard: bool = False
    wandb: str | None = Field(None, description="project name")


class Config(Section):
    """A whole run."""

    recipe: Literal["genenv", "paper"] = "genenv"
    seed: int = 0
    rounds: int = Field(50, ge=1)
    checkpoint_every: int = Field(1, ge=1)
    engine: EngineConfig = EngineConfig()
    teacher: ServerConfig = ServerConfig()
    domain: DomainConfig = DomainConfig()
    curriculum: CurriculumConfig = CurriculumConfig()
    simulator: SimulatorConfig = SimulatorConfig()
    agent: AgentConfig = AgentConfig()
    eval: EvalConfig = EvalConfig()
    log: LogConfig = LogConfig()

    @model_validator(mode="after")
    def _teachers_are_frozen(self) -> Config:
        if self.teacher.model is not None and (self.simulator.train or self.simulator.warmup):
            raise ValueError("teacher.model cannot be trained: set simulator.train = false and simulator.warmup = 0")
        return self

    @model_validator(mode="after")
    def _filled_rounds_are_equal(self) -> Config:
        if self.simulator.fill and self.curriculum.edits:
            raise ValueError(
                "simulator.fill makes all rounds equally large, and edits add the tasks that they edit: set "
                "curriculum.edits = 0"
            )
        return self

    @model_validator(mode="after")
    def _sets_are_fixed(self) -> Config:
        source, set_size = self.curriculum.source, self.curriculum.set_size
        if source != "simulator" and (self.simulator.train or self.agent.replay or self.curriculum.edits):
            raise ValueError(
                f"curriculum.source = {source} is a fixed set, played again and again: set simulator.train = false, "
                "agent.replay = 0 and curriculum.edits = 0"
            )
        if source in ("simulator", "seeds") and set_size != 1.0:
            raise ValueError(
                f"curriculum.set_size = {set_size:g} is for offline and privileged sets, found source = {source}"
            )
        return self


# SPEC section 1 to the letter: unsharpened reward, batch filter, lambda 1, KL anchor, even seeds, no own anchor
RECIPES: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "genenv": {},
    "paper": {
        "curriculum": {
            "beta": 2.0, "k_min": 0.1, "mixed_only": False, "families": "even", "parents": 0.0,
            "share": 0, "stuck": 1.0, "alarm_share": 1.0, "alarm_variety": 0.0,
        },
        "simulator": {"weight_temperature": 1.0, "anchor": 0.0, "replay": 1.0},
        "agent": {"replay": 1.0},
    },
}  # fmt: skip


def load_config(path: Path, overrides: Sequence[str] = ()) -> Config:
    """Read a file, apply `a.b=c` overrides. Raises InputError naming file, section and key.

    The files of its section domain are looked for beside it; those that an override names, in the working directory.
    """
    raw = anchored(read_raw(path), path.parent)
    for override in overrides:
        _override(raw, override)
    return build_config(anchored(raw, Path()), str(path))


def anchored(raw: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """`raw` with the files of its section domain as absolute paths: a run's copy of them does not hang on where it is read."""
    domain = raw.get("domain")
    if not isinstance(domain, Mapping):
        return dict(raw)  # a wrong type is for the validation to say
    files = {k: str((folder / domain[k]).resolve()) for k in DOMAIN_FILES if isinstance(domain.get(k), str)}
    return merge(raw, {"domain": files})


def read_raw(path: Path) -> dict[str, Any]:
    """A TOML file, or a run's resolved config.json, as it stands. Raises InputError naming the file."""
    try:
        text = path.read_text("utf-8-sig")
        raw = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise InputError(f"cannot read the configuration {path}: {error.strerror}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, json.JSONDecodeError) as error:
        kind = "JSON" if path.suffix == ".json" else "TOML"
        raise InputError(f"{path}: not valid {kind}: {error}") from None
    if not isinstance(raw, dict):
        raise InputError(f"{path}: expected the configuration as a JSON object")
    return raw


def build_config(raw: dict[str, Any], source: str) -> Config:
    """Validate a nested dictionary. Raises InputError with one line."""
    recipe = raw.get("recipe", "genenv")
    merged = merge(RECIPES.get(recipe, {}) if isinstance(recipe, str) else {}, raw)
    try:
        return Config.model_validate(merged)
    except ValidationError as error:
        raise InputError(f"{source}: {explain(error, Config)}") from None


def _override(raw: dict[str, Any], text: str) -> None:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise InputError(f"--set {text}: expected KEY=VALUE, for example --set agent.group_size=4")
    *sections, name = key.strip().split(".")
    target = raw
    for section in sections:
        target = target.setdefault(section, {})
        if not isinstance(target, dict):
            raise InputError(f"--set {text}: {section} is a value, not a section")
    try:
        target[name] = tomllib.loads(f"x = {value}")["x"]
    except tomllib.TOMLDecodeError:
        target[name] = value  # a bare word is a string


def merge(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """`given` over `defaults`, section by section."""
    merged = dict(defaults)
    for key, value in given.items():
        below = merged.get(key)
        merged[key] = merge(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return merged


def _sections(model: type[BaseModel]) -> dict[str, type[BaseModel]]:
    """Section name to its model; the top level is ""."""
    named = {n: f.annotation for n, f in model.model_fields.items()}
    return {"": model} | {n: a for n, a in named.items() if isinstance(a, type) and issubclass(a, BaseModel)}


def explain(error: ValidationError, model: type[BaseModel]) -> str:
    """The first fault of a file that was to be a `model`, on one line, with the nearest valid key."""
    found = error.errors()
    first = next((e for e in found if e["type"] == "extra_forbidden"), found[0])  # a wrong name explains a missing one
    where = ".".join(map(str, first["loc"]))
    if not where:  # a rule about several sections
        return first["msg"].removeprefix("Value error, ")
    if first["type"] == "value_error":
        return f"{where}: {first['msg'].removeprefix('Value error, ')}"
    if first["type"] != "extra_forbidden":
        return f"{where}: {first['msg']}, found {json.dumps(first['input'], default=str)[:80]}"
    *parents, key = map(str, first["loc"])
    sections = _sections(model)
    here = sections.get(".".join(parents))
    homes = [f"{s}.{key}" if s else key for s, m in sections.items() if key.replace("-", "_") in m.model_fields]
    near = difflib.get_close_matches(key.replace("-", "_"), list(here.model_fields) if here else [], n=1)
    hints = [".".join([*parents, near[0]])] if near else [h.replace("-", "_") for h in homes]
    hint = f"; did you mean {hints[0]}?" if hints else ""
    return f"unknown key {where}{hint}"
