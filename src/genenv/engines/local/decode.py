"""Sampling on one machine: each prompt is prefilled once, its group decodes from the repeated cache.

What a turn leaves in the cache can be kept, so that the next turn of the same episode computes only what is new.

Randomness is one uniform number per (sample seed, step), mapped through the inverse cumulative distribution: a sample
depends on its seed and the weights, not on what else is in the batch.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import llguidance
import llguidance.hf
import llguidance.numpy
import numpy as np
import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.cache_utils import Cache, DynamicLayer
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from genenv.contracts.types import Json, Sample, SampleRequest
from genenv.engines.local.fast import FastDecoder

ATTENTION = "genenv_sdpa"


def _attention(
    module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """sdpa; for a single query it reads grouped keys in place, where the stock version first copies them per head."""
    if query.shape[2] != 1 or attention_mask is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    batch, heads, _, width = query.shape
    kv_heads = key.shape[1]
    # the heads that share a key act as that many queries
    grouped = query.view(batch, kv_heads, heads // kv_heads, width)
    out = torch.nn.functional.scaled_dot_product_attention(
        grouped, key, value, attn_mask=attention_mask, scale=options.get("scaling")
    )
    return out.reshape(batch, 1, heads, width), None


AttentionInterface.register(ATTENTION, _attention)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)


class BufferedLayer(DynamicLayer):
    """A cache layer in one buffer of known size: appending a token copies that token, not the whole cache."""

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self._capacity = capacity
        self._length = 0

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self._buffer = [self._allocate(key_states), self._allocate(value_states)]
        end = self._length + key_states.shape[-2]
        for buffer, states in zip(self._buffer, (key_states, value_states), strict=True):
            buffer[:, :, self._length : end] = states
        self._length = end
        self._show()
        return self.keys, self.values

    def _allocate(self, like: Tensor) -> Tensor:
        batch, heads, _, width = like.shape
        return like.new_empty(batch, heads, self._capacity, width)

    def _show(self) -> None:
        self.keys, self.values = (b[:, :, : self._length] for b in self._buffer)

    def pick(self, rows: Tensor) -> None:
        """Keep (or repeat) the given batch rows."""
        fresh = []
        for buffer in self._buffer:
            kept = buffer.new_empty(len(rows), *buffer.shape[1:])
            kept[:, :, : self._length] = buffer[rows, :, : self._length]
            fresh.append(kept)
        self._buffer = fresh
        self._show()

    def row(self, row: int, columns: Tensor) -> Tensor:
        """(2, heads, T, width): a copy of the keys and values of one batch row at the given columns."""
        return torch.stack([buffer[row].index_select(1, columns) for buffer in self._buffer])


@dataclass(frozen=True)
class Prefix:
    """What the first T tokens of a transcript leave in the cache: for each layer (2, heads, T, width)."""

    tokens: tuple[int, ...]
    layers: tuple[Tensor, ...]


class Prefixes:
    """Kept prefixes, found by the prompts that go on from them."""

    def __init__(self, prefixes: Sequence[Prefix] = ()) -> None:
        self._prefixes = sorted(prefixes, key=lambda p: p.tokens)
        self._tokens = [p.tokens for p in self._prefixes]

    def of(self, prompt: tuple[int, ...]) -> Prefix | None:
        """A kept part of `prompt`, shorter than it. It sorts right before: transcripts that part ways are not looked behind."""
        at = bisect_left(self._tokens, prompt) - 1
        return self._prefixes[at] if at >= 0 and prompt[: len(self._tokens[at])] == self._tokens[at] else None


class Grammar:
    """Token masks that keep a sample inside a JSON schema."""

    def __init__(self, tokenizer: Any, vocabulary: int, eos: int) -> None:
        self._tokenizer = llguidance.hf.from_tokenizer(tokenizer, n_vocab=vocabulary, eos_token=eos)
        self._vocabulary = vocabulary

    def matcher(self, schema: Json) -> llguidance.LLMatcher:
        compact = {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"}
        text = json.dumps({**schema, "x-guidance": compact})
        matcher = llguidance.LLMatcher(self._tokenizer, llguidance.LLMatcher.grammar_from_json_schema(text))
        if error := matcher.get_error():
            raise ValueError(f"schema cannot be used for sampling: {error}")
        return matcher

    def mask(self, logits_BV: Tensor, matchers: Sequence[llguidance.LLMatcher | None]) -> Tensor:
        """Logits with every token that its matcher forbids at -inf."""
        bits = llguidance.numpy.allocate_token_bitmask(len(matchers), self._vocabulary)
        bits[:] = -1
        for row, matcher in enumerate(matchers):
            if matcher is not None:
                llguidance.numpy.fill_next_token_bitmask(matcher, bits, row)
        allowed = np.unpackbits(bits.view(np.uint8), axis=1, bitorder="little")[:, : logits_BV.shape[1]]
        return logits_BV.masked_fill(torch.from_numpy(allowed == 0).to(logits_BV.device), -torch.inf)


def _choose(logits_BV: Tensor, uniform_B: Tensor, temperature: float) -> Tensor:
    if temperature == 0:
        return logits_BV.argmax(-1)
    cdf_BV = torch.softmax(logits_BV / temperature, -1).double().cumsum(-1)
    target_B1 = uniform_B[:, None] * cdf_BV[:, -1:]
    return torch.searchsorted(cdf_BV, target_B1, right=True).squeeze(1).clamp(max=logits_BV.shape[1] - 1)


def _uniforms(seeds: Sequence[int], steps: int) -> Tensor:
    """(B, steps) numbers in [0, 1), row b from seed b alone."""
    rows = [np.random.Generator(np.random.Philox(key=s)).random(steps) for s in seeds]
    return torch.from_numpy(np.minimum(np.stack(rows), 1 - 1e-12))


class Forward(Protocol):
    """A decoder that continues a batch from its cache."""

    @property
    def layers(self) -> int: ...

    def __call__(
        self, tokens_BT: Tensor, positions_BT: Tensor, mask_B1TS: Tensor | None, cache: list[BufferedLayer]
    ) -> Tensor:
        """(B, V) logits after the last token. The cache grows by T."""
        ...


class PlainForward:
    """A model of `transformers` as it stands, adapters included."""

    def __init__(self, model: Any) -> None:
        self._model = model

    @property
    def layers(self) -> int:
        return int(self._model.config.num_hidden_layers)

    def __call__(
        self, tokens_BT: Tensor, positions_BT: Tensor, mask_B1TS: Tensor | None, cache: list[BufferedLayer]
    ) -> Tensor:
        logits: Tensor = self._model(
            input_ids=tokens_BT,
            attention_mask=mask_B1TS,
            position_ids=positions_BT,
            past_key_values=Cache(layers=cache),
            logits_to_keep=1,
        ).logits
        return logits[:, -1].float()


class FastForward:
    """The same through `fast.py`."""

    def __init__(self, decoder: FastDecoder) -> None:
        self._decoder = decoder

    @property
    def layers(self) -> int:
        return self._decoder.depth

    def __call__(
        self, tokens_BT: Tensor, positions_BT: Tensor, mask_B1TS: Tensor | None, cache: list[BufferedLayer]
    ) -> Tensor:
        return self._decoder.logits(self._decoder.hidden(tokens_BT, positions_BT, mask_B1TS, cache)[:, -1])


@dataclass(frozen=True)
class _Prompts:
    """A batch of prompts as columns: kept tokens and new ones, each padded on the left, then room for `max_tokens`."""

    new_PT: Tensor
    positions_PT: Tensor
    seen_PS: Tensor
    """Which columns hold a token that later ones see; S runs over kept, new and sampled ones."""
    mask_P1TS: Tensor | None
    kept: int
    end: int


def _laid_out(
    prompts: Sequence[tuple[int, ...]], prefixes: Sequence[Prefix | None], room: int, pad: int, device: torch.device
) -> _Prompts:
    known = [len(p.tokens) if p else 0 for p in prefixes]
    new = [prompt[n:] for prompt, n in zip(prompts, known, strict=True)]
    kept, width = max(known), max(map(len, new))
    end = kept + width
    new_PT = torch.full((len(prompts), width), pad, device=device)
    seen_PS = torch.zeros(len(prompts), end + room, dtype=torch.bool, device=device)
    for p, (tokens, n) in enumerate(zip(new, known, strict=True)):
        new_PT[p, width - len(tokens) :] = torch.tensor(tokens, device=device)
        seen_PS[p, kept - n : kept] = True
        seen_PS[p, end - len(tokens) : end] = True
    mask_P1TS = None  # without padding each token sees all before it, and attention needs no square of them
    if kept or not bool(seen_PS[:, :end].all()):
        before = torch.ones(width, end, dtype=torch.bool, device=device).tril(kept)
        # padding sees itself: a row without anything to see would be no number
        itself = torch.eye(width, dtype=torch.bool, device=device)
        itself = torch.nn.functional.pad(itself, (kept, 0))
        mask_P1TS = (seen_PS[:, None, None, :end] & before) | itself
    positions_PT = (seen_PS[:, :end].long().cumsum(-1) - 1).clamp(min=0)[:, kept:]
    return _Prompts(new_PT, positions_PT, seen_PS, mask_P1TS, kept, end)


def _fill(cache: Sequence[BufferedLayer], prefixes: Sequence[Prefix | None], kept: int) -> None:
    """Put the kept prefixes into an empty cache, padded on the left."""
    example = next(p for p in prefixes if p is not None).layers[0]
    for i, layer in enumerate(cache):
        both = example.new_zeros(2, len(prefixes), example.shape[1], kept, example.shape[3])
        for row, prefix in enumerate(prefixes):
            if prefix is not None:
                both[:, row, :, kept - len(prefix.tokens) :] = prefix.layers[i]
        layer.update(both[0], both[1])


@torch.inference_mode()
def sample_batch(
    forward: Forward,
    requests: Sequence[SampleRequest],
    prefixes: Sequence[Prefix | None],
    grammar: Grammar,
    eos: int,
    pad: int,
    version: int,
    device: torch.device,
) -> tuple[list[list[Sample]], list[Prefix]]:
    """Continue every request from what is kept of it; all must share max_tokens and temperature.

    Returns the samples, and what is worth keeping of requests with `keep`. Memory is the caller's concern.
    """
    max_tokens, temperature = requests[0].max_tokens, requests[0].temperature
    prompts = _laid_out([r.prompt for r in requests], prefixes, max_tokens, pad, device)
    cache = [BufferedLayer(prompts.end + max_tokens) for _ in range(forward.layers)]
    if prompts.kept:
        _fill(cache, prefixes, prompts.kept)
    logits_PV = forward(prompts.new_PT, prompts.positions_PT, prompts.mask_P1TS, cache)

    owners = [p for p, r in enumerate(requests) for _ in r.seeds]
    owner = torch.tensor(owners, device=device)
    for layer in cache:
        layer.pick(owner)
    seen_BS, position_B = prompts.seen_PS[owner], prompts.positions_PT[owner, -1]
    uniform_BT = _uniforms([s for r in requests for s in r.seeds], max_tokens).to(device)
    matchers = [grammar.matcher(r.schema) if r.schema is not None else None for r in requests for _ in r.seeds]
    tokens: list[list[int]] = [[] for _ in matchers]
    logprobs: list[list[float]] = [[] for _ in matchers]
    kept: list[Prefix] = []
    rows = torch.arange(len(matchers), device=device)  # the samples that are still in the batch

    def keep(leaving: Tensor) -> None:
        """Copy what the given batch rows leave behind: all but the last token, which nothing was computed from."""
        for b in leaving.tolist():
            sample = int(rows[b])
            request = requests[owners[sample]]
            if request.keep:
                transcript = request.prompt + tuple(tokens[sample][:-1])
                columns = seen_BS[b].nonzero().squeeze(1)[: len(transcript)]
                kept.append(Prefix(transcript, tuple(layer.row(b, columns) for layer in cache)))

    done = torch.zeros(len(matchers), dtype=torch.bool, device=device)
    logits_BV = logits_PV[owner]
    for step in range(max_tokens):
        masked_BV = logits_BV
        if any(m is not None for m in matchers):
            masked_BV = grammar.mask(logits_BV, [matchers[i] for i in rows.tolist()])
        token_B = _choose(masked_BV, uniform_BT[rows, step], temperature)
        # the model's own logprob, whatever mask or temperature the choice was made under
        logprob_B = torch.log_softmax(logits_BV, -1).gather(1, token_B[:, None]).squeeze(1)
        for i, token, logprob, over in zip(
            rows.tolist(), token_B.tolist(), logprob_B.tolist(), done.tolist(), strict=True
        ):
            if not over:
                tokens[i].append(token)
                logprobs[i].append(logprob)
                if (matcher := matchers[i]) is not None and token != eos:
                    matcher.consume_token(token)
        done |= token_B == eos
        alive = (~done).nonzero().squeeze(1)
        if len(alive) == 0 or step + 1 == max_tokens:
            break
        if len(alive) < 0.8 * len(rows):  # finished samples leave; not at every step, since leaving is a copy
            keep(done.nonzero().squeeze(1))
            for layer in cache:
                layer.pick(alive)
            rows, token_B, done = rows[alive], token_B[alive], done[alive]
            seen_BS, position_B = seen_BS[alive], position_B[alive]
        end = prompts.end + step + 1
        position_B = position_B + 1
        seen_BS[:, end - 1] = True
        logits_BV = forward(token_B[:, None], position_B[:, None], seen_BS[:, None, None, :end], cache)
    keep(torch.arange(len(rows)))

    samples = iter(
        Sample(tuple(t), tuple(lp), stopped=t[-1:] == [eos], policy_version=version)
        for t, lp in zip(tokens, logprobs, strict=True)
    )
    return [[next(samples) for _ in r.seeds] for r in requests], kept
