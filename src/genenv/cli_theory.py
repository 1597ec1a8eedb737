"""`genenv theory` and `genenv analyse`: the paper's claims, measured on a policy and on a run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from genenv.errors import InputError
from genenv.terminal import Catalogue, JsonFlag, emit, errors, one_line_errors, quiet_libraries
from genenv.types import derive_seed


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
        from genenv._theory_page import (
            BIN_HEADING,
            FIT_HEADING,
            RATE_HEADING,
            bin_rows,
            fit_rows,
            rate_rows,
            write_theory,
        )
        from genenv.misranking import compare
        from genenv.rollouts import PlayConfig
        from genenv.session import make_domain
        from genenv.subjects import find_subject
        from genenv.theory import measure, proposition

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


def _show(heading: tuple[str, ...], rows: list[list[str]]) -> None:
    table = Table(*heading, box=None, padding=(0, 1, 0, 0))
    for row in rows:
        table.add_row(*row)
    Console(markup=False, highlight=False).print(table)
