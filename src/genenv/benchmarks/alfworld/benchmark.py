"""ALFWorld: household tasks in the TextWorld games of the benchmark, played in processes of their own.

An attempt is right if the game says that it is won within 50 commands (`alfworld_games`). Goals are the templated ones
that stand in the games.

The first message must be there before the game, which takes a second to load, so it is written here from the game's
PDDL. When the game is open its own first observation is compared: an attempt whose prompt differs is not scored.
"""

from __future__ import annotations

import os
import random
import re
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from lzma import LZMAError
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from genenv.benchmarks.alfworld.games import INSTRUCTIONS, STEPS, WORKER, CommandEpisode, Games, need_packages
from genenv.benchmarks.base import Result, data_folder, mean_by
from genenv.contracts.errors import InputError
from genenv.contracts.types import Json, Message, Score, Task, derive_seed

HOW = "pip install 'genenv-rl[alfworld]' and run alfworld-download"

SPLITS: dict[str, int | None] = {"valid_unseen": 134, "valid_seen": 140, "train": None}
"""Number of games, None where any number will do."""

TaskType = Literal[
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
]

_GOAL = re.compile(r'"(Your task is to: [^"]+)"')
_PLACE = re.compile(r"\(receptacleatlocation ([^\s?]+) ")


class _Trial(BaseModel):
    """What is used of `traj_data.json`."""

    model_config = ConfigDict(frozen=True)
    task_type: TaskType


class _Game(BaseModel):
    """What is used of `game.tw-pddl` here; the worker reads the rest."""

    model_config = ConfigDict(frozen=True)
    grammar: str
    pddl_problem: str
    solvable: bool = False


class Alfworld:
    """One split of the benchmark. `data` holds `json_2.1.1/SPLIT/...` or an archive `json_2.1.1_SPLIT*.tar.xz` of it.

    Without `data` it is $ALFWORLD_DATA, where `alfworld-download` puts the games, else $GENENV_DATA/alfworld. `worker`
    is the module that plays the games. Raises InputError.
    """

    name = "alfworld"
    max_turns = STEPS
    max_tokens = 256

    def __init__(self, data: Path | None, split: str = "valid_unseen", worker: str = WORKER) -> None:
        if split not in SPLITS:
            raise InputError(f"alfworld: split: expected one of {', '.join(SPLITS)}, found {split}")
        if worker == WORKER:
            need_packages("the benchmark ALFWorld")
        official = os.environ.get("ALFWORLD_DATA")
        self._folder = data_folder(self.name, data or (Path(official) if official else None), HOW)
        self._split = split
        self._unpacked: tempfile.TemporaryDirectory[str] | None = None
        self._paths: dict[str, Path] = {}
        self._tasks: list[Task] = []
        self._games = Games(worker)
        self.protocol = (
            f"{split}: won within {STEPS} commands; ALFWorld 0.4 wording, templated goals, possible commands not shown"
        )

    # -- the games -------------------------------------------------------------------------------------------------

    def tasks(self) -> Sequence[Task]:
        """The games that the official loader takes, in the order of their paths; no game is opened for it."""
        if not self._tasks:
            tasks = list(self._read())
            expected = SPLITS[self._split] or max(1, len(tasks))
            if len(tasks) != expected:
                raise InputError(
                    f"alfworld: expected {expected} games of {self._split} in {self._folder}, found {len(tasks)}: {HOW}"
                )
            self._tasks = tasks
        return self._tasks

    def _read(self) -> Iterator[Task]:
        root = self._root()
        for trial in sorted(root.glob(f"{self._split}/*/*/traj_data.json")):
            path = trial.with_name("game.tw-pddl")
            identity = path.parent.relative_to(root).as_posix()
            if "movable" in identity or "Sliced" in identity or not path.exists():
                continue
            try:
                family = _Trial.model_validate_json(trial.read_bytes()).task_type
                game = _Game.model_validate_json(path.read_bytes())
                first = first_observation(game.grammar, game.pddl_problem)
            except (OSError, ValueError) as error:
                raise InputError(f"alfworld: {path.parent}: {_line(error)}: {HOW}") from None
            if not game.solvable:
                continue
            self._paths[identity] = path
            yield Task(
                family=family,
                messages=(Message("system", INSTRUCTIONS), Message("user", first)),
                tools=(),
                target={"won": identity},
                spec={"id": identity},
                origin="user",
            )

    def _root(self) -> Path:
        """The folder above that of the split, unpacked if there is only an archive."""
        root = self._folder / "json_2.1.1"
        if (root / self._split).is_dir():
            return root
        archives = sorted(self._folder.glob(f"json_2.1.1_{self._split}*.tar.xz"))
        if not archives:
            raise InputError(f"alfworld: {root / self._split} is no folder: {HOW}")
        if self._unpacked is None:
            self._unpacked = tempfile.TemporaryDirectory(prefix="genenv-alfworld-")
        try:
            with tarfile.open(archives[0]) as archive:
                archive.extractall(self._unpacked.name, filter="data")
        except (OSError, EOFError, tarfile.TarError, LZMAError) as error:
            raise InputError(f"alfworld: cannot unpack {archives[0]}: {_line(error)}") from None
        return Path(self._unpacked.name) / "json_2.1.1"

    # -- attempts --------------------------------------------------------------------------------------------------

    def episode(self, task: Task) -> CommandEpisode:
        """A game of its own, which loads while others are played. Worker failures leave the attempt without a score."""
        return CommandEpisode(task, self._games.open(str(self._paths[task.spec["id"]])))

    def replay(self, task: Task, output: Json) -> Score:
        """`output` is the list of commands, or of the texts that the agent wrote, one a turn."""
        if not isinstance(output, list) or not all(isinstance(text, str) for text in output):
            return Score(0.0, "malformed: expected a list of commands")
        with closing(self.episode(task)) as episode:
            for text in output:
                score = episode.step(text).score
                if score is not None:
                    return score
            return episode.score(0.0, "not won when the commands ended")

    def random_attempt(self, task: Task, seed: int) -> Score:
        """The baseline: commands drawn evenly from the possible ones. The answer of the score is their list."""
        rng = random.Random(derive_seed(seed, "random", task.spec["id"]))
        with closing(self.episode(task)) as episode:
            while True:
                score = episode.step(rng.choice(episode.possible() or [""])).score
                if score is not None:
                    return score

    def summarize(self, results: Sequence[Result]) -> dict[str, Json]:
        return {"score": sum(r.value for r in results) / len(results), **mean_by(results)}

    def close(self) -> None:
        self._games.close()
        if self._unpacked is not None:
            self._unpacked.cleanup()
            self._unpacked, self._tasks = None, []


def first_observation(grammar: str, problem: str) -> str:
    """What a game shows before the first command. Raises ValueError for texts that are not an ALFWorld game's.

    Receptacles come in the order of their identifiers, and those of one kind are numbered downwards.
    """
    goal = _GOAL.search(grammar)
    places = sorted(set(_PLACE.findall(problem.lower())))
    if goal is None or len(places) < 2:
        raise ValueError("expected a goal and receptacles, found a game without")
    kinds = [place.partition("_bar_")[0] + ("basin" if "basin" in place else "") for place in places]
    left = Counter(kinds)
    names = []
    for kind in kinds:
        names.append(f"a {kind} {left[kind]}")
        left[kind] -= 1
    seen = f"{', '.join(names[:-1])}, and {names[-1]}"
    return (
        "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room."
        f" Looking quickly around you, you see {seen}.\n\n{goal[1]}"
    )


def _line(error: Exception) -> str:
    """One line for a person."""
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc'])) or 'file'}: {first['msg']}"
    return str(error)
