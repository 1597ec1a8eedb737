"""The sections of a configuration: frozen, typed, unknown keys refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, model_validator

from genenv.contracts.types import RewardSignal


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
    reward: RewardSignal = Field(
        "alpha", description="what a task earns the simulator: Eq. 3, or the signal of other work"
    )
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
