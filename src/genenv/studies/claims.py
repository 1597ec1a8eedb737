"""What the paper (arXiv 2512.19682) claims and what this project does, held against a suite: what its runs say of it.

A claim holds if the 95 % interval of its figure says so: what cannot be told from chance does not hold. Claims about the band
have no interval, the mean over the seeds decides. One whose arms are not in the suite, or have too few seeds in common, is
not measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from genenv.contracts.types import Json
from genenv.runs.summary import in_band
from genenv.studies.evidence import Floats, percentiles, resampled, rollouts_to

SEEDS = 3
"""Below, an interval over seeds says nothing."""
FEWER = 0.2
"""By how much the share of never solved tasks is to be smaller (the paper: 20.3 %)."""
SAVED = 0.7
"""The share of rollouts that the same score is to take at most."""


@dataclass(frozen=True)
class Claim:
    """`holds` is None where it was not measured."""

    text: str
    holds: bool | None = None
    figures: str = ""


def claims(arms: Mapping[str, Json], rounds: int) -> list[dict[str, Json]]:
    """All claims, from the figures of a suite's arms, as JSON."""
    found = [
        _better(arms, "paper", "random", "+12.3 % relative in the paper"),
        _fewer_never_solved(arms, "paper", "20.3 % in the paper"),
        _in_the_band(arms, "paper", rounds),
        _better(arms, "genenv", "random"),
        _fewer_never_solved(arms, "genenv"),
        _in_the_band(arms, "genenv", rounds),
        _better(arms, "genenv", "paper"),
        _fewer_rollouts(arms),
        _better(arms, "genenv", "static_x3.3"),
        _better(arms, "genenv", "teacher_x3.3"),
    ]
    return [asdict(c) for c in found]


def _rows(arm: Mapping[str, Json], by_seed: Sequence[Json], seeds: Sequence[int]) -> Floats:
    return np.array([by_seed[arm["seeds"].index(s)] for s in seeds], dtype=float)


def _common(arms: Mapping[str, Json], one: str, other: str) -> list[int]:
    """Seeds that both arms have; none if they are too few."""
    both = [s for s in arms[one]["seeds"] if s in arms[other]["seeds"]] if one in arms and other in arms else []
    return both if len(both) >= SEEDS else []


def _in_brackets(published: str) -> str:
    return f" ({published})" if published else ""


def _better(arms: Mapping[str, Json], one: str, other: str, published: str = "") -> Claim:
    text = f"{one} has a higher final held-out score than {other}" + _in_brackets(published)
    if not (seeds := _common(arms, one, other)):
        return Claim(text)
    d = arms[one]["against"][other]
    ours, theirs = (_rows(arms[n], arms[n]["final"]["by_seed"], seeds).mean() for n in (one, other))
    relative = f", {100 * (ours / theirs - 1):+.1f} % relative" if theirs else ""
    figures = (
        f"{100 * d['mean']:+.1f} points ({100 * d['low']:+.1f} to {100 * d['high']:+.1f}){relative}, p = {d['p']:.3g}"
    )
    return Claim(text, d["low"] > 0, f"{figures}, {len(seeds)} seeds")


def _fewer_never_solved(arms: Mapping[str, Json], one: str, published: str = "") -> Claim:
    text = f"{one} leaves at least {100 * FEWER:.0f} % fewer tasks never solved than random" + _in_brackets(published)
    if not (seeds := _common(arms, one, "random")):
        return Claim(text)
    ours, theirs = (_rows(arms[n], arms[n]["never_solved_by_seed"], seeds) for n in (one, "random"))
    if not (np.isfinite(ours + theirs).all() and theirs.mean()):
        return Claim(text)
    low, high = percentiles(resampled(ours - (1.0 - FEWER) * theirs))  # no ratio: a resample may have none unsolved
    figures = (
        f"{100 * ours.mean():.1f} % against {100 * theirs.mean():.1f} %: {100 * (ours.mean() / theirs.mean() - 1):+.1f} %; "
        f"minus {1 - FEWER:.1f} times random's: {100 * low:+.1f} to {100 * high:+.1f} points"
    )
    return Claim(text, high <= 0, f"{figures}, {len(seeds)} seeds")


def _in_the_band(arms: Mapping[str, Json], name: str, rounds: int) -> Claim:
    text = f"with {name}, success on fresh tasks is inside 40-60 % in each round after the first fifth"
    if name not in arms or len(arms[name]["seeds"]) < SEEDS:
        return Claim(text)
    means = [None if m is None else round(m, 12) for m in arms[name]["curves"]["success"]["mean"][rounds // 5 :]]
    inside = sum(in_band(m) for m in means)
    return Claim(
        text, inside == len(means), f"mean over {len(arms[name]['seeds'])} seeds: in {inside} of {len(means)} rounds"
    )


def _fewer_rollouts(arms: Mapping[str, Json]) -> Claim:
    text = f"genenv has the final score of paper after at most {100 * SAVED:.0f} % of its rollouts"
    if not (seeds := _common(arms, "genenv", "paper")):
        return Claim(text)
    ours, theirs = (arms[n]["heldout"] for n in ("genenv", "paper"))
    ours_SR = _rows(arms["genenv"], ours["by_seed"], seeds)
    theirs_S = _rows(arms["paper"], theirs["by_seed"], seeds)[:, -1:]

    def share(curve_R: Floats, score: float) -> float:
        reached = rollouts_to(score, ours["rollouts"], curve_R.tolist())
        return np.inf if reached is None else reached / theirs["rollouts"][-1]

    both_BR = resampled(np.concatenate([ours_SR, theirs_S], axis=1))
    shares = [share(row[:-1], row[-1]) for row in both_BR]
    low, high = np.quantile(shares, [0.025, 0.975], method="nearest")
    mean = share(ours_SR.mean(axis=0), float(theirs_S.mean()))
    shown = [f"{100 * x:.0f} %" if np.isfinite(x) else "never" for x in (mean, low, high)]
    return Claim(text, bool(high <= SAVED), f"{shown[0]} ({shown[1]} to {shown[2]}), {len(seeds)} seeds")
