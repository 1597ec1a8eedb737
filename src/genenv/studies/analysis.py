"""What a run says about training: gain by success, forgetting, what difficulty depends on, recovery, lengths.

All of it is read from the store; forgetting also plays.

The success of a task is measured with a few attempts, so that tasks which look hard have had bad luck as well: measured
again they rise without any training. Each task's first attempts are therefore halved. One half says in which bin the task
is, the other where it stood, then the other way round: the change within a bin has no such bias.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from genenv.contracts.domain import Playable
from genenv.contracts.engine import Policy
from genenv.contracts.types import SOLVED, Json, derive_seed
from genenv.loop.pools import MIN_LAG
from genenv.loop.rewards import empirical_success
from genenv.loop.rollouts import PlayConfig, play
from genenv.runs.records import Attempts
from genenv.runs.store import Store
from genenv.runs.summary import BAND, WINDOW
from genenv.studies import theory
from genenv.studies.theory import RESAMPLES, Floats, Mean, bootstrap

BINS = ("under 20 %", "20-40 %", "40-60 %", "60-80 %", "over 80 %")
EARLY = 0.2
"""Share of the rounds whose tasks are scored again, and whose lengths are compared with those of the last."""


def success_bin(success: float) -> int:
    """The place in BINS. The middle bin has both its ends, the others the end that is farther from it."""
    p = round(success, 9)
    if p < 0.4:
        return 0 if p < 0.2 else 1
    return 2 if p <= 0.6 else 3 if p <= 0.8 else 4


@dataclass(frozen=True)
class Remeasured:
    """A task, its attempts when it was first trained on (1 solved, 0 not), and its success later."""

    task_id: str
    round: int
    first: tuple[int, ...]
    later_round: int
    later: float


def remeasured(attempts: Iterable[Attempts], lag: int = MIN_LAG) -> list[Remeasured]:
    """Every task with its first replay that came at least `lag` rounds after its first attempts.

    Tasks without two scored first attempts, or without a scored replay, are left out.
    """
    first: dict[str, tuple[int, tuple[int, ...]]] = {}
    found: dict[str, Remeasured] = {}
    for group in attempts:
        if not group.replayed:
            first[group.task_id] = group.round, solved(group.scores)
            continue
        number, before = first.get(group.task_id, (group.round, ()))
        later = empirical_success(group.scores)
        if later is None or len(before) < 2 or group.round - number < lag or group.task_id in found:
            continue
        found[group.task_id] = Remeasured(group.task_id, number, before, group.round, later)
    return list(found.values())


def solved(scores: Sequence[float | None]) -> tuple[int, ...]:
    """1 for each success, 0 for each other scored attempt."""
    return tuple(int(s >= SOLVED) for s in scores if s is not None)


@dataclass(frozen=True)
class Change:
    """How success changed on the tasks of a bin. `tasks` counts halves as halves; intervals are over tasks, 95 %."""

    bin: str
    tasks: float
    before: float | None
    change: Mean | None


def change_by_bin(measured: Sequence[Remeasured], rng: np.random.Generator) -> list[Change]:
    """One record per bin of BINS, and "all"."""
    bins_TH = np.full((len(measured), 2), -1)
    before_TH = np.zeros((len(measured), 2))
    for row, task in enumerate(measured):
        halves = task.first[::2], task.first[1::2]
        bins_TH[row] = [success_bin(fmean(half)) for half in halves]
        before_TH[row] = [fmean(half) for half in halves[::-1]]
    change_TH = np.array([[task.later] for task in measured]).reshape(-1, 1) - before_TH
    changes = []
    for number, name in enumerate((*BINS, "all")):
        inside_TH = bins_TH == number if name != "all" else np.ones_like(bins_TH, dtype=bool)
        wholes_T = inside_TH.sum(axis=1) / 2.0
        count = float(wholes_T.sum())
        changes.append(
            Change(
                name,
                count,
                float(before_TH[inside_TH].mean()) if count else None,
                bootstrap((change_TH * inside_TH).sum(axis=1) / 2.0, wholes_T, rng),
            )
        )
    return changes


def early_tasks(attempts: Iterable[Attempts], rounds: int, limit: int, seed: int) -> list[Attempts]:
    """The first attempts at up to `limit` tasks, drawn from those of the first EARLY of the rounds."""
    last = max(1, int(EARLY * rounds))
    early = [a for a in attempts if not a.replayed and a.round <= last and len(solved(a.scores)) >= 2]
    return random.Random(derive_seed(seed, "early")).sample(early, min(limit, len(early)))


def scored_again(
    store: Store, agent: Policy, domain: Playable, config: PlayConfig, early: Sequence[Attempts], now: int, seed: int
) -> list[Remeasured]:
    """Early tasks, played by the agent of round `now`. Those that could not be scored are left out."""
    played = play(agent, agent.chat, domain, [store.task(a.task_id) for a in early], config, derive_seed(seed, "again"))
    found = []
    for task, group in zip(early, played, strict=True):
        later = empirical_success([t.score.value for t in group])
        if later is not None:
            found.append(Remeasured(task.task_id, task.round, solved(task.scores), now, later))
    return found


# -- what difficulty depends on ----------------------------------------------------------------------------------


ALIKE = 1e-12
"""A variance below this is rounding."""


@dataclass(frozen=True)
class Spread:
    """What the variance of success among the fresh tasks of a round consists of: shares that add up to 1.

    `family` is what the task's family explains, which the draw of families controls; `within` is how tasks of one family
    differ, which only the simulator controls; `chance` is what the few attempts at a task add. They are estimates that can
    come out negative where a share is small. Intervals, 95 %, are over runs, or over rounds where there are fewer than
    three runs; rounds of a run are not independent, so that those are too narrow.
    """

    tasks: int
    variance: float
    family: Mean
    within: Mean
    chance: Mean


def spread(runs: Iterable[Iterable[Attempts]], rng: np.random.Generator) -> Spread | None:
    """From the fresh groups of some runs; None if no family had two tasks in a round, or if all tasks were alike.

    Tasks are compared within their round only, so that the agent is the same to all of them, and chance is
    p (1 - p) / (n - 1) for a task of n attempts. The variance within a family is that of the pairs of its tasks in all rounds;
    families count by their tasks, those that never had two in a round not at all.
    """
    rounds: dict[tuple[int, int], dict[str, list[tuple[int, ...]]]] = {}
    for run, attempts in enumerate(runs):
        for group in attempts:
            if not group.replayed and len(scores := solved(group.scores)) >= 2:
                rounds.setdefault((run, group.round), {}).setdefault(group.family, []).append(scores)
    rounds = {key: families for key, families in rounds.items() if sum(map(len, families.values())) > 1}
    names = sorted({name for families in rounds.values() for name in families})
    several = len({run for run, _ in rounds}) >= 3
    units: dict[tuple[int, ...], Floats] = {}
    for (run, number), families in rounds.items():
        everything = [scores for of in families.values() for scores in of]
        noise = sum(map(chance_variance, everything))
        parts = [(*_squares([fmean(s) for s in of]), len(of)) for of in (families.get(n, []) for n in names)]
        row = np.array([*_squares([fmean(s) for s in everything]), noise, len(everything), *np.ravel(parts)])
        unit = (run,) if several else (run, number)
        units[unit] = units.get(unit, 0.0) + row
    if not units:
        return None
    sums_UC = np.stack(list(units.values()))
    (total,) = _variances(sums_UC.sum(axis=0)[None])
    if np.isnan(total).any() or total[0] < ALIKE:
        return None
    drawn_BU = rng.multinomial(len(sums_UC), np.full(len(sums_UC), 1.0 / len(sums_UC)), size=RESAMPLES)
    drawn_B3 = _variances(drawn_BU @ sums_UC)
    drawn_B3 = drawn_B3[~np.isnan(drawn_B3).any(axis=1) & (drawn_B3[:, 0] >= ALIKE)]
    shares_3, shares_B3 = _shares(total[None])[0], _shares(drawn_B3)
    low_3, high_3 = np.quantile(shares_B3, [0.025, 0.975], axis=0)
    means = [Mean(*map(float, bounds)) for bounds in zip(shares_3, low_3, high_3, strict=True)]
    return Spread(int(sums_UC[:, 3].sum()), float(total[0]), *means)


def chance_variance(attempts: Sequence[int]) -> float:
    """Unbiased variance of the mean of n >= 2 attempts, each 1 or 0: that of one attempt, over n."""
    return theory.spread(np.array(attempts, dtype=float)) / len(attempts)


def _squares(values: Sequence[float]) -> tuple[float, int]:
    """The sum of squared distances from the mean, and its degrees of freedom."""
    return sum((v - fmean(values)) ** 2 for v in values), max(0, len(values) - 1)


def _variances(sums_BC: Floats) -> Floats:
    """[B, 3]: in all, within families, of chance; NaN where nothing tells. `sums_BC` holds squares and degrees of freedom in
    all, chance and tasks, then squares, degrees of freedom and tasks of each family."""
    squares_BF, freedom_BF, tasks_BF = (sums_BC[:, i::3] for i in (4, 5, 6))
    tasks_BF = tasks_BF * (freedom_BF > 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        family_BF = np.where(freedom_BF > 0, squares_BF / freedom_BF, 0.0)
        within_B = (tasks_BF * family_BF).sum(axis=1) / tasks_BF.sum(axis=1)
        return np.stack([sums_BC[:, 0] / sums_BC[:, 1], within_B, sums_BC[:, 2] / sums_BC[:, 3]], axis=1)


def _shares(variances_B3: Floats) -> Floats:
    """[B, 3]: family, within, chance."""
    whole_B, inside_B, chance_B = variances_B3.T
    parts_B3 = np.stack([whole_B - inside_B, inside_B - chance_B, chance_B], axis=1)
    shares_B3: Floats = parts_B3 / whole_B[:, None]
    return shares_B3


# -- recovery ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Recovery:
    """After a disturbance: the round that was outside the band first, and the one that was inside again.

    Both count from the disturbance, 1 is the round after it. `left` None: it stayed inside; `back` None: it left and did
    not return.
    """

    left: int | None
    back: int | None


def recovery(success: Sequence[float | None], disturbed: int) -> Recovery:
    """From the success of each round, round 1 first, and the round after which the disturbance came.

    A round is inside where the mean of it and up to WINDOW - 1 rounds before it, those before the disturbance left out, is
    in the band of 40 to 60 %. A round without any known value in its window is outside.
    """
    after = success[disturbed:]
    inside = []
    for end in range(1, len(after) + 1):
        known = [v for v in after[max(0, end - WINDOW) : end] if v is not None]
        inside.append(bool(known) and BAND[0] <= round(fmean(known), 9) <= BAND[1])
    left = next((i for i, yes in enumerate(inside, 1) if not yes), None)
    back = next((i for i, yes in enumerate(inside, 1) if yes and left is not None and i > left), None)
    return Recovery(left, back)


# -- lengths -----------------------------------------------------------------------------------------------------


def lengths(metrics: Sequence[Mapping[str, Json]]) -> dict[str, dict[str, float | None]]:
    """Mean tokens of the prompt and the response in the first and the last EARLY of the rounds."""
    size = max(1, int(EARLY * len(metrics)))
    found: dict[str, dict[str, float | None]] = {}
    for name, key in (("task", "prompt_length"), ("response", "response_length")):
        parts = {"first": metrics[:size], "last": metrics[len(metrics) - size :]}
        known = {part: [m[key] for m in of if m.get(key) is not None] for part, of in parts.items()}
        found[name] = {part: fmean(values) if values else None for part, values in known.items()}
    return found
