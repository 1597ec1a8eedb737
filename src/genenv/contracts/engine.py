"""The engine seam: two trainable policies on one base model, in the Tinker vocabulary.

`sample`, `forward_backward`, `optim_step`, `save_state`, `load_state`. The losses are sums over tokens, so the caller
decides on the normalisation by its weights:

- cross_entropy        -sum_t w_t log pi(t)                              (RWR: w from the reward)
- importance_sampling  -sum_t A_t pi(t) / pi_old(t)                      (GRPO without clipping)
- ppo                  -sum_t min(r_t A_t, clip(r_t, 1-c, 1+c) A_t)      (GRPO, clipped)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from genenv.contracts.types import Chat, Datum, Message, Sample, SampleRequest

LossName = Literal["cross_entropy", "importance_sampling", "ppo"]
Player = Literal["agent", "simulator"]
PLAYERS: tuple[Player, Player] = ("agent", "simulator")
CACHE_FACTOR = 8
"""Tokens of sampling cache per token of the training budget: a cached token needs far less memory."""


@dataclass(frozen=True)
class Loss:
    """Which loss, and the clip range of ppo."""

    name: LossName
    clip: float = 0.2


@dataclass(frozen=True)
class AdamParams:
    """AdamW for one step. `max_grad_norm` 0 does not clip."""

    lr: float
    beta1: float = 0.9
    beta2: float = 0.95
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0


@dataclass(frozen=True)
class TrainStats:
    """What a forward_backward saw: the loss (a sum), tokens with a weight, mean ratio, share of clipped tokens."""

    loss: float
    tokens: int
    ratio: float = 1.0
    clipped: float = 0.0


class ChatFormat(Protocol):
    """Messages to tokens and back, for one model. `eos` ends a turn."""

    eos: int

    def render(self, chat: Chat) -> str:
        """The prompt as text, up to where the model continues."""
        ...

    def encode(self, chat: Chat) -> tuple[int, ...]:
        """The prompt as tokens."""
        ...

    def encode_text(self, text: str) -> tuple[int, ...]: ...

    def turn(self, messages: Sequence[Message], ended: bool) -> tuple[int, ...]:
        """Tokens between the agent's last token and its next turn; `ended`: whether the agent wrote `eos` itself."""
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """What the model wrote, without `eos`."""
        ...


class Policy(Protocol):
    """One player's adapter. `version` counts its optimizer steps and is stamped on every sample."""

    version: int

    @property
    def chat(self) -> ChatFormat:
        """The format of its prompts and samples, which players on different models do not share."""
        ...

    def sample(self, requests: Sequence[SampleRequest]) -> list[list[Sample]]:
        """One list of samples per request, one sample per seed. The same seed gives the same sample."""
        ...

    def logprobs(self, data: Sequence[Datum]) -> list[tuple[float, ...]]:
        """Logprob of each token of each datum under the current weights, 0 where its weight is 0."""
        ...

    def forward_backward(self, data: Sequence[Datum], loss: Loss) -> TrainStats:
        """Add the gradient of `loss` over `data` to the accumulated one."""
        ...

    def optim_step(self, params: AdamParams) -> float | None:
        """Take one step with the accumulated gradient and clear it.

        Returns the gradient's norm before clipping, None where a server does not tell it.
        """
        ...

    def save_state(self, folder: Path) -> None:
        """Write adapter (PEFT format where there is one) and optimizer state into an existing folder."""
        ...

    def load_state(self, folder: Path) -> None: ...


@runtime_checkable
class Differentiable(Protocol):
    """A policy that shows its gradient, as one in this process can. Servers keep theirs."""

    def gradient(self, data: Sequence[Datum], loss: Loss) -> NDArray[np.float32]:
        """(P,) gradient of `loss` over `data` in the adapter's parameters. What has been accumulated stays as it was."""
        ...


class Engine(Protocol):
    """Two policies that start from one base model."""

    model_name: str
    context: int | None
    """Tokens that the model takes at most, prompt and answer together; None where that is not known."""
    concurrent: bool
    """Whether the two policies may be used from two threads at once, as where a server does the work."""

    @property
    def chat(self) -> ChatFormat: ...

    def policy(self, player: Player) -> Policy: ...

    def base_logprobs(self, data: Sequence[Datum]) -> list[tuple[float, ...]]:
        """As `Policy.logprobs`, with adapters off: the reference of every KL term."""
        ...

    def close(self) -> None: ...
