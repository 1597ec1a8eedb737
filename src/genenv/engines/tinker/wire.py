"""Data and losses in a Tinker server's words, and its answers in ours: pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from genenv.contracts.engine import Loss, TrainStats
from genenv.contracts.errors import EngineError
from genenv.contracts.types import Datum
from genenv.engines.losses import loss_terms

Reduction = Literal["sum", "mean"]


def chunks(data: Sequence[Datum], budget: int) -> Iterator[list[int]]:
    """Indices of the data, shortest first, in parts of at most `budget` tokens with padding (a longer one is alone)."""
    part: list[int] = []
    for i in sorted(range(len(data)), key=lambda i: len(data[i].tokens)):
        if part and (len(part) + 1) * len(data[i].tokens) > budget:
            yield part
            part = []
        part.append(i)
    if part:
        yield part


@dataclass(frozen=True)
class LossCall:
    """A loss in the server's words: its name, its settings, and the inputs of each datum beside the targets."""

    name: str
    settings: dict[str, float] | None
    inputs: list[dict[str, list[float]]]


def loss_call(data: Sequence[Datum], loss: Loss, reduction: Reduction) -> LossCall:
    """The call whose gradient is that of `loss`, summed over tokens. All data have a weight."""
    mean = reduction == "mean"
    name: str = loss.name
    settings = None
    if name == "cross_entropy" and not mean:
        return LossCall(name, settings, [{"weights": list(d.weights[1:])} for d in data])
    if name == "ppo":
        settings = {"clip_low_threshold": 1.0 - loss.clip, "clip_high_threshold": 1.0 + loss.clip}
    if name == "cross_entropy":
        # its weights would be divided by their own sum; cispo with its ratio held at 1 is cross_entropy with advantages
        name, settings = "cispo", {"clip_low_threshold": 1.0, "clip_high_threshold": 1.0}
    inputs = []
    for d in data:
        length = len(d.tokens) - 1
        scale = float(len(data) * length) if mean else 1.0
        logprobs = list(d.logprobs[1:]) or [0.0] * length
        inputs.append({"advantages": [w * scale for w in d.weights[1:]], "logprobs": logprobs})
    return LossCall(name, settings, inputs)


def spread(data: Sequence[Datum], values: Sequence[Sequence[float | None]]) -> list[tuple[float, ...]]:
    """Per datum, a logprob per token, 0 where its weight is 0. `values` has one row per datum with a weight.

    A row may or may not have an entry for the first token, which nothing predicts.
    """
    rows = iter(values)
    spreads: list[tuple[float, ...]] = []
    for datum in data:
        row = [0.0] * len(datum.tokens)
        if any(datum.weights):
            own = list(next(rows))[1 - len(datum.tokens) :]
            if len(own) != len(datum.tokens) - 1:
                raise EngineError(f"expected {len(datum.tokens) - 1} logprobs from the server, found {len(own)}")
            for t, weight in enumerate(datum.weights):
                if weight:
                    value = own[t - 1]
                    if value is None:
                        raise EngineError(f"the server left out the logprob of token {t}")
                    row[t] = value
        spreads.append(tuple(row))
    return spreads


def stats(data: Sequence[Datum], logprobs: Sequence[Sequence[float]], loss: Loss) -> TrainStats:
    """The figures of the local engine, from the server's logprobs."""
    rows = [
        (row[t], datum.logprobs[t] if datum.logprobs else 0.0, weight)
        for datum, row in zip(data, logprobs, strict=True)
        for t, weight in enumerate(datum.weights)
        if weight
    ]
    new_N, old_N, weight_N = torch.tensor(rows, dtype=torch.float64).unbind(1)
    terms_N, ratio_N = loss_terms(loss.name, new_N, old_N, weight_N, loss.clip)
    clipped = ((ratio_N - 1.0).abs() > loss.clip).double().mean()
    return TrainStats(terms_N.sum().item(), len(rows), ratio_N.mean().item(), clipped.item())
