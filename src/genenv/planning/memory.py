"""How much memory the local engine needs, from shapes alone. `bench/memory.py` compares it with measurements.

Each formula counts the tensors that are alive at a peak; `docs/scaling.md` says how far that is from what was measured.
"""

from __future__ import annotations

from dataclasses import dataclass

from genenv.config.sections import EngineConfig
from genenv.planning.shapes import Shape

ADAM = 16
"""Bytes for each weight of an adapter: itself, its gradient and two moments, in float32."""
LOGIT_BYTES = 128 * 2**20
"""The local engine computes logits in pieces of at most so many bytes, and never fewer than 256 tokens."""
PROGRAM_CPU, PROGRAM_GPU = 450 * 2**20, 2**30
"""Interpreter and libraries: measured on a CPU, assumed for CUDA's context and workspaces."""
GAPS_CPU, GAPS_GPU = 1.65, 1.1
"""Training's heap over its live tensors: glibc leaves gaps between aligned blocks (measured 1.0 to 1.8); assumed on a GPU."""


@dataclass(frozen=True)
class Precision:
    """`item` bytes a weight; `merged`: sampling keeps a copy of the weights with one player's adapter in it;
    `program` bytes of libraries, `gaps`: heap over live tensors in training."""

    item: int
    merged: bool
    program: int
    gaps: float

    @staticmethod
    def of(engine: EngineConfig, cuda: bool) -> Precision:
        wide = engine.dtype == "float32" or (engine.dtype == "auto" and not cuda)
        program, gaps = (PROGRAM_GPU, GAPS_GPU) if cuda else (PROGRAM_CPU, GAPS_CPU)
        return Precision(4 if wide else 2, wide and not cuda, program, gaps)


@dataclass(frozen=True)
class Sampling:
    """What is sampled at once: `samples` of `written` tokens each, from `prompts` of `prompt` tokens."""

    prompts: int
    samples: int
    prompt: int
    written: int


@dataclass(frozen=True)
class Training:
    """What is trained at once: `tokens` in rows of `row`, `trained` of them with a weight. `masked`: rows hold groups."""

    tokens: int
    row: int
    trained: int
    masked: bool = True


def standing(shape: Shape, rank: int, precision: Precision) -> dict[str, int]:
    """Bytes that are there from start to end."""
    copy = shape.body + shape.embedding  # the head is copied even where it is the embedding
    return {
        "program": precision.program,
        "weights": shape.parameters * precision.item,
        "adapters": 2 * shape.adapter(rank) * ADAM,
        **({"merged copy": copy * precision.item} if precision.merged else {}),
    }


def sampling_bytes(shape: Shape, precision: Precision, work: Sampling) -> int:
    """The cache of all samples (one layer twice while rows are picked), on top of it the larger of prefill and choice.

    Prefill holds one layer's activations of all prompts and its mask; the choice of a token a few copies of the logits,
    two of them in double precision.
    """
    cached = work.samples * (work.prompt + work.written) * shape.cache(precision.item)
    activations = max(4 * shape.inner, 5 * shape.attention + 6 * shape.kv) + 3 * shape.width
    prefill = work.prompts * work.prompt * (4 * activations + work.prompt * (1 + precision.item))
    choice = work.samples * shape.vocabulary * 28
    return cached + cached // shape.layers + max(prefill, choice)


def training_bytes(shape: Shape, rank: int, precision: Precision, work: Training) -> int:
    """Activations kept for the backward pass in every layer, the gradients inside one layer, and the logits.

    In half precision PEFT keeps a float32 copy of each adapter's input. A mask of rows against rows is kept as numbers in
    each layer.
    """
    width, inner, item = shape.width, shape.inner, precision.item
    kept = 2 * width * 4 + 4 * shape.attention * item + 7 * rank * 4
    if item == 4:
        kept += 2 * width * 4 + 4 * inner * 4
    else:
        kept += 5 * width * 4 + shape.attention * 4 + 3 * inner * item + inner * 4
    if shape.qk_norm:
        kept += (shape.attention + shape.kv) * 4
    gradients = 4 * (4 * inner + 3 * width)
    mask = work.row * (1 + item * shape.layers) if work.masked else 0
    logits = min(work.trained, max(256, LOGIT_BYTES // (4 * shape.vocabulary))) * shape.vocabulary * (item + 12)
    return round(precision.gaps * (work.tokens * (shape.layers * kept + gradients + mask) + logits))
