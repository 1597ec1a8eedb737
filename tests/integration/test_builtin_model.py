"""The built-in tiny model: small enough, plays the agent weakly, writes tasks that are mostly admitted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from statistics import fmean

import pytest

from genenv.config.sections import CurriculumConfig, SimulatorConfig
from genenv.contracts.errors import InputError
from genenv.domains.tool_use.domain import ToolUse
from genenv.engines.local.engine import LocalEngine
from genenv.loop.gate import Gate
from genenv.loop.pools import Pools
from genenv.loop.rollouts import PlayConfig, play
from genenv.loop.seeds import by_family
from genenv.loop.simulator import plan, write
from genenv.models import TINY, resolve


@pytest.fixture(scope="module")
def engine() -> LocalEngine:
    return LocalEngine(resolve(TINY), rank=4, lora_alpha=8, seed=0, threads=1)


@pytest.mark.parametrize("name", ["tiny", "household", "multihop_qa", "travel"])
def test_the_weights_are_small(name: str) -> None:
    folder = Path(resolve(f"builtin:{name}"))
    assert (folder / "model.safetensors").stat().st_size < 10 * 2**20
    assert f"builtin:{name}" in (folder.parent / "README.md").read_text("utf-8")


def test_a_model_that_does_not_ship_is_named_with_those_that_do() -> None:
    with pytest.raises(InputError, match="builtin:huge: expected one of builtin:household, builtin:multihop_qa"):
        resolve("builtin:huge")


def test_it_plays_the_agent_weakly(engine: LocalEngine) -> None:
    domain = ToolUse()
    tasks = domain.heldout(32, 7)
    attempts = play(engine.policy("agent"), engine.chat, domain, tasks, PlayConfig(4, 160, 1), seed=0)
    scores = [t.score.value for group in attempts for t in group]
    assert 0.05 < fmean(s or 0.0 for s in scores) < 0.5
    assert None not in scores


def test_it_writes_tasks_that_the_gate_admits(engine: LocalEngine) -> None:
    domain = ToolUse()
    orders = plan(by_family(domain.seeds(40, 1)), Pools(), pytest.fail, CurriculumConfig(parents=0.0), 32, key=3)
    candidates = write(engine.policy("simulator"), engine.chat, domain, orders, SimulatorConfig(), key=4)
    gate = Gate(domain)
    reasons = Counter(gate.admit(c)[1].reason for c in candidates)
    assert reasons["admitted"] >= 20
    followed = sum(c.spec is not None and f"{len(c.spec['calls'])}-call" == c.family for c in candidates)
    assert followed >= 24
