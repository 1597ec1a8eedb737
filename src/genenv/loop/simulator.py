"""pi_env: asks the simulator for tasks and reads what it writes."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from genenv.config.sections import CurriculumConfig, SimulatorConfig
from genenv.contracts.domain import Domain
from genenv.contracts.engine import ChatFormat, Policy
from genenv.contracts.types import Candidate, Direction, SampleRequest, Seed, derive_seed
from genenv.loop.pools import Pools, direction
from genenv.reading.parsing import parse_json_object


@dataclass(frozen=True)
class Order:
    """What one candidate is asked for: a family (through its example), a direction, and what the agent can do."""

    example: Seed
    success: float | None
    direction: Direction
    parent: str | None = None
    """Id of the task in D_train that is to be edited; `example` is its specification, `success` that on itself."""


def plan(
    seeds: Mapping[str, Sequence[Seed]],
    pools: Pools,
    load_parent: Callable[[str], tuple[Seed, float | None]],
    curriculum: CurriculumConfig,
    count: int,
    key: int,
) -> list[Order]:
    """Choose `count` orders: families by the curriculum, examples from the seeds or from D_env; edits of tasks in D_train.

    A parent from D_env keeps the family it has; the curriculum's draw decides among seeds. `load_parent` gives a task's
    specification and its success when it was first tried.
    """
    rng = random.Random(key)
    edits = _edits(pools, load_parent, curriculum, count, derive_seed(key, "edits"))
    count -= len(edits)
    families = sorted(seeds)
    if curriculum.families == "even":
        weights = [float(len(seeds[f])) for f in families]
    else:
        alpha, sharp = curriculum.alpha, curriculum.family_beta
        weights = pools.family_weights(families, alpha, sharp, curriculum.floor, curriculum.stuck, curriculum.reward)
    parents: dict[str, list[Seed]] = {}
    for task_id in pools.env.draw(round(4 * count * curriculum.parents), rng):
        parent, _ = load_parent(task_id)
        parents.setdefault(parent.family, []).append(parent)
    orders = []
    for family in rng.choices(families, weights, k=count):
        pool = parents.get(family, [])
        use_parent = bool(pool) and rng.random() < curriculum.parents
        example = pool.pop() if use_parent else rng.choice(seeds[family])
        success = pools.success(family)
        orders.append(Order(example, success, direction(success, curriculum.alpha)))
    return orders + edits


def _edits(
    pools: Pools,
    load_parent: Callable[[str], tuple[Seed, float | None]],
    curriculum: CurriculumConfig,
    count: int,
    key: int,
) -> list[Order]:
    """Which of `count` orders are edits, each of another task, that move it towards alpha."""
    rng = random.Random(key)
    orders = []
    for task_id in pools.train.draw(sum(rng.random() < curriculum.edits for _ in range(count)), rng):
        example, success = load_parent(task_id)
        orders.append(Order(example, success, direction(success, curriculum.alpha), task_id))
    return orders


def write(
    policy: Policy, chat: ChatFormat, domain: Domain, orders: Sequence[Order], config: SimulatorConfig, key: int
) -> list[Candidate]:
    """One candidate per order, sampled under the JSON schema of the domain's specification."""
    requests = []
    for i, order in enumerate(orders):
        seed = derive_seed(key, "order", i)
        edit = order.parent is not None
        prompt, schema = domain.simulator_chat(order.example, order.success, order.direction, seed, edit=edit)
        sampling = (derive_seed(key, "candidate", i),)
        requests.append(SampleRequest(chat.encode(prompt), sampling, config.max_tokens, config.temperature, schema))
    candidates = []
    for order, request, samples in zip(orders, requests, policy.sample(requests), strict=True):
        sample = samples[0]
        text = chat.decode(sample.tokens)
        spec, error = None, ""
        try:
            spec = parse_json_object(text)
        except ValueError as reason:
            error = str(reason) if sample.stopped else f"cut off at {config.max_tokens} tokens"
        candidates.append(
            Candidate(
                request.prompt,
                sample,
                text,
                order.example.family,
                order.direction,
                order.example.id,
                spec,
                error,
                order.parent,
            )
        )
    return candidates
