"""Train the built-in tiny model from scratch, on text that this project generates itself.

    python scripts/train_base_model.py --out src/genenv/models/tiny --tokens 22e6

Two kinds of examples, both made by `domains/tool_use.py`:

- agent: a request and its calls. Each call is damaged with probability DAMAGE (an argument dropped, changed or added,
  a wrong function, a missing call), so that the model is uncertain where an agent can be wrong and reinforcement
  learning has something to choose from. A base that has only seen perfect answers is always right or always wrong.
- simulator: an example specification and a direction, answered by a new specification.

A third of both uses made-up functions (random names, parameters and values), so that the model learns to read
declarations and to copy rather than to recite the catalogue. The catalogue's held-out functions never occur.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from genenv.domains.base import SpecError
from genenv.domains.catalogue import builtin_catalogue
from genenv.domains.functions import Function, random_value
from genenv.domains.tool_use import MAX_CALLS, ToolUse
from genenv.parsing import Call, format_tool_calls
from genenv.types import Chat, Json, Seed

VOCABULARY = 2048
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>", "<tools>", "</tools>",
           "<tool_response>", "</tool_response>"]  # fmt: skip
# words never absorb the space before them: a value is the same tokens in a request and in JSON, which is what a
# small model needs to copy it
WORDS = r"_?\p{L}+|\p{N}{1,2}|[^\s\p{L}\p{N}_]+|_+|\s+"
DAMAGE = 0.5
MADE_UP = 0.35
SIMULATOR = 0.35
PROMPT_WEIGHT = 0.1


@dataclass(frozen=True)
class Example:
    chat: Chat
    completion: str


# -- text ------------------------------------------------------------------------------------------------------


def made_up_word(rng: random.Random) -> str:
    return "".join(
        rng.choice("bcdfghjklmnprstvwz") + rng.choice("aeiou") + rng.choice(("", "", "n", "r", "s", "l"))
        for _ in range(rng.randint(1, 3))
    )


def made_up_catalogue(rng: random.Random, words: list[str]) -> dict[str, Function]:
    """Eight functions with random names, half of their words real, without a wording of their own."""

    def word() -> str:
        return rng.choice(words) if rng.random() < 0.5 else made_up_word(rng)

    def parameter() -> dict[str, Json]:
        kind = rng.random()
        if kind < 0.45:
            names = [" ".join(word() for _ in range(rng.choice((1, 1, 2)))) for _ in range(6)]
            return {"type": "string", "examples": [n.title() if rng.random() < 0.5 else n for n in names]}
        if kind < 0.65:
            return {"type": "integer", "minimum": 0, "maximum": rng.choice((10, 100, 1000))}
        if kind < 0.75:
            return {"type": "number", "minimum": 0, "maximum": 100}
        if kind < 0.87:
            return {"type": "string", "enum": list(dict.fromkeys(word() for _ in range(3)))}
        return {"type": "string", "format": "date"}

    catalogue: dict[str, Function] = {}
    while len(catalogue) < 8:
        name = f"{word()}_{word()}"
        properties = {word(): parameter() for _ in range(rng.randint(1, 4))}
        required = [n for n in properties if rng.random() < 0.6] or [next(iter(properties))]
        catalogue[name] = Function(
            name=name,
            description=" ".join(word() for _ in range(rng.randint(2, 5))).capitalize() + ".",
            parameters={"type": "object", "properties": properties, "required": required},
        )
    return catalogue


def damaged(calls: list[Call], domain: ToolUse, rng: random.Random) -> list[Call]:
    """`calls`, each with probability DAMAGE replaced by a mistake that an agent could make."""
    out: list[Call] = []
    names = list(domain.catalogue)
    for call in calls:
        if rng.random() >= DAMAGE:
            out.append(call)
            continue
        properties = domain.catalogue[call.name].properties
        missing = [n for n in properties if n not in call.arguments]
        kind = rng.choices(("drop", "change", "swap", "add", "rename", "skip"), (3, 3, 1, 1.5, 1.5, 1))[0]
        arguments = dict(call.arguments)
        key = rng.choice(list(arguments))
        if kind == "drop":
            del arguments[key]
        elif kind == "swap":
            donor = rng.choice(calls)
            arguments[key] = rng.choice(list(donor.arguments.values()))
        elif kind == "add" and missing:
            extra = rng.choice(missing)
            arguments[extra] = random_value(properties[extra], rng)
        elif kind == "rename":
            call = Call(rng.choice(names), arguments)
        elif kind == "skip":
            continue
        else:
            arguments[key] = random_value(properties[key], rng)
        out.append(Call(call.name, arguments))
    return out or calls


def simulator_example(domain: ToolUse, seed: Seed, rng: random.Random) -> Example:
    """The direction is read off the answer: more or fewer arguments and distractors than the example's."""
    key = rng.getrandbits(32)
    success = rng.choice((None, rng.random(), rng.random()))
    chat, _ = domain.simulator_chat(seed, success, "similar", key)
    shown = [domain.catalogue[t["function"]["name"]] for t in chat.tools]
    spec = domain.random_spec(len(seed.spec["calls"]), shown, rng)
    domain.build(spec)
    chat, _ = domain.simulator_chat(seed, success, domain.direction(seed, Seed(seed.family, spec)), key)
    return Example(chat, json.dumps(spec, separators=(",", ":"), ensure_ascii=False))


def examples(seed: int, long_share: float = 1.0) -> Iterator[Example]:
    """An endless stream. `long_share` in [0, 1] is the share drawn evenly over 1-4 calls; the rest has one or two."""
    rng = random.Random(seed)
    catalogue = {n: f for n, f in builtin_catalogue().items() if f.split == "train"}
    words = sorted({w for n in catalogue for w in n.split("_")})
    plain = {n: f.model_copy(update={"request": None}) for n, f in catalogue.items()}
    builtin = [ToolUse(catalogue), ToolUse(catalogue), ToolUse(catalogue), ToolUse(plain)]
    while True:
        domain = ToolUse(made_up_catalogue(rng, words)) if rng.random() < MADE_UP else rng.choice(builtin)
        functions = list(domain.catalogue.values())
        calls = rng.randint(1, MAX_CALLS if rng.random() < long_share else 2)
        try:
            task = domain.build(domain.random_spec(calls, functions, rng))
            if rng.random() < SIMULATOR:
                yield simulator_example(domain, Seed(task.family, task.spec), rng)
            else:
                target = [Call(c["name"], c["arguments"]) for c in task.target]
                yield Example(Chat(task.messages, task.tools), format_tool_calls(damaged(target, domain, rng)))
        except SpecError:
            continue  # two equal calls by chance


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


def train_tokenizer(template: str, seed: int) -> PreTrainedTokenizerFast:
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
    stream = examples(seed)
    texts = [render(draft, e.chat) + e.completion for e, _ in zip(stream, range(6000), strict=False)]
    core.train_from_iterator(texts, trainer)
    return wrap(core, template)


def new_model() -> Qwen3ForCausalLM:
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=VOCABULARY,
            hidden_size=192,
            intermediate_size=448,
            num_hidden_layers=5,
            num_attention_heads=6,
            num_key_value_heads=2,
            head_dim=32,
            max_position_embeddings=2048,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=SPECIAL.index("<|im_end|>"),
            pad_token_id=SPECIAL.index("<|endoftext|>"),
        )
    )


def batches(
    tokenizer: PreTrainedTokenizerFast, stream: Iterator[Example], size: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """(tokens, weights), each (B, T): sorted by length in blocks of eight batches, padded with weight 0."""
    end = tokenizer.eos_token_id
    while True:
        rows: list[tuple[list[int], int]] = []
        for example, _ in zip(stream, range(8 * size), strict=False):
            prompt = tokenizer.encode(render(tokenizer, example.chat), add_special_tokens=False)
            rows.append((prompt + tokenizer.encode(example.completion, add_special_tokens=False) + [end], len(prompt)))
        rows.sort(key=lambda row: len(row[0]))
        chunks = [rows[i : i + size] for i in range(0, len(rows), size)]
        random.Random(len(rows[0][0])).shuffle(chunks)
        for chunk in chunks:
            width = max(len(tokens) for tokens, _ in chunk)
            tokens_BT = torch.zeros(len(chunk), width, dtype=torch.long)
            weights_BT = torch.zeros(len(chunk), width)
            for b, (tokens, prompt_length) in enumerate(chunk):
                tokens_BT[b, : len(tokens)] = torch.tensor(tokens)
                weights_BT[b, :prompt_length] = PROMPT_WEIGHT
                weights_BT[b, prompt_length : len(tokens)] = 1.0
            yield tokens_BT, weights_BT


def loss_of(model: Qwen3ForCausalLM, tokens_BT: Tensor, weights_BT: Tensor) -> Tensor:
    """Mean negative log likelihood, weighted; logits only where the weight is not 0."""
    hidden = model.model(input_ids=tokens_BT[:, :-1]).last_hidden_state
    weights, targets = weights_BT[:, 1:], tokens_BT[:, 1:]
    kept = weights > 0
    nll = torch.nn.functional.cross_entropy(model.lm_head(hidden[kept]), targets[kept], reduction="none")
    return (nll * weights[kept]).sum() / weights.sum()


def train(out: Path, tokens: float, batch: int, seed: int) -> None:
    torch.manual_seed(seed)
    template = (out / "chat_template.jinja").read_text("utf-8")
    if (out / "tokenizer.json").exists():
        tokenizer = wrap(Tokenizer.from_file(str(out / "tokenizer.json")), template)
    else:
        tokenizer = train_tokenizer(template, seed)
        tokenizer.save_pretrained(out)
    model = new_model()
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
    others = [p for n, p in model.named_parameters() if p.ndim != 2 or "embed" in n]
    optimizers = [
        torch.optim.Muon(matrices, lr=0.02, weight_decay=0.01, momentum=0.95),
        torch.optim.AdamW(others, lr=3e-3, betas=(0.9, 0.98), weight_decay=0.0),
    ]
    peaks = [group["lr"] for o in optimizers for group in o.param_groups]
    start, step, seen, running = time.monotonic(), 0, 0, 0.0
    stream = batches(tokenizer, examples(seed + 1, long_share=0.3), batch)
    long = False
    while (progress := seen / tokens) < 1.0:
        if progress > 0.15 and not long:
            stream, long = batches(tokenizer, examples(seed + 2), batch), True
        tokens_BT, weights_BT = next(stream)
        if progress > 0.1:
            weights_BT[weights_BT == PROMPT_WEIGHT] = 0.0
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
        if step % 50 == 0:
            elapsed = time.monotonic() - start
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
    half = new_model().half()
    half.load_state_dict(model.state_dict())
    if not all(math.isfinite(p.float().abs().max().item()) for p in half.parameters()):
        raise RuntimeError("weights do not fit into fp16")
    half.save_pretrained(out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder that holds chat_template.jinja")
    parser.add_argument("--tokens", type=float, default=22e6, help="length of the run, padding included")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    train(arguments.out, arguments.tokens, arguments.batch, arguments.seed)
