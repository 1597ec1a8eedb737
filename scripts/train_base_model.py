"""Train a built-in tiny model, on text that this project generates itself (`base_text_*.py`).

    python scripts/train_base_model.py --text tool_use --out src/genenv/models/tiny --tokens 22e6
    python scripts/train_base_model.py --text household --start src/genenv/models/tiny --out src/genenv/models/household --tokens 4e6

Without `--start` weights and vocabulary are made from scratch. With it they go on from another model's, and the
words that the new text is full of become tokens of their own, each starting from the mean of its pieces.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import math
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from base_text import Example
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from genenv.contracts.engine import ChatFormat
from genenv.contracts.types import Chat
from genenv.engines.chat import TemplateFormat

VOCABULARY = 2048
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>", "<tools>", "</tools>",
           "<tool_response>", "</tool_response>"]  # fmt: skip
# words never absorb the space before them: a value is the same tokens in a request and in JSON, which is what a
# small model needs to copy it
WORDS = r"_?\p{L}+|\p{N}{1,2}|[^\s\p{L}\p{N}_]+|_+|\s+"
CONTEXT = 2048
READ_WEIGHT = 0.1
"""Weight of what is only read, in the first tenth of the run: a little, so that its structure is learned."""


def render(tokenizer: PreTrainedTokenizerFast, chat: Chat) -> str:
    messages = [{"role": m.role, "content": m.content} for m in chat.messages]
    text = tokenizer.apply_chat_template(
        messages, tools=list(chat.tools) or None, add_generation_prompt=True, tokenize=False
    )
    return str(text)


# -- tokenizer and model ---------------------------------------------------------------------------------------


def wrap(core: Tokenizer, template: str) -> PreTrainedTokenizerFast:
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token="<|im_end|>", pad_token="<|endoftext|>", clean_up_tokenization_spaces=False
    )
    tokenizer.chat_template = template
    return tokenizer


def train_tokenizer(template: str, stream: Iterator[Example]) -> PreTrainedTokenizerFast:
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(WORDS), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
    )
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    draft = wrap(core, template)
    texts = [render(draft, e.chat) + "".join(t.text for t in e.turns) for e in itertools.islice(stream, 6000)]
    core.train_from_iterator(texts, trainer)
    return wrap(core, template)


def extended_tokenizer(start: Path, template: str, words: Sequence[str]) -> PreTrainedTokenizerFast:
    """The tokenizer of `start` with `words` as tokens of their own, where they stand alone."""
    core = Tokenizer.from_file(str(start / "tokenizer.json"))
    known = [w for w in words if len(core.encode(w, add_special_tokens=False).ids) > 1]
    core.add_tokens([AddedToken(w, single_word=True, normalized=False) for w in known])
    return wrap(core, template)


def extended_model(start: Path, tokenizer: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    """The model of `start` in float32; the embedding of each new token is the mean of its pieces'."""
    old = Qwen3ForCausalLM.from_pretrained(start, dtype=torch.float32)
    pieces = Tokenizer.from_file(str(start / "tokenizer.json"))
    table_VD = old.get_input_embeddings().weight.detach()
    new = [
        table_VD[pieces.encode(tokenizer.convert_ids_to_tokens(i), add_special_tokens=False).ids].mean(0)
        for i in range(len(table_VD), len(tokenizer))
    ]
    model = new_model(len(tokenizer))
    state = {n: w for n, w in old.state_dict().items() if n not in ("model.embed_tokens.weight", "lm_head.weight")}
    model.load_state_dict(state, strict=False)
    model.get_input_embeddings().weight.data = torch.cat([table_VD, torch.stack(new)]) if new else table_VD
    model.tie_weights()
    return model


def new_model(vocabulary: int) -> Qwen3ForCausalLM:
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=vocabulary,
            hidden_size=192,
            intermediate_size=448,
            num_hidden_layers=5,
            num_attention_heads=6,
            num_key_value_heads=2,
            head_dim=32,
            max_position_embeddings=CONTEXT,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=SPECIAL.index("<|im_end|>"),
            pad_token_id=SPECIAL.index("<|endoftext|>"),
        )
    )


def tokens_of(example: Example, chat: ChatFormat) -> tuple[list[int], list[float]]:
    """One text and the weight of each token: 1 where the model writes, READ_WEIGHT where it reads."""
    tokens = list(chat.encode(example.chat))
    weights = [READ_WEIGHT] * len(tokens)
    for turn in example.turns:
        own = [*chat.encode_text(turn.text), chat.eos]
        read = chat.turn(turn.answer, ended=True) if turn.answer else ()
        tokens += [*own, *read]
        weights += [1.0] * len(own) + [READ_WEIGHT] * len(read)
    return tokens, weights


def batches(chat: ChatFormat, stream: Iterator[Example], budget: int) -> Iterator[tuple[Tensor, Tensor]]:
    """(tokens, weights), each (B, T) with B T <= budget: sorted by length in blocks, padded with weight 0."""
    while True:
        rows = [tokens_of(e, chat) for e in itertools.islice(stream, 128)]
        rows = sorted((r for r in rows if len(r[0]) <= CONTEXT), key=lambda row: len(row[0]))
        chunks: list[list[tuple[list[int], list[float]]]] = [[]]
        for row in rows:
            if (len(chunks[-1]) + 1) * len(row[0]) > budget:
                chunks.append([])
            chunks[-1].append(row)
        random.Random(len(rows[0][0])).shuffle(chunks)
        for chunk in chunks:
            width = max(len(tokens) for tokens, _ in chunk)
            tokens_BT = torch.zeros(len(chunk), width, dtype=torch.long)
            weights_BT = torch.zeros(len(chunk), width)
            for b, (tokens, weights) in enumerate(chunk):
                tokens_BT[b, : len(tokens)] = torch.tensor(tokens)
                weights_BT[b, : len(tokens)] = torch.tensor(weights)
            yield tokens_BT, weights_BT


def loss_of(model: Qwen3ForCausalLM, tokens_BT: Tensor, weights_BT: Tensor) -> Tensor:
    """Mean negative log likelihood, weighted; logits only where the weight is not 0."""
    hidden = model.model(input_ids=tokens_BT[:, :-1]).last_hidden_state
    weights, targets = weights_BT[:, 1:], tokens_BT[:, 1:]
    kept = weights > 0
    nll = torch.nn.functional.cross_entropy(model.lm_head(hidden[kept]), targets[kept], reduction="none")
    return (nll * weights[kept]).sum() / weights.sum()


def train(text: Any, start: Path | None, out: Path, tokens: float, budget: int, seed: int) -> None:
    torch.manual_seed(seed)
    template = ((start or out) / "chat_template.jinja").read_text("utf-8")
    early = getattr(text, "early_examples", text.examples)
    if start is None:
        tokenizer = train_tokenizer(template, text.examples(random.Random(seed)))
        model, scale = new_model(VOCABULARY), 1.0
    else:
        tokenizer = extended_tokenizer(start, template, text.WORDS)
        model, scale = extended_model(start, tokenizer), 0.5
    tokenizer.save_pretrained(out)
    chat = TemplateFormat(tokenizer)
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
    others = [p for n, p in model.named_parameters() if p.ndim != 2 or "embed" in n]
    optimizers = [
        torch.optim.Muon(matrices, lr=0.02 * scale, weight_decay=0.01, momentum=0.95),
        torch.optim.AdamW(others, lr=3e-3 * scale, betas=(0.9, 0.98), weight_decay=0.0),
    ]
    peaks = [group["lr"] for o in optimizers for group in o.param_groups]
    begin, step, seen, running = time.monotonic(), 0, 0, 0.0
    stream = batches(chat, early(random.Random(seed + 1)), budget)
    long = False
    while (progress := seen / tokens) < 1.0:
        if progress > 0.15 and not long:
            stream, long = batches(chat, text.examples(random.Random(seed + 2)), budget), True
        tokens_BT, weights_BT = next(stream)
        if progress > 0.1:
            weights_BT[weights_BT < 1.0] = 0.0
        # warm-up, constant, then a linear decay over the last half: good at any length of run
        factor = min(1.0, step / 100, 2.0 * (1.0 - progress) + 0.02)
        groups = [group for o in optimizers for group in o.param_groups]
        for group, peak in zip(groups, peaks, strict=True):
            group["lr"] = factor * peak
        loss = loss_of(model, tokens_BT, weights_BT)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        step, seen = step + 1, seen + tokens_BT.numel()
        running = loss.item() if step == 1 else 0.98 * running + 0.02 * loss.item()
        if step % 50 == 0 or step == 1:
            elapsed = time.monotonic() - begin
            print(
                f"step {step} {progress:.0%} loss {running:.4f} tokens {seen / 1e6:.1f}M {seen / elapsed:.0f}/s",
                flush=True,
            )
        if step % 500 == 0:
            save(model, out)
    save(model, out)
    print(f"done: {step} steps, {seen / 1e6:.1f} M tokens, loss {running:.4f}")


def save(model: Qwen3ForCausalLM, out: Path) -> None:
    """fp16 safetensors; the live model stays fp32."""
    half = new_model(model.config.vocab_size).half()
    half.load_state_dict(model.state_dict())
    if not all(math.isfinite(p.float().abs().max().item()) for p in half.parameters()):
        raise RuntimeError("weights do not fit into fp16")
    half.save_pretrained(out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", required=True, help="tool_use, household, multihop_qa or travel")
    parser.add_argument("--start", type=Path, help="folder of the model to go on from; none: from scratch")
    parser.add_argument("--out", type=Path, required=True, help="folder; from scratch it holds chat_template.jinja")
    parser.add_argument("--tokens", type=float, default=22e6, help="length of the run, padding included")
    parser.add_argument("--budget", type=int, default=6144, help="tokens in a batch")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    train(
        importlib.import_module(f"base_text_{arguments.text}"),
        arguments.start,
        arguments.out,
        arguments.tokens,
        arguments.budget,
        arguments.seed,
    )
