"""What a run has come to, as one HTML file for people.

It reads the store and nothing else, and every figure is drawn from `runs.summary`, so the two cannot disagree.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from genenv.config.sections import Config
from genenv.contracts.types import REASONS, SOLVED, Json
from genenv.reports.charts import UNKNOWN, duration, escape, number, percent
from genenv.reports.figures import figures
from genenv.reports.page import write_page
from genenv.runs.records import TaskRow
from genenv.runs.store import Store
from genenv.runs.summary import WINDOW, share, summary

SHOWN_TASKS = 10
"""Tasks that the page shows of each part of the run."""
SHOWN_REJECTED = 2
"""Rejected candidates that the page shows of each reason."""


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
