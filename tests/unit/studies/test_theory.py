"""Signals against numbers worked out by hand, and against a policy whose gradients are known."""

import math
from itertools import product

import numpy as np
import pytest
from logit import OneLogit
from planted import Levels

from genenv.contracts.errors import InputError
from genenv.engines.chat import TemplateFormat
from genenv.engines.scripted import ByteTokenizer, ScriptedEngine
from genenv.loop.rollouts import PlayConfig
from genenv.studies.theory import (
    Signal,
    binned,
    bootstrap,
    expected_signal,
    fit,
    measure,
    proposition,
    rollout_signal,
    spread,
)

RNG = np.random.default_rng(0)


def expectation(p, n, estimate):
    """Exact, over all rewards of n attempts."""
    outcomes = (np.array(r, dtype=float) for r in product((0, 1), repeat=n))
    return sum(estimate(r) * p ** r.sum() * (1 - p) ** (n - r.sum()) for r in outcomes)


def test_spread():
    assert spread(np.array([1.0, 0.0, 0.0, 0.0])) == pytest.approx(0.25)  # 1 * 3 / (4 * 3)
    assert expectation(0.3, 4, spread) == pytest.approx(0.21)


def test_rollout_signal_has_no_bias():
    # |s|^2 is 5 where solved and 2 elsewhere: 0.3 * 0.7^2 * 5 + 0.7 * 0.3^2 * 2
    assert expectation(0.3, 4, lambda r: rollout_signal(r, 2.0 + 3.0 * r)) == pytest.approx(0.735 + 0.126)


@pytest.mark.parametrize("n", [4, 5])
def test_expected_signal_has_no_bias(n):
    def estimate(r):
        s = np.stack([3.0 * r - 1.0, 1.0 - r], axis=1)  # (2, 0) where solved, (-1, 1) elsewhere
        return expected_signal(r, s @ s.T, np.random.default_rng(1))  # the same halves for all outcomes

    # 0.3 * 0.7 * ((2, 0) - (-1, 1)) = (0.63, -0.21)
    assert expectation(0.3, n, estimate) == pytest.approx(0.63**2 + 0.21**2)


def test_without_variance_there_is_no_signal():
    for r in (np.zeros(6), np.ones(6)):
        assert rollout_signal(r, np.arange(6.0)) == 0.0
        assert expected_signal(r, np.ones((6, 6)), RNG) == 0.0


def test_fit():
    p, w = np.array([0.1, 0.5, 0.8]), np.array([1.0, 2.0, 1.0])
    found = fit("p(1-p)", p, 3.0 * p * (1.0 - p), w)
    assert (found.c, found.r2) == (pytest.approx(3.0), pytest.approx(1.0))
    assert fit("constant", p, np.array([1.0, 2.0, 3.0]), w).r2 == pytest.approx(0.0)
    # c = (0.1 * 1 + 2 * 0.5 * 1 + 0.8 * 0) / (0.01 + 2 * 0.25 + 0.64); residuals against a variance of 3/4
    found = fit("p", p, np.array([1.0, 1.0, 0.0]), w)
    assert found.c == pytest.approx(1.1 / 1.15)
    left = (1 - 0.11 / 1.15) ** 2 + 2 * (1 - 0.55 / 1.15) ** 2 + (0.88 / 1.15) ** 2
    assert found.r2 == pytest.approx(1.0 - left / 0.75)
    assert fit("p", p, np.ones(3), w).r2 is None


def test_bins_have_their_lower_end():
    signals = [Signal(str(c), "f", c, 1.0 - c, 0.0, 0.0, 0.0) for c in (0.0, 0.1, 0.29, 0.3, 0.7, 1.0)]
    ends = [[s.chance for s in b] for b in binned(signals)]
    assert ends == [[0.0], [0.1], [0.29], [0.3], [], [], [], [0.7], [], [1.0]]


def test_bootstrap():
    same = bootstrap(np.full(5, 2.0), np.full(5, 4.0), RNG)
    assert (same.value, same.low, same.high) == (0.5, 0.5, 0.5)
    many = bootstrap(np.array([0.0, 1.0] * 200), np.ones(400), RNG)
    # the standard error is 0.5 / sqrt(400) = 0.025
    assert (many.value, many.low, many.high) == (0.5, pytest.approx(0.451, abs=0.01), pytest.approx(0.549, abs=0.01))
    assert bootstrap(np.ones(3), np.zeros(3), RNG) is None


def test_a_policy_with_known_gradients():
    """|E g|^2 = (p (1 - p))^2 and E|g|^2 = p (1 - p) (1 - 3 p (1 - p)) for a single logit."""
    agent, domain = OneLogit(TemplateFormat(ByteTokenizer()), skill=4.5), Levels()
    tasks = domain.heldout(150, 0)
    signals = measure(agent, domain, tasks, PlayConfig(24, 40, 1), seed=0)
    assert len(signals) == 150
    for key, truth in (("rollout", lambda v: v * (1 - 3 * v)), ("expected", lambda v: v * v)):
        wanted = []
        for task in tasks:
            p = 1.0 / (1.0 + math.exp(task.spec["level"] - 4.5))
            wanted.append(truth(p * (1.0 - p)))
        assert np.mean([getattr(s, key) for s in signals]) == pytest.approx(np.mean(wanted), rel=0.1)
    found = proposition(signals, 0)
    quality = {f["shape"]: f for f in found["fits"]["expected"]}
    best = max(quality, key=lambda shape: quality[shape]["r2"])
    assert best == "(p(1-p))^2"
    assert quality[best]["low"] < 1.0 < quality[best]["high"]
    assert sum(b["tasks"] for b in found["bins"]) == 150
    assert measure(agent, domain, tasks[:3], PlayConfig(24, 40, 1), seed=0) == signals[:3]


def test_bins_come_from_other_attempts():
    agent = OneLogit(TemplateFormat(ByteTokenizer()), skill=4.5)
    signals = measure(agent, Levels(), Levels().heldout(10, 0), PlayConfig(24, 40, 1), seed=0)
    assert [s.chance for s in signals] != [s.success for s in signals]


def test_servers_keep_their_gradients():
    agent = ScriptedEngine(lambda prompt, seed: "no", lambda prompt, seed: "").policy("agent")
    with pytest.raises(InputError, match="local engine"):
        measure(agent, Levels(), Levels().heldout(1, 0), PlayConfig(4, 40, 1), seed=0)
