"""How much of the difficulty within a family a linear model foresees from specifications: at least so much could be learned.

    python bench/difficulty.py RUN RUN ... [--ridge 20] [--common 20]

Runs of one domain, of at least two seeds, without two that are alike and without sets of tasks that other seeds have too. A
fresh task's success, minus the mean of its family in its run's two rounds, is predicted by ridge regression from its
specification: how often each leaf of the JSON occurs (leaves that at least `--common` tasks have), how many leaves are at each place
and how long their texts are. Runs of one seed, which share tasks, are predicted from those of the others. Printed is the share
of the variance that this explains, of all and of what is left without the binomial noise of the few attempts. Orders, rare
leaves and combinations are not seen.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

import numpy as np

from genenv.contracts.types import Json
from genenv.runs.store import Store
from genenv.studies.analysis import chance_variance, solved

WINDOW = 2
"""Rounds in which the agent counts as the same."""


def leaves(value: Json, place: str = "") -> Iterator[tuple[str, Json]]:
    """The values of a specification with their places, positions in lists left out."""
    if isinstance(value, dict):
        for key, below in value.items():
            yield from leaves(below, f"{place}.{key}")
    elif isinstance(value, list | tuple):
        for below in value:
            yield from leaves(below, f"{place}[]")
    else:
        yield place, value


def features(spec: Json) -> Counter[str]:
    found: Counter[str] = Counter()
    for place, value in leaves(spec):
        found[f"{place}={value}"] += 1
        found[f"number of {place}"] += 1
        found[f"length of {place}"] += len(str(value)) / 10
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--ridge", type=float, default=20.0)
    parser.add_argument("--common", type=int, default=20)
    options = parser.parse_args()
    specs, success, noise, seeds, cells = [], [], [], [], []
    for run in options.runs:
        store = Store.read(run)
        written = {task.id: task.spec for task in store.tried()}
        for group in store.all_attempts():
            scored = solved(group.scores)
            if group.replayed or len(scored) < 2:
                continue
            specs.append(features(written[group.task_id]))
            success.append(fmean(scored))
            noise.append(chance_variance(scored))
            seeds.append(store.config.seed)
            cells.append((str(run), group.family, (group.round - 1) // WINDOW))
        store.close()
    if len(set(seeds)) < 2:
        parser.error("expected runs of at least two seeds: each is predicted from the others")
    common = Counter(key for spec in specs for key in spec)
    columns = sorted(key for key, count in common.items() if count >= options.common)
    x_TF = np.array([[spec[key] for key in columns] for spec in specs], dtype=float)
    y_T = np.array(success)
    number = {cell: i for i, cell in enumerate(dict.fromkeys(cells))}
    cell_T = np.array([number[cell] for cell in cells])
    size_C = np.bincount(cell_T)
    for column in (y_T, *x_TF.T):  # views, centred in place
        column -= (np.bincount(cell_T, column) / size_C)[cell_T]
    told_T = np.zeros_like(y_T)
    seed_T = np.array(seeds)
    for seed in np.unique(seed_T):
        others = seed_T != seed
        x = x_TF[others]
        weights_F = np.linalg.solve(x.T @ x + options.ridge * np.eye(len(columns)), x.T @ y_T[others])
        told_T[~others] = x_TF[~others] @ weights_F
    freedom = len(y_T) - len(number)
    variance = float(y_T @ y_T) / freedom
    chance = float(np.array(noise) @ (1.0 - 1.0 / size_C[cell_T])) / freedom
    explained = 1.0 - float(((y_T - told_T) ** 2).sum() / (y_T @ y_T))
    print(f"{len(y_T)} groups of {len(options.runs)} runs and {len(set(seeds))} seeds, {len(columns)} features")
    print(f"variance within families {variance:.4f}, of it chance {chance / variance:.2f}")
    print(
        f"explained by the specification: {explained:.3f} of all, {explained / (1.0 - chance / variance):.3f} without chance"
    )


if __name__ == "__main__":
    main()
