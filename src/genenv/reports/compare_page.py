"""The comparison as one HTML page and as a table in Markdown; both are drawn from `studies.comparison` and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from genenv.contracts.types import Json
from genenv.reports.charts import COLOURS, UNKNOWN, Bar, Chart, Series, bars, duration, escape, number, percent, table
from genenv.reports.page import html_page
from genenv.runs.summary import BAND

Arm = Mapping[str, Json]


@dataclass(frozen=True)
class Column:
    """One column of the table: what an arm's cell says."""

    head: str
    cell: Callable[[Arm], str]


def points(value: float | None) -> str:
    """A difference of shares in percentage points, with its sign."""
    return UNKNOWN if value is None else f"{100 * value:+.1f}"


def _score(value: float) -> str:
    return f"{100 * value:.1f}"


def _interval(f: Mapping[str, Json]) -> str:
    return f"{_score(f['mean'])} ({_score(f['low'])} to {_score(f['high'])})"


def _difference(d: Mapping[str, Json] | None) -> str:
    return UNKNOWN if d is None else f"{points(d['mean'])} ({points(d['low'])} to {points(d['high'])})"


def _rounds_in_band(arm: Arm) -> str:
    first, seeds = arm["first_in_band"], len(arm["seeds"])
    never = "" if arm["ever_in_band"] == seeds else f", {arm['ever_in_band']} of {seeds} seeds"
    return UNKNOWN if first is None else f"{number(first)}{never}"


def columns(c: Mapping[str, Json]) -> list[Column]:
    """The table: one row an arm."""
    return [
        Column("seeds", lambda a: str(len(a["seeds"]))),
        Column("final score, %", lambda a: _interval(a["final"])),
        Column(f"minus {c['reference']}, points", lambda a: _difference(a["difference"])),
        Column("p", lambda a: UNKNOWN if a["difference"] is None else f"{a['difference']['p']:.3g}"),
        Column("score over the run, %", lambda a: _interval(a["average"])),
        Column(f"minus {c['reference']}, points", lambda a: _difference(a["average_difference"])),
        Column(f"rollouts to {c['target']['arm']}'s score", lambda a: number(a["rollouts_to_target"])),
        Column("rollouts", lambda a: number(a["rollouts"])),
        Column("updates", lambda a: number(a["updates"])),
        Column("rounds in 40–60 %", lambda a: percent(a["in_band_share"])),
        Column("first round in it", _rounds_in_band),
        Column("groups with variance", lambda a: percent(a["useful"])),
        Column("always solved", lambda a: percent(a["always_solved"])),
        Column("never solved", lambda a: percent(a["never_solved"])),
        Column("tasks", lambda a: number(a["tasks"])),
        Column("kinds of task", lambda a: number(a["clusters"])),
        Column("tokens, agent", lambda a: number(a["tokens"]["agent"])),
        Column("tokens, simulator", lambda a: number(a["tokens"]["simulator"])),
        Column("time, agent", lambda a: duration(a["seconds"]["agent"])),
        Column("time, simulator", lambda a: duration(a["seconds"]["simulator"])),
        Column("time in all", lambda a: duration(a["seconds"]["all"])),
    ]


def notes(c: Mapping[str, Json]) -> list[str]:
    """What a reader must know before trusting the figures; faults first."""
    told = [f"Not finished, and not counted: {', '.join(c['missing'])}."] if c["missing"] else []
    if c["unequal"]:
        told.append(f"Not equal, so compare with care: {'; '.join(c['unequal'])}.")
    seeds = len(c["seeds"])
    told += [
        f"Score: mean over {c['heldout_tasks']} held-out tasks, {c['attempts']} attempts each, after round {c['rounds']}; an "
        "attempt that could not be scored counts as 0.",
        "In brackets: 95 % percentile bootstrap, seeds and tasks resampled independently; for differences, the paired "
        "differences of the same seed and task. With few seeds such intervals are somewhat too narrow.",
        "Score over the run: the area under the curve of held-out scores over its rounds, which tells an arm that learns "
        "sooner from one that only arrives at the same score.",
        f"p: exact two-sided sign-flip test of the mean difference over seeds, not corrected for the number of arms; with "
        f"{seeds} seeds it is never below {2 / 2**seeds:.3g}.",
        "Rollouts to a score: of the mean curve, by straight line between evaluations. In the band: mean of 5 rounds of "
        "success on fresh tasks; the first round is the median of the seeds that reach it.",
        "Tasks and their kinds: different ones that the agent has played; requests that are nearly the same are one kind. "
        "Tokens are those written, totals are means of a run; evaluation is in the time of all only.",
    ]
    return told


def markdown(c: Mapping[str, Json]) -> str:
    """The table, an arm a row, and the notes below."""
    shown = columns(c)
    told = claimed(c)
    lines = [
        f"| arm | {' | '.join(x.head for x in shown)} |",
        "|---" * (len(shown) + 1) + "|",
        *(f"| `{name}` | {' | '.join(x.cell(arm) for x in shown)} |" for name, arm in c["arms"].items()),
        "",
        *(f"- {note}" for note in notes(c)),
        *(["", "| claim | holds | measured |", "|---|---|---|"] if told else []),
        *(f"| {' | '.join(row)} |" for row in told),
    ]
    return "\n".join(lines).replace("\u202f", " ") + "\n"


def claimed(c: Mapping[str, Json]) -> list[tuple[str, str, str]]:
    """(claim, whether it holds, figures) of those that were measured."""
    return [(x["text"], "yes" if x["holds"] else "no", x["figures"]) for x in c["claims"] if x["holds"] is not None]


# -- the page ----------------------------------------------------------------------------------------------------


def page(name: str, c: Mapping[str, Json]) -> str:
    """One self-contained HTML page."""
    facts = (
        f"{len(c['arms'])} arms · seeds {', '.join(map(str, c['seeds']))} · {c['rounds']} rounds · domain {c['domain']} · model "
        f"{c['model']}"
    )
    head = f"<header><h1>Comparison {escape(name)}</h1><p>{escape(facts)}</p>"
    body = [head + f'<p class="verdict">{escape(verdict(c))}</p></header>']
    if c["arms"]:
        body += [_scores(c), _curves(c), _each(c)]
    body += [
        _claims(c),
        _table(c),
        "<h2>How it was measured</h2><ul>",
        *(f"<li>{escape(n)}</li>" for n in notes(c)),
        "</ul>",
    ]
    return html_page(f"GenEnv comparison {name}", body)


def verdict(c: Mapping[str, Json]) -> str:
    """Which arms the intervals tell from the first one."""
    if c["reference"] not in c["arms"]:
        return f"{c['reference']}, which the others are held against, has no finished run yet."
    differences = {name: arm["difference"] for name, arm in c["arms"].items() if arm["difference"] is not None}
    above = [name for name, d in differences.items() if d["high"] < 0]
    below = [name for name, d in differences.items() if d["low"] > 0]
    same = [name for name in differences if name not in above + below]
    parts = [("scores higher than", above), ("scores lower than", below), ("cannot be told from", same)]
    told = "; ".join(f"{what} {', '.join(names)}" for what, names in parts if names)
    return (
        f"{c['reference']} {told} (95 % intervals of the paired differences)."
        if told
        else "One arm: nothing to compare."
    )


def _scores(c: Mapping[str, Json]) -> str:
    finals = [
        Bar(
            name,
            arm["final"]["mean"],
            arm["final"]["low"],
            arm["final"]["high"],
            _score(arm["final"]["mean"]) + " %",
            i % COLOURS,
        )
        for i, (name, arm) in enumerate(c["arms"].items())
    ]
    parts = [bars("Final held-out score (Fig. 6)", "With 95 % intervals over seeds and tasks.", finals)]
    differences = [
        Bar(name, d["mean"], d["low"], d["high"], f"{points(d['mean'])}, p = {d['p']:.2g}", i % COLOURS)
        for i, (name, arm) in enumerate(c["arms"].items())
        if (d := arm["difference"]) is not None
    ]
    if differences:
        title = f"Final score minus that of {c['reference']}"
        parts.append(
            bars(title, "Percentage points, paired by seed and task, with 95 % intervals.", differences, points)
        )
    return f'<h2>Scores</h2><div class="grid">{"".join(parts)}</div>'


def _chart(title: str, note: str, rounds: Sequence[int], arms: Mapping[str, Json], **options: Json) -> Chart:
    """All arms in one chart: colours first, then the same ones dotted."""
    series = [
        Series(name, values, i % COLOURS, "dash" if i >= COLOURS else "")
        for i, (name, values) in enumerate(arms.items())
    ]
    return Chart(title, note, rounds, series, height=260, **options)


def _curves(c: Mapping[str, Json]) -> str:
    arms, rounds = c["arms"], list(range(1, c["rounds"] + 1))
    held = next(iter(arms.values()))["heldout"]["round"]

    def over_rounds(title: str, note: str, curve: str, **options: Json) -> Chart:
        return _chart(title, note, rounds, {n: a["curves"][curve]["mean"] for n, a in arms.items()}, **options)

    heldout = {n: a["heldout"]["mean"] for n, a in arms.items()}
    charts = [
        _chart("Held-out score (Fig. 1b, 4)", "Mean over seeds; all arms play the same number of rollouts a round.", held,
               heldout, top=None),
        over_rounds("Training reward (Fig. 4)", "Mean success on the round's fresh tasks.", "success"),
        over_rounds("Success on fresh tasks (Fig. 7)", "Mean of 5 rounds; the shaded band is 40–60 %.", "success_mean", band=BAND),
        over_rounds("Groups with variance", "Share of groups that give the agent a gradient.", "useful"),
        over_rounds("Always solved (Fig. 8)", "Share of the round's fresh tasks.", "always_solved", top=None),
        over_rounds("Never solved (Fig. 8)", "Share of the round's fresh tasks.", "never_solved", top=None),
        over_rounds("Task length (Fig. 5)", "Mean tokens of the prompt.", "task_length", format=number, top=None),
        over_rounds("Response length (Fig. 5)", "Mean tokens that the agent writes per attempt.", "response_length",
                    format=number, top=None),
    ]  # fmt: skip
    return (
        "<h2>All arms</h2><p>Means over seeds. Figure numbers are those of the paper (arXiv 2512.19682) that a chart is the "
        f'counterpart of.</p><div class="grid">{"".join(x.html() for x in charts)}</div>'
    )


def _each(c: Mapping[str, Json]) -> str:
    """Each arm's held-out curve and success beside those of the first, with their intervals over seeds."""
    arms, rounds, parts = c["arms"], list(range(1, c["rounds"] + 1)), []
    reference = c["reference"] if c["reference"] in arms else None

    def pair(title: str, x: Sequence[int], name: str, get: Callable[[Arm], Json], **options: Json) -> str:
        names = [name] + ([reference] if reference not in (None, name) else [])
        shown = [(n, get(arms[n])) for n in names]
        series = [Series(n, v["mean"], i, "dash" if i else "", v["low"], v["high"]) for i, (n, v) in enumerate(shown)]
        return Chart(title, "Mean and 95 % interval over seeds.", x, series, **options).html()

    for name, arm in arms.items():
        held = pair(f"{name}: held-out score", arm["heldout"]["round"], name, lambda a: a["heldout"], top=None)
        success = pair(
            f"{name}: success on fresh tasks", rounds, name, lambda a: a["curves"]["success_mean"], band=BAND
        )
        parts.append(held + success)
    return f'<h2>Each arm</h2><div class="grid">{"".join(parts)}</div>'


def _claims(c: Mapping[str, Json]) -> str:
    if not (told := claimed(c)):
        return ""
    return (
        "<h2>Claims</h2><p>A claim holds if the 95 % interval of its figure says so (seeds resampled; for scores also tasks; for "
        'the band, the mean alone); "no" includes what cannot be told from chance.</p>'
        f"{table('Table of claims', ('claim', 'holds', 'measured'), told)}"
    )


def _table(c: Mapping[str, Json]) -> str:
    shown = columns(c)
    rows = [[name, *(x.cell(arm) for x in shown)] for name, arm in c["arms"].items()]
    return f"<h2>Table</h2>{table('Table of arms', ['arm', *(x.head for x in shown)], rows)}"
