"""`genenv doctor --plan`: memory, tokens, operations and time of a configuration, before anything is downloaded or run.

Everything here is an estimate from shapes and limits. Each answer is counted as long as the configuration allows, every
task as admitted; what is assumed beyond that is in `ASSUMED`, which is printed with the plan.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace

from genenv.config.sections import Config
from genenv.contracts.engine import CACHE_FACTOR
from genenv.contracts.errors import InputError
from genenv.contracts.types import Json
from genenv.planning.cluster import Layout, command, server_memory
from genenv.planning.devices import BANDWIDTH, COMPUTE, DEVICES, Device, this_cpu
from genenv.planning.memory import Precision, Sampling, Training, sampling_bytes, standing, training_bytes
from genenv.planning.shapes import Shape, shape_of

GIB = 2**30
PROMPT = 1024
USEFUL = 0.8
LAUNCH = 1.5e-3
USABLE = 0.92
ASSUMED = {
    "prompt": f"tokens of a prompt where neither agent.max_prompt_tokens nor --prompt says: {PROMPT}",
    "useful groups": f"share of groups with variance, the only ones that train: {USEFUL}",
    "compute": f"share of the peak rate that large products reach: {COMPUTE} (all of a rate measured here)",
    "bandwidth": f"share of the peak bandwidth that decoding reaches: {BANDWIDTH}",
    "launch": f"local engine on a GPU, each layer and decoding step at least: {1000 * LAUNCH} ms",
    "usable": f"share of a device's memory that can be filled: {USABLE}",
}
ONE_TURN = {"tool_use", "python_checker", "reasoning_gym"}
"""Domains whose episodes end with the first answer; others are counted with all `agent.max_turns`."""


@dataclass(frozen=True)
class Lengths:
    """Tokens of one prompt, of one answer of each player, and answers in one episode."""

    prompt: int
    agent: int
    simulator: int
    turns: int

    @staticmethod
    def of(config: Config, prompt: int | None = None, answer: int | None = None) -> Lengths:
        turns = 1 if config.domain.name in ONE_TURN else config.agent.max_turns
        limits = config.agent.max_tokens, config.simulator.max_tokens
        agent, simulator = (min(answer or limit, limit) for limit in limits)
        return Lengths(prompt or config.agent.max_prompt_tokens or PROMPT, agent, simulator, turns)

    @property
    def episode(self) -> int:
        """Tokens behind the prompt. What the environment answers is counted as long as what the agent writes."""
        return (2 * self.turns - 1) * self.agent


@dataclass(frozen=True)
class Round:
    """Tokens of one round, expected. `separate`: what the update would take without shared prompts."""

    simulator_read: float
    simulator_written: float
    agent_read: float
    agent_written: float
    reference: float
    update: float
    separate: float

    @staticmethod
    def of(config: Config, lengths: Lengths, shared: bool) -> Round:
        agent, simulator = config.agent, config.simulator
        prompt, own, size = lengths.prompt, lengths.episode, agent.group_size
        groups = simulator.tasks * (1 + agent.replay)
        later = sum(prompt + 2 * t * lengths.agent for t in range(1, lengths.turns))
        rows = max(1, math.ceil(size * own / max(own, config.engine.token_budget - prompt)))
        useful = groups * USEFUL * agent.train
        packed, separate = rows * prompt + size * own, size * (prompt + own)
        chosen = simulator.tasks * (USEFUL if config.curriculum.mixed_only else 1.0) * simulator.train
        written = prompt + lengths.simulator
        regression = chosen * (1 + simulator.replay + simulator.anchor) * written
        update = useful * (packed if shared else separate)
        return Round(
            simulator_read=simulator.tasks * prompt,
            simulator_written=simulator.tasks * lengths.simulator,
            agent_read=groups * (prompt + size * later),
            agent_written=groups * size * lengths.turns * lengths.agent,
            reference=update * (agent.kl > 0) + chosen * written * (simulator.kl > 0),
            update=update + regression,
            separate=useful * separate + regression,
        )


def forward(shape: Shape, tokens: float, headed: float, context: float) -> float:
    """Operations of a forward pass: two a weight and token, the head for `headed` tokens only, and attention to
    `context` tokens for each token."""
    return (
        2 * shape.body * tokens + 2 * shape.embedding * headed + 4 * shape.layers * shape.attention * context * tokens
    )


def stages(shape: Shape, tokens: Round, lengths: Lengths, recompute: bool) -> dict[str, tuple[float, float]]:
    """Operations of each stage of a round: (in large products, in decoding). The base's weights have no gradient."""
    context = (lengths.prompt + lengths.episode) / 2
    trained = tokens.update * lengths.episode / (lengths.prompt + lengths.episode)
    update = forward(shape, tokens.update, trained, context)

    def pair(read: float, written: float) -> tuple[float, float]:
        return forward(shape, read, 0, lengths.prompt / 2), forward(shape, written, written, lengths.prompt)

    return {
        "simulator writes": pair(tokens.simulator_read, tokens.simulator_written),
        "agent plays": pair(tokens.agent_read, tokens.agent_written),
        "reference": (forward(shape, tokens.reference, trained, context), 0.0),
        "updates": ((3 if recompute else 2) * update, 0.0),
    }


def at_once(config: Config, lengths: Lengths, samples: int, size: int) -> Sampling:
    """What the local engine samples at once of `samples` requests in groups of `size`."""
    length = lengths.prompt + lengths.episode
    groups = min(-(-samples // size), max(1, CACHE_FACTOR * config.engine.token_budget // (size * length)))
    alone = 1 if lengths.turns == 1 else size  # from the second turn on, every member has a prompt of its own
    return Sampling(groups * alone, groups * size, lengths.prompt, lengths.episode)


def largest_batch(config: Config, lengths: Lengths) -> Training:
    """The largest batch that the local engine trains at once: one sequence may exceed the budget."""
    longest = lengths.prompt + max(lengths.episode, lengths.simulator)
    tokens = max(config.engine.token_budget, longest)
    row = min(tokens, lengths.prompt + config.agent.group_size * lengths.episode)
    return Training(tokens, max(row, longest), tokens * lengths.episode // (lengths.prompt + lengths.episode))


def batches_of(config: Config, lengths: Lengths) -> tuple[Sampling, Sampling]:
    """What the simulator and the agent sample at once."""
    agent, tasks = config.agent, config.simulator.tasks
    played = math.ceil(tasks * (1 + agent.replay)) * agent.group_size
    writer = replace(lengths, agent=lengths.simulator, turns=1)
    return at_once(config, writer, tasks, 1), at_once(config, lengths, played, agent.group_size)


def local_memory(shape: Shape, config: Config, lengths: Lengths, cuda: bool) -> dict[str, float]:
    """Bytes by purpose. Sampling and training are never in memory together: the total counts the larger one."""
    precision, rank = Precision.of(config.engine, cuda), config.engine.rank
    parts: dict[str, float] = dict(standing(shape, rank, precision))
    sampling = max(sampling_bytes(shape, precision, work) for work in batches_of(config, lengths))
    training = training_bytes(shape, rank, precision, largest_batch(config, lengths))
    return {**parts, "sampling": sampling, "training": training, "total": sum(parts.values()) + max(sampling, training)}


def decoding(shape: Shape, work: Sampling, answers: float, device: Device, item: int, launch: float) -> float:
    """Seconds: each step reads all weights and the cache, computes its tokens, and cannot be shorter than its launches."""
    steps = math.ceil(answers / work.samples) * work.written
    read = shape.parameters * item + work.samples * (work.prompt + work.written / 2) * shape.cache(item)
    computed = forward(shape, work.samples, work.samples, work.prompt) / device.products
    return steps * max(read / (BANDWIDTH * device.bandwidth), computed, shape.layers * launch)


def make_plan(
    config: Config, gpu: str | None, gpus: int, prompt: int | None = None, answer: int | None = None
) -> dict[str, Json]:
    """The whole plan. `prompt` and `answer` are typical lengths: tokens and time follow them, memory follows the limits.

    Raises InputError for an unknown device or model.
    """
    if gpu is not None and gpu not in DEVICES:
        raise InputError(f"--gpu {gpu}: expected one of {', '.join(DEVICES)}")
    device = DEVICES[gpu] if gpu is not None else this_cpu()
    engine = config.engine
    local = engine.kind == "local"
    model = engine.model if local else engine.base_model or engine.model
    shape = shape_of(model)
    limits, typical = Lengths.of(config), Lengths.of(config, prompt, answer)
    tokens = Round.of(config, typical, shared=local)
    works = stages(shape, tokens, typical, recompute=not local)
    answers = tokens.simulator_written / typical.simulator, tokens.agent_written / typical.agent
    server: dict[str, Json] = {}
    if local:
        memory = local_memory(shape, config, limits, gpu is not None)
        need = {"memory": memory["total"]}
        item, launch = Precision.of(engine, gpu is not None).item, LAUNCH if gpu is not None else 0.0
        batch, trainers, samplers = batches_of(config, typical), 1, 1
        unit = device
    else:
        layout = Layout.of(shape, gpus, device.memory)
        longest = limits.prompt + max(limits.episode, limits.simulator)
        memory = server_memory(shape, layout, engine.rank, longest, device.memory)
        need = {
            "training": memory["training: total"],
            "cache": longest * shape.cache(2) / layout.split + memory["sampling: weights"],
        }
        item, launch = 2, 0.0
        trainers, samplers = layout.trainers // layout.split, layout.samplers // layout.split
        unit = replace(device, flops=layout.split * device.flops, bandwidth=layout.split * device.bandwidth)
        room = int(memory["sampling: cache"] * layout.split / shape.cache(2) / (typical.prompt + typical.episode))
        writes, plays = (
            Sampling(1, max(1, min(room, math.ceil(count / samplers))), typical.prompt, written)
            for count, written in zip(answers, (typical.simulator, typical.agent), strict=True)
        )
        batch = writes, plays
        server = {"layout": asdict(layout), "command": command(model, engine.base_url or "", layout)}
    seconds = {
        name: work[0] / unit.products / (trainers if name == "updates" else samplers) for name, work in works.items()
    }
    for name, work_at_once, count in zip(("simulator writes", "agent plays"), batch, answers, strict=True):
        seconds[name] += decoding(shape, work_at_once, count / samplers, unit, item, launch)
    fits = all(value <= USABLE * device.memory * GIB for value in need.values())
    slowest = max(seconds, key=lambda name: seconds[name])
    return {
        "model": model,
        "engine": engine.kind,
        "device": asdict(device) | {"count": 1 if local else gpus},
        "parameters": {"all": shape.parameters, "body": shape.body, "one adapter": shape.adapter(engine.rank)},
        "lengths": {"limits": asdict(limits), "typical": asdict(typical)},
        "memory_gib": {name: value / GIB for name, value in memory.items()},
        "fits": fits,
        "advice": None if fits else advice(config, shape, limits, device, gpu is not None, memory),
        "tokens_a_round": asdict(tokens),
        "teraflop_a_round": {name: sum(work) / 1e12 for name, work in works.items()},
        "seconds_a_round": seconds | {"total": sum(seconds.values())},
        "hours_a_run": sum(seconds.values()) * config.rounds / 3600,
        "bottleneck": f"{slowest}, {100 * seconds[slowest] / sum(seconds.values()):.0f} % of the estimated time",
        "server": server or None,
        "assumed": ASSUMED,
    }


def advice(config: Config, shape: Shape, limits: Lengths, device: Device, cuda: bool, memory: dict[str, float]) -> str:
    """What to lower when it does not fit: the largest token budget that does, or the part that is too large."""
    if config.engine.kind == "local":
        budget = config.engine.token_budget // 2
        while budget >= 256:
            smaller = config.model_copy(update={"engine": config.engine.model_copy(update={"token_budget": budget})})
            if local_memory(shape, smaller, limits, cuda)["total"] <= USABLE * device.memory * GIB:
                return f"lower engine.token_budget to {budget}"
            budget //= 2
        if memory["training"] > memory["sampling"] and memory["training"] > memory["weights"]:
            return (
                "one sequence is too long to train: lower agent.max_prompt_tokens, agent.max_tokens and agent.max_turns"
            )
    largest = max((name for name in memory if not name.endswith("total")), key=lambda name: memory[name])
    return {
        "adapters": "lower engine.rank",
        "sampling": "lower agent.group_size, agent.max_tokens and simulator.max_tokens",
        "training: activations": "lower agent.max_prompt_tokens and agent.max_tokens, or use more devices",
        "training: logits": "lower agent.max_prompt_tokens and agent.max_tokens, or use more devices",
    }.get(largest, "take a smaller model or a larger device")


def rendered(plan: dict[str, Json]) -> str:
    """The plan as a person reads it."""
    device, lengths = plan["device"], plan["lengths"]
    parameters = plan["parameters"]
    lines = [
        "An estimate from shapes and limits: nothing was run.",
        f"model       {plan['model']}: {parameters['all'] / 1e9:.3f} billion weights, an adapter {parameters['one adapter'] / 1e6:.1f} million",
        f"device      {device['count']} x {device['name']}, {device['memory']:.0f} GiB, {device['flops'] / 1e12:.3g} TFLOP/s, "
        f"{device['bandwidth'] / 1e9:.3g} GB/s ({'measured now' if device['measured'] else 'peaks of the data sheet'})",
        *(f"{name:<11} " + ", ".join(f"{k} {v}" for k, v in lengths[name].items()) for name in ("limits", "typical")),
        "",
        *(f"memory      {name:<24} {value:8.2f} GiB" for name, value in plan["memory_gib"].items()),
        f"fits        {'yes' if plan['fits'] else 'no: ' + plan['advice']}",
        "",
        *(f"tokens      {name.replace('_', ' '):<24} {value:12,.0f} a round" for name, value in plan["tokens_a_round"].items()),
        *(f"operations  {name:<24} {value:12,.1f} TFLOP a round" for name, value in plan["teraflop_a_round"].items()),
        *(f"time        {name:<24} {value:12,.1f} s a round" for name, value in plan["seconds_a_round"].items()),
        f"time        {'all rounds':<24} {plan['hours_a_run']:12,.1f} h",
        f"bottleneck  {plan['bottleneck']}",
        *([f"\nserver      {plan['server']['command']}"] if plan["server"] else []),
        "",
        *(f"assumed     {text}" for text in plan["assumed"].values()),
    ]  # fmt: skip
    return "\n".join(lines)
