"""A suite's finished runs in numbers: what the page, the picture and the table of `genenv compare` show."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

import numpy as np

from genenv.contracts.types import Json, Task
from genenv.loop.gate import user_turns
from genenv.loop.near import Known, fingerprint
from genenv.runs.store import Store
from genenv.runs.summary import in_band, share, summary
from genenv.studies.claims import claims
from genenv.studies.evidence import Floats, band, crossed_interval, rollouts_to, sign_flip
from genenv.studies.suite import Run, Suite

PLAYERS = {"agent": ("interact", "update_agent"), "simulator": ("generate", "update_simulator")}
"""The stages whose seconds are a player's; the rest is neither's."""


PUBLISHED = ("paper", "random")
"""Arms that are the paper's only as they are built in: with settings of a suite's own nothing is claimed of them."""


@dataclass(frozen=True)
class Finished:
    """A finished run: its summary, and what a summary does not have."""

    run: Run
    summary: Mapping[str, Json]
    scores: Mapping[int, Mapping[str, float]]
    """Of each evaluation, by its round: the held-out tasks' scores."""
    tasks: int
    clusters: int
    updates: int


def read_finished(runs: Sequence[Run]) -> list[Finished]:
    """Those runs that are finished."""
    found = []
    for run in runs:
        if run.state() == "finished":
            store = Store.read(run.folder)
            tried = list(store.tried())
            updates = store.metrics()[-1]["agent_version"]
            scores = {number: store.heldout_scores(number) for number, *_ in store.heldout()}
            found.append(Finished(run, summary(store), scores, len(tried), clusters(tried), updates))
            store.close()
    return found


def clusters(tasks: Sequence[Task]) -> int:
    """How many kinds of task there are, by the gate's rule: requests that are nearly the same are of one kind."""
    known = Known()
    for task in tasks:
        mark = fingerprint(user_turns(task)[-1], ())
        known.add(mark, task.id, known.leader(mark))
    return known.clusters


# -- one arm -----------------------------------------------------------------------------------------------------


def _shares(part: str, whole: str) -> Callable[[Mapping[str, Json]], list[float | None]]:
    return lambda s: [share(a, b) for a, b in zip(s[f"{part}_by_round"], s[f"{whole}_by_round"], strict=True)]


def _as_is(key: str) -> Callable[[Mapping[str, Json]], list[float | None]]:
    return lambda s: s[f"{key}_by_round"]


CURVES: Mapping[str, Callable[[Mapping[str, Json]], list[float | None]]] = {
    "success": _as_is("success"),
    "success_mean": _as_is("success_mean"),
    "useful": _as_is("useful_group_share"),
    "always_solved": _shares("solved_all", "tried"),
    "never_solved": _shares("solved_none", "tried"),
    "task_length": _as_is("prompt_length"),
    "response_length": _as_is("response_length"),
}
"""Curves over rounds, from a run's summary."""


def _curve(values_SR: Sequence[Sequence[float | None]]) -> dict[str, Json]:
    mean, low, high = band(np.array([[np.nan if v is None else v for v in row] for row in values_SR], dtype=float))
    return {"mean": mean, "low": low, "high": high}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return fmean(known) if known else None


def _first_in_band(s: Mapping[str, Json]) -> int | None:
    return next((n for n, mean in enumerate(s["success_mean_by_round"], 1) if in_band(mean)), None)


def arm_figures(runs: Sequence[Finished]) -> dict[str, Json]:
    """One arm over its seeds. Totals are means of a run; `low` and `high` bound 95 % intervals."""
    summaries = [r.summary for r in runs]
    curves = {name: _curve([curve(s) for s in summaries]) for name, curve in CURVES.items()}
    rollouts_SR = np.cumsum([s["rollouts_by_round"] for s in summaries], axis=1).mean(axis=0)
    held = summaries[0]["heldout_by_round"]
    heldout = {
        "round": [h["round"] for h in held],
        "rollouts": [float(rollouts_SR[h["round"] - 1]) if h["round"] else 0.0 for h in held],
        **_curve(by_seed := [[h["score"] for h in s["heldout_by_round"]] for s in summaries]),
        "by_seed": by_seed,
    }
    seconds = [s["seconds_by_stage"] for s in summaries]
    by_player = {
        player: fmean(sum(t.get(stage, 0.0) for stage in stages) for t in seconds) for player, stages in PLAYERS.items()
    }
    first = [_first_in_band(s) for s in summaries]
    return {
        "seeds": [r.run.seed for r in runs],
        **{name: _interval(scores(runs)) for name, scores in SCORES.items()},
        "heldout": heldout,
        "curves": curves,
        "in_band_share": _mean([s["in_band_share"] for s in summaries]),
        "first_in_band": median(known) if (known := [n for n in first if n is not None]) else None,
        "ever_in_band": len(known),
        **{name: _mean(curves[name]["mean"]) for name in ("useful", "always_solved", "never_solved")},
        "never_solved_by_seed": [_mean(CURVES["never_solved"](s)) for s in summaries],
        "rollouts": fmean(s["agent_rollouts"] for s in summaries),
        "updates": fmean(r.updates for r in runs),
        "tokens": {p: fmean(s[f"{p}_tokens"] for s in summaries) for p in PLAYERS},
        "seconds": by_player | {"all": fmean(s["seconds"] for s in summaries)},
        "tasks": fmean(r.tasks for r in runs),
        "clusters": fmean(r.clusters for r in runs),
    }  # fmt: skip


def _scores(runs: Sequence[Finished], number: int) -> Floats:
    """[S, T] scores in one evaluation, each a task's mean over its attempts."""
    return np.array([[r.scores[number][task] for task in runs[0].scores[number]] for r in runs])


def final_scores(runs: Sequence[Finished]) -> Floats:
    """[S, T] of the last evaluation."""
    return _scores(runs, runs[0].run.config.rounds)


def mean_scores(runs: Sequence[Finished]) -> Floats:
    """[S, T] on average over the run: the area under the held-out curve, by straight lines, over its rounds."""
    numbers = sorted(runs[0].scores)
    area_ST = np.trapezoid(np.stack([_scores(runs, n) for n in numbers]), numbers, axis=0)
    return np.asarray(area_ST) / (numbers[-1] - numbers[0])


SCORES: Mapping[str, Callable[[Sequence[Finished]], Floats]] = {"final": final_scores, "average": mean_scores}
"""What arms are held against each other by."""


def _interval(values_ST: Floats) -> dict[str, Json]:
    low, high = crossed_interval(values_ST)
    return {"mean": float(values_ST.mean()), "low": low, "high": high, "by_seed": values_ST.mean(axis=1).tolist()}


def difference(
    arm: Sequence[Finished], reference: Sequence[Finished], scores: Callable[[Sequence[Finished]], Floats]
) -> dict[str, Json] | None:
    """Score minus the reference's, paired by seed and task; None without a seed that both have."""
    theirs = {r.run.seed: r for r in reference}
    both = [r for r in arm if r.run.seed in theirs]
    if not both:
        return None
    found = _interval(scores(both) - scores([theirs[r.run.seed] for r in both]))
    return {**found, "p": sign_flip(found["by_seed"])}


# -- the whole suite ---------------------------------------------------------------------------------------------


def comparison(suite: Suite, runs: Sequence[Run]) -> dict[str, Json]:
    """Everything that is shown. Arms without a finished run are left out, and named in `missing`."""
    finished = read_finished(runs)
    by_arm = {arm: own for arm in suite.arms if (own := [r for r in finished if r.run.arm == arm])}
    arms = {name: arm_figures(own) for name, own in by_arm.items()}
    target = suite.target or suite.arms[0]
    score = arms[target]["heldout"]["mean"][-1] if target in arms else None
    for name, figures in arms.items():
        held, own = figures["heldout"], by_arm[name]
        others = {n: runs for n, runs in by_arm.items() if n != name}
        figures["against"] = {n: difference(own, runs, final_scores) for n, runs in others.items()}
        figures["difference"] = figures["against"].get(suite.arms[0])
        reference = others.get(suite.arms[0])
        figures["average_difference"] = difference(own, reference, mean_scores) if reference else None
        reached = rollouts_to(score, held["rollouts"], held["mean"]) if score is not None else None
        figures["rollouts_to_target"] = reached
    first = finished[0] if finished else None
    return {
        "reference": suite.arms[0],
        "target": {"arm": target, "score": score},
        "rounds": suite.rounds,
        "seeds": list(suite.seeds),
        "domain": first.run.config.domain.name if first else None,
        "model": first.run.config.engine.model if first else None,
        "heldout_tasks": len(first.scores[0]) if first else 0,
        "attempts": first.run.config.eval.rollouts if first else 0,
        "missing": [run.name for run in runs if run not in [f.run for f in finished]],
        "unequal": _unequal(finished),
        "arms": arms,
        "claims": claims({n: a for n, a in arms.items() if n not in suite.arm or n not in PUBLISHED}, suite.rounds),
    }


def _unequal(runs: Sequence[Finished]) -> list[str]:
    """The runs whose rollouts or updates are not those of most: where comparing is not fair."""
    found = []
    for what, counts in (
        ("rollouts", [r.summary["agent_rollouts"] for r in runs]),
        ("updates", [r.updates for r in runs]),
    ):
        usual = max(counts, key=counts.count, default=0)
        odd = [(r.run.name, n) for r, n in zip(runs, counts, strict=True) if n != usual]
        found += [f"{name}: {n:,} {what}, most have {usual:,}" for name, n in odd]
    return found
