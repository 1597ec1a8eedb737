"""What the paper (arXiv 2512.19682) claims and what this project does, held against a suite: what its runs say of it.

A claim holds if the interval of its figure does. One that cannot be told from chance does not hold; one whose arms are not
in the suite is not measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from genenv.evidence import Floats, percentiles, resampled, rollouts_to
from genenv.report import in_band
from genenv.types import Json

FEWER = 0.2
"""By how much the share of never solved tasks is to be smaller (the paper: 20.3 %)."""
SAVED = 0.7
"""The share of rollouts that the same score is to take at most."""


@dataclass(frozen=True)
class Claim:
    """`holds` is None where it was not measured."""

    text: str
    holds: bool | None
    figures: str


def claims(arms: Mapping[str, Json], rounds: int) -> list[dict[str, Json]]:
    """All claims, from the figures of a suite's arms, as JSON."""
    found = [
        _better(arms, "paper", "random", "+12.3 % relative in the paper"),
        _fewer_never_solved(arms),
        _in_the_band(arms, "paper", rounds),
        _in_the_band(arms, "genenv", rounds),
        _better(arms, "genenv", "paper"),
        _fewer_rollouts(arms),
        _better(arms, "genenv", "static_x3.3"),
        _better(arms, "genenv", "teacher_x3.3"),
    ]
    return [asdict(c) for c in found]


def _both(arms: Mapping[str, Json], one: str, other: str) -> list[int]:
    """Seeds that both arms have."""
    return [s for s in arms[one]["seeds"] if s in arms[other]["seeds"]] if one in arms and other in arms else []


def _rows(arm: Mapping[str, Json], values: Sequence[Json], seeds: Sequence[int]) -> Floats:
    return np.array([values[arm["seeds"].index(s)] for s in seeds], dtype=float)


def _better(arms: Mapping[str, Json], one: str, other: str, published: str = "") -> Claim:
    text = f"{one} has a higher final held-out score than {other}" + (f" ({published})" if published else "")
    if not _both(arms, one, other):
        return Claim(text, None, "")
    d = arms[one]["against"][other]
    ours, theirs = arms[one]["final"]["mean"], arms[other]["final"]["mean"]
    relative = f", {100 * (ours / theirs - 1):+.1f} % relative" if theirs else ""
    figures = (
        f"{100 * d['mean']:+.1f} points ({100 * d['low']:+.1f} to {100 * d['high']:+.1f}){relative}, p = {d['p']:.3g}"
    )
    return Claim(text, d["low"] > 0, figures)


def _fewer_never_solved(arms: Mapping[str, Json]) -> Claim:
    text = f"paper leaves at least {FEWER:.0%} fewer tasks never solved than random (20.3 % in the paper)"
    if not (seeds := _both(arms, "paper", "random")):
        return Claim(text, None, "")
    ours, theirs = (_rows(arms[n], arms[n]["never_solved_by_seed"], seeds) for n in ("paper", "random"))
    with np.errstate(invalid="ignore", divide="ignore"):
        low, high = percentiles(resampled(ours) / resampled(theirs) - 1.0)
        change = float(ours.mean() / theirs.mean() - 1.0)
    figures = f"{100 * ours.mean():.1f} % against {100 * theirs.mean():.1f} %: {100 * change:+.1f} % ({100 * low:+.1f} to {100 * high:+.1f})"
    return Claim(text, high <= -FEWER, figures)


def _in_the_band(arms: Mapping[str, Json], name: str, rounds: int) -> Claim:
    text = f"with {name}, success on fresh tasks is inside 40-60 % from the end of the first fifth of the rounds on"
    if name not in arms:
        return Claim(text, None, "")
    start = max(1, round(rounds / 5))
    means = arms[name]["curves"]["success"]["mean"][start - 1 :]
    inside = sum(in_band(m) for m in means)
    return Claim(
        text, inside == len(means), f"mean over seeds in {inside} of {len(means)} rounds from round {start} on"
    )


def _fewer_rollouts(arms: Mapping[str, Json]) -> Claim:
    text = f"genenv has the final score of paper after at most {SAVED:.0%} of the rollouts"
    if not (seeds := _both(arms, "genenv", "paper")):
        return Claim(text, None, "")
    rollouts = arms["genenv"]["heldout"]["rollouts"]
    ours_SR, theirs_SR = (_rows(arms[n], arms[n]["heldout"]["by_seed"], seeds) for n in ("genenv", "paper"))

    def ratio(ours_R: Floats, theirs_R: Floats) -> float:
        score = float(theirs_R[-1])
        reached, needed = (rollouts_to(score, rollouts, curve.tolist()) for curve in (ours_R, theirs_R))
        return np.inf if reached is None or not needed else reached / needed

    both_BR = np.split(resampled(np.concatenate([ours_SR, theirs_SR], axis=1)), 2, axis=1)
    low, high = np.quantile([ratio(a, b) for a, b in zip(*both_BR, strict=True)], [0.025, 0.975], method="nearest")
    mean = ratio(ours_SR.mean(axis=0), theirs_SR.mean(axis=0))
    shown = [f"{100 * x:.0f} %" if np.isfinite(x) else "never" for x in (mean, low, high)]
    return Claim(text, bool(high <= SAVED), f"{shown[0]} ({shown[1]} to {shown[2]}) of what paper itself needs")
