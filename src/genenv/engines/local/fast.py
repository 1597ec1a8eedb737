"""The forward pass of dense Llama and Qwen decoders on a CPU, without gradients: the same function in fewer operations.

What `transformers` and `peft` compute, with the adapter merged into the weights, the projections of one input in one
product, weights in the layout that the CPU's matrix product wants, and no layer of indirection. Only in float32: in a
shorter format a small adapter would be lost in the merge. Other models and devices go the way of `transformers`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.functional import embedding, linear, rms_norm, scaled_dot_product_attention, silu

FAMILIES = {"llama", "qwen2", "qwen3"}
ROPES = {"default", "linear", "llama3"}
"""Rotary embeddings that depend on the position alone."""


class CacheLayer(Protocol):
    """Keys and values of one layer: `update` appends (B, KV heads, T, width) and returns all, in order."""

    def update(self, key_states: Tensor, value_states: Tensor) -> tuple[Tensor, Tensor]: ...


def supported(model: Any) -> bool:
    """Whether a causal language model is one that this module computes rightly."""
    config = model.config
    rope = getattr(config, "rope_parameters", None) or {}
    return (
        config.model_type in FAMILIES
        and config.hidden_act == "silu"
        and rope.get("rope_type", "default") in ROPES
        and rope.get("partial_rotary_factor", 1.0) == 1.0
        and not getattr(config, "use_sliding_window", False)
        and not getattr(config, "mlp_bias", False)
        and getattr(config, "pretraining_tp", 1) == 1
        and model.device.type == "cpu"
        and model.dtype == torch.float32
    )


PACKED_FROM = 1 << 19
"""Weights from which a packed layout pays: smaller ones stay in the caches."""


class _Product:
    """x W^T + b, with a large W packed once where the CPU build of torch can: twice as fast for a handful of rows."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self._bias = bias
        packed = _packed(weight)
        self._is_packed = packed is not None
        self._weight = weight if packed is None else packed

    def __call__(self, x: Tensor) -> Tensor:
        if self._is_packed:
            out: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, "none", [], "")
            return out
        return linear(x, self._weight, self._bias)


def _packed(weight: Tensor) -> Tensor | None:
    """The weight in the layout of the CPU's product; None where that does not pay or cannot be done."""
    if weight.numel() < PACKED_FROM or not torch._C._has_mkldnn:
        return None
    try:
        packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, None)
    except (AttributeError, RuntimeError):  # an inner operation of torch, which not every build and processor has
        return None
    return packed


@dataclass(frozen=True)
class _Layer:
    """Weights of one block; `qk_norm` holds a row for each head of queries and keys."""

    norm: Tensor
    qkv: _Product
    qk_norm: Tensor | None
    out: _Product
    mlp_norm: Tensor
    gate_up: _Product
    down: _Product


def _merged(module: Any, adapter: str | None) -> Tensor:
    """The weight of a linear layer with one adapter in it."""
    base = getattr(module, "base_layer", module)
    weight: Tensor = base.weight.detach()
    if adapter is None or adapter not in getattr(module, "lora_A", {}):
        return weight
    delta: Tensor = module.get_delta_weight(adapter).detach()
    return weight + delta


class FastDecoder:
    """One causal language model with one adapter merged in (None: the base model)."""

    def __init__(self, model: Any, adapter: str | None) -> None:
        config = model.config
        self._eps = config.rms_norm_eps
        self._heads, self._kv_heads = config.num_attention_heads, config.num_key_value_heads
        self._width = getattr(config, "head_dim", None) or config.hidden_size // self._heads
        body = model.model
        self._rotary = body.rotary_emb
        self._cos = self._sin = torch.empty(0, self._width)
        self._embedding = body.embed_tokens.weight.detach()
        self._norm = body.norm.weight.detach()
        self._head = _Product(_merged(model.lm_head, adapter))
        self._layers = [self._layer(block, adapter) for block in body.layers]

    def _layer(self, block: Any, adapter: str | None) -> _Layer:
        def product(*modules: Any) -> _Product:
            biases = [getattr(m, "base_layer", m).bias for m in modules]
            bias = torch.cat([b.detach() for b in biases]) if biases[0] is not None else None
            return _Product(torch.cat([_merged(m, adapter) for m in modules]), bias)

        attention, mlp = block.self_attn, block.mlp
        norms = None
        if hasattr(attention, "q_norm"):
            query, key = attention.q_norm.weight.detach(), attention.k_norm.weight.detach()
            norms = torch.cat([query.expand(self._heads, -1), key.expand(self._kv_heads, -1)])
        return _Layer(
            block.input_layernorm.weight.detach(),
            product(attention.q_proj, attention.k_proj, attention.v_proj),
            norms,
            product(attention.o_proj),
            block.post_attention_layernorm.weight.detach(),
            product(mlp.gate_proj, mlp.up_proj),
            product(mlp.down_proj),
        )

    @property
    def depth(self) -> int:
        return len(self._layers)

    def _rotation(self, positions_BT: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin (B, T, 1, width) at the positions."""
        if (needed := int(positions_BT.max()) + 1) > len(self._cos):
            table = torch.arange(max(needed, 2 * len(self._cos)))[None]
            cos, sin = self._rotary(self._embedding[:1], table)
            self._cos, self._sin = cos[0], sin[0]
        return self._cos[positions_BT][:, :, None], self._sin[positions_BT][:, :, None]

    def hidden(
        self,
        tokens_BT: Tensor,
        positions_BT: Tensor,
        mask_B1TS: Tensor | None,
        cache: Sequence[CacheLayer] | None = None,
    ) -> Tensor:
        """(B, T, D) after the last norm. `mask` says which of the S cached and new tokens each new one sees (None: all before it)."""
        batch, length = tokens_BT.shape
        cos, sin = self._rotation(positions_BT)
        half = self._width // 2
        x = embedding(tokens_BT, self._embedding)
        together = self._heads + self._kv_heads
        for i, layer in enumerate(self._layers):
            qkv = layer.qkv(self._normed(x, layer.norm)).view(batch, length, -1, self._width)
            qk, value = qkv[:, :, :together], qkv[:, :, together:]
            if layer.qk_norm is not None:
                qk = rms_norm(qk, (self._width,), None, self._eps) * layer.qk_norm
            qk = qk * cos + torch.cat([-qk[..., half:], qk[..., :half]], -1) * sin
            query, key, value = qk[:, :, : self._heads].transpose(1, 2), qk[:, :, self._heads :].transpose(1, 2), value.transpose(1, 2)  # fmt: skip
            if cache is not None:
                key, value = cache[i].update(key, value)
            x = x + layer.out(self._attention(query, key, value, mask_B1TS))
            gate, up = layer.gate_up(self._normed(x, layer.mlp_norm)).chunk(2, -1)
            x = x + layer.down(silu(gate) * up)
        return self._normed(x, self._norm)

    def _normed(self, x: Tensor, weight: Tensor) -> Tensor:
        return rms_norm(x, (x.shape[-1],), weight, self._eps)

    def _attention(self, query: Tensor, key: Tensor, value: Tensor, mask_B1TS: Tensor | None) -> Tensor:
        batch, heads, length, width = query.shape
        share = heads // key.shape[1]
        if length == 1:  # the heads that share a key act as that many queries, so that keys are read in place
            query = query.reshape(batch, -1, share, width)
            return scaled_dot_product_attention(query, key, value, mask_B1TS).reshape(batch, 1, -1)
        key, value = key.repeat_interleave(share, 1), value.repeat_interleave(share, 1)
        out = scaled_dot_product_attention(query, key, value, mask_B1TS, is_causal=mask_B1TS is None)
        return out.transpose(1, 2).reshape(batch, length, -1)

    def logits(self, hidden: Tensor) -> Tensor:
        return self._head(hidden)
