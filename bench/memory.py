"""Memory of the local engine, measured and as `genenv doctor --plan` calculates it, side by side (Linux).

    python bench/memory.py [--model builtin:tiny] [--dtype float32] [--budgets 2048,4096,8192] [--threads 1]

Sampling and one training step, each in a fresh process: the peak of its resident memory, everything included. The
requests fill the token budget: groups of 8 whose prompt is three quarters of a member's length.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys

import numpy as np

from genenv.config.sections import EngineConfig
from genenv.contracts.engine import CACHE_FACTOR, AdamParams, Loss
from genenv.contracts.types import Datum, SampleRequest
from genenv.planning.memory import Precision, Sampling, Training, sampling_bytes, standing, training_bytes
from genenv.planning.shapes import shape_of
from genenv.session import make_engine

GROUP = 8
LENGTH = 256
PROMPT = 3 * LENGTH // 4
WRITTEN = LENGTH - PROMPT
ROW = PROMPT + GROUP * WRITTEN
MIB = 2**20


def sampling(budget: int) -> Sampling:
    groups = CACHE_FACTOR * budget // (GROUP * LENGTH)
    return Sampling(groups, GROUP * groups, PROMPT, WRITTEN)


def training(budget: int) -> Training:
    groups = budget // ROW
    return Training(groups * ROW, ROW, GROUP * groups * WRITTEN)


def work(stage: str, settings: EngineConfig) -> None:
    """Run one stage with a full budget, print the peak of resident memory in bytes."""
    engine = make_engine(settings, 0)
    agent = engine.policy("agent")
    rng = np.random.default_rng(0)

    def text(length: int) -> tuple[int, ...]:
        return tuple(int(t) for t in rng.integers(300, 2000, length))

    if stage == "sample":
        groups = range(sampling(settings.token_budget).prompts)
        agent.sample([SampleRequest(text(PROMPT), tuple(range(GROUP * g, GROUP * (g + 1))), WRITTEN) for g in groups])
    else:
        prompts = [text(PROMPT) for _ in range(training(settings.token_budget).tokens // ROW)]
        weights, zeros = (0.0,) * PROMPT + (1e-3,) * WRITTEN, (0.0,) * LENGTH
        data = [
            Datum(p + text(WRITTEN), weights, PROMPT, zeros, g) for g, p in enumerate(prompts) for _ in range(GROUP)
        ]
        engine.base_logprobs(data)
        agent.forward_backward(data, Loss("ppo"))
        agent.optim_step(AdamParams(1e-4))
    print(1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def compare(settings: EngineConfig, budgets: list[int]) -> None:
    shape, precision = shape_of(settings.model), Precision.of(settings, cuda=False)
    base = sum(standing(shape, settings.rank, precision).values())
    print("stage   budget   measured    planned   planned / measured")
    for stage in ("sample", "train"):
        for budget in budgets:
            own = settings.model_copy(update={"token_budget": budget})
            command = [sys.executable, __file__, "--stage", stage, "--engine", own.model_dump_json()]
            measured = int(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()[-1])
            planned = base + (
                sampling_bytes(shape, precision, sampling(budget)) if stage == "sample"
                else training_bytes(shape, settings.rank, precision, training(budget))
            )  # fmt: skip
            print(
                f"{stage:<6} {budget:7} {measured / MIB:6.0f} MiB {planned / MIB:6.0f} MiB   {planned / measured:.2f}",
                flush=True,
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="builtin:tiny")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--budgets", default="2048,4096,8192")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--stage", choices=["sample", "train"], help=argparse.SUPPRESS)
    parser.add_argument("--engine", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stage:
        work(options.stage, EngineConfig.model_validate_json(options.engine))
    else:
        chosen = EngineConfig(model=options.model, dtype=options.dtype, threads=options.threads)
        compare(chosen, [int(b) for b in options.budgets.split(",")])
