"""From rewards to training data: GRPO for the agent, reward-weighted regression (RWR) for the simulator.

Pure functions. The KL terms need no loss of their own: with r = pi_ref / pi the k3 estimator is r - log r - 1, and its
gradient is (1 - r) times that of log pi, so `kl * (1 - r)` is subtracted from each token's weight. At the sampling
policy this is the exact k3 gradient, and every engine that knows cross_entropy and importance_sampling can do it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from genenv.contracts.types import Candidate, Datum, Group, Trajectory

MAX_LOG_RATIO = 20.0
"""Bound on log(pi_ref / pi): keeps exp finite; values within it are not changed."""


def _ratio(logprob: float, reference: float) -> float:
    return math.exp(min(reference - logprob, MAX_LOG_RATIO))


def k3(logprob: float, reference: float) -> float:
    """The k3 estimator of KL(pi || pi_ref) at one sampled token, >= 0."""
    return _ratio(logprob, reference) - (reference - logprob) - 1.0


def k3_weight(logprob: float, reference: float) -> float:
    """d k3 / d logprob."""
    return 1.0 - _ratio(logprob, reference)


def group_advantages(rewards: Sequence[float | None], normalize: bool) -> list[float]:
    """GRPO: reward minus the group's mean, over its standard deviation if `normalize`.

    Unscored attempts get 0 and have no part in the mean. A group without variance gives zeros.
    """
    scored = [r for r in rewards if r is not None]
    if len(scored) < 2 or max(scored) - min(scored) < 1e-9:
        return [0.0] * len(rewards)
    mean = fmean(scored)
    scale = math.sqrt(fmean((r - mean) ** 2 for r in scored)) if normalize else 1.0
    return [0.0 if r is None else (r - mean) / scale for r in rewards]


def has_signal(group: Group) -> bool:
    """Whether GRPO learns anything from this group."""
    return any(group_advantages(group.rewards, False))


def _datum(trajectory: Trajectory, advantage: float, group: int) -> Datum:
    weights = tuple(advantage if m else 0.0 for m in trajectory.mask)
    return Datum(trajectory.tokens, weights, trajectory.prompt_length, trajectory.logprobs, group)


def grpo_data(groups: Sequence[Group], normalize: bool) -> list[Datum]:
    """One datum per attempt of a group with variance: its advantage on every token that the agent wrote.

    Weights are divided by the number of such tokens, so that the loss is a mean over tokens.
    """
    data = [
        _datum(trajectory, advantage, index)
        for index, group in enumerate(groups)
        for trajectory, advantage in zip(group.trajectories, group_advantages(group.rewards, normalize), strict=True)
        if advantage
    ]
    return scaled(data, 1.0 / max(1, sum(sum(w != 0 for w in d.weights) for d in data)))


def scaled(data: Sequence[Datum], factor: float) -> list[Datum]:
    """Data with every weight multiplied by `factor`."""
    return [replace(d, weights=tuple(w * factor for w in d.weights)) for d in data]


@dataclass(frozen=True)
class Anchored:
    """Data with the KL term folded into their weights, and the mean k3 over their tokens."""

    data: list[Datum]
    kl: float


def with_kl(data: Sequence[Datum], references: Sequence[Sequence[float]], coefficient: float) -> Anchored:
    """Subtract `coefficient * d k3` on each trained token. Data need sampling logprobs; the mean is per token."""
    tokens = max(1, sum(sum(w != 0 for w in d.weights) for d in data))
    anchored, total = [], 0.0
    for datum, reference in zip(data, references, strict=True):
        weights = list(datum.weights)
        for t, weight in enumerate(weights):
            if weight:
                total += k3(datum.logprobs[t], reference[t])
                weights[t] = weight - coefficient * k3_weight(datum.logprobs[t], reference[t]) / tokens
        anchored.append(replace(datum, weights=tuple(weights)))
    return Anchored(anchored, total / tokens)


def rwr_weights(rewards: Sequence[float], temperature: float) -> list[float]:
    """RWR: w_i proportional to exp(lambda R_env_i), scaled to a mean of 1."""
    if not rewards:
        return []
    top = max(rewards)  # the largest exponent is 0: no overflow, same proportions
    raw = [math.exp(temperature * (r - top)) for r in rewards]
    mean = fmean(raw)
    return [w / mean for w in raw]


def shared(weights: Sequence[float], divisors: Sequence[float]) -> list[float]:
    """Each weight over its divisor, scaled to the old sum. With the size of a cluster, near-identical tasks count once."""
    raw = [w / d for w, d in zip(weights, divisors, strict=True)]
    scale = sum(weights) / sum(raw) if sum(raw) else 1.0
    return [w * scale for w in raw]


def rwr_data(candidates: Sequence[Candidate], weights: Sequence[float]) -> list[Datum]:
    """One datum per candidate with its weight on every token that the simulator wrote, a weighted mean over tokens."""
    data = []
    for candidate, weight in zip(candidates, weights, strict=True):
        prompt, sample = candidate.prompt, candidate.sample
        data.append(
            Datum(
                prompt + sample.tokens,
                (0.0,) * len(prompt) + (weight,) * len(sample.tokens),
                len(prompt),
                (0.0,) * len(prompt) + sample.logprobs,
            )
        )
    return normalized(data)


def normalized(data: Sequence[Datum]) -> list[Datum]:
    """Weights scaled to a sum of 1 over all tokens."""
    total = sum(sum(d.weights) for d in data)
    return scaled(data, 1.0 / total) if total else []
