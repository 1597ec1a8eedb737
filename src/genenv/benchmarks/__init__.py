"""Official test sets. `make_benchmark` is the one place that knows which class serves which name."""

from __future__ import annotations

from pathlib import Path

from genenv.benchmarks.base import Benchmark
from genenv.contracts.errors import InputError

SPLITS = {"alfworld": ("valid_unseen", "valid_seen", "train"), "travelplanner": ("validation", "train")}
NAMES = ("alfworld", "api-bank", "bamboogle", "bfcl", "travelplanner")


def make_benchmark(
    name: str, data: Path | None = None, passages: Path | None = None, split: str | None = None
) -> Benchmark:
    """The benchmark called `name`, on the official files in `data` or, without it, in $GENENV_DATA/NAME.

    `passages` gives the agent of a question-answering benchmark a search tool over that file; `split` is for those that
    have several. Raises InputError.
    """
    if split is not None and split not in SPLITS.get(name, ()):
        raise InputError(f"{name}: split {split}: expected {' or '.join(SPLITS.get(name, ['none']))}")
    if passages is not None and name != "bamboogle":
        raise InputError(f"{name} has no search tool: passages are for bamboogle")
    match name:
        case "alfworld":
            from genenv.benchmarks.alfworld.benchmark import Alfworld

            return Alfworld(data, split or "valid_unseen")
        case "api-bank":
            from genenv.benchmarks.api_bank import ApiBank

            return ApiBank(data)
        case "bamboogle":
            from genenv.benchmarks.bamboogle import Bamboogle
            from genenv.benchmarks.search import Passages

            return Bamboogle(data, search=Passages.read(passages) if passages else None)
        case "bfcl":
            from genenv.benchmarks.bfcl.benchmark import Bfcl

            return Bfcl(data)
        case "travelplanner":
            from genenv.benchmarks.travelplanner.benchmark import TravelPlanner

            return TravelPlanner(data, "train" if split == "train" else "validation")
    raise InputError(f"benchmark {name}: expected one of {', '.join(NAMES)}")
