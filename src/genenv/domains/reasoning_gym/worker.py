"""The worker of `reasoning_gym`: makes puzzles and judges answers. Some take for ever, which is why it is a worker.

Requests: `{"curricula": [NAME, ...]}`, `{"entry": SPECIFICATION}`, `{"score": SPECIFICATION, "question": ..., "answer": ...}`.
"""

from __future__ import annotations

import functools
import json
import random
import resource
from collections.abc import Mapping

import numpy as np
from reasoning_gym.dataset import ProceduralDataset
from reasoning_gym.factory import CURRICULA, DATASETS

from genenv.contracts.types import Json, canonical
from genenv.sandbox.processes import serve

MEMORY = 4 << 30
"""Bytes of address space: `1e1000000000` is a number that some verifiers would write out."""
KEPT = 64
"""Puzzles in memory: the attempts at one come together."""


def handle(request: Json) -> Json:
    if "curricula" in request:
        return {name: _curriculum(name) for name in request["curricula"] if name in DATASETS}
    if "entry" in request:
        _, entry = _made(canonical(request["entry"]))
        return {"question": entry["question"], "answer": entry["answer"]}
    dataset, entry = _made(canonical(request["score"]))
    if entry["question"] != request["question"]:
        raise ValueError("the installed reasoning-gym makes another question of this specification")
    return float(dataset.score_answer(request["answer"], entry))


def _curriculum(name: str) -> Json:
    """The values of each attribute, by level, as text; none for data sets without a curriculum."""
    attributes = CURRICULA[name]().attributes if name in CURRICULA else {}
    return {key: [str(value) for value in attribute.levels] for key, attribute in attributes.items()}


@functools.lru_cache(KEPT)
def _made(text: str) -> tuple[ProceduralDataset, Mapping[str, Json]]:
    spec = json.loads(text)
    make, config = DATASETS[spec["dataset"]]
    settings: Json = {"seed": spec["seed"], "size": 1}
    random.seed(spec["seed"])  # some generators draw from the global ones
    np.random.seed(spec["seed"])
    if spec["dataset"] in CURRICULA:
        curriculum = CURRICULA[spec["dataset"]]()
        for key, level in spec["levels"].items():
            curriculum.set_attr_level(key, level)
        dataset = make(curriculum.generate_configuration(settings))
    else:
        dataset = make(config(**settings))
    return dataset, dataset[0]


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    serve(handle)
