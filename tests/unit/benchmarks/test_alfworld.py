"""ALFWorld without its package: reading games and commands, the episode, and what becomes of the workers."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import tarfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from genenv.benchmarks.alfworld import games as alfworld_games
from genenv.benchmarks.alfworld.benchmark import Alfworld, first_observation
from genenv.benchmarks.alfworld.games import command
from genenv.benchmarks.alfworld.worker import upgraded
from genenv.benchmarks.base import Result
from genenv.contracts.domain import Step
from genenv.contracts.errors import InputError, MissingExtraError
from genenv.contracts.types import Message, Score, Task

PICK, LOOK = "pick_and_place_simple", "look_at_obj_in_light"
GRAMMAR = 'grammar :: """{"task": [{"rhs": "Your task is to: put a key in box."}]}""";'
PROBLEM = """(:init
    (receptacleAtLocation Shelf_bar__plus_01 loc_bar_1)
    (receptacleAtLocation Box_bar__minus_02 loc_bar_2)
    (receptacleAtLocation Shelf_bar__plus_00 loc_bar_3)
    (receptacleAtLocation Sink_bar__plus_00_bar_SinkBasin loc_bar_3))
(:goal (exists (?r - receptacle) (receptacleAtLocation ?r loc_bar_1)))"""
FIRST = (
    "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room. Looking quickly around you, you see"
    " a box 1, a shelf 2, a shelf 1, and a sinkbasin 1.\n\nYour task is to: put a key in box."
)


def write(folder: Path, place: str, family: str = PICK, **game: object) -> None:
    trial = folder / "json_2.1.1" / place
    trial.mkdir(parents=True)
    (trial / "traj_data.json").write_text(json.dumps({"task_type": family}))
    record = {"grammar": GRAMMAR, "pddl_problem": PROBLEM, "solvable": True} | game
    (trial / "game.tw-pddl").write_text(json.dumps(record))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write(tmp_path, "train/b/trial_1")
    write(tmp_path, "train/a/trial_1", LOOK)
    write(tmp_path, "train/c/trial_1")
    return tmp_path


@pytest.fixture
def house(data: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Alfworld]:
    """Three games in toy workers, two of which take games at one time."""
    here = str(Path(__file__).parents[2] / "support")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")])))
    monkeypatch.setattr(alfworld_games, "WORKERS", 2)
    with closing(Alfworld(data, "train", worker="toy_house")) as benchmark:
        yield benchmark


# -- the games -----------------------------------------------------------------------------------------------------


def test_a_task_is_a_game_with_its_first_observation(house: Alfworld) -> None:
    tasks = house.tasks()
    assert [t.spec["id"] for t in tasks] == ["train/a/trial_1", "train/b/trial_1", "train/c/trial_1"]
    assert [t.family for t in tasks] == [LOOK, PICK, PICK]
    assert tasks[0].messages[1] == Message("user", FIRST)
    assert len({t.id for t in tasks}) == 3


def test_games_that_the_official_loader_leaves_out(house: Alfworld, data: Path) -> None:
    write(data, "train/movable-d/trial_1")
    write(data, "train/AppleSliced-e/trial_1")
    write(data, "train/f/trial_1", solvable=False)
    write(data, "train/g/trial_1")
    (data / "json_2.1.1/train/g/trial_1/game.tw-pddl").unlink()
    assert len(house.tasks()) == 3


def test_a_test_split_must_be_whole(data: Path) -> None:
    write(data, "valid_seen/a/trial_1")
    with pytest.raises(InputError, match=r"expected 140 games of valid_seen in .*, found 1: .* alfworld-download"):
        Alfworld(data, "valid_seen", worker="toy_house").tasks()


def test_bad_data_is_said_in_one_line(data: Path) -> None:
    with pytest.raises(InputError, match="split: expected one of valid_unseen, valid_seen, train, found test"):
        Alfworld(data, "test", worker="toy_house")
    with pytest.raises(InputError, match=r"valid_unseen is no folder: pip install .* alfworld-download"):
        Alfworld(data, worker="toy_house").tasks()
    write(data, "train/x/trial_1", family="cook_dinner")
    with pytest.raises(InputError, match="train/x/trial_1: task_type: Input should be"):
        Alfworld(data, "train", worker="toy_house").tasks()


def test_a_game_without_a_goal_is_no_game(data: Path) -> None:
    write(data, "train/x/trial_1", grammar="grammar")
    with pytest.raises(InputError, match="expected a goal and receptacles"):
        Alfworld(data, "train", worker="toy_house").tasks()


def pack(folder: Path, source: Path, extra: str | None = None) -> None:
    with tarfile.open(folder / "json_2.1.1_train_sample3_games.tar.xz", "w:xz") as archive:
        archive.add(source / "json_2.1.1", "json_2.1.1")
        if extra is not None:
            archive.addfile(tarfile.TarInfo(extra), io.BytesIO())


def test_an_archive_is_unpacked_and_cleaned_up(data: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("archive")
    pack(folder, data)
    with closing(Alfworld(folder, "train", worker="toy_house")) as benchmark:
        assert benchmark.tasks()[0].spec["id"] == "train/a/trial_1"
        assert benchmark._unpacked is not None
        unpacked = Path(benchmark._unpacked.name)
        assert unpacked.is_dir()
    assert not unpacked.exists()


def test_an_archive_cannot_write_elsewhere(data: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("archive")
    pack(folder, data, "../elsewhere")
    with (
        closing(Alfworld(folder, "train", worker="toy_house")) as benchmark,
        pytest.raises(InputError, match="cannot unpack"),
    ):
        benchmark.tasks()


def test_a_damaged_archive(tmp_path: Path) -> None:
    (tmp_path / "json_2.1.1_train.tar.xz").write_bytes(b"no archive")
    with (
        closing(Alfworld(tmp_path, "train", worker="toy_house")) as benchmark,
        pytest.raises(InputError, match="cannot unpack"),
    ):
        benchmark.tasks()


def test_the_official_folder_is_the_default(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALFWORLD_DATA", str(data))
    assert len(Alfworld(None, "train", worker="toy_house").tasks()) == 3


def test_a_missing_extra_names_its_install_command(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'genenv-rl\[alfworld\]'"):
        Alfworld(data)


def test_old_games_get_the_new_wording() -> None:
    old = {
        "pddl_domain": "(define (domain alfred)\n (:action look)\n)\n",
        "grammar": '"You arrive at {lend.name}. #x#" "You put the {o.name} in/on the {r.name}."\n'
        'action PutObject {\n    template :: "put {o} in/on {r}";\n}',
        "solvable": True,
    }
    new = upgraded(old, "action help {\n}")
    assert new == {
        "pddl_domain": "(define (domain alfred)\n (:action look)\n\n(:action help\n    :parameters (?a - agent)\n"
        "    :precondition ()\n    :effect (checked ?a)\n)\n)\n",
        "grammar": '"You arrive at {r.name}. #x#" "You move the {o.name} to the {r.name}."\n'
        'action PutObject {\n    template :: "move {o} to {r}";\n}\naction help {\n}',
        "solvable": True,
    }
    assert upgraded(new, "action help {\n}") == new


def test_the_first_observation_numbers_downwards() -> None:
    assert first_observation(GRAMMAR, PROBLEM) == FIRST


# -- commands and attempts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("go to desk 1", "go to desk 1"),
        ("I look for a key.\n\n  go to desk 1  \n\n", "go to desk 1"),
        ("Action: go to desk 1", "go to desk 1"),
        ("ACTION:go to desk 1", "go to desk 1"),
        ("> go to desk 1", "go to desk 1"),
        ("<action>look</action> no: <action> go to desk 1 </action> and then", "go to desk 1"),
        ("<action>go to desk 1", "go to desk 1"),
        ("go to desk 1 > look", "go to desk 1 > look"),
        ("look\n<action></action>", ""),
        ("", ""),
        (" \n ", ""),
    ],
)
def test_the_command_in_a_text(text: str, expected: str) -> None:
    assert command(text) == expected


def test_an_attempt_ends_with_the_win(house: Alfworld) -> None:
    with closing(house.episode(house.tasks()[0])) as episode:
        assert episode.step("I wonder.\nput key in box") == Step((Message("user", "Nothing happens."),))
        score = Score(1.0, "won", ["put key in box", "open box 1"], {"steps": 2})
        assert episode.step("Action: open box 1") == Step(score=score)


def test_fifty_commands_and_no_more(house: Alfworld) -> None:
    with closing(house.episode(house.tasks()[0])) as episode:
        assert all(not episode.step("look").done for _ in range(49))
        score = episode.step("look").score
    assert score == Score(0.0, "not won within 50 commands", ["look"] * 50, {"steps": 50})


def test_recorded_commands(house: Alfworld) -> None:
    task = house.tasks()[1]
    assert house.replay(task, ["look", "open box 1", "look"]).value == 1.0
    assert house.replay(task, ["look"]) == Score(0.0, "not won when the commands ended", ["look"], {"steps": 1})
    assert house.replay(task, []).value == 0.0
    assert house.replay(task, ["look"] * 50 + ["open box 1"]).reason == "not won within 50 commands"
    assert house.replay(task, "open box 1") == Score(0.0, "malformed: expected a list of commands")
    assert house.replay(task, ["open box 1", 3]).reason == "malformed: expected a list of commands"


def test_the_random_agent_draws_possible_commands(house: Alfworld) -> None:
    task = house.tasks()[0]
    first = house.random_attempt(task, 0)
    assert first == house.random_attempt(task, 0)
    assert first.value == 1.0
    assert first.answer[-1] == "open box 1"
    assert set(first.answer[:-1]) <= {"look", "shut box 1"}
    assert len({tuple(house.random_attempt(task, seed).answer) for seed in range(5)}) > 1


def test_success_overall_and_by_task_type() -> None:
    scores = [(PICK, 1.0), (LOOK, 1.0), (PICK, 0.0), (PICK, None)]
    results = [Result(str(i), family, Score(value, "")) for i, (family, value) in enumerate(scores)]
    figures = Alfworld.summarize(None, results)
    assert figures == {"score": 0.5, PICK: pytest.approx(1 / 3), LOOK: 1.0}


# -- workers -------------------------------------------------------------------------------------------------------


def who(benchmark: Alfworld, task: Task) -> int:
    """The process that plays the task."""
    with closing(benchmark.episode(task)) as episode:
        return int(episode.step("who").messages[0].content)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_worker_ends_with_its_last_game(house: Alfworld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alfworld_games, "WORKERS", 1)
    monkeypatch.setattr(alfworld_games, "GAMES", 2)
    pids = [who(house, house.tasks()[i % 3]) for i in range(5)]
    a, b, c = dict.fromkeys(pids)
    assert pids == [a, a, b, b, c]
    assert [alive(pid) for pid in (a, b, c)] == [False, False, True]
    house.close()
    assert not alive(c)


def test_a_full_worker_plays_its_games_to_the_end(house: Alfworld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alfworld_games, "WORKERS", 1)
    monkeypatch.setattr(alfworld_games, "GAMES", 1)
    task = house.tasks()[0]
    with closing(house.episode(task)) as one, closing(house.episode(task)) as two:
        assert one.step("who") != two.step("who")
        assert one.step("open box 1").score.value == two.step("open box 1").score.value == 1.0
    assert house._games._hosts == []


def test_a_group_shares_a_worker(house: Alfworld) -> None:
    a, b, c = house.tasks()
    episodes = [house.episode(task) for task in (a, a, b, b, c, a)]
    pids = [episode.step("who").messages[0].content for episode in episodes]
    first, second = dict.fromkeys(pids)
    assert pids[:4] == [first, first, second, second]
    for episode in episodes:
        episode.close()


def test_a_dead_worker_costs_its_attempts_their_scores(house: Alfworld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alfworld_games, "WORKERS", 1)
    task = house.tasks()[0]
    with closing(house.episode(task)) as one, closing(house.episode(task)) as two:
        score = Score(None, "environment error: the worker died", ["die"], {"steps": 1})
        assert one.step("die") == Step(score=score)
        assert house.replay(task, ["open box 1"]).value == 1.0
        assert two.step("look").score.value is None
    assert house.replay(task, ["die"]).value is None
    assert house.replay(task, ["open box 1"]).value == 1.0


def test_a_hung_worker_is_ended(house: Alfworld, monkeypatch: pytest.MonkeyPatch) -> None:
    pid = who(house, house.tasks()[0])
    monkeypatch.setattr(alfworld_games, "STEP_TIMEOUT", 0.2)
    score = house.replay(house.tasks()[0], ["hang"])
    assert score == Score(None, "environment error: the worker gave no answer within 0.2 s", ["hang"], {"steps": 1})
    assert not alive(pid)


def test_a_broken_game_leaves_the_others_alone(house: Alfworld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alfworld_games, "WORKERS", 1)
    task = house.tasks()[0]
    with closing(house.episode(task)) as one, closing(house.episode(task)) as two:
        assert one.step("break").score == Score(None, "environment error: KeyError: 'box'", ["break"], {"steps": 1})
        assert two.step("open box 1").score.value == 1.0


def test_a_game_must_start_with_what_the_prompt_says(house: Alfworld, data: Path) -> None:
    write(data, "train/d/trial_1", says="You wake up.")
    task = house.tasks()[3]
    score = house.replay(task, ["open box 1"])
    assert score.value is None
    assert score.reason == "environment error: the game's first observation is not the one in the prompt"
    assert house.random_attempt(task, 0).value is None


def test_closing_is_harmless_in_any_order(house: Alfworld) -> None:
    episode = house.episode(house.tasks()[0])
    pid = int(episode.step("who").messages[0].content)
    house.close()
    episode.close()
    episode.close()
    house.close()
    assert not alive(pid)
