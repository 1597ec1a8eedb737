"""The loop: two players, one round after the other.

    orders -> candidates -> verdicts -> groups -> p_hat and R_env -> two updates -> pools

Each stage is a function of the game and the round, in a file of its own. `recipe = "paper"` makes each step that of arXiv
2512.19682 (Algorithm 1); the configuration says where the project's own recipe departs from it.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from genenv.contracts.engine import PLAYERS
from genenv.loop.game import Game, Round
from genenv.loop.generate import generate
from genenv.loop.interact import evaluate, interact
from genenv.loop.measure import reward
from genenv.loop.pools import Pools
from genenv.loop.remember import remember
from genenv.loop.train import update_agent, update_simulator, warm_up

Stage = Callable[[Game, Round], None]


class CoEvolution(Game):
    """A run: `run` plays the rounds that are left."""

    def run(self, resume: bool = False, warn: Callable[[str], None] = lambda message: None) -> None:
        """Play all rounds that are not in the store yet."""
        start = self._load(warn) if resume else None
        if start is None:
            warm_up(self)
            evaluate(self, 0)
            self.store.checkpoints.save(0, self._save)
        for number in range((start or 0) + 1, self.config.rounds + 1):
            self.play_round(number)

    def play_round(self, number: int) -> None:
        """One round, committed and checkpointed."""
        this = Round(number)
        for stage in (generate, interact, reward):
            self._play_stage(this, stage)
        if self.engine.concurrent:  # the updates are of two adapters; only the simulator's reads the store
            with ThreadPoolExecutor(1) as pool:
                agent = pool.submit(self._play_stage, this, update_agent)
                self._play_stage(this, update_simulator)
                agent.result()
        else:
            self._play_stage(this, update_agent)
            self._play_stage(this, update_simulator)
        self._play_stage(this, remember)
        last = number == self.config.rounds
        if number % self.config.eval.every == 0 or last:
            begin = time.perf_counter()
            this.metrics["heldout"] = evaluate(self, number)
            this.seconds["evaluate"] = time.perf_counter() - begin
        timing = {"seconds": this.seconds, "peak_memory_mb": peak_memory_mb()}
        self.store.commit_round(number, this.records, this.groups, this.metrics, timing)
        if number % self.config.checkpoint_every == 0 or last:
            self.store.checkpoints.save(number, self._save)
        self.progress("round", {**this.metrics, **timing})

    def _play_stage(self, this: Round, stage: Stage) -> None:
        begin = time.perf_counter()
        stage(self, this)
        this.seconds[stage.__name__] = time.perf_counter() - begin
        self.progress(stage.__name__, dict(this.metrics))  # another stage may go on writing

    def _save(self, folder: Path) -> None:
        for player in PLAYERS:
            (folder / player).mkdir()
            self.engine.policy(player).save_state(folder / player)
        (folder / "pools.json").write_text(json.dumps(self.pools.state()), "utf-8")

    def _load(self, warn: Callable[[str], None]) -> int | None:
        """Restore the newest complete checkpoint; returns its round, None if there is none."""
        found = self.store.checkpoints.latest(warn)
        if found is None:
            self.store.rewind(-1)
            return None
        number, folder = found
        self.store.rewind(number)
        for player in PLAYERS:
            self.engine.policy(player).load_state(folder / player)
        self.pools = Pools.from_state(json.loads((folder / "pools.json").read_text("utf-8")))
        for task in self.store.admitted():
            self.gate.add(task)
        return number


def peak_memory_mb() -> float:
    """Peak resident memory of this process so far, in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)
