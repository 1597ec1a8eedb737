"""What a run has come to: `summary` as numbers for programs, `write_report` as one HTML file for people.

Both read the store and nothing else, and every figure is drawn from the summary, so the two cannot disagree.
"""

from __future__ import annotations

import importlib.resources
import json
import os
import string
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from genenv._charts import UNKNOWN, Curve, duration, escape, number, percent
from genenv._figures import BAND, WINDOW, figures, share
from genenv.config import Config
from genenv.errors import InputError
from genenv.gate import REASONS
from genenv.rewards import SOLVED
from genenv.store import Store, TaskRow
from genenv.types import Json

PER_ROUND = (
    "success", "success_replayed", "solved_all", "solved_none", "tasks_in_band", "candidates", "admitted", "unscored",
    "cut_off", "simulator_reward", "prompt_length", "response_length", "agent_kl", "simulator_kl", "agent_grad_norm",
    "simulator_grad_norm",
)  # fmt: skip
"""Metrics that the summary passes on as they are, as `NAME_by_round`."""
SHOWN_TASKS = 10
"""Tasks that the page shows of each part of the run."""
SHOWN_REJECTED = 2
"""Rejected candidates that the page shows of each reason."""


# -- numbers -----------------------------------------------------------------------------------------------------


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


# -- the page ----------------------------------------------------------------------------------------------------


def write_report(store: Store, path: Path) -> Path:
    """One self-contained HTML file, replaced as a whole. Raises InputError if it cannot be written."""
    s, config = summary(store), store.config
    name = store.folder.resolve().name
    body = [
        _header(name, s, config),
        _tiles(s),
        figures(s),
        _tasks(store, s),
        _edited(s),
        _rejected(store, s),
        _settings(config),
    ]
    return write_page(path, f"GenEnv run {name}", body)


def write_page(path: Path, title: str, body: Sequence[str]) -> Path:
    """HTML parts as one self-contained file in the project's style. Raises InputError if it cannot be written."""
    template = importlib.resources.files("genenv").joinpath("report.html").read_text("utf-8")
    return write_whole(path, string.Template(template).substitute(title=escape(title), body="\n".join(body)))


def write_whole(path: Path, text: str) -> Path:
    """A file, replaced as a whole. Raises InputError if it cannot be written."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.draft")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(text, "utf-8")
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise InputError(f"cannot write the report {path}: {error.strerror}; choose another file") from None
    return path


def _header(name: str, s: Mapping[str, Json], config: Config) -> str:
    facts = (
        f"recipe {s['recipe']} · seed {s['seed']} · model {config.engine.model} · domain {config.domain.name}"
        f" · {s['rounds']} of {s['rounds_planned']} rounds"
    )
    links = {"curves": "Curves", "tasks": "Tasks", "rejected": "Rejected candidates", "settings": "Configuration"}
    if s["edits"]:
        links["edits"] = "Edits"
    nav = "".join(f'<a href="#{key}">{text}</a>' for key, text in links.items())
    return (
        f"<header><h1>GenEnv run {escape(name)}</h1><p>{escape(facts)}</p>"
        f'<p class="verdict">{escape(_verdict(s))}</p><nav aria-label="Parts of the report">{nav}</nav></header>'
    )


def _verdict(s: Mapping[str, Json]) -> str:
    """The run in one or two sentences."""
    if not s["rounds"]:
        return "No round has finished yet."
    start, end, since = s["heldout_start"], s["heldout_end"], s["in_band_from_round"]
    told = []
    if start is not None and end is not None:
        move = "rose" if end > start else "fell"
        told.append(
            f"The agent's held-out score stayed at {percent(end)}."
            if end == start
            else f"The agent's held-out score {move} from {percent(start)} to {percent(end)}."
        )
    settled = "has not settled" if since is None else f"has stayed since round {since}, as a mean of {WINDOW} rounds,"
    told.append(f"The agent's success on fresh tasks {settled} between 40 and 60\u202f%.")
    return " ".join(told)


def _tiles(s: Mapping[str, Json]) -> str:
    means, start, end = s["success_mean_by_round"], s["heldout_start"], s["heldout_end"]
    success, admitted = s["success_by_round"], s["admitted_share_by_round"]
    gain = f"{100 * (end - start):+.1f} points" if start is not None and end is not None else ""
    held = s["heldout_by_round"]
    since = s["in_band_from_round"]
    rounds = max(1, s["rounds"])
    seconds = s["seconds"]
    memory = s["peak_memory_mb"]
    tiles = [
        ("Held-out score", f"{percent(start)} → {percent(end)}",
         " · ".join(filter(None, [gain, f"{held[-1]['attempts']} attempts each" if held else ""]))),
        ("Success on fresh tasks", percent(means[-1] if means else None),
         f"mean of {WINDOW} rounds · last {percent(success[-1])}" if success else ""),
        ("In the 40–60 % band", "not settled" if since is None else f"since round {since}",
         f"known from round {WINDOW} on" if s["in_band_share"] is None else f"{percent(s['in_band_share'])} of the rounds"),
        ("Candidates admitted", percent(share(s["admitted"], s["candidates"])),
         f"{number(s['admitted'])} of {number(s['candidates'])}" + (f" · last {percent(admitted[-1])}" if admitted else "")),
        ("Agent rollouts", number(s["agent_rollouts"]), "training; held-out attempts not counted"),
        ("Tokens written", f"{number(s['agent_tokens'])} + {number(s['simulator_tokens'])}", "agent + simulator"),
        ("Time", duration(seconds), f"{duration(seconds / rounds)} a round" if seconds is not None else ""),
        ("Peak memory", UNKNOWN if memory is None else f"{number(memory)}\u202fMiB", "of the training process"),
    ]  # fmt: skip
    cells = (
        f'<div><dt>{escape(name)}</dt><dd class="big">{escape(value)}</dd><dd class="more">{escape(more)}</dd></div>'
        for name, value, more in tiles
    )
    return f'<dl class="tiles">{"".join(cells)}</dl>'


# -- tasks -------------------------------------------------------------------------------------------------------


def _tasks(store: Store, s: Mapping[str, Json]) -> str:
    parts = []
    for name, rounds in _thirds(s["rounds"]).items():
        rows: list[TaskRow] = []
        for chosen in rounds:
            rows += [row for row in store.candidates([chosen]) if row.task is not None]
            if len(rows) >= SHOWN_TASKS:
                break
        items = "".join(_task(store, row) for row in rows[:SHOWN_TASKS])
        parts.append(f"<h3>{name} rounds</h3>{items or _empty('No task was admitted')}")
    return (
        f'<h2 id="tasks">Tasks</h2><p>The first {SHOWN_TASKS} admitted tasks from the start, the middle and the end of the'
        f" run, as they came, with the agent's attempts.</p>{''.join(parts) or _empty('No round has finished yet')}"
    )


def _thirds(rounds: int) -> dict[str, Sequence[int]]:
    """The rounds to look for tasks in, best first: from the start, around the middle, from the end."""
    if rounds < 3:
        return {"Early": [1], "Late": [2]} if rounds == 2 else {"Early": [1]} if rounds else {}
    cut = rounds // 3
    middle = range(cut + 1, rounds - cut + 1)
    return {
        "Early": range(1, cut + 1),
        "Middle": sorted(middle, key=lambda r: abs(2 * r - rounds - 1)),
        "Late": range(rounds, rounds - cut, -1),
    }


def _empty(text: str) -> str:
    return f'<p class="empty">{text}</p>'


def _item(head: Sequence[str], request: str, facts: Mapping[str, str]) -> str:
    """A folded record. `facts` are HTML, the rest is text."""
    spans = "".join(f"<span>{escape(h)}</span>" for h in head)
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{value}</dd>" for name, value in facts.items())
    return f'<details class="item"><summary>{spans}{escape(request)}</summary><dl>{rows}</dl></details>'


def _pre(text: str) -> str:
    return f"<pre>{escape(text)}</pre>"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 110 else f"{line[:109]}…"


def _task(store: Store, row: TaskRow) -> str:
    task = row.task
    assert task is not None
    request = "\n".join(m.content for m in task.messages if m.role == "user")
    attempts = store.attempts(task.id, row.round)
    solved = sum(a["score"] is not None and a["score"] >= SOLVED for a in attempts)
    facts = {
        "Request": _pre(request),
        "Tools": escape(", ".join(map(_tool_name, task.tools)) or UNKNOWN),
        "Target": _pre(_json_lines(task.target)),
        "Verdict": escape(f"{row.reason} · {task.family}, asked for {row.family}, {row.direction}"),
        "Measured": escape(f"p̂ {percent(row.p_hat)} · reward {number(row.reward)}"),
        "Simulator wrote": _pre(row.text),
        "Agent's attempts": f"<ol>{''.join(map(_attempt, attempts))}</ol>" if attempts else UNKNOWN,
    }
    head = [f"round {row.round} #{row.number}", task.family, f"solved {solved} of {len(attempts)}",
            f"reward {number(row.reward)}"]  # fmt: skip
    return _item(head, _short(request), facts)


def _tool_name(tool: Json) -> str:
    body = tool.get("function", tool) if isinstance(tool, dict) else {}
    return str(body.get("name", "unnamed")) if isinstance(body, dict) else "unnamed"


def _json_lines(value: Json) -> str:
    """JSON with one line per member of a list."""
    members = value if isinstance(value, list) else [value]
    return "\n".join(json.dumps(m, ensure_ascii=False) for m in members)


def _attempt(attempt: Mapping[str, Json]) -> str:
    score = attempt["score"]
    look = "" if score is None else "ok" if score >= SOLVED else "no"
    told = "unscored" if score is None else f"score {number(score)}"
    rest = " · ".join(filter(None, [attempt["reason"], attempt["stop"], f"{attempt['written']} tokens"]))
    return f'<li><span class="{look}">{told}</span> · {escape(rest)}{_pre(attempt["text"])}</li>'


def _edited(s: Mapping[str, Json]) -> str:
    """Nothing where no edits were asked for."""
    if not s["edits"]:
        return ""
    columns = ("asked", "admitted", "accepted", "unmoved", "opposite", "unscored")
    rows = "".join(
        f"<tr><th>{escape(way)}</th>{''.join(f'<td>{number(count.get(c, 0))}</td>' for c in columns)}"
        f"<td>{percent(share(count.get('accepted', 0), count.get('admitted', 0)))}</td></tr>"
        for way, count in s["edits"].items()
    )
    head = "".join(f"<th>{c}</th>" for c in (*columns, "accepted / admitted"))
    return (
        '<h2 id="edits">Edits</h2><p>Tasks with one thing changed. An edit is accepted if success moved as asked, measured'
        f" beside the edited task in the same round.</p><table><tr><th></th>{head}</tr>{rows}</table>"
    )


def _rejected(store: Store, s: Mapping[str, Json]) -> str:
    parts = []
    for reason, count in s["rejected_by_reason"].items():
        newest = max(n for n, rejected in enumerate(s["rejected_by_round"], 1) if rejected.get(reason))
        rows = [row for row in store.candidates([newest]) if row.reason == reason][:SHOWN_REJECTED]
        parts.append(f"<h3>{escape(reason)} ({count:,})</h3><p>{escape(REASONS.get(reason, ''))}</p>")
        for row in rows:
            facts = {
                "Reason": escape(f"{row.reason}: {row.detail}" if row.detail else row.reason),
                "Asked for": escape(f"{row.family}, {row.direction}"),
                "Simulator wrote": _pre(row.text),
            }
            parts.append(_item([f"round {row.round} #{row.number}", row.family], _short(row.detail or row.text), facts))
    return (
        '<h2 id="rejected">Rejected candidates</h2><p>They are never played and earn nothing. The newest of each reason,'
        f" the most frequent reason first.</p>{''.join(parts) or _empty('None')}"
    )


# -- configuration -----------------------------------------------------------------------------------------------


def _settings(config: Config) -> str:
    usual = dict(_flat(Config().model_dump(mode="json")))
    rows = (
        f'<div class="{"" if value == usual.get(key) else "set"}"><dt>{escape(key)}</dt><dd>{escape(json.dumps(value))}</dd></div>'
        for key, value in _flat(config.model_dump(mode="json"))
    )
    return (
        '<h2 id="settings">Configuration</h2><details class="item"><summary>All settings; those that differ from the'
        f' defaults are bold</summary><dl class="config">{"".join(rows)}</dl></details>'
    )


def _flat(section: Mapping[str, Json], prefix: str = "") -> Iterator[tuple[str, Json]]:
    for key, value in section.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value
