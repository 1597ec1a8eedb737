"""ALFWorld's own games, a few of them; `bench/alfworld.py` plays all. Skipped without the package or the data."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from genenv.benchmarks.alfworld import benchmark as alfworld
from genenv.benchmarks.alfworld import games as alfworld_games
from genenv.benchmarks.alfworld.benchmark import Alfworld
from genenv.benchmarks.alfworld.games import STEPS

DATA = Path(os.environ.get("GENENV_DATA") or Path(__file__).parents[3] / "shared" / "data") / "alfworld"
NO_WORKER = "genenv.benchmarks.no_worker"

needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"no ALFWorld games in {DATA}")
needs_games = pytest.mark.skipif(
    not DATA.is_dir() or importlib.util.find_spec("textworld") is None,
    reason=f"needs the extra alfworld and games in {DATA}",
)

PLAIN = """
import json, sys
import textworld
from textworld.envs.pddl import PddlEnv
from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
from alfworld.info import ALFRED_TWL2_PATH
from genenv.benchmarks.alfworld.worker import upgraded
path, *commands = sys.argv[1:]  # the engine overwrites them
text = open(ALFRED_TWL2_PATH).read()
game = AlfredDemangler(PddlEnv(textworld.EnvInfos(won=True, admissible_commands=True)))
game.load(upgraded(json.load(open(path)), text[text.index("action help {"):]))
states = [game.reset()] + [game.step(command)[0] for command in commands]
print(json.dumps([[s["feedback"], s["won"], s["admissible_commands"]] for s in states]))
"""
"""A game in the engine as it comes, without what the worker remembers."""


@pytest.fixture(scope="module")
def games() -> Iterator[Alfworld]:
    with closing(Alfworld(DATA)) as benchmark:
        yield benchmark


def walkthroughs() -> list[tuple[str, list[str]]]:
    """The first for each task type."""
    lines = [json.loads(line) for line in (DATA / "walkthroughs_valid_unseen.jsonl").read_text("utf-8").splitlines()]
    first = {line["task_type"]: line for line in reversed(lines)}
    return [(line["game"].split("/", 1)[1].rpartition("/")[0], line["commands"]) for line in first.values()]


@needs_data
@pytest.mark.parametrize(
    ("split", "counts"),
    [("valid_unseen", [24, 18, 31, 23, 21, 17]), ("valid_seen", [35, 13, 27, 16, 25, 24])],
)
def test_the_official_splits(split: str, counts: list[int]) -> None:
    with closing(Alfworld(DATA, split, worker=NO_WORKER)) as benchmark:
        found = Counter(task.family for task in benchmark.tasks())
    assert [found[family] for family in alfworld.TaskType.__args__] == counts


@needs_games
def test_walkthroughs_win_and_their_beginnings_do_not(games: Alfworld) -> None:
    tasks = {task.spec["id"]: task for task in games.tasks()}
    known = walkthroughs()
    assert len(known) == 6
    for identity, commands in known:
        score = games.replay(tasks[identity], commands)
        assert (score.value, score.reason, score.checks) == (1.0, "won", {"steps": len(commands)})
    assert games.replay(tasks[identity], commands[:-1]).reason == "not won when the commands ended"


@needs_games
def test_the_words_of_the_game(games: Alfworld) -> None:
    task = games.tasks()[0]
    says = [
        ("go to desk 2", "You arrive at desk 2. On the desk 2, you see a alarmclock 1."),
        ("Take the alarmclock", "Nothing happens."),
        ("take alarmclock 1 from desk 2", "You pick up the alarmclock 1 from the desk 2."),
        ("put alarmclock 1 in/on desk 2", "Nothing happens."),
        ("move alarmclock 1 to desk 2", "You move the alarmclock 1 to the desk 2."),
    ]
    with closing(games.episode(task)) as episode:
        for text, answer in says:
            assert [m.content for m in episode.step(text).messages] == [answer]
        assert episode.step("help").messages[0].content.startswith("Available commands:\n")


@needs_games
def test_neither_the_step_limit_nor_a_random_agent_wins(games: Alfworld) -> None:
    score = games.replay(games.tasks()[1], ["look"] * STEPS)
    assert (score.value, score.reason) == (0.0, "not won within 50 commands")
    score = games.random_attempt(games.tasks()[1], seed=0)
    assert (score.value, len(score.answer)) == (0.0, STEPS)
    assert "Nothing happens." not in score.answer


@needs_games
def test_the_worker_says_what_the_plain_engine_says(games: Alfworld) -> None:
    (identity, commands), *_ = walkthroughs()
    task = next(t for t in games.tasks() if t.spec["id"] == identity)
    commands = ["inventory", "go to nowhere 1", *commands[:-1], "help", "look", commands[-1]]
    plain = json.loads(
        subprocess.run(
            [sys.executable, "-c", PLAIN, str(games._paths[identity]), *commands],
            capture_output=True,
            check=True,
            text=True,
        ).stdout.splitlines()[-1]
    )
    with closing(games.episode(task)) as episode:
        assert [task.messages[1].content, False, episode.possible()] == plain[0]
        for command, (said, won, possible) in zip(commands[:-1], plain[1:-1], strict=True):
            assert [m.content for m in episode.step(command).messages] == [said]
            assert episode.possible() == possible
            assert not won
        assert episode.step(commands[-1]).score.value == 1.0
        assert plain[-1][1] is True


@needs_games
def test_workers_do_not_outlive_their_games(games: Alfworld, monkeypatch: pytest.MonkeyPatch) -> None:
    games.close()
    monkeypatch.setattr(alfworld_games, "GAMES", 2)
    monkeypatch.setattr(alfworld_games, "WORKERS", 1)
    hosts = []
    for task in games.tasks()[:3]:
        with closing(games.episode(task)) as episode:
            hosts.append(games._games._hosts[-1])
            assert episode.step("look").messages
    assert hosts[0] is hosts[1] is not hosts[2]
    assert games._games._hosts == [hosts[2]]
