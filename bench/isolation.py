"""What a worker process costs: `python bench/isolation.py`, seconds for an episode's start, a turn and its end."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from genenv.contracts.domain import Domain, released
from genenv.domains import own
from genenv.domains.isolated import Isolated
from genenv.reading.parsing import Call, format_tool_calls

EPISODES, TURNS = 200, 20
FOLDER = Path(__file__).parents[1] / "examples" / "web_shop"
SEARCH = format_tool_calls([Call("search", {"kind": "lamp"})])


def measure(domain: Domain) -> tuple[float, float]:
    """Microseconds for starting and ending an episode, and for a turn."""
    tasks = [domain.build(s.spec) for s in domain.seeds(EPISODES, 0)]
    domain.episode(tasks[0]).close()
    both = turns = 0.0
    for task in tasks:
        begin = time.perf_counter()
        episode = domain.episode(task)
        started = time.perf_counter()
        for _ in range(TURNS):
            episode.step(SEARCH)
        played = time.perf_counter()
        episode.close()
        both += started - begin + time.perf_counter() - played
        turns += played - started
    return both / EPISODES * 1e6, turns / EPISODES / TURNS * 1e6


def main() -> None:
    os.chdir(FOLDER)
    sys.path.insert(0, str(FOLDER))
    here = own.load("shop:WebShop", {})
    print("                  start and end    a turn")
    for name, domain in (("in this process", here), ("in a worker", Isolated(here, "shop:WebShop", {}, 30.0))):
        with released(domain):
            start, turn = measure(domain)
        print(f"{name:<17} {start:10.0f} us {turn:6.0f} us")
    begin = time.perf_counter()
    with released(Isolated(here, "shop:WebShop", {}, 30.0)) as domain:
        domain.episode(domain.heldout(1, 0)[0]).close()
        print(f"a worker's start  {time.perf_counter() - begin:10.2f} s")


if __name__ == "__main__":
    main()
