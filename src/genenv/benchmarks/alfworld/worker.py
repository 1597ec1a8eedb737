"""The child process of `alfworld`: it opens, plays and closes TextWorld games. The only module that needs ALFWorld."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from genenv.contracts.types import Json
from genenv.sandbox.processes import serve

WORDING = {
    "You arrive at {lend.name}.": "You arrive at {r.name}.",
    "put {o} in/on {r}": "move {o} to {r}",
    "You put the {o.name} in/on the {r.name}.": "You move the {o.name} to the {r.name}.",
}
"""What ALFWorld 0.4 changed in the grammar of the games of release 2.1.1."""

HELP = """
(:action help
    :parameters (?a - agent)
    :precondition ()
    :effect (checked ?a)
)
"""


def upgraded(game: Mapping[str, Json], help_action: str) -> Mapping[str, Json]:
    """A game of release 2.1.1 as ALFWorld 0.4 ships it, with `help_action` in its grammar; a later one as it is."""
    if "action help {" in game["grammar"]:
        return game
    grammar = game["grammar"]
    for old, new in WORDING.items():
        grammar = grammar.replace(old, new)
    before, last, after = game["pddl_domain"].rpartition(")")
    return {**game, "pddl_domain": before + HELP + last + after, "grammar": f"{grammar}\n{help_action}"}


@functools.cache
def _engine() -> tuple[Callable[[], Any], str]:
    """What makes an empty game, and the text of the action `help`."""
    import textworld
    from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
    from alfworld.info import ALFRED_TWL2_PATH
    from textworld.envs.pddl import PddlEnv

    _remember()

    def make() -> Any:
        return AlfredDemangler(PddlEnv(textworld.EnvInfos(won=True, admissible_commands=True)))

    text = Path(ALFRED_TWL2_PATH).read_text("utf-8")
    return make, text[text.index("action help {") :]


def _remember() -> None:
    """Let the engine work out each thing once; what games say stays the same, and they are three to four times faster.

    It translates a game's PDDL on loading and on resetting, and both times once more for its planner, which is never
    asked here: one translation serves all, and the members of a group that plays one game. And it parses every command
    template and every condition of its grammar again for each command that is possible after each step.
    """
    import fast_downward
    from textworld.envs.pddl import textgen
    from textworld.logic import Rule

    translate = functools.lru_cache(maxsize=1)(fast_downward.pddl2sas)
    fast_downward.pddl2sas = lambda domain, problem, **options: translate(domain, problem)
    textgen._parse_and_convert = functools.cache(textgen._parse_and_convert)
    Rule.parse_conjunctive_query = functools.cache(Rule.parse_conjunctive_query)


class Games:
    """Open games by the number that their owner gave them."""

    def __init__(self) -> None:
        self._games: dict[int, Any] = {}

    def handle(self, request: Json) -> Json:
        """Answers with the observation, whether the game is won, and the commands that are possible now.

        What the engine cannot do is an answer as well, `{"failed": why}`: other games go on.
        """
        number = request["game"]
        try:
            if "open" in request:
                return self._open(number, request["open"])
            if "command" in request:
                state, _, _ = self._games[number].step(request["command"])
                return _seen(state)
            self._games.pop(number, None)
            return {}
        except Exception as error:  # foreign code raises what it likes
            return {"failed": f"{type(error).__name__}: {error}"}

    def _open(self, number: int, source: str | Mapping[str, Json]) -> Json:
        make, help_action = _engine()
        game = make()
        data = json.loads(Path(source).read_text("utf-8")) if isinstance(source, str) else source
        game.load(upgraded(data, help_action))
        self._games[number] = game
        return _seen(game.reset())


def _seen(state: Any) -> Json:
    return {
        "observation": state["feedback"],
        "won": bool(state["won"]),
        "possible": list(state["admissible_commands"]),
    }


if __name__ == "__main__":
    serve(Games().handle)
