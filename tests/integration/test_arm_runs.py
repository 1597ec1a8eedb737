"""Whole runs of all built-in arms with scripted players: equal rollouts, equal updates, exact resume."""

from __future__ import annotations

import json
import random
from contextlib import closing
from pathlib import Path

import pytest
from books import everything
from planted import Levels
from planted import guess as agent
from planted import write as simulator

from genenv.config.sections import Config
from genenv.contracts.types import Json
from genenv.engines.scripted import ScriptedEngine
from genenv.loop.coevolve import CoEvolution
from genenv.runs.store import Store
from genenv.studies.arms import ARMS, arm_config

BASE = {
    "rounds": 5,
    "simulator": {"tasks": 8, "max_tokens": 100},
    "agent": {"group_size": 4, "max_tokens": 40, "replay": 0.25},
    "eval": {"tasks": 3, "rollouts": 2, "every": 3},
}
SEEDS = 20
SETS = {"static": 20, "static_x3.3": 66, "teacher_x1.8": 36, "teacher_x3.3": 66, "seeds_only": 20}


def arm(name: str, **own: Json) -> Config:
    return arm_config(name, BASE, own, "test")


def game(store: Store, on_stage: object = None, writer: object = simulator) -> CoEvolution:
    engine = ScriptedEngine(agent, writer)
    return CoEvolution(store.config, engine, Levels(), Levels().seeds(SEEDS, 0), store, on_stage or (lambda s, f: None))


def played(store: Store) -> list[list[tuple[str, bool]]]:
    """(task, replayed) of each group, round by round."""
    rows = store._db.execute("SELECT DISTINCT round, task_id, replayed FROM rollouts ORDER BY round, rowid").fetchall()
    return [[(t, bool(r)) for n, t, r in rows if n == number] for number in range(1, 6)]


@pytest.mark.parametrize("name", ARMS)
def test_all_arms_have_the_same_rollouts_and_updates(name: str, tmp_path: Path) -> None:
    with closing(Store.create(tmp_path / "run", arm(name))) as store:
        game(store).run()
        metrics = store.metrics()
        assert [m["groups"] for m in metrics] == [10] * 5
        assert [m["agent_rollouts"] for m in metrics] == [40] * 5
        assert [m["agent_version"] for m in metrics] == [2, 4, 6, 8, 10]
        assert all(len(r) == len(set(r)) == 10 for r in played(store))
        assert [h[0] for h in store.heldout()] == [0, 3, 5]


@pytest.mark.parametrize(("name", "size"), SETS.items())
def test_a_set_is_written_once_admitted_by_the_gate_and_played_in_epochs(name: str, size: int, tmp_path: Path) -> None:
    with closing(Store.create(tmp_path / "run", arm(name))) as store:
        run = game(store)
        run.run()
        metrics, admitted = store.metrics(), [t.id for t in store.admitted()]
        assert [m["admitted"] for m in metrics] == [size, 0, 0, 0, 0]
        assert metrics[0]["candidates"] == size + sum(metrics[0]["rejected"].values())
        assert bool(metrics[0]["simulator_tokens"]) == name.startswith("static")
        assert sum(m["simulator_tokens"] for m in metrics[1:]) == 0
        assert run.simulator.version == 0
        tried = [t for r in played(store) for t, replayed in r if not replayed]
        assert len(tried) == 50
        assert set(tried) <= set(admitted)
        assert len(set(tried)) == min(size, 50)
        assert metrics[-1]["pool_train"] == min(size, 50)
        assert not set(tried) & {t.id for t in run.heldout}


def test_a_privileged_set_leaves_out_the_tasks_of_the_evaluation(tmp_path: Path) -> None:
    class Leaky(Levels):
        def heldout(self, count: int, seed: int) -> list:
            own = super().heldout(count, seed)
            return own if count == 3 else [*super().heldout(3, EVALUATION), *own[3:]]

    from genenv.contracts.types import derive_seed

    EVALUATION = derive_seed("heldout")
    with closing(Store.create(tmp_path / "run", arm("teacher_x1.8"))) as store:
        engine = ScriptedEngine(agent, simulator)
        run = CoEvolution(store.config, engine, Leaky(), Levels().seeds(SEEDS, 0), store, lambda s, f: None)
        run.run()
        assert store.metrics()[0]["rejected"]["contamination"] >= 3
        assert not {t.id for t in store.admitted()} & {t.id for t in run.heldout}


@pytest.mark.parametrize("name", ARMS)
@pytest.mark.parametrize(("stage", "number"), [("generate", 1), ("update_agent", 3)])
def test_an_arm_killed_in_a_round_continues_exactly(name: str, stage: str, number: int, tmp_path: Path) -> None:
    class Killed(BaseException):
        pass

    def kill(found: str, figures: Json) -> None:
        if found == stage and figures.get("round") == number:
            raise Killed

    with closing(Store.create(tmp_path / "whole", arm(name))) as store:
        game(store).run()
        expected = everything(store), played(store)
    store = Store.create(tmp_path / "killed", arm(name))
    with pytest.raises(Killed):
        game(store, kill).run()
    store.close()
    with closing(Store.resume(tmp_path / "killed")) as store:
        game(store).run(resume=True)
        assert (everything(store), played(store)) == expected


def test_what_the_gate_turns_away_is_asked_for_again_and_what_is_missing_then_is_replayed(tmp_path: Path) -> None:
    def clumsy(prompt: str, seed: int) -> str:
        return simulator(prompt, seed) if random.Random(seed).random() < 0.8 else "nothing"

    def stubborn(prompt: str, seed: int) -> str:
        return json.dumps({"level": 5, "serial": f"{seed % 4:06d}"})  # four tasks in all

    with closing(Store.create(tmp_path / "clumsy", arm("genenv"))) as store:
        game(store, writer=clumsy).run()
        assert [m["admitted"] for m in store.metrics()] == [10, 8, 8, 8, 8]
        assert sum(m["candidates"] for m in store.metrics()) > 55
    with closing(Store.create(tmp_path / "stubborn", arm("genenv"))) as store:
        game(store, writer=stubborn).run()
        assert [m["admitted"] for m in store.metrics()] == [4, 0, 0, 0, 0]
        assert [m["groups"] for m in store.metrics()] == [4, 4, 4, 4, 4]  # and no more is to be had
