"""One's own results in the paper's columns, beside the paper's rows."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean

from genenv.contracts.types import Json

COLUMNS = {
    "alfworld": "ALFWorld",
    "bfcl": "BFCL",
    "api-bank": "API-Bank",
    "bamboogle": "Bamboogle",
    "travelplanner": "TravelPlanner",
}
NEAREST = {"travelplanner": "mean_of_four"}
"""The sub-score that stands in a column where the paper's figure is, as far as can be told, not the official score."""
SOURCE = "arXiv 2512.19682 v2"
PAPER: dict[str, tuple[float, float, float, float, float, float]] = {
    "Qwen2.5-7B-Instruct": (14.2, 7.0, 61.6, 68.0, 14.3, 33.0),
    "GenEnv 7B": (54.5, 41.8, 79.1, 76.0, 16.6, 53.6),
    "ReSearch 7B": (18.7, 5.0, 65.3, 68.0, 16.4, 34.7),
    "SearchR1 7B": (16.1, 5.0, 63.3, 67.2, 16.1, 33.5),
    "ToRL 7B": (8.0, 0.0, 54.1, 34.4, 14.8, 22.3),
    "Qwen3-14B": (37.8, 29.4, 66.7, 76.0, 14.7, 44.9),
    "Qwen2.5-72B": (63.5, 35.3, 54.9, 69.6, 20.5, 48.8),
    "Llama-3.1-405B": (65.3, 5.5, 74.4, 77.6, 16.5, 47.9),
}
"""Success in percent, one figure a column and the mean that the paper states; its protocols are known in part only."""


def figure(result: Mapping[str, Json]) -> float:
    """What stands in the table for a result: its score, or the sub-score in NEAREST."""
    name = NEAREST.get(result["benchmark"])
    return float(result["score"] if name is None else result["figures"][name])


def overall(results: Mapping[str, Mapping[str, Json]]) -> float | None:
    """The mean of the five columns, in [0, 1]; None unless all five were scored."""
    scores = [figure(results[name]) for name in COLUMNS if name in results]
    return fmean(scores) if len(scores) == len(COLUMNS) else None


def rows(subject: str, results: Mapping[str, Mapping[str, Json]]) -> list[list[str]]:
    """A heading, one's own row and the paper's, as text; `results` are documents by name, a missing one is a "-"."""
    own = [figure(results[name]) if name in results else None for name in COLUMNS] + [overall(results)]
    title = f"{subject} (samples only)" if any("sample" in r for r in results.values()) else subject
    table = [["%", *COLUMNS.values(), "mean"], [title, *("-" if x is None else f"{100 * x:.1f}" for x in own)]]
    return table + [[name, *(f"{x:.1f}" for x in figures)] for name, figures in PAPER.items()]


def line(result: Mapping[str, Json]) -> str:
    """One result with what must stand beside it: the sub-scores, the counts, the protocol."""
    figures = ", ".join(_figure(k, v) for k, v in result["figures"].items() if isinstance(v, int | float))
    counts = ", ".join(f"{result[k]} {k.replace('_', ' ')}" for k in ("malformed", "cut_off", "unscored", "missing"))
    size = result.get("sample", f"all {result['samples']}")
    score = f"{result['benchmark']:<13} {100 * result['score']:5.1f} %   {size}; {counts}"
    return f"{score}\n{'':<13} {figures}\n{'':<13} {result['protocol']}"


def _figure(name: str, value: float) -> str:
    return f"{name} {100 * value:.1f}" if isinstance(value, float) else f"{name} {value}"
