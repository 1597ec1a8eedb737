"""Speed of the local engine, side by side with what users would use instead.

    python bench/engine.py [--model builtin:tiny] [--runs 5] [--threads 1] [--groups 4] [--prompt 160] [--completion 32]

Measured in one process, medians of RUNS after one run to warm up, the sides by turns: sampling against
`transformers.generate` (the same base without an adapter), a whole GRPO step (sample, base
logprobs, update) against TRL's `GRPOTrainer` (`pip install trl datasets`; left out where it is not installed), and the
update against its floor: the matrix products that it cannot do without, over the rate at which this machine multiplies
matrices of those shapes. Every completion is as long as every other, so that both sides do the same work.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from genenv.contracts.engine import AdamParams, Loss
from genenv.contracts.types import Datum, Group, Message, Sample, SampleRequest, Score, Task, Trajectory, derive_seed
from genenv.engines.local.engine import LocalEngine
from genenv.loop.updates import grpo_data, with_kl
from genenv.models import resolve

GROUP = 8
KL = 0.001


def prompts(engine: LocalEngine, count: int, length: int) -> list[tuple[int, ...]]:
    """Token sequences without meaning: speed does not depend on it."""
    rng = np.random.default_rng(0)
    return [tuple(int(t) for t in rng.integers(300, engine.vocabulary, length)) for _ in range(count)]


def sample(engine: LocalEngine, texts: list[tuple[int, ...]], length: int, run: int) -> list[list[Sample]]:
    requests = [
        SampleRequest(p, tuple(derive_seed(run, i, g) for g in range(GROUP)), length) for i, p in enumerate(texts)
    ]
    return engine.policy("agent").sample(requests)


def reward(tokens: tuple[int, ...]) -> float:
    return float(sum(tokens) % 2)


def batch(texts: list[tuple[int, ...]], samples: list[list[Sample]]) -> list[Datum]:
    task = Task("", (Message("user", ""),), (), None, {})
    groups = []
    for prompt, members in zip(texts, samples, strict=True):
        zeros = (0,) * len(prompt)
        made = tuple(
            Trajectory(
                prompt + s.tokens, zeros + (1,) * len(s.tokens), (0.0,) * len(prompt) + s.logprobs, len(prompt), "",
                Score(reward(s.tokens) if i else 1.0 - reward(members[1].tokens), ""), "length", s.policy_version,
            )
            for i, s in enumerate(members)
        )  # fmt: skip
        groups.append(Group(task, made))
    return grpo_data(groups, True)


def update(engine: LocalEngine, data: list[Datum]) -> None:
    agent = engine.policy("agent")
    agent.forward_backward(with_kl(data, engine.base_logprobs(data), KL).data, Loss("ppo"))
    agent.optim_step(AdamParams(1e-5))


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def generate(model: Any, texts: list[tuple[int, ...]], length: int) -> None:
    """`transformers.generate` on the same prompts, each repeated for its group, sampled at temperature 1."""
    ids = torch.tensor(texts).repeat_interleave(GROUP, 0)
    model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=length, min_new_tokens=length, do_sample=True,
        temperature=1.0, top_k=0, top_p=1.0, pad_token_id=0,
    )  # fmt: skip


def floor(engine: LocalEngine, texts: list[tuple[int, ...]], length: int) -> float:
    """Seconds of matrix products that an update needs, each shape at the rate that this machine multiplies it.

    For each weight W: W x for the base and for the agent, and one product backward (the base's weights have no
    gradient); for each adapter two products forward and four backward; all on the shared-prefix row of each group, the
    head on the trained tokens only. For attention two products of the pairs that see each other for the base and for the
    agent, and four backward. Everything that is no product is left out: a lower bound.
    """
    base: Any = engine.model.get_base_model()
    prompt, own = len(texts[0]), GROUP * length
    tokens, trained = len(texts) * (prompt + own), len(texts) * own
    shapes: dict[tuple[int, int, int], int] = {}

    def need(rows: int, inner: int, outer: int, count: int) -> None:
        shapes[rows, inner, outer] = shapes.get((rows, inner, outer), 0) + count

    for name, module in base.named_modules():
        weight = getattr(module, "weight", None)
        if isinstance(module, torch.nn.Linear) and weight is not None and ".simulator" not in name:
            rows = trained if name.startswith("lm_head") else tokens
            need(rows, weight.shape[1], weight.shape[0], 3)
    config = base.config
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    heads = config.num_hidden_layers * config.num_attention_heads * len(texts)
    # half of a square, since a token sees what is before it
    need(prompt // 2, width, prompt, 8 * heads)
    need(own, width, prompt, 8 * heads)
    need(length // 2, width, length, 8 * heads * GROUP)
    total = 0.0
    for (rows, inner, outer), count in shapes.items():
        x, w = torch.randn(rows, inner), torch.randn(outer, inner)
        times = [timed(lambda x=x, w=w: x @ w.T)[0] for _ in range(9)]
        total += count * statistics.median(times[2:])
    return total


def trl_steps(folder: str, texts: list[tuple[int, ...]], length: int, runs: int) -> tuple[list[float], int]:
    """Seconds of each optimizer step of TRL, and completion tokens of one. Its settings are the fastest found on a CPU."""
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    rows = Dataset.from_list([{"prompt": tokenizer.decode(list(t))} for t in texts for _ in range(runs + 2)])
    seconds: list[float] = []

    class Clock(TrainerCallback):
        def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
            self.start = time.perf_counter()

        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            seconds.append(time.perf_counter() - self.start)

    def rewards(completion_ids: list[list[int]], **kwargs: Any) -> list[float]:
        return [reward(tuple(ids)) if i % GROUP else 0.5 for i, ids in enumerate(completion_ids)]

    config = GRPOConfig(
        output_dir=tempfile.mkdtemp(), use_cpu=True, bf16=False, fp16=False, gradient_checkpointing=False,
        per_device_train_batch_size=GROUP * len(texts), num_generations=GROUP, max_completion_length=length,
        generation_kwargs={"min_new_tokens": length}, beta=KL, learning_rate=1e-5, max_steps=runs + 1,
        logging_steps=10_000, save_strategy="no", report_to="none", shuffle_dataset=False, temperature=1.0,
        disable_tqdm=True, dataloader_pin_memory=False,
    )  # fmt: skip
    trainer = GRPOTrainer(
        model=folder, args=config, train_dataset=rows, reward_funcs=rewards, callbacks=[Clock()],
        processing_class=tokenizer,
        peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
    )  # fmt: skip
    trainer.train()
    return seconds[1:], GROUP * len(texts) * length


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="builtin:tiny")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--groups", type=int, default=4)
    parser.add_argument("--prompt", type=int, default=160)
    parser.add_argument("--completion", type=int, default=32)
    parser.add_argument("--skip-trl", action="store_true")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(options.threads)

    from transformers import AutoModelForCausalLM

    folder = resolve(options.model)
    engine = LocalEngine(folder, rank=16, lora_alpha=32, seed=0, dtype="float32", threads=options.threads)
    engine.chat.eos = -1  # no completion ends early
    texts = prompts(engine, options.groups, options.prompt)
    plain = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokens = options.groups * GROUP * options.completion

    ours, theirs, updates = [], [], []
    for run in range(options.runs + 1):
        seconds, samples = timed(lambda run=run: sample(engine, texts, options.completion, run))
        ours.append(seconds)
        theirs.append(timed(lambda: generate(plain, texts, options.completion))[0])
        data = batch(texts, samples)
        updates.append(timed(lambda data=data: update(engine, data))[0])
    step = statistics.median(a + b for a, b in zip(ours[1:], updates[1:], strict=True))
    result: dict[str, Any] = {
        "model": options.model, "threads": options.threads, "groups": options.groups, "group_size": GROUP,
        "prompt": options.prompt, "completion": options.completion,
        "sample_s": statistics.median(ours[1:]), "generate_s": statistics.median(theirs[1:]),
        "update_s": statistics.median(updates[1:]), "floor_s": floor(engine, texts, options.completion), "step_s": step,
        "tokens_per_s": tokens / step,
    }  # fmt: skip
    result["sample_speedup"] = result["generate_s"] / result["sample_s"]
    result["update_over_floor"] = result["update_s"] / result["floor_s"]
    if not options.skip_trl and importlib.util.find_spec("trl"):
        seconds, count = trl_steps(folder, texts, options.completion, options.runs)
        result["trl_step_s"] = statistics.median(seconds)
        result["trl_tokens_per_s"] = count / result["trl_step_s"]
        result["step_speedup"] = result["trl_step_s"] / step
    print(json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in result.items()}, indent=1))


if __name__ == "__main__":
    main()
