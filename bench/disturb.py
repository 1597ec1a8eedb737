"""Stability: set the agent of a run back, or ahead, and count the rounds until its success is in the band again.

python bench/disturb.py CONFIG --run-dir DIR --at 20 --back-to 5      after round 20, the agent of round 5
python bench/disturb.py CONFIG --run-dir DIR --at 5 --agent FOLDER    after round 5, that of another run's checkpoint

Agent and optimizer are replaced between two rounds, as the engine loads a checkpoint; simulator, pools and posteriors
know nothing of it. `genenv analyse DIR --disturbed AT` gives the same figures later.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from pathlib import Path

from genenv.config.load import load_config
from genenv.contracts.types import Json
from genenv.loop.coevolve import CoEvolution
from genenv.session import new_run
from genenv.studies.analysis import recovery


def disturbed_run(
    config: Path, folder: Path, changes: list[str], at: int, back_to: int | None, agent: Path | None
) -> CoEvolution:
    """A whole run whose agent is replaced after round `at`; its store is open."""
    with tempfile.TemporaryDirectory() as kept:

        def watch(stage: str, figures: Mapping[str, Json]) -> None:
            if stage != "round":
                return
            number = figures["round"]
            success = "-" if figures["success"] is None else f"{100 * figures['success']:.0f} %"
            print(f"round {number:4}  success {success}", flush=True)
            if number == back_to:
                game.agent.save_state(Path(kept))
            if number == at:
                game.agent.load_state(agent or Path(kept))
                print("the agent was replaced", flush=True)

        game = new_run(load_config(config, changes), folder, watch)
        game.run()
    return game


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("config", type=Path)
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--at", type=int, required=True)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--back-to", type=int)
    which.add_argument("--agent", type=Path)
    parser.add_argument("--set", action="append", default=[])
    options = parser.parse_args()
    if options.back_to is not None and not 1 <= options.back_to < options.at:
        parser.error(f"--back-to {options.back_to}: expected a round from 1 to {options.at - 1}, before --at")
    run = disturbed_run(options.config, options.run_dir, options.set, options.at, options.back_to, options.agent)
    print(recovery([m["success"] for m in run.store.metrics()], options.at))
    run.store.close()
