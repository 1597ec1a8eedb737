"""The command line: thin. Long work reports on standard error; `--json` prints one document on standard output."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from genenv import __version__
from genenv.cli.compare import compare
from genenv.cli.eval import evaluate
from genenv.cli.init import init
from genenv.cli.terminal import Catalogue, JsonFlag, emit, errors, one_line_errors
from genenv.cli.theory import analyse, theory
from genenv.cli.train import train
from genenv.config.load import build_config, load_config
from genenv.config.sections import DomainConfig
from genenv.contracts.errors import InputError

app = typer.Typer(
    name="genenv",
    help="Train a tool-using LLM agent by co-evolving it with an environment simulator.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


app.command()(init)
app.command()(train)
app.command("eval")(evaluate)
app.command("compare")(compare)
app.command()(theory)
app.command()(analyse)


@app.command()
def report(run: Annotated[Path, typer.Argument(help="A run folder.")], as_json: JsonFlag = False) -> None:
    """Write RUN/report.html, or print the run's figures as JSON."""
    with one_line_errors():
        from genenv.reports.run_page import write_report
        from genenv.runs.store import Store
        from genenv.runs.summary import summary

        store = Store.read(run)
        if as_json:
            emit(summary(store))
        else:
            print(write_report(store, run / "report.html"))
        store.close()


@app.command()
def tasks(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    round_: Annotated[int | None, typer.Option("--round", help="Only this round.")] = None,
    reason: Annotated[str | None, typer.Option(help="Only this verdict, for example admitted or duplicate.")] = None,
    limit: Annotated[int, typer.Option(help="At most so many, the newest.", min=1)] = 20,
    as_json: JsonFlag = False,
) -> None:
    """Browse what the simulator wrote: verdict, measured success, reward."""
    with one_line_errors():
        from genenv.contracts.types import REASONS
        from genenv.runs.store import Store

        if reason is not None and reason not in REASONS:
            raise InputError(f"--reason {reason}: expected one of {', '.join(REASONS)}")
        store = Store.read(run)
        rows = [r for r in store.candidates(None if round_ is None else [round_]) if reason in (None, r.reason)][
            -limit:
        ]
        store.close()
        if as_json:
            emit([asdict(r) for r in rows])
            return
        table = Table("round", "family", "verdict", "p_hat", "R_env", "request or reason", box=None)
        for row in rows:
            request = row.task.messages[-1].content if row.task is not None else row.detail or row.text
            numbers = ["-" if x is None else f"{x:.2f}" for x in (row.p_hat, row.reward)]
            table.add_row(str(row.round), row.family, row.reason, *numbers, request[:160], style=None)
        Console(markup=False, highlight=False).print(table)


@app.command()
def gate(
    domain: Annotated[str, typer.Argument(help="A domain, for example tool_use, or a configuration with one (.toml).")],
    file: Annotated[Path, typer.Argument(help="JSONL, one specification a line.")],
    catalogue: Catalogue = None,
    as_json: JsonFlag = False,
) -> None:
    """Send your own tasks through the admission gate: one verdict and reason a line."""
    with one_line_errors():
        from genenv.contracts.domain import released
        from genenv.evaluation.own_files import gate_file
        from genenv.session import make_domain

        with released(make_domain(_domain_config(domain, catalogue))) as field:
            lines = list(gate_file(field, file))
        if as_json:
            emit([{"line": x.line, "id": x.task_id, **asdict(x.verdict)} for x in lines])
            return
        for x in lines:
            print(f"{x.line}\t{x.verdict.reason}\t{x.verdict.detail}")
        admitted = sum(x.verdict.admitted for x in lines)
        print(f"{admitted} of {len(lines)} admitted", file=sys.stderr)


@app.command()
def score(
    tasks: Annotated[Path, typer.Argument(help="JSONL of specifications, each with an optional id.")],
    outputs: Annotated[Path, typer.Argument(help='JSONL of {"id": ..., "output": "..."}, or "error" for none.')],
    domain: Annotated[str, typer.Option(help="The domain of the tasks.")] = "tool_use",
    catalogue: Catalogue = None,
    as_json: JsonFlag = False,
) -> None:
    """Score recorded outputs: score, extracted answer and reason a line; every task counts."""
    with one_line_errors():
        from genenv.contracts.domain import released
        from genenv.evaluation.own_files import MISSING, score_file
        from genenv.session import make_domain

        with released(make_domain(_domain_config(domain, catalogue))) as field:
            lines = score_file(field, tasks, outputs)
        mean = fmean(x.score.value or 0.0 for x in lines)
        unscored = sum(x.score.value is None for x in lines)
        malformed = sum(x.score.reason.startswith("malformed") for x in lines)
        missing = [x.id for x in lines if x.score.reason == MISSING]
        if unscored or missing:
            found = [f"{unscored} could not be scored"] if unscored else []
            found += [f"{len(missing)} have no output ({', '.join(missing[:5])})"] if missing else []
            errors.print(f"warning: {', '.join(found)}; all of them count as wrong", style="yellow", soft_wrap=True)
        if as_json:
            emit({"score": mean, "tasks": len(lines), "unscored": unscored, "malformed": malformed, "missing": missing,
                  "lines": [{"id": x.id, **asdict(x.score)} for x in lines]})  # fmt: skip
            return
        for x in lines:
            value = "unscored" if x.score.value is None else f"{x.score.value:g}"
            print(f"{x.id}\t{value}\t{json.dumps(x.score.answer, ensure_ascii=False)}\t{x.score.reason}")
        counts = f"{malformed} malformed, {len(missing)} missing, {unscored} unscored"
        print(f"score {mean:.4f} over {len(lines)} tasks, {counts}", file=sys.stderr)


@app.command()
def doctor(
    config: Annotated[Path | None, typer.Argument(help="A configuration to be checked for this machine.")] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Estimate memory, tokens and time instead; runs nothing.")
    ] = False,
    gpu: Annotated[
        str | None, typer.Option(help="Plan for this device, for example a100-80gb; none: this CPU.")
    ] = None,
    gpus: Annotated[int, typer.Option(help="Plan for a server with so many devices.", min=1)] = 8,
    prompt: Annotated[int | None, typer.Option(help="Plan for prompts of about so many tokens.", min=1)] = None,
    answer: Annotated[int | None, typer.Option(help="Plan for answers of about so many tokens.", min=1)] = None,
    as_json: JsonFlag = False,
) -> None:
    """Say what is installed, which engine will run, and how much memory it needs; with --plan, estimate a run."""
    with one_line_errors():
        from genenv.planning.diagnosis import diagnose
        from genenv.planning.plan import make_plan, rendered

        settings = load_config(config) if config is not None else build_config({}, "defaults")
        if plan:
            planned = make_plan(settings, gpu, gpus, prompt, answer)
            if as_json:
                emit(planned)
            else:
                print(rendered(planned))
            return
        findings = diagnose(settings)
        if as_json:
            emit(findings)
            return
        for name, value in findings.items():
            print(f"{name:<22} {value}")


def _domain_config(name: str, catalogue: Path | None) -> DomainConfig:
    if name.endswith(".toml"):
        if catalogue is not None:
            raise InputError(f"--catalogue: not beside {name}, which says itself what its domain is")
        return load_config(Path(name)).domain
    return build_config({"domain": {"name": name, "catalogue": catalogue}}, "command line").domain


def _version(show: bool) -> None:
    if show:
        print(f"genenv {__version__}")
        raise typer.Exit()


@app.callback()
def main(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    """Train a tool-using LLM agent by co-evolving it with an environment simulator."""
