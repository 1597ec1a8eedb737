"""Whole runs with scripted players: the loop, the store, resume after a kill at any stage."""

from __future__ import annotations

import json
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from books import everything
from planted import Levels
from planted import guess as agent
from planted import write as simulator

from genenv.config.load import build_config
from genenv.config.sections import Config
from genenv.contracts.errors import InputError, StaleSampleError
from genenv.contracts.types import Json
from genenv.domains.tool_use.domain import ToolUse
from genenv.engines.scripted import ScriptedEngine
from genenv.loop.coevolve import CoEvolution
from genenv.loop.game import Round
from genenv.loop.generate import generate
from genenv.loop.interact import evaluate, interact
from genenv.loop.train import anchor, update_agent
from genenv.runs.checkpoints import Checkpoints, checkpoint_fault
from genenv.runs.store import Store

SUPPORT = Path(__file__).parents[1] / "support"


def config(**agent: object) -> Config:
    return build_config(
        {
            "rounds": 6,
            "simulator": {"tasks": 10, "max_tokens": 100},
            "agent": {"group_size": 4, "max_tokens": 40, "replay": 0.5, **agent},
            "eval": {"tasks": 3, "rollouts": 2, "every": 3},
        },
        "test",
    )


def game(store: Store, on_stage: object = None) -> CoEvolution:
    engine = ScriptedEngine(agent, simulator)
    return CoEvolution(store.config, engine, Levels(), Levels().seeds(20, 0), store, on_stage or (lambda s, f: None))


@pytest.fixture
def whole(tmp_path: Path) -> Iterator[Store]:
    with closing(Store.create(tmp_path / "whole", config())) as store:
        game(store).run()
        yield store


def test_a_run_keeps_its_books(whole: Store) -> None:
    metrics = whole.metrics()
    assert [m["round"] for m in metrics] == [1, 2, 3, 4, 5, 6]
    assert [h[0] for h in whole.heldout()] == [0, 3, 6]
    for m in metrics:
        assert m["candidates"] == 10 == m["admitted"] + sum(m["rejected"].values())
        assert m["groups"] == m["admitted"] + round(0.5 * m["admitted"]) or m["round"] == 1
        assert m["agent_rollouts"] == 4 * m["groups"]
        assert 0 <= m["solved_all"] + m["solved_none"] <= m["admitted"]
    assert metrics[-1]["pool_train"] == sum(m["admitted"] for m in metrics) == len(list(whole.admitted()))
    assert {r for m in metrics for r in m["rejected"]} == {"schema", "unparsable"}


def test_rejected_candidates_have_no_success_and_no_reward(whole: Store) -> None:
    rows = list(whole.candidates())
    assert len(rows) == 60
    for row in rows:
        assert (row.reward is None) == (row.p_hat is None) == (row.reason != "admitted")
        if row.reward is not None:
            assert row.task is not None
            attempts = whole.attempts(row.task.id, row.round)
            assert row.p_hat == sum(a["score"] for a in attempts) / 4


def test_the_same_seed_gives_the_same_run_and_another_seed_another(whole: Store, tmp_path: Path) -> None:
    for name, seed in (("same", 0), ("other", 1)):
        with closing(Store.create(tmp_path / name, config().model_copy(update={"seed": seed}))) as store:
            game(store).run()
            assert (everything(store) == everything(whole)) == (name == "same")


STAGES = ["generate", "interact", "update_agent", "update_simulator", "remember", "evaluate", "commit", "checkpoint"]


def test_a_run_of_an_earlier_release_continues_exactly(whole: Store, tmp_path: Path) -> None:
    """`run_v1` was killed in round 4 of the same game, by the code as it was when records had version 1 and no rooms."""
    folder = tmp_path / "old"
    shutil.copytree(SUPPORT / "run_v1", folder)
    with closing(sqlite3.connect(folder / "run.sqlite")) as db:
        db.executescript((folder / "run.sql").read_text("utf-8"))
    with closing(Store.resume(folder)) as store:
        game(store).run(resume=True, warn=pytest.fail)
        assert everything(store) == everything(whole)


@pytest.mark.parametrize("stage", STAGES)
def test_a_run_killed_at_any_stage_continues_exactly(
    whole: Store, tmp_path: Path, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def kill(name: str, figures: Json) -> None:
        if name == stage and figures.get("round") == 3:
            raise Killed

    store = Store.create(tmp_path / "killed", config())
    with monkeypatch.context() as patch:
        if stage in ("commit", "checkpoint"):
            owner, method = {"commit": (Store, "commit_round"), "checkpoint": (Checkpoints, "save")}[stage]
            original = getattr(owner, method)

            def before(self: Store | Checkpoints, number: int, *rest: object) -> None:
                if number == 3:
                    raise Killed
                original(self, number, *rest)

            patch.setattr(owner, method, before)
        with pytest.raises(Killed):
            game(store, kill).run()
    store.close()
    with closing(Store.resume(tmp_path / "killed")) as store:
        game(store).run(resume=True)
        assert everything(store) == everything(whole)


def test_a_run_killed_before_its_first_checkpoint_starts_over(whole: Store, tmp_path: Path) -> None:
    store = Store.create(tmp_path / "killed", config())
    evaluate(game(store), 0)
    store.close()
    with closing(Store.resume(tmp_path / "killed")) as store:
        game(store).run(resume=True)
        assert everything(store) == everything(whole)


def test_a_finished_run_resumes_to_nothing(whole: Store) -> None:
    before = everything(whole)
    game(whole).run(resume=True)
    assert everything(whole) == before


@pytest.mark.parametrize("damage", ["missing", "half", "empty", "no manifest"])
def test_a_damaged_checkpoint_is_passed_over(whole: Store, damage: str) -> None:
    newest = whole.folder / "checkpoints" / "round_000006"
    state = newest / "pools.json"
    if damage == "missing":
        state.unlink()
    elif damage == "no manifest":
        (newest / "manifest.json").unlink()
    else:
        state.write_bytes(state.read_bytes()[: len(state.read_bytes()) // 2] if damage == "half" else b"")
    expected = everything(whole)
    warnings: list[str] = []
    found = whole.checkpoints.latest(warnings.append)
    assert found is not None
    assert found[0] == 5
    assert "round_000006" in warnings[0]
    assert checkpoint_fault(newest) in warnings[0]
    game(whole).run(resume=True)
    assert everything(whole) == expected


def test_a_full_disk_leaves_the_last_checkpoint(whole: Store) -> None:
    def full(folder: Path) -> None:
        (folder / "part").write_text("x")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        whole.checkpoints.save(7, full)
    found = whole.checkpoints.latest(pytest.fail)
    assert found is not None
    assert found[0] == 6
    assert not list((whole.folder / "checkpoints").glob(".draft*"))


def test_one_writer_at_a_time(whole: Store) -> None:
    with pytest.raises(InputError, match="written by another process"):
        Store.resume(whole.folder)
    with closing(Store.read(whole.folder)) as reader:
        assert len(reader.metrics()) == 6
    with pytest.raises(InputError, match="already holds a run"):
        Store.create(whole.folder, config())


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a run folder"):
        Store.read(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_round_without_admitted_tasks_is_recorded(tmp_path: Path) -> None:
    with closing(Store.create(tmp_path / "run", config().model_copy(update={"rounds": 2}))) as store:
        engine = ScriptedEngine(agent, lambda prompt, seed: "nothing")
        CoEvolution(store.config, engine, Levels(), Levels().seeds(20, 0), store, lambda s, f: None).run()
        assert [(m["admitted"], m["success"], m["rejected"]) for m in store.metrics()] == [
            (0, None, {"unparsable": 10})
        ] * 2
        assert engine.policy("agent").version == engine.policy("simulator").version == 0


def test_unscored_attempts_have_no_part_in_success_or_training(tmp_path: Path) -> None:
    class Flaky(Levels):
        def episode(self, task: object) -> object:
            inner = super().episode(task)

            class Episode:
                def step(self, text: str) -> object:
                    if text == "no":
                        raise OSError("sandbox gone")
                    return inner.step(text)

                def close(self) -> None:
                    pass

            return Episode()

    with closing(Store.create(tmp_path / "run", config(replay=0.0).model_copy(update={"rounds": 1}))) as store:
        engine = ScriptedEngine(agent, simulator)
        CoEvolution(store.config, engine, Flaky(), Levels().seeds(20, 0), store, lambda s, f: None).run()
        (m,) = store.metrics()
        assert m["unscored"] > 0
        assert m["success"] == 1.0
        assert engine.policy("agent").trained == []


def test_a_stale_sample_is_refused(whole: Store) -> None:
    run = game(whole)
    this = Round(7)
    generate(run, this)
    interact(run, this)
    run.agent.version += 1
    with pytest.raises(StaleSampleError):
        update_agent(run, this)


def test_the_papers_batch_filter_stops_the_simulators_update(tmp_path: Path) -> None:
    """Outside |p_hat - alpha| <= k_min nothing is trained; inside it is."""
    for k_min, updated in ((0.0, False), (0.5, True)):
        raw = {**config().model_dump(mode="json"), "rounds": 1}
        raw["curriculum"] |= {"k_min": k_min}
        with closing(Store.create(tmp_path / f"run{updated}", build_config(raw, "x"))) as store:
            run = game(store)
            run.run()
            (m,) = store.metrics()
            assert m["success"] != 0.5
            assert m["simulator_updated"] is updated
            assert bool(run.simulator.trained) is updated


def test_the_simulator_is_anchored_to_seeds_that_answer_their_prompts(tmp_path: Path) -> None:
    """Anchors of tool_use show the functions that their answer uses."""
    domain = ToolUse()
    engine = ScriptedEngine(lambda p, s: "", lambda p, s: "")
    with closing(Store.create(tmp_path / "run", config())) as store:
        run = CoEvolution(store.config, engine, domain, domain.seeds(40, 0), store, lambda s, f: None)
        for datum in anchor(run, Round(1), 12):
            prompt = engine.chat.decode(datum.tokens[: datum.prompt_length])
            spec = json.loads(engine.chat.decode(datum.tokens[datum.prompt_length :]))
            declared = {t["function"]["name"] for t in json.loads(prompt.splitlines()[0].removeprefix("tools: "))}
            assert {c["name"] for c in spec["calls"]} <= declared
            assert not any(datum.weights[: datum.prompt_length])
    shutil.rmtree(tmp_path / "run")


def test_neither_player_trains_on_the_ends_that_are_dropped(tmp_path: Path) -> None:
    raw = config(replay=0.0, kl=0.0, steps=1).model_dump()
    raw["curriculum"] |= {"drop": 0.4, "mixed_only": False}
    raw["simulator"] |= {"replay": 0.0, "anchor": 0.0, "kl": 0.0}
    raw |= {"rounds": 1}
    with closing(Store.create(tmp_path / "run", build_config(raw, "test"))) as store:
        run = game(store)
        run.run()
        success = {r.task.id: r.p_hat for r in store.candidates() if r.p_hat is not None}
        (metrics,) = store.metrics()
        assert metrics["dropped"] == 2 * int(0.4 * len(success)) > 0
        cut = metrics["dropped"] // 2
        ranked = sorted(success.values())
        assert metrics["simulator_trained_on"] == len(success) - 2 * cut
        texts = [run.engine.chat.decode(d.tokens) for _, data in run.agent.trained for d in data]
        trained = {
            p
            for t, p in ((store.task(i), p) for i, p in success.items())
            if any(t.messages[-1].content in x for x in texts)
        }
        assert trained
        assert ranked[cut] <= min(trained) <= max(trained) <= ranked[-cut - 1]


def test_updates_side_by_side_give_the_run_that_they_give_in_turn(whole: Store, tmp_path: Path) -> None:
    with closing(Store.create(tmp_path / "other", config())) as store:
        run = game(store)
        run.engine.concurrent = True
        barrier = threading.Barrier(2, timeout=30)
        for policy in (run.agent, run.simulator):
            step = policy.optim_step

            def once(params: object, policy: object = policy, step: object = step) -> float:
                policy.optim_step = step
                barrier.wait()  # its first step waits until the other player is at its own
                return step(params)

            policy.optim_step = once
        run.run()
        assert everything(store) == everything(whole)
