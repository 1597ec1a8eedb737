"""Which figures a run's report has: charts drawn from its summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from genenv.contracts.types import Json
from genenv.reports.charts import COLOURS, Chart, Series, duration, number, percent
from genenv.runs.summary import BAND, WINDOW, Curve, share


def figures(s: Mapping[str, Json]) -> str:
    """All curves, as HTML, from a run's summary."""
    rounds = list(range(1, s["rounds"] + 1))

    def curve(key: str) -> Curve:
        values: Curve = s[f"{key}_by_round"]
        return values

    def shares(part: str, whole: str) -> Curve:
        return [share(a, b) for a, b in zip(curve(part), curve(whole), strict=True)]

    def lines(title: str, note: str, *series: Series, **options: Json) -> Chart:
        return Chart(title, note, rounds, series, **options)

    def small(title: str, note: str, series: Series) -> Chart:
        return Chart(title, note, rounds, [series], format=number, top=None, height=130)

    held = s["heldout_by_round"]
    parts = {
        "Learning": [
            lines("Success on fresh tasks", "Mean p̂ of the round's admitted tasks; the shaded band is 40–60 %.",
                  Series(f"{WINDOW}-round mean", curve("success_mean")), Series("each round", curve("success"), 0, "thin"),
                  band=BAND),
            Chart("Held-out score", "Mean score on tasks that neither player learns from; round 0 is before training.",
                  [h["round"] for h in held], [Series("held-out", [h["score"] for h in held], 2)], top=None),
            lines("Simulator reward", "Mean R_env of the round's admitted tasks (Eq. 3); at most 1.",
                  Series("reward", curve("simulator_reward"), 4), format=number),
            lines("Groups with variance", "Share of groups, replayed ones included, that give the agent a gradient.",
                  Series("useful groups", curve("useful_group_share"), 6)),
            lines("Always and never solved", "Share of the tried tasks; both leave nothing to learn from.",
                  Series("never solved", shares("solved_none", "tried"), 1),
                  Series("always solved", shares("solved_all", "tried"), 2, "dash")),
            lines("Tasks in the band", "Share of the tried tasks whose own p̂ lies between 40 and 60 %.",
                  Series("in the band", shares("tasks_in_band", "tried"), 0)),
        ],
        "Curriculum and admission": [
            *_families(s, rounds),
            _admission(s, rounds),
        ],
        "Lengths": [
            lines("Task length", "Mean tokens of the prompt that the agent gets.",
                  Series("prompt", curve("prompt_length"), 0), format=number, top=None),
            lines("Response length", "Mean tokens that the agent writes per attempt.",
                  Series("response", curve("response_length"), 2), format=number, top=None),
            lines("Attempts without a clean end", "Share of rollouts; cut off by the token limit, or impossible to score.",
                  Series("cut off", shares("cut_off", "rollouts"), 1),
                  Series("unscored", shares("unscored", "rollouts"), 7, "dash"), top=None),
        ],
        "Updates and cost": [
            small("Agent KL", "To the base model, per token.", Series("agent", curve("agent_kl"), 0)),
            small("Agent gradient norm", "Mean of the round's steps.", Series("agent", curve("agent_grad_norm"), 0)),
            _stages(s, rounds),
            small("Simulator KL", "To the base model, per token.", Series("simulator", curve("simulator_kl"), 4)),
            small("Simulator gradient norm", "Rounds without an update are gaps.",
                  Series("simulator", curve("simulator_grad_norm"), 4)),
        ],
    }  # fmt: skip
    sections = (
        f'<h3>{title}</h3><div class="grid">{"".join(c.html() for c in charts)}</div>'
        for title, charts in parts.items()
    )
    return (
        '<h2 id="curves">Curves</h2><p>Over rounds. Keys give the newest value, keys of stacks the share or sum of the whole'
        f" run. Point at a round for its values.</p>{''.join(sections)}"
    )


def _layers(per_round: Sequence[Mapping[str, float]], names: Sequence[str]) -> list[Series]:
    """One layer per name; names beyond the palette share its last colour."""
    kept = names if len(names) <= COLOURS else names[: COLOURS - 1]
    layers = [Series(n, [r.get(n, 0.0) for r in per_round], i) for i, n in enumerate(kept)]
    if rest := names[len(kept) :]:
        layers.append(Series(f"{len(rest)} others", [sum(r.get(n, 0.0) for n in rest) for r in per_round], COLOURS - 1))
    return layers


def _ranked(per_round: Sequence[Mapping[str, float]]) -> list[str]:
    """All names, those with the largest sum first."""
    whole: dict[str, float] = {}
    for record in per_round:
        for name, value in record.items():
            whole[name] = whole.get(name, 0.0) + value
    return sorted(whole, key=lambda n: (-whole[n], n))


def _parts(layers: Sequence[Series]) -> list[str]:
    """Each layer's share of the whole run."""
    sums = [sum(v or 0.0 for v in layer.values) for layer in layers]
    return [percent(share(part, sum(sums))) for part in sums]


def _families(s: Mapping[str, Json], rounds: Sequence[int]) -> list[Chart]:
    records = s["families_by_round"]
    tasks = [{name: family["tasks"] for name, family in record.items()} for record in records]
    ranked = _ranked(tasks)
    # families that fit the palette stand in their natural order, 1-call before 2-call
    counts = _layers(tasks, sorted(ranked) if len(ranked) <= COLOURS else ranked)
    layers = [
        Series(c.name, [share(v, n) for v, n in zip(c.values, s["tried_by_round"], strict=True)], c.colour)
        for c in counts
    ]
    success = [
        Series(c.name, [record.get(c.name, {}).get("success") for record in records], c.colour)
        for c in counts if c.name in ranked
    ]  # fmt: skip
    return [
        Chart("Families of the tried tasks", "Share of the round's fresh tasks; one colour alone is a collapse.", rounds,
              layers, "stack", totals=_parts(counts)),
        Chart("Success by family", "Mean p̂ of the family's fresh tasks.", rounds, success, band=BAND),
    ]  # fmt: skip


def _admission(s: Mapping[str, Json], rounds: Sequence[int]) -> Chart:
    verdicts = [
        {"admitted": admitted, **rejected}
        for admitted, rejected in zip(s["admitted_by_round"], s["rejected_by_round"], strict=True)
    ]
    counts = _layers(verdicts, ["admitted", *s["rejected_by_reason"]])
    shares = [
        Series(c.name, [share(v, n) for v, n in zip(c.values, s["candidates_by_round"], strict=True)], c.colour)
        for c in counts
    ]
    note = "Share of the round's candidates: the admitted ones below, the reasons of the others above."
    return Chart("Verdicts of the gate", note, rounds, shares, "stack", totals=_parts(counts))


def _stages(s: Mapping[str, Json], rounds: Sequence[int]) -> Chart:
    seconds = s["seconds_by_round"]
    layers = _layers(seconds, _ranked(seconds))
    totals = [duration(sum(v or 0.0 for v in layer.values)) for layer in layers]
    return Chart(
        "Time per stage", "Seconds of each round.", rounds, layers, "stack", number, None, height=300, totals=totals
    )
