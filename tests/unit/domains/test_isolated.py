"""Episodes in worker processes: what hangs, ends, raises or prints there costs scores of its own and nothing else."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from genenv.contracts.errors import InputError
from genenv.contracts.types import Json, Message, Score, Task
from genenv.domains import isolated, own
from genenv.domains.isolated import Isolated

PATH = "odd_worlds:Odd"
HUNG = Score(None, "environment error: the worker gave no answer within 1 s")


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTHONPATH", ":".join(p for p in sys.path if p))
    monkeypatch.setattr(isolated, "WORKERS", 2)
    return tmp_path / "log"


@pytest.fixture
def odd(log: Path) -> Iterator[Isolated]:
    options: Json = {"log": str(log)}
    domain = Isolated(own.load(PATH, options), PATH, options, timeout=1)
    yield domain
    domain.close()


def task(**spec: Json) -> Task:
    return own.load(PATH, {"log": ""}).build(spec)


def children() -> set[int]:
    tasks = Path("/proc/self/task").glob("*/children")
    return {int(pid) for file in tasks for pid in file.read_text().split()}


def process(odd: Isolated, episode: object) -> int:
    return int(episode.step("who").messages[0].content)


def test_a_turn_in_a_worker_is_a_turn(odd: Isolated, log: Path) -> None:
    episode = odd.episode(task())
    assert process(odd, episode) != os.getpid()
    assert episode.step("fine").score == Score(1.0, "fine", [{"right": [1]}, "é\ud800"], {"turns": 1})
    episode.close()
    episode.close()
    assert log.read_text() == "episode\n"


@pytest.mark.parametrize("what", ["print", "read"])
def test_what_is_printed_or_read_is_no_part_of_the_talk(odd: Isolated, what: str) -> None:
    assert odd.episode(task()).step(what).score.reason == what


def test_what_is_raised_costs_one_score_and_the_worker_goes_on(odd: Isolated) -> None:
    one = odd.episode(task())
    number = process(odd, one)
    assert one.step("raise").score == Score(None, "environment error: KeyError: 'cart'")
    assert "not JSON serializable" in odd.episode(task()).step("set").score.reason
    broken = odd.episode(task(reset="raise"))
    assert broken.step("fine").score == Score(None, "environment error: KeyError: 'cart'")
    shut = odd.episode(task(close="raise"))
    assert shut.step("fine").score.value == 1.0
    for episode in (one, broken, shut):
        episode.close()
    assert process(odd, odd.episode(task())) == number


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("hang", HUNG.reason),
        ("exit", "environment error: the worker died"),
        ("die", "environment error: the worker died"),
    ],
)
@pytest.mark.parametrize("where", ["reset", "step"])
def test_a_lost_worker_takes_its_own_episodes_and_no_others(odd: Isolated, what: str, reason: str, where: str) -> None:
    first, second, third = (odd.episode(task()) for _ in range(3))
    lost, other = process(odd, first), process(odd, second)
    assert lost != other
    assert process(odd, third) == lost
    culprit = odd.episode(task(reset=what) if where == "reset" else task())
    if where == "reset":  # it is in the second worker, which has fewer
        first, second, lost, other = second, first, other, lost
        third = first
    else:
        culprit = third
    assert culprit.step(what).score == Score(None, reason)
    assert first.step("fine").score == Score(None, f"{reason} (in another attempt)")
    assert second.step("fine").score.value == 1.0
    assert lost not in children()
    new = odd.episode(task())
    assert process(odd, new) not in {lost, other}
    for episode in (first, second, third, culprit, new):
        episode.close()


@pytest.mark.parametrize("what", ["hang", "die"])
def test_a_close_that_never_ends_keeps_the_score(odd: Isolated, what: str) -> None:
    episode = odd.episode(task(close=what))
    assert episode.step("fine").score.value == 1.0
    episode.close()
    assert odd.episode(task()).step("fine").score.value == 1.0


@pytest.mark.parametrize(
    ("broken", "reason"), [("raise", "KeyError: 'cart' (odd_worlds.py:"), ("die", "the worker died")]
)
def test_a_domain_that_no_worker_can_make(log: Path, broken: str, reason: str) -> None:
    options: Json = {"log": str(log), "broken": broken}
    before = children()
    with pytest.raises(InputError, match="odd_worlds:Odd: it cannot be made in a worker process: ") as caught:
        Isolated(own.load(PATH, options), PATH, options, timeout=5)
    assert reason in str(caught.value)
    assert children() == before


def test_a_worker_that_cannot_be_made_later_costs_scores(odd: Isolated, monkeypatch: pytest.MonkeyPatch) -> None:
    first = odd.episode(task())
    assert process(odd, first)
    monkeypatch.setattr(odd, "_arguments", ("odd_worlds:Even", "{}"))
    score = odd.episode(task()).step("fine").score
    assert score.value is None
    assert "cannot be made in a worker process: InputError: domain.name: odd_worlds has no Even" in score.reason
    assert first.step("fine").score.value == 1.0


def test_nothing_is_left_after_close(log: Path) -> None:
    before = children()
    options: Json = {"log": str(log)}
    domain = Isolated(own.load(PATH, options), PATH, options, timeout=5)
    episodes = [domain.episode(task()) for _ in range(3)]
    assert len(children() - before) == 2
    assert episodes[0].step("fine").score.value == 1.0
    domain.close()
    assert children() == before
    # three episodes that were open, the domain in both workers and here
    assert sorted(log.read_text().split()) == ["domain"] * 3 + ["episode"] * 3
    assert episodes[1].step("fine").score.value is None


def test_everything_else_is_that_of_the_domain(odd: Isolated) -> None:
    assert (odd.name, odd.families, odd.seeds(1, 0)) == ("odd", ("odd",), [])
    assert odd.build({"x": 1}).messages == (Message("user", "do"),)
