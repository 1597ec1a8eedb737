"""The page of `genenv theory`: charts and tables drawn from its JSON document."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from genenv.contracts.types import Json
from genenv.reports.charts import Chart, Series, escape, number, percent, table
from genenv.reports.page import write_page
from genenv.studies.misranking import ESTIMATORS, ROLLOUTS, SURE
from genenv.studies.theory import SHAPES

NAMES = {"rollout": "Signal of one rollout, E|g|²", "expected": "Expected gradient, |E g|²"}
NOTES = {
    "rollout": "What Proposition 1 bounds: squared gradient norm of one attempt, baseline p.",
    "expected": "Squared norm of the gradient that is left when the noise of sampling is gone.",
}
DRAWN = ("p(1-p)", "(p(1-p))^2")
"""The fits that are drawn; the table has all."""


def write_theory(document: Mapping[str, Json], path: Path) -> Path:
    """One self-contained HTML file. Raises InputError if it cannot be written."""
    facts = (
        f"{document['subject']} · {document['tasks']} tasks, {document['rollouts']} attempts each, and as many to sort them"
        f" · seed {document['seed']} · alpha {document['alpha']:g}"
    )
    head = f"<header><h1>The theory, measured</h1><p>{escape(facts)}</p></header>"
    return write_page(path, "GenEnv: the theory, measured", [head, *_proposition(document), *_theorem(document)])


def ranged(found: Mapping[str, float] | None) -> str:
    """A value with its interval."""
    return (
        number(None) if found is None else f"{number(found['value'])} [{number(found['low'])}, {number(found['high'])}]"
    )


def bin_rows(document: Mapping[str, Json]) -> list[list[str]]:
    """A row per bin: success, tasks, both quantities and the bin's constant."""
    return [
        [
            f"{100 * b['from']:.0f}–{100 * b['to']:.0f} %",
            str(b["tasks"]),
            percent(b["success"]),
            *(ranged(b[key]) for key in ("rollout", "constant", "expected")),
        ]
        for b in document["proposition"]["bins"]
    ]


def fit_rows(document: Mapping[str, Json]) -> list[list[str]]:
    """A row per shape: c with its interval and R^2, for both quantities."""
    both = document["proposition"]["fits"]
    rows = []
    for mine, other in zip(both["rollout"], both["expected"], strict=True):
        row = [mine["shape"]]
        for found in (mine, other):
            row += [ranged({**found, "value": found["c"]}), "–" if found["r2"] is None else f"{found['r2']:.2f}"]
        rows.append(row)
    return rows


BIN_HEADING = ("sorted at", "tasks", "success", "E|g|²", "E|g|² / p(1-p)", "|E g|²")
FIT_HEADING = ("shape", "c for E|g|²", "R²", "c for |E g|²", "R²")


def _proposition(document: Mapping[str, Json]) -> list[str]:
    bins = document["proposition"]["bins"]
    title = (
        "<h2>Proposition 1: success and signal</h2><p>g = (r - p) grad log π of one attempt, r the reward, p the task's"
        " success. Tasks are sorted by attempts that the signal is not measured on. Intervals: 95 %, tasks drawn again.</p>"
    )
    if not bins:
        return [title, '<p class="empty">No task could be scored</p>']
    order = sorted(bins, key=lambda b: b["success"])
    places = [round(100 * b["success"]) for b in order]
    p = np.array([b["success"] for b in order])
    charts = []
    for key, name in NAMES.items():
        c = {f["shape"]: f["c"] for f in document["proposition"]["fits"][key]}
        series = [
            Series("measured", [b[key]["value"] for b in order]),
            *(Series(f"c {shape}", list(map(float, c[shape] * SHAPES[shape](p))), i, "dash") for i, shape in enumerate(DRAWN, 1)),
            Series("interval, low", [b[key]["low"] for b in order], 0, "thin"),
            Series("interval, high", [b[key]["high"] for b in order], 0, "thin"),
        ]  # fmt: skip
        charts.append(Chart(name, NOTES[key], places, series, format=number, top=None, axis="success, %"))
    grid = f'<div class="grid">{"".join(c.html() for c in charts)}</div>'
    return [title, grid, "<h3>Bins</h3>", table("Bins", BIN_HEADING, bin_rows(document)),
            "<h3>Fits over the bins</h3>", table("Fits over the bins", FIT_HEADING, fit_rows(document))]  # fmt: skip


# -- Theorem 1 ---------------------------------------------------------------------------------------------------

COLUMNS = (4, 8, 16, 32, 64)
"""The numbers of rollouts that the table shows."""
RATE_HEADING = ("D1, D2", "success", "estimator", *(f"n = {n}" for n in COLUMNS), f"n for {100 * SURE:.0f} %")


def rate_rows(document: Mapping[str, Json]) -> list[list[str]]:
    """Mis-ranking rates of each pair of families, a row per estimator and one for the bound; equal rows are one."""
    rows = []
    for record in document["theorem"]:
        pair = [", ".join(f"{v:g}" for v in record[key]) for key in ("distances", "success")]
        told: dict[tuple[str, ...], list[str]] = {}
        for e in ESTIMATORS:
            needed = record["needed"][e]
            values = [
                *(_rate(record["rates"][e][n - 1]) for n in COLUMNS),
                f"> {ROLLOUTS}" if needed is None else str(needed),
            ]
            told.setdefault(tuple(values), []).append(e)
        rows += [
            [*pair, "all three" if len(names) == len(ESTIMATORS) else ", ".join(names), *values]
            for values, names in told.items()
        ]
        rows.append([*pair, "bound", *(_rate(record["bound"][n - 1]) for n in COLUMNS), str(record["needed_by_bound"])])
    return rows


def _rate(value: float | None) -> str:
    return "–" if value is None else ">\u202f1" if value > 1 else f"{value:.3f}"


def _theorem(document: Mapping[str, Json]) -> list[str]:
    colours = dict(zip(ESTIMATORS, (0, 1, 2), strict=True))
    charts = []
    for record in document["theorem"]:
        (d1, d2), (near, far) = record["distances"], record["success"]
        counts = range(1, len(record["bound"]) + 1)
        bound = [min(1.0, b) for b in record["bound"]]
        series = [Series(e, record["rates"][e], colours[e], "" if e == "plain" else "dash") for e in ESTIMATORS]
        charts.append(
            Chart(f"Distances {d1:g} and {d2:g}", f"Success {percent(near)} against {percent(far)}.", list(counts),
                  [*series, Series("bound, at most 1", bound, 7, "thin")], axis="rollouts of each family")
        )  # fmt: skip
    holds = all(record["bound_holds"] for record in document["theorem"])
    title = (
        "<h2>Theorem 1: families in the wrong order</h2><p>Exact chances that the family nearer to alpha gets the larger"
        " estimate of the squared distance; of ties a coin decides. With ties counted as wrong the bound"
        f" {'holds' if holds else 'does not hold'} everywhere.</p>"
    )
    unequal = [
        [
            ", ".join(f"{d:g}" for d in record["distances"]),
            ", ".join(f"{p:g}" for p in record["success"]),
            f"{row['near_rollouts']}, {row['far_rollouts']}",
            *(_rate(row[e]) for e in ESTIMATORS),
        ]
        for record in document["theorem"]
        for row in record["unequal"]
    ]
    return [title, f'<div class="grid">{"".join(c.html() for c in charts)}</div>',
            "<h3>Mis-ranking rates</h3>", table("Mis-ranking rates", RATE_HEADING, rate_rows(document)),
            "<h3>Unequal numbers of rollouts</h3>",
            table("Unequal rollouts", ("D1, D2", "success", "rollouts, near and far", *ESTIMATORS), unequal)]  # fmt: skip
