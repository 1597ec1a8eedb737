"""Edits: one field, accepted only if measured success moved as asked."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from planted import Levels

from genenv.config.load import build_config
from genenv.contracts.domain import order_line
from genenv.contracts.types import Chat, Direction, Json, Message, Seed
from genenv.engines.scripted import ScriptedEngine
from genenv.loop.coevolve import CoEvolution
from genenv.loop.edits import changed_fields, outcome
from genenv.runs.store import Store

Write = Callable[[dict[str, Json], str, int], dict[str, Json]]
"""(example, wish, seed) -> specification."""


class Editable(Levels):
    """Levels whose simulator reads what is wanted."""

    def simulator_chat(
        self,
        example: Seed,
        success: float | None,
        direction: Direction,
        seed: int,
        target: Seed | None = None,
        edit: bool = False,
    ) -> tuple[Chat, Json]:
        _, schema = super().simulator_chat(example, success, direction, seed, target)
        text = f"{json.dumps(example.spec)}\n{order_line(example.family, success, direction, edit)}"
        return Chat((Message("user", text),)), schema


def solves(prompt: str, seed: int) -> str:
    """Level L with probability 1 - L / 9."""
    level, serial = re.findall(r"level (\d) serial (\d+)", prompt)[-1]
    return f"ok {serial}" if random.Random(seed).random() * 9 > int(level) else "no"


def step(example: dict[str, Json], wish: str, seed: int) -> dict[str, Json]:
    """Three levels up or down as asked, at most to the ends; a sideways edit changes the serial number."""
    if "equally hard" in wish:
        return {**example, "serial": f"{seed % 10**6:06d}"}
    by = 3 if "harder" in wish else -3
    return {**example, "level": min(9, max(0, example["level"] + by))}


@contextmanager
def played(folder: Path, write: Write, rounds: int = 6) -> Iterator[CoEvolution]:
    def simulate(prompt: str, seed: int) -> str:
        example, wish = re.findall(r"user: (\{.*\})\n(.*)\n", prompt)[-1]
        if "Change one thing" in wish:
            return json.dumps(write(json.loads(example), wish, seed))
        return json.dumps({"level": seed % 10, "serial": f"{seed % 10**6:06d}"})

    engine = ScriptedEngine(agent=solves, simulator=simulate)
    settings = {
        "rounds": rounds,
        "curriculum": {"edits": 0.5},
        "simulator": {"tasks": 16},
        "agent": {"group_size": 16},
        "eval": {"tasks": 0},
    }
    with closing(Store.create(folder, build_config(settings, "test"))) as store:
        run = CoEvolution(store.config, engine, Editable(), Editable().seeds(20, 0), store, lambda s, f: None)
        run.run()
        yield run


def total(run: CoEvolution, direction: str, key: str) -> int:
    return sum(m["edits"].get(direction, {}).get(key, 0) for m in run.store.metrics())


def test_changed_fields() -> None:
    assert changed_fields({"a": [1], "b": 2}, {"a": [1], "b": 2}) == []
    assert changed_fields({"a": [1], "b": 2}, {"a": [2], "b": 2}) == ["a"]
    assert changed_fields({"a": {"x": 1, "y": 2}}, {"a": {"y": 2, "x": 1}}) == []
    assert changed_fields({"a": 1}, {"b": 1}) == ["a", "b"]
    assert changed_fields({"a": 1}, {"a": True}) == ["a"]
    assert changed_fields({"a": None}, {}) == ["a"]


@pytest.mark.parametrize(
    ("direction", "before", "after", "expected"),
    [
        ("harder", 0.5, 0.25, "accepted"),
        ("harder", 0.5, 0.75, "opposite"),
        ("harder", 0.5, 0.5, "unmoved"),
        ("easier", 0.0, 0.25, "accepted"),
        ("easier", 0.25, 0.0, "opposite"),
        ("easier", 1.0, 1.0, "unmoved"),
        ("similar", 0.5, 0.75, "accepted"),
        ("similar", 0.5, 0.125, "opposite"),
        ("harder", None, 0.5, "unscored"),
        ("similar", 0.5, None, "unscored"),
    ],
)
def test_outcome(direction: Direction, before: float | None, after: float | None, expected: str) -> None:
    assert outcome(direction, before, after) == expected


def test_honest_edits_are_accepted(tmp_path: Path) -> None:
    with played(tmp_path, step) as run:
        for way in ("harder", "easier"):
            assert total(run, way, "admitted") >= 5
            assert total(run, way, "accepted") >= 0.8 * total(run, way, "admitted")


def test_edits_the_wrong_way_are_not_accepted(tmp_path: Path) -> None:
    swap = {"harder": "easier", "easier": "harder"}

    def reverse(example: dict[str, Json], wish: str, seed: int) -> dict[str, Json]:
        return step(example, re.sub("harder|easier", lambda m: swap[m[0]], wish), seed)

    with played(tmp_path, reverse) as run:
        for way in ("harder", "easier"):
            assert total(run, way, "admitted") >= 5
            assert total(run, way, "accepted") <= 0.2 * total(run, way, "admitted")


def test_an_edit_is_tried_beside_the_task_that_it_edits(tmp_path: Path) -> None:
    with played(tmp_path, step) as run:
        rows = [row for row in run.store.candidates() if row.outcome is not None]
        assert rows
        for row in rows:
            assert row.task is not None
            assert row.task.parent is not None
            assert row.p_hat is not None
            beside = [a["score"] for a in run.store.attempts(row.task.parent, row.round)]
            assert len(beside) == 16
            assert row.outcome == outcome(row.direction, sum(beside) / 16, row.p_hat)
            assert (row.reward is not None) == (row.outcome == "accepted")


def test_what_is_not_accepted_trains_the_agent_only(tmp_path: Path) -> None:
    with played(tmp_path, step) as run:
        rows = list(run.store.candidates())
        missed = [r.task.id for r in rows if r.outcome not in (None, "accepted") and r.task is not None]
        assert missed
        assert all(task in run.pools.train for task in missed)
        assert not any(task in run.pools.env for task in missed)


@pytest.mark.parametrize(
    ("write", "detail"),
    [
        (lambda e, wish, seed: e, "changes nothing"),
        (lambda e, wish, seed: {"level": (e["level"] + 1) % 10, "serial": "000001"}, "changes level, serial"),
    ],
)
def test_no_edit(tmp_path: Path, write: Write, detail: str) -> None:
    with played(tmp_path, write, rounds=3) as run:
        reasons = [(r.reason, r.detail) for r in run.store.candidates() if r.task is None and r.reason != "duplicate"]
        assert reasons
        assert set(reasons) == {("no_edit", detail)}
        assert total(run, "harder", "admitted") + total(run, "easier", "admitted") == 0
