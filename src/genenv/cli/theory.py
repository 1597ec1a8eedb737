"""`genenv theory` and `genenv analyse`: the paper's claims, measured on a policy and on a run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from genenv.cli.terminal import Catalogue, JsonFlag, emit, errors, one_line_errors, quiet_libraries
from genenv.contracts.errors import InputError
from genenv.contracts.types import Json, derive_seed

if TYPE_CHECKING:
    from genenv.runs.records import Attempts
    from genenv.runs.store import Store
    from genenv.studies.analysis import Remeasured


def theory(
    subject: Annotated[
        str, typer.Argument(metavar="RUN_OR_MODEL", help="A run folder, or a model for the local engine.")
    ] = "builtin:tiny",
    tasks: Annotated[int, typer.Option(help="Held-out tasks on which gradients are measured.", min=1)] = 64,
    rollouts: Annotated[int, typer.Option(help="Attempts per task; as many again sort them.", min=4)] = 16,
    alpha: Annotated[float, typer.Option(help="The target success of Theorem 1.", min=0.0, max=1.0)] = 0.5,
    seed: Annotated[int, typer.Option(help="Seed of the sampling.")] = 0,
    round_: Annotated[
        int | None, typer.Option("--round", help="The run's checkpoint of this round; none: the newest.", min=0)
    ] = None,
    catalogue: Catalogue = None,
    out: Annotated[Path, typer.Option(help="The page with charts.")] = Path("theory.html"),
    as_json: JsonFlag = False,
) -> None:
    """Measure how a task's learning signal depends on its success (Proposition 1), and how often rewards mis-rank (Theorem 1)."""
    with one_line_errors():
        from genenv.evaluation.subjects import find_subject
        from genenv.loop.rollouts import PlayConfig
        from genenv.reports.theory_page import (
            BIN_HEADING,
            FIT_HEADING,
            RATE_HEADING,
            bin_rows,
            fit_rows,
            rate_rows,
            write_theory,
        )
        from genenv.session import make_domain
        from genenv.studies.misranking import compare
        from genenv.studies.theory import measure, proposition

        quiet_libraries()
        found = find_subject(subject, catalogue, {}, round_, errors.print)
        domain = make_domain(found.config.domain)
        agent, context = found.load()
        if agent is None:
            raise InputError(f"{subject}: chance has no gradient; expected a run or a model")
        settings = found.config.agent
        played = PlayConfig(rollouts, settings.max_tokens, settings.max_turns, context=context)
        chosen = domain.heldout(tasks, derive_seed("heldout"))

        def progress(done: int, total: int) -> None:
            if done % 8 == 0:
                print(f"gradients  {done}/{total} tasks", file=sys.stderr, flush=True)

        signals = measure(agent, domain, chosen, played, seed, progress)
        document = {
            "subject": found.title,
            "tasks": len(signals),
            "unscored_tasks": len(chosen) - len(signals),
            "rollouts": rollouts,
            "seed": seed,
            "alpha": alpha,
            "proposition": proposition(signals, seed),
            "theorem": compare(alpha),
        }
        page = write_theory(document, out)
        if as_json:
            emit(document | {"page": str(page)})
            return
        print(f"Proposition 1: {found.title}, {len(signals)} tasks, {rollouts} attempts each, seed {seed}")
        _show(BIN_HEADING, bin_rows(document))
        print("\nfits over the bins")
        _show(FIT_HEADING, fit_rows(document))
        print(f"\nTheorem 1: exact mis-ranking rates, alpha {alpha:g}; of ties a coin decides")
        _show(RATE_HEADING, rate_rows(document))
        print(f"\npage  {page}")


def analyse(
    runs: Annotated[list[Path], typer.Argument(help="Run folders; their tasks are pooled.")],
    again: Annotated[
        int, typer.Option(help="Early tasks of each run that its newest checkpoint plays again, at most.", min=0)
    ] = 0,
    lag: Annotated[
        int, typer.Option(help="Rounds between a task's first attempts and its replay, at least.", min=1)
    ] = 5,
    disturbed: Annotated[
        int | None, typer.Option(help="The round after which the agent was disturbed; measures recovery.", min=1)
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the sampling and of the intervals.")] = 0,
    as_json: JsonFlag = False,
) -> None:
    """Measure gain by success, forgetting, what difficulty depends on, recovery from a disturbance and lengths."""
    with one_line_errors():
        import numpy as np

        from genenv.runs.store import Store
        from genenv.studies import analysis

        remeasured: list[Remeasured] = []
        later: list[Remeasured] = []
        played: list[list[Attempts]] = []
        each: list[Json] = []
        stores = {run.resolve(): Store.read(run) for run in runs}
        if len(stores) < len(runs):
            raise InputError("each run once: a run that is given twice would count as two")
        for run, store in zip(runs, stores.values(), strict=True):
            if disturbed is not None and disturbed >= (rounds := len(store.metrics())):
                raise InputError(f"--disturbed {disturbed}: {run} has {rounds} rounds, and one must follow")
        for run, store in zip(runs, stores.values(), strict=True):
            metrics, attempts = store.metrics(), list(store.all_attempts())
            recovery = analysis.recovery([m["success"] for m in metrics], disturbed) if disturbed else None
            each.append(
                {
                    "run": str(run),
                    "rounds": len(metrics),
                    "recovery": asdict(recovery) if recovery else None,
                    "lengths": analysis.lengths(metrics) if metrics else None,
                }
            )
            played.append(attempts)
            remeasured += analysis.remeasured(attempts, lag)
            if early := analysis.early_tasks(attempts, len(metrics), again, seed):
                later += _scored_again(run, store, early, seed)
            store.close()
        rng = np.random.default_rng(derive_seed(seed, "analyse"))
        spread = analysis.spread(played, rng)
        document: dict[str, Json] = {
            "runs": each,
            "gain": [asdict(c) for c in analysis.change_by_bin(remeasured, rng)],
            "forgetting": [asdict(c) for c in analysis.change_by_bin(later, rng)] if later else None,
            "difficulty": asdict(spread) if spread else None,
        }
        if as_json:
            emit(document)
            return
        _print_analysis(document)


def _scored_again(run: Path, store: Store, early: Sequence[Attempts], seed: int) -> list[Remeasured]:
    """Early tasks of a run, played by its newest checkpoint."""
    from genenv.contracts.domain import released
    from genenv.evaluation.subjects import find_subject
    from genenv.loop.rollouts import PlayConfig
    from genenv.session import make_domain
    from genenv.studies.analysis import scored_again

    quiet_libraries()
    found = find_subject(str(run), None, {}, None, errors.print)
    agent, context = found.load()
    assert agent is not None  # a run has one
    assert found.round is not None
    own = found.config.agent
    played = PlayConfig(own.group_size, own.max_tokens, own.max_turns, context=context)
    with released(make_domain(found.config.domain)) as domain:
        return scored_again(store, agent, domain, played, early, found.round, seed)


def _print_analysis(document: dict[str, Json]) -> None:
    titles = {
        "gain": "Gain: tasks measured again when they were replayed, by their success before",
        "forgetting": "Forgetting: early tasks played by the newest checkpoint, by their success then",
    }
    for key, title in titles.items():
        if document[key] is None:
            continue
        print(f"{title}\n")
        rows = []
        for c in document[key]:
            change = c["change"]
            told = f"{change['value']:+.3f} [{change['low']:+.3f}, {change['high']:+.3f}]" if change else "–"
            rows.append([c["bin"], f"{c['tasks']:g}", "–" if c["before"] is None else f"{c['before']:.3f}", told])
        _show(("success", "tasks", "before", "change"), rows)
        print()
    if found := document["difficulty"]:
        print(f"Difficulty: shares of the variance of success ({found['variance']:.3f}) among a round's fresh tasks\n")
        parts = {
            "family": "between families: the draw of families controls it",
            "within": "within a family: only the simulator controls it",
            "chance": "chance: few attempts at a task",
        }
        shares = [(text, found[key]) for key, text in parts.items()]
        _show(("part", "share"), [[t, f"{s['value']:.2f} [{s['low']:.2f}, {s['high']:.2f}]"] for t, s in shares])
        print(f"{found['tasks']} tasks\n")
    for run in document["runs"]:
        print(run["run"])
        if found := run["recovery"]:
            back = "has not come back" if found["back"] is None else f"came back in round {found['back']}"
            told = "stayed in the band" if found["left"] is None else f"left the band in round {found['left']}, {back}"
            print(f"  after the disturbance, success {told}")
        for name, found in (run["lengths"] or {}).items():
            ends = ["–" if found[part] is None else f"{found[part]:.1f}" for part in ("first", "last")]
            print(f"  {name} length, first to last fifth of the rounds: {ends[0]} to {ends[1]} tokens")


def _show(heading: tuple[str, ...], rows: list[list[str]]) -> None:
    table = Table(*heading, box=None, padding=(0, 1, 0, 0))
    for row in rows:
        table.add_row(*row)
    Console(markup=False, highlight=False).print(table)
