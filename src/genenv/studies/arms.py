"""Arms: configurations that are compared at equal agent rollouts and equal agent updates.

Every arm plays the same number of rollouts in every round: `groups * group_size`. How many of the groups are fresh and how
many are replayed follows from its `agent.replay`, and `simulator.fill` writes again for what the gate turned away. All take
the same number of optimizer steps a round, as long as that many groups have variance.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from genenv.config.load import build_config, merge
from genenv.config.recipes import RECIPES
from genenv.config.sections import Config
from genenv.contracts.errors import InputError
from genenv.loop.sources import groups

Raw = Mapping[str, Any]
"""A part of a configuration, as a TOML file has it."""

_PAPER: Raw = {"recipe": "paper", **RECIPES["paper"]}


def _set(source: str, size: float = 1.0) -> Raw:
    """A fixed set of `size` tasks per seed: the agent trains on it, nobody on the simulator."""
    return {
        "curriculum": {"source": source, "set_size": size, "edits": 0.0},
        "simulator": {"train": False},
        "agent": {"replay": 0.0},
    }


def _signal(name: str) -> Raw:
    """The signal of other work in the place of Eq. 3, on this project's loop."""
    return {"recipe": "genenv", "curriculum": {"reward": name}}


ARMS: Mapping[str, Raw] = {
    "genenv": {"recipe": "genenv"},
    "paper": _PAPER,
    "random": merge(_PAPER, {"simulator": {"train": False}}),
    "static": _set("offline"),
    "static_x3.3": _set("offline", 3.3),
    "teacher_x1.8": _set("privileged", 1.8),
    "teacher_x3.3": _set("privileged", 3.3),
    "seeds_only": _set("seeds"),
    "r_zero": _signal("r_zero"),
    "absolute_zero": _signal("absolute_zero"),
    "learnability": _signal("learnability"),
    "drop": {"recipe": "genenv", "curriculum": {"drop": 0.25}},
}
"""What each built-in arm changes in the base configuration; docs/compare.md says why."""


def arm_config(name: str, base: Raw, own: Raw, source: str) -> Config:
    """One arm's configuration: the base, the built-in arm of that name if there is one, then `own` settings.

    Its `simulator.tasks` is what makes its rollouts equal to the base's. Raises InputError if that cannot be.
    """
    where = f"{source}: arm {name}"
    if fixed := sorted({"rounds", "seed"} & own.keys()):
        raise InputError(f"{where}: {fixed[0]} is the suite's to say, the same for all arms")
    usual = build_config(dict(base), source)
    raw = merge(merge(merge(base, ARMS.get(name, {})), own), {"simulator": {"fill": True}})
    config = build_config(raw, where)
    rollouts = groups(usual.simulator.tasks, usual.agent.replay) * usual.agent.group_size
    wanted, rest = divmod(rollouts, config.agent.group_size)
    tasks = config.simulator.tasks if "tasks" in own.get("simulator", {}) else fresh_tasks(wanted, config.agent.replay)
    if rest or tasks is None or groups(tasks, config.agent.replay) != wanted:
        raise InputError(
            f"{where}: expected {rollouts} rollouts a round like all arms, which agent.group_size = "
            f"{config.agent.group_size} and agent.replay = {config.agent.replay:g} cannot give"
            f"{'' if tasks is None else f' with simulator.tasks = {tasks}'}; choose another simulator.tasks for the base"
        )
    for key in ("steps", "train", "warmup"):
        if getattr(config.agent, key) != getattr(usual.agent, key):
            raise InputError(f"{where}: agent.{key} must be the same in all arms, which are to have equal updates")
    if config.eval != usual.eval or config.domain != usual.domain:
        raise InputError(f"{where}: sections domain and eval must be the same in all arms, set them in the base")
    return config.model_copy(update={"simulator": config.simulator.model_copy(update={"tasks": tasks})})


def fresh_tasks(wanted: int, replay: float) -> int | None:
    """The number of fresh tasks with which a round has `wanted` groups; None if there is none."""
    return next((t for t in range(1, wanted + 1) if groups(t, replay) == wanted), None)
