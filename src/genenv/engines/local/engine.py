"""The embedded engine: transformers and peft in this process, on the CPU or one GPU."""

from __future__ import annotations

import ctypes
import json
import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers import AutoModelForCausalLM, AutoTokenizer

from genenv.contracts.engine import CACHE_FACTOR, PLAYERS, AdamParams, Loss, Player, TrainStats
from genenv.contracts.errors import InputError
from genenv.contracts.types import Datum, Sample, SampleRequest, derive_seed
from genenv.engines.chat import TemplateFormat
from genenv.engines.local.decode import (
    ATTENTION,
    FastForward,
    Forward,
    Grammar,
    PlainForward,
    Prefix,
    Prefixes,
    sample_batch,
)
from genenv.engines.local.fast import FastDecoder, supported
from genenv.engines.local.packing import Batch, batches
from genenv.engines.losses import loss_terms

DType = Literal["auto", "float32", "bfloat16"]
LOGIT_BYTES = 128 * 2**20


def _keep_freed_memory() -> None:
    """Tell glibc to reuse large blocks instead of returning them: batches of ever new shapes page-fault otherwise."""
    if platform.system() == "Linux":
        try:
            libc = ctypes.CDLL("libc.so.6")
            m_trim_threshold, m_mmap_threshold = -1, -3
            libc.mallopt(m_mmap_threshold, 2**30)
            libc.mallopt(m_trim_threshold, 2**30)
        except (OSError, AttributeError):
            return  # not glibc: only speed is lost


class LocalEngine:
    """One base model in memory, a LoRA adapter for each player.

    `token_budget` bounds the tokens computed at once, in sampling and in training, and with them the memory.
    """

    def __init__(
        self,
        model: str,
        *,
        rank: int,
        lora_alpha: int,
        seed: int,
        dtype: DType = "auto",
        threads: int = 0,
        token_budget: int = 16384,
    ) -> None:
        _keep_freed_memory()
        if threads:
            torch.set_num_threads(threads)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        if dtype == "auto":
            dtype = "bfloat16" if self.device.type == "cuda" else "float32"
        tokenizer = AutoTokenizer.from_pretrained(model)
        self.chat = TemplateFormat(tokenizer)
        base = AutoModelForCausalLM.from_pretrained(model, dtype=getattr(torch, dtype), attn_implementation=ATTENTION)
        for name in ("final_logit_softcapping", "logits_scaling", "logit_scale"):
            if getattr(base.config, name, None) not in (None, 1.0):
                raise InputError(f"{model}: models with {name} are not supported by the local engine")
        text = base.config.get_text_config()
        if getattr(text, "sliding_window", None) and getattr(text, "use_sliding_window", True):
            raise InputError(f"{model}: models with sliding-window attention are not supported by the local engine")
        self.model_name = model
        self.concurrent = False
        self.context: int | None = getattr(text, "max_position_embeddings", None)
        self.token_budget = token_budget
        self.hidden = int(text.hidden_size)
        self.pad = int(tokenizer.pad_token_id if tokenizer.pad_token_id is not None else self.chat.eos)
        self.vocabulary = int(base.get_output_embeddings().weight.shape[0])
        config = LoraConfig(r=rank, lora_alpha=lora_alpha, target_modules="all-linear", task_type="CAUSAL_LM")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed(seed, "adapters") % 2**31)
            self.model = get_peft_model(base.to(self.device), config, adapter_name=PLAYERS[0])
            self.model.add_adapter(PLAYERS[1], config)
        self.model.eval()
        self._merges = supported(self.model.get_base_model())
        self._merged: tuple[tuple[Player | None, int], FastDecoder] | None = None
        self._prefixes: tuple[tuple[Player, int], Prefixes] | None = None
        self.grammar = Grammar(tokenizer, self.vocabulary, self.chat.eos)
        self._policies = {player: LocalPolicy(self, player) for player in PLAYERS}

    def policy(self, player: Player) -> LocalPolicy:
        return self._policies[player]

    def merged(self, player: Player | None) -> FastDecoder | None:
        """The fast forward pass of a player's present weights (None: of the base), where the model has one.

        One is kept at a time: it holds a copy of the weights.
        """
        if not self._merges:
            return None
        key = (player, self._policies[player].version if player else 0)
        if self._merged is None or self._merged[0] != key:
            self._merged = None  # before the next one is built, so that there is never a third copy of the weights
            self._merged = key, FastDecoder(self.model.get_base_model(), player)
        return self._merged[1]

    def forget(self, player: Player) -> None:
        """Drop what was made of a player's weights: they are others now, perhaps under the same version."""
        if self._merged is not None and self._merged[0][0] == player:
            self._merged = None
        self._prefixes = None

    def prefixes(self, player: Player) -> Prefixes:
        """What the last sampling of a player left in the cache, while its weights are the same; given away once."""
        key, found = self._prefixes or (None, Prefixes())
        self._prefixes = None
        return found if key == (player, self._policies[player].version) else Prefixes()

    def keep(self, player: Player, prefixes: Sequence[Prefix]) -> None:
        """For the player's next sampling. Training drops it, for it needs the memory."""
        self._prefixes = ((player, self._policies[player].version), Prefixes(prefixes)) if prefixes else None

    def drop_prefixes(self) -> None:
        self._prefixes = None

    def base_logprobs(self, data: Sequence[Datum]) -> list[tuple[float, ...]]:
        with self.model.disable_adapter():
            return self.logprobs(data, None)

    def close(self) -> None:
        """Nothing to release."""

    @torch.inference_mode()
    def logprobs(self, data: Sequence[Datum], player: Player | None) -> list[tuple[float, ...]]:
        """Under a player's adapter, which must be active (None: adapters are off)."""
        decoder = self.merged(player)
        rows = [[0.0] * len(d.tokens) for d in data]
        for batch in batches(data, self.token_budget, self.pad, self.device, self.hidden):
            values = self.token_logprobs(batch, decoder).tolist()
            for i, t, value in zip(batch.datum_N.tolist(), batch.offset_N.tolist(), values, strict=True):
                rows[i][t] = value
        return [tuple(row) for row in rows]

    def token_logprobs(self, batch: Batch, decoder: FastDecoder | None = None) -> Tensor:
        """(N,) logprobs of the trained tokens; without a decoder by the model itself, with gradients."""
        causal_lm: Any = self.model.get_base_model()
        if decoder is not None:
            hidden_RLD = decoder.hidden(batch.tokens_RL, batch.positions_RL, batch.mask_R1LL)
        else:
            hidden_RLD = getattr(causal_lm, causal_lm.base_model_prefix)(
                input_ids=batch.tokens_RL,
                attention_mask=batch.mask_R1LL,
                position_ids=batch.positions_RL,
                use_cache=False,
            ).last_hidden_state
        hidden_ND = hidden_RLD.flatten(0, 1).index_select(0, batch.source_N)
        head = decoder.logits if decoder is not None else causal_lm.get_output_embeddings()

        def part(hidden: Tensor, target: Tensor) -> Tensor:
            return -torch.nn.functional.cross_entropy(head(hidden).float(), target, reduction="none")

        size = max(256, LOGIT_BYTES // (4 * self.vocabulary))
        if len(hidden_ND) <= size:
            return part(hidden_ND, batch.target_N)
        pieces = zip(hidden_ND.split(size), batch.target_N.split(size), strict=True)
        # logits of a large vocabulary are computed again in the backward pass rather than kept
        return torch.cat([checkpoint(part, h, t, use_reentrant=False) for h, t in pieces])


class LocalPolicy:
    """One player's adapter and its AdamW state."""

    def __init__(self, engine: LocalEngine, player: Player) -> None:
        self._engine = engine
        self._player = player
        self.chat = engine.chat
        self.version = 0
        self._parameters = [p for n, p in engine.model.named_parameters() if f".{player}." in n]
        self._optimizer = torch.optim.AdamW(self._parameters, lr=0.0)

    @contextmanager
    def _active(self) -> Iterator[LocalEngine]:
        self._engine.model.set_adapter(self._player)
        yield self._engine

    def sample(self, requests: Sequence[SampleRequest]) -> list[list[Sample]]:
        """Requests of like length together, at most CACHE_FACTOR * `token_budget` tokens of cache at once.

        As many tokens again are kept for the prompts that go on from these.
        """
        results: list[list[Sample]] = [[] for _ in requests]
        with self._active() as engine:
            known = engine.prefixes(self._player)
            prefixes = [known.of(r.prompt) for r in requests]
            limit = CACHE_FACTOR * engine.token_budget
            kept: list[Prefix] = []
            left = limit
            for chunk, cost in self._chunks(requests, prefixes, limit):
                keeps = cost <= left
                wanted = [requests[i] if keeps else replace(requests[i], keep=False) for i in chunk]
                decoder = engine.merged(self._player)
                forward: Forward = FastForward(decoder) if decoder is not None else PlainForward(engine.model)
                samples, new = sample_batch(
                    forward, wanted, [prefixes[i] for i in chunk], engine.grammar, engine.chat.eos, engine.pad,
                    self.version, engine.device,
                )  # fmt: skip
                left -= sum(len(prefix.tokens) for prefix in new)
                kept += new
                for i, group in zip(chunk, samples, strict=True):
                    results[i] = group
            engine.keep(self._player, kept)
        return results

    @staticmethod
    def _chunks(
        requests: Sequence[SampleRequest], prefixes: Sequence[Prefix | None], limit: int
    ) -> Iterator[tuple[list[int], int]]:
        """The requests in batches, each with its cost in tokens of cache; those that go on from kept tokens apart."""

        def kind(i: int) -> tuple[int, float, bool]:
            return requests[i].max_tokens, requests[i].temperature, prefixes[i] is not None

        def cost(chunk: Sequence[int]) -> int:
            """Rows times columns; kept and new tokens are padded on their own, so that their widths add."""
            known = [len(p.tokens) if (p := prefixes[i]) else 0 for i in chunk]
            if not any(known):
                return sum(len(requests[i].seeds) * (len(requests[i].prompt) + requests[i].max_tokens) for i in chunk)
            new = max(len(requests[i].prompt) - n for i, n in zip(chunk, known, strict=True))
            columns = max(known) + new + requests[chunk[0]].max_tokens
            return columns * sum(len(requests[i].seeds) for i in chunk)

        chunk: list[int] = []
        for i in sorted(range(len(requests)), key=lambda i: (kind(i), len(requests[i].prompt), i)):
            if chunk and (kind(chunk[0]) != kind(i) or cost([*chunk, i]) > limit):
                yield chunk, cost(chunk)
                chunk = []
            chunk.append(i)
        if chunk:
            yield chunk, cost(chunk)

    def logprobs(self, data: Sequence[Datum]) -> list[tuple[float, ...]]:
        with self._active() as engine:
            return engine.logprobs(data, self._player)

    def forward_backward(self, data: Sequence[Datum], loss: Loss) -> TrainStats:
        total, tokens, ratio, clipped = 0.0, 0, 0.0, 0
        with self._active() as engine:
            engine.drop_prefixes()
            for batch in batches(data, engine.token_budget, engine.pad, engine.device, engine.hidden):
                logprob_N = engine.token_logprobs(batch)
                terms_N, ratio_N = loss_terms(loss.name, logprob_N, batch.logprob_N, batch.weight_N, loss.clip)
                value = terms_N.sum()
                value.backward()
                total += value.item()
                tokens += len(ratio_N)
                ratio += ratio_N.detach().sum().item()
                clipped += int(((ratio_N.detach() - 1.0).abs() > loss.clip).sum())
        return TrainStats(total, tokens, ratio / max(tokens, 1), clipped / max(tokens, 1))

    def gradient(self, data: Sequence[Datum], loss: Loss) -> NDArray[np.float32]:
        """(P,) gradient of `loss` over `data`; the accumulated one is put back afterwards."""
        accumulated = [p.grad for p in self._parameters]
        try:
            self._optimizer.zero_grad()
            self.forward_backward(data, loss)
            parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in self._parameters]
            found: NDArray[np.float32] = torch.cat([g.flatten() for g in parts]).float().cpu().numpy()
        finally:
            for p, grad in zip(self._parameters, accumulated, strict=True):
                p.grad = grad
        return found

    def optim_step(self, params: AdamParams) -> float:
        for group in self._optimizer.param_groups:
            group["lr"] = params.lr
            group["betas"] = (params.beta1, params.beta2)
            group["weight_decay"] = params.weight_decay
        norm = torch.nn.utils.clip_grad_norm_(self._parameters, params.max_grad_norm or torch.inf)
        self._optimizer.step()
        self._optimizer.zero_grad()
        self.version += 1
        return float(norm)

    def save_state(self, folder: Path) -> None:
        model: Any = self._engine.model
        weights = get_peft_model_state_dict(model, adapter_name=self._player)
        save_file({k: v.contiguous() for k, v in weights.items()}, folder / "adapter_model.safetensors")
        model.peft_config[self._player].save_pretrained(folder)
        torch.save(self._optimizer.state_dict(), folder / "optimizer.pt")
        (folder / "policy.json").write_text(json.dumps({"version": self.version}), "utf-8")

    def load_state(self, folder: Path) -> None:
        set_peft_model_state_dict(
            self._engine.model, load_file(folder / "adapter_model.safetensors"), adapter_name=self._player
        )
        self._optimizer.load_state_dict(torch.load(folder / "optimizer.pt", weights_only=True))
        self.version = json.loads((folder / "policy.json").read_text("utf-8"))["version"]
        self._engine.forget(self._player)
