"""The records that cross stages: frozen, JSON-able, identified by their content.

A run reads like this: a `Seed` conditions the simulator, which writes a `Candidate`; the gate turns it into a
`Task` and a `Verdict`; the agent plays the task G times, each attempt a `Trajectory` with a `Score`; the G attempts
are a `Group`, from which both players' rewards follow.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Json = Any
"""A JSON value. Spelled `Json` where the shape is checked elsewhere (by a schema or a pydantic model)."""

Role = Literal["system", "user", "assistant", "tool"]
Origin = Literal["simulator", "seed", "heldout", "user"]
Direction = Literal["easier", "similar", "harder"]
StopReason = Literal["stop", "length", "turn_limit", "environment_error", "engine_error"]
EditOutcome = Literal["accepted", "unmoved", "opposite", "unscored"]
"""What became of an edit once it was tried; `loop.edits` says when it is which."""
RewardSignal = Literal["alpha", "r_zero", "absolute_zero", "learnability"]
"""What the simulator may be paid by; `loop.rewards` has the formulas."""

SOLVED = 1.0
"""An attempt is a success when it earns full reward."""


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def canonical(value: Json) -> str:
    """JSON text that is equal for equal values: sorted keys, no spaces, no NaN."""
    return _CANONICAL.encode(value)


def content_id(value: Json) -> str:
    """16 hex digits of the SHA-256 of the canonical JSON: the identity of seeds and tasks."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:16]


def derive_seed(*parts: object) -> int:
    """One 63-bit seed per (run, round, task, member, ...): independent of process, platform and hash seed."""
    digest = hashlib.sha256("\x1f".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


@dataclass(frozen=True)
class Message:
    """One chat message."""

    role: Role
    content: str


@dataclass(frozen=True)
class Seed:
    """A known good specification that the simulator starts from. `family` groups tasks of like difficulty."""

    family: str
    spec: Mapping[str, Json]

    @property
    def id(self) -> str:
        return content_id(self.spec)


@dataclass(frozen=True)
class Task:
    """A whole instance: what the agent sees (`messages`, `tools`) and what it is scored against (`target`).

    `target` never reaches the agent. `key` is the content that makes two tasks the same task.
    """

    family: str
    messages: tuple[Message, ...]
    tools: tuple[Json, ...]
    target: Json
    spec: Mapping[str, Json]
    origin: Origin = "simulator"
    parent: str | None = None

    @functools.cached_property
    def id(self) -> str:
        return content_id([[(m.role, m.content) for m in self.messages], self.tools, self.target])


REASONS = {
    "unanswered": "the simulator's server gave no answer",
    "unparsable": "the simulator's text is not one JSON object",
    "schema": "the specification is not a task of this domain",
    "no_edit": "an edit that changes nothing, or more than one field of the specification",
    "ungrounded": "the request lacks a value that the answer needs",
    "too_long": "the prompt does not fit",
    "leak": "the request contains the answer itself",
    "reference_fails": "the reference solution does not earn full reward",
    "unscored": "the proof could not be run",
    "null_passes": "an empty answer, nonsense or the copied request earns a reward",
    "perturbed_passes": "a damaged answer earns a reward",
    "unstable": "the same answer does not earn the same reward every time",
    "contamination": "the task is in the evaluation set",
    "duplicate": "the task is known",
    "contradiction": "a known task has the same request and another answer",
    "admitted": "",
}
"""Why the gate turns a candidate away, in the order in which it asks; the first that applies is the verdict."""


@dataclass(frozen=True)
class Verdict:
    """The gate's decision on one candidate: `reason` is `"admitted"` or a key of `REASONS`.

    `cluster` is the id of the oldest known task that this one is nearly the same as, its own if there is none; empty
    where the candidate is no task.
    """

    reason: str
    detail: str = ""
    cluster: str = ""

    @property
    def admitted(self) -> bool:
        return self.reason == "admitted"


@dataclass(frozen=True)
class Score:
    """What an attempt earned. `value` is None when it could not be scored: unscored is not wrong.

    `answer` is what was extracted from the agent's text, for people who read the records. `checks` are the parts of a
    benchmark's verdict, by name.
    """

    value: float | None
    reason: str
    answer: Json = None
    checks: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True)
class Sample:
    """One completion as an engine returns it: tokens with the logprobs they were sampled with.

    `error` says why there is none: then nothing was written, and nobody is to blame for it.
    """

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    stopped: bool
    policy_version: int
    error: str = ""


@dataclass(frozen=True)
class Trajectory:
    """One episode, token-exact: `tokens` is all that the model saw or wrote, in order.

    `mask[t]` is 1 where the agent wrote token t, `logprobs[t]` its logprob when sampled (0 elsewhere).
    `prompt_length` counts the leading tokens that all members of a group share.
    """

    tokens: tuple[int, ...]
    mask: tuple[int, ...]
    logprobs: tuple[float, ...]
    prompt_length: int
    text: str
    score: Score
    stop: StopReason
    policy_version: int

    @property
    def written(self) -> int:
        """Number of tokens that the agent wrote."""
        return sum(self.mask)


@dataclass(frozen=True)
class Group:
    """The attempts at one task in one round, all from the same prompt and policy."""

    task: Task
    trajectories: tuple[Trajectory, ...]
    replayed: bool = False

    @property
    def rewards(self) -> list[float | None]:
        return [t.score.value for t in self.trajectories]


@dataclass(frozen=True)
class Candidate:
    """What the simulator wrote for one request, with what it saw: everything its own update needs.

    `spec` is None when the text could not be parsed; `error` then says why. `parent` is the id of the task that was to be
    edited, None for a new task.
    """

    prompt: tuple[int, ...]
    sample: Sample
    text: str
    family: str
    direction: Direction
    seed_id: str
    spec: Mapping[str, Json] | None
    error: str = ""
    parent: str | None = None


@dataclass(frozen=True)
class Datum:
    """One training sequence with a weight per token (the Tinker vocabulary, loss-agnostic).

    All sequences have T entries; `targets` are `tokens` themselves, position t is predicted from positions < t.
    `weights[t]` multiplies the logprob of token t (cross_entropy) or is its advantage (importance_sampling, ppo);
    0 leaves a token out. `logprobs[t]` are the sampling logprobs, needed by the ratio losses only.
    Data with the same `group` share their first `prompt_length` tokens, so that an engine may compute them once.
    """

    tokens: tuple[int, ...]
    weights: tuple[float, ...]
    prompt_length: int
    logprobs: tuple[float, ...] = ()
    group: int = -1


@dataclass(frozen=True)
class SampleRequest:
    """A prompt to be continued `len(seeds)` times. `schema` constrains the text to a JSON schema.

    `keep` says that a later prompt may go on from here, so that an engine may keep what it has computed.
    """

    prompt: tuple[int, ...]
    seeds: tuple[int, ...]
    max_tokens: int
    temperature: float = 1.0
    schema: Json | None = None
    keep: bool = False


@dataclass(frozen=True)
class Chat:
    """Messages plus the tools they may use: what a template turns into a prompt."""

    messages: Sequence[Message]
    tools: Sequence[Json] = field(default=())
