"""A worker of `reasoning_gym` without the library: sums, and puzzles that go wrong as their level says."""

from __future__ import annotations

import os
import random
import threading

from genenv.contracts.types import Json, canonical
from genenv.sandbox.processes import serve

CURRICULA = {"sums": {"size": ["9", "99", "999"]}, "bad": {"how": ["raise", "hang", "die", "none"]}, "countdown": {}}


def happen(what: str) -> None:
    match what:
        case "raise":
            raise AssertionError("no such puzzle")
        case "hang":
            threading.Event().wait()
        case "die":
            os._exit(1)


def entry(spec: Json) -> Json:
    if spec["dataset"] == "bad":
        happen(CURRICULA["bad"]["how"][spec["levels"]["how"]])
        return {"question": "?", "answer": None}
    rng = random.Random(canonical(spec))
    top = int(CURRICULA["sums"]["size"][spec["levels"].get("size", 0)])
    a, b = rng.randint(1, top), rng.randint(1, top)
    return {"question": f"What is {a} plus {b}?", "answer": str(a + b)}


def handle(request: Json) -> Json:
    if "curricula" in request:
        return {name: CURRICULA[name] for name in request["curricula"] if name in CURRICULA}
    if "entry" in request:
        return entry(request["entry"])
    made, answer = entry(request["score"]), request["answer"]
    if made["question"] != request["question"]:
        raise ValueError("another question")
    happen(answer)
    if answer == "too much":
        return 1.5
    return 1.0 if answer == made["answer"] else 0.4 if made["answer"] in answer else 0.01


if __name__ == "__main__":
    serve(handle)
