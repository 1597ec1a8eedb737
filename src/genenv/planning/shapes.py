"""Shapes of dense decoders: what a calculation of memory and time needs to know of a model, without its weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from genenv.contracts.errors import InputError
from genenv.contracts.types import Json
from genenv.models import resolve

FAMILIES = ("llama", "qwen2", "qwen3")


@dataclass(frozen=True)
class Shape:
    """A dense decoder: grouped-query attention, gated MLP, RMS norms."""

    width: int
    layers: int
    heads: int
    kv_heads: int
    head: int
    inner: int
    vocabulary: int
    tied: bool
    qkv_bias: bool = False
    qk_norm: bool = False

    @property
    def attention(self) -> int:
        """Width of all query heads together."""
        return self.heads * self.head

    @property
    def kv(self) -> int:
        """Width of all keys (or values) together."""
        return self.kv_heads * self.head

    @property
    def body(self) -> int:
        """Weights outside embedding and head."""
        mixing = 2 * self.width * self.attention + 2 * self.width * self.kv + 3 * self.width * self.inner
        extra = 2 * self.width
        extra += (self.attention + 2 * self.kv) * self.qkv_bias + 2 * self.head * self.qk_norm
        return self.layers * (mixing + extra) + self.width

    @property
    def embedding(self) -> int:
        """Weights of the embedding, which is the head as well in a tied model."""
        return self.vocabulary * self.width

    @property
    def parameters(self) -> int:
        return self.body + self.embedding * (1 if self.tied else 2)

    def adapter(self, rank: int) -> int:
        """Weights of one LoRA adapter on all linear layers but the head."""
        inputs_and_outputs = (
            2 * (self.width + self.attention) + 2 * (self.width + self.kv) + 3 * (self.width + self.inner)
        )
        return self.layers * rank * inputs_and_outputs

    def cache(self, item: int) -> int:
        """Bytes of keys and values for one token, `item` bytes a number."""
        return 2 * self.layers * self.kv * item


PUBLISHED: Mapping[str, Shape] = {
    "HuggingFaceTB/SmolLM2-135M-Instruct": Shape(576, 30, 9, 3, 64, 1536, 49152, True),
    "HuggingFaceTB/SmolLM2-360M-Instruct": Shape(960, 32, 15, 5, 64, 2560, 49152, True),
    "Qwen/Qwen2.5-0.5B-Instruct": Shape(896, 24, 14, 2, 64, 4864, 151936, True, qkv_bias=True),
    "Qwen/Qwen2.5-1.5B-Instruct": Shape(1536, 28, 12, 2, 128, 8960, 151936, True, qkv_bias=True),
    "Qwen/Qwen2.5-3B-Instruct": Shape(2048, 36, 16, 2, 128, 11008, 151936, True, qkv_bias=True),
    "Qwen/Qwen2.5-7B-Instruct": Shape(3584, 28, 28, 4, 128, 18944, 152064, False, qkv_bias=True),
    "Qwen/Qwen2.5-14B-Instruct": Shape(5120, 48, 40, 8, 128, 13824, 152064, False, qkv_bias=True),
    "Qwen/Qwen3-0.6B": Shape(1024, 28, 16, 8, 128, 3072, 151936, True, qk_norm=True),
    "Qwen/Qwen3-1.7B": Shape(2048, 28, 16, 8, 128, 6144, 151936, True, qk_norm=True),
    "Qwen/Qwen3-4B": Shape(2560, 36, 32, 8, 128, 9728, 151936, True, qk_norm=True),
    "Qwen/Qwen3-8B": Shape(4096, 36, 32, 8, 128, 12288, 151936, False, qk_norm=True),
}
"""From the models' own config.json, so that a plan needs no download."""


def parse(description: Mapping[str, Json], source: str) -> Shape:
    """A shape from the content of a config.json. Raises InputError for other kinds of model."""
    kind = description.get("model_type")
    if kind not in FAMILIES:
        raise InputError(f"{source}: expected a model_type among {', '.join(FAMILIES)}, found {kind}")
    width, heads = description["hidden_size"], description["num_attention_heads"]
    return Shape(
        width=width,
        layers=description["num_hidden_layers"],
        heads=heads,
        kv_heads=description.get("num_key_value_heads") or heads,
        head=description.get("head_dim") or width // heads,
        inner=description["intermediate_size"],
        vocabulary=description["vocab_size"],
        tied=bool(description.get("tie_word_embeddings")),
        qkv_bias=kind == "qwen2",
        qk_norm=kind == "qwen3",
    )


def shape_of(model: str) -> Shape:
    """The shape of a model on this machine, or of a published one. Raises InputError where neither is known."""
    if model in PUBLISHED:
        return PUBLISHED[model]
    description = Path(resolve(model)) / "config.json"
    if not description.is_file():
        known = ", ".join(sorted(PUBLISHED))
        raise InputError(f"model {model}: not on this machine and not among the known shapes: {known}")
    return parse(json.loads(description.read_text("utf-8")), str(description))
