"""What a run has come to, in numbers: read from its records and nothing else, and the same for pages and programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean

from genenv.contracts.types import Json
from genenv.runs.store import Store

Curve = Sequence[float | None]
"""One value a round; None is unknown."""
BAND = (0.4, 0.6)
"""The success that the simulator aims for; both ends belong to it."""
WINDOW = 5
"""Rounds in the moving mean of success."""
PER_ROUND = (
    "success", "success_replayed", "solved_all", "solved_none", "tasks_in_band", "candidates", "admitted", "unscored",
    "cut_off", "simulator_reward", "prompt_length", "response_length", "agent_kl", "simulator_kl", "agent_grad_norm",
    "simulator_grad_norm",
)  # fmt: skip
"""Metrics that the summary passes on as they are, as `NAME_by_round`."""


def share(part: float | None, whole: float | None) -> float | None:
    """part / whole; None if either is unknown or there is no whole."""
    return part / whole if part is not None and whole else None


def moving_mean(values: Curve, window: int = WINDOW) -> list[float | None]:
    """The mean of the last `window` values, their unknown ones left out.

    None before the first full window and where the whole window is unknown. Rounded to 12 digits, so that values that
    average exactly 0.6 give 0.6.
    """
    means: list[float | None] = []
    for end in range(1, len(values) + 1):
        known = [v for v in values[max(0, end - window) : end] if v is not None]
        means.append(round(fmean(known), 12) if known and end >= window else None)
    return means


def in_band(mean: float | None) -> bool:
    return mean is not None and BAND[0] <= mean <= BAND[1]


def in_band_from_round(success: Curve) -> int | None:
    """The first round from which on the moving mean is in the band in every round up to the last one.

    Rounds count from 1. A window must be full, so the earliest answer is 5; a round without a moving mean is outside.
    None if the last round is outside.
    """
    inside = [in_band(mean) for mean in moving_mean(success)]
    outside = [number for number, yes in enumerate(inside, 1) if not yes]
    first = outside[-1] + 1 if outside else 1
    return first if first <= len(inside) else None


def summary(store: Store) -> dict[str, Json]:
    """The run in numbers. Lists `..._by_round` have one entry per finished round, round 1 first; None is unknown.

    - `in_band_from_round`: see that function; `in_band_share` is the share of the rounds with a moving mean whose
      mean is in the band.
    - `heldout_start` is the score before training (round 0), `heldout_end` the newest one of a finished round.
    - Totals are of the finished rounds and None if one of them lacks the figure; held-out attempts are not in them.
    """
    metrics = store.metrics()
    # a running process may have added a round between the two reads, and evaluates a round before it finishes it
    timings = store.timings()[: len(metrics)]
    heldout = [h for h in store.heldout() if h[0] <= len(metrics)]
    config = store.config
    success = [m.get("success") for m in metrics]
    means = moving_mean(success)
    with_mean = [m for m in means if m is not None]
    stages = [t.get("seconds", {}) for t in timings]
    rejected: Counter[str] = Counter()
    for m in metrics:
        rejected.update(m.get("rejected", {}))
    by_stage = {s: sum(t.get(s, 0.0) for t in stages) for s in dict.fromkeys(s for t in stages for s in t)}
    families = [m.get("families", {}) for m in metrics]
    return {
        "recipe": config.recipe,
        "seed": config.seed,
        "rounds": len(metrics),
        "rounds_planned": config.rounds,
        "heldout_start": next((score for number, score, _ in heldout if number == 0), None),
        "heldout_end": next((score for number, score, _ in reversed(heldout) if number > 0), None),
        "heldout_by_round": [{"round": n, "score": score, "attempts": count} for n, score, count in heldout],
        "in_band_from_round": in_band_from_round(success),
        "in_band_share": fmean(map(in_band, with_mean)) if with_mean else None,
        "success_mean_by_round": means,
        **{f"{key}_by_round": [m.get(key) for m in metrics] for key in PER_ROUND},
        "admitted_share_by_round": [share(m.get("admitted"), m.get("candidates")) for m in metrics],
        "useful_group_share_by_round": [share(m.get("useful_groups"), m.get("groups")) for m in metrics],
        "rollouts_by_round": [m.get("agent_rollouts") for m in metrics],
        "tried_by_round": [
            sum(f["tasks"] for f in m["families"].values()) if "families" in m else None for m in metrics
        ],
        "families_by_round": families,
        "rejected_by_round": [m.get("rejected", {}) for m in metrics],
        "rejected_by_reason": dict(sorted((+rejected).items(), key=lambda kv: (-kv[1], kv[0]))),
        "edits": _edit_counts(metrics),
        "candidates": _total(metrics, "candidates"),
        "admitted": _total(metrics, "admitted"),
        "agent_rollouts": _total(metrics, "agent_rollouts"),
        "agent_tokens": _total(metrics, "agent_tokens"),
        "simulator_tokens": _total(metrics, "simulator_tokens"),
        "seconds": sum(by_stage.values()) if by_stage else None,
        "seconds_by_stage": by_stage,
        "seconds_by_round": stages,
        "peak_memory_mb": max((p for t in timings if (p := t.get("peak_memory_mb")) is not None), default=None),
    }


def _total(metrics: Sequence[Mapping[str, Json]], key: str) -> Json:
    values = [m.get(key) for m in metrics]
    return None if None in values else sum(v for v in values if v is not None)


def _edit_counts(metrics: Sequence[Mapping[str, Json]]) -> dict[str, dict[str, int]]:
    """What became of the edits, by the direction that was asked for."""
    counts: dict[str, Counter[str]] = {}
    for m in metrics:
        for way, found in m.get("edits", {}).items():
            counts.setdefault(way, Counter()).update(found)
    return {way: dict(sorted(count.items())) for way, count in sorted(counts.items())}
