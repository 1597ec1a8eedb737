"""What one turn leaves in the cache serves the next: the same samples, and only new tokens computed."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from genenv.contracts.engine import AdamParams, Loss
from genenv.contracts.types import Datum, Sample, SampleRequest
from genenv.engines.local import engine as local
from genenv.engines.local.decode import FastForward, PlainForward, Prefix, Prefixes
from genenv.engines.local.engine import LocalEngine

FIRST = [SampleRequest((10, 11, 12), (1, 2, 3), 9, keep=True), SampleRequest((9,) * 7, (4,), 9, keep=True)]
ANSWERS = ((60, 61), (62,), (63, 64, 65, 66), (67, 68, 69))


def second(samples: list[list[Sample]], keep: bool) -> list[SampleRequest]:
    """The next turn of each sample: transcripts and answers of different lengths."""
    flat = [(r.prompt, s) for r, group in zip(FIRST, samples, strict=True) for s in group]
    return [
        SampleRequest(prompt + sample.tokens + answer, (20 + i,), 8, keep=keep)
        for i, ((prompt, sample), answer) in enumerate(zip(flat, ANSWERS, strict=True))
    ]


@pytest.fixture(params=["fast", "plain"])
def engine(request: pytest.FixtureRequest, random_model: str) -> LocalEngine:
    made = LocalEngine(random_model, rank=4, lora_alpha=8, seed=1, dtype="float32", threads=1)
    made._merges = request.param == "fast"
    agent = made.policy("agent")
    ends = (5, 6, *(made.chat.eos,) * 6)  # towards ends of turns, so that some samples leave the batch early
    datum = Datum(ends, (0.0,) * 2 + (1.0,) * 6, 2)
    while agent.logprobs([datum])[0][3] < -2.0:
        agent.forward_backward([datum], Loss("cross_entropy"))
        agent.optim_step(AdamParams(lr=0.02))
    return made


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """(rows, tokens) of each forward pass."""
    shapes: list[tuple[int, int]] = []
    for kind in (FastForward, PlainForward):

        def call(self: object, tokens_BT: torch.Tensor, *rest: object, _call: object = kind.__call__) -> torch.Tensor:
            shapes.append(tuple(tokens_BT.shape))
            return _call(self, tokens_BT, *rest)

        monkeypatch.setattr(kind, "__call__", call)
    return shapes


def test_the_next_turn_is_the_same_with_what_is_kept(engine: LocalEngine, computed: list[tuple[int, int]]) -> None:
    agent = engine.policy("agent")
    first = agent.sample(FIRST)
    assert len({len(s.tokens) for group in first for s in group}) > 1  # some leave the batch early
    computed.clear()
    kept = agent.sample(second(first, keep=True))
    # every transcript lacks its last token, which nothing was computed from, and its answer
    assert computed[0] == (4, 5)
    third = [
        SampleRequest(r.prompt + s.tokens + (70 + i,), (30 + i,), 6)
        for i, (r, (s,)) in enumerate(zip(second(first, keep=True), kept, strict=True))
    ]
    computed.clear()
    last = agent.sample(third)
    assert computed[0] == (4, 2)

    plain = agent.sample(second(first, keep=False))
    for (a,), (b,) in zip(kept, plain, strict=True):
        assert a.tokens == b.tokens
        assert a.logprobs == pytest.approx(b.logprobs, abs=1e-4)
    for (a,), (b,) in zip(last, agent.sample(third), strict=True):
        assert a.tokens == b.tokens
        assert a.logprobs == pytest.approx(b.logprobs, abs=1e-4)


def test_nothing_is_kept_unasked_of_other_weights_or_for_the_other_player(
    engine: LocalEngine, computed: list[tuple[int, int]]
) -> None:
    agent, simulator = engine.policy("agent"), engine.policy("simulator")
    longest = max(len(p) for p in (r.prompt for r in second(agent.sample(FIRST), keep=False)))

    def next_width(requests: list[SampleRequest]) -> int:
        computed.clear()
        agent.sample(requests)
        return computed[0][1]

    unasked = agent.sample([replace(r, keep=False) for r in FIRST])
    assert next_width(second(unasked, keep=False)) == longest
    asked = agent.sample(FIRST)
    simulator.sample([SampleRequest((5, 6), (1,), 2)])
    assert next_width(second(asked, keep=False)) == longest
    asked = agent.sample(FIRST)
    simulator.forward_backward([Datum((5, 6, 7), (0.0, 1.0, 1.0), 1)], Loss("cross_entropy"))
    assert next_width(second(asked, keep=False)) == longest
    asked = agent.sample(FIRST)
    agent.version += 1
    assert next_width(second(asked, keep=False)) == longest


def test_no_more_is_kept_than_the_budget_allows(engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "CACHE_FACTOR", 1)
    engine.token_budget = 40  # the three of the first request cost 36 tokens of cache, the second 16
    agent = engine.policy("agent")
    agent.sample(FIRST)
    assert engine._prefixes is not None
    assert [p.tokens[:3] for p in engine._prefixes[1]._prefixes] == [(10, 11, 12)] * 3


def test_the_longest_kept_beginning_is_found() -> None:
    prefixes = Prefixes([Prefix(tokens, ()) for tokens in [(1, 2), (1, 2, 3), (4,), (1, 2, 3, 9)]])

    def found(*prompt: int) -> tuple[int, ...] | None:
        prefix = prefixes.of(prompt)
        return prefix.tokens if prefix else None

    assert found(1, 2, 3, 4) == (1, 2, 3)
    assert found(1, 2, 3) == (1, 2)  # something must be left to compute
    assert found(4, 0) == (4,)
    assert found(4) is None
    assert found(0) is None
    assert found(1, 3) is None
    assert Prefixes().of((1,)) is None
