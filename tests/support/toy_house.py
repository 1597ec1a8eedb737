"""A worker of `alfworld` without ALFWorld: a house in which opening the box wins, and worse things can be commanded."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

from genenv.benchmarks.alfworld.benchmark import first_observation
from genenv.contracts.types import Json
from genenv.sandbox.processes import serve

POSSIBLE = ["look", "open box 1", "shut box 1"]


def handle(request: Json) -> Json:
    if "open" in request:
        game = json.loads(Path(request["open"]).read_text("utf-8"))
        text = first_observation(game["grammar"], game["pddl_problem"])
        return {"observation": game.get("says", text), "won": False, "possible": POSSIBLE}
    match request.get("command"):
        case "die":
            os._exit(3)
        case "hang":
            threading.Event().wait()
        case "break":
            return {"failed": "KeyError: 'box'"}
        case "who":
            return {"observation": str(os.getpid()), "won": False, "possible": POSSIBLE}
        case "open box 1":
            return {"observation": "You open the box 1.", "won": True, "possible": POSSIBLE}
    return {"observation": "Nothing happens.", "won": False, "possible": POSSIBLE}


if __name__ == "__main__":
    serve(handle)
