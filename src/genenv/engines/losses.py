"""The losses of the engine seam (`contracts.engine`), token by token, for engines that compute them in this process."""

from __future__ import annotations

import torch
from torch import Tensor


def loss_terms(name: str, logprob_N: Tensor, old_N: Tensor, weight_N: Tensor, clip: float) -> tuple[Tensor, Tensor]:
    """(loss per token, ratio per token); see `contracts.engine` for the formulas."""
    if name == "cross_entropy":
        return -weight_N * logprob_N, torch.ones_like(logprob_N)
    # a ratio beyond e^20 is a broken sample, not information: bounded, so that it stays finite
    ratio_N = (logprob_N - old_N).clamp(-20.0, 20.0).exp()
    if name == "importance_sampling":
        return -weight_N * ratio_N, ratio_N
    if name == "ppo":
        clipped_N = ratio_N.clamp(1.0 - clip, 1.0 + clip)
        return -torch.minimum(ratio_N * weight_N, clipped_N * weight_N), ratio_N
    raise ValueError(f"unknown loss {name!r}")
