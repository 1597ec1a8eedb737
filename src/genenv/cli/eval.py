"""`genenv eval`: an agent or recorded predictions, on held-out tasks or official test sets."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from genenv.benchmarks import NAMES, make_benchmark
from genenv.cli.terminal import Catalogue, JsonFlag, emit, errors, one_line_errors, quiet_libraries
from genenv.contracts.errors import InputError
from genenv.contracts.types import Json, derive_seed

if TYPE_CHECKING:
    from genenv.evaluation.official import Options
    from genenv.evaluation.subjects import Subject

PLAYED = {
    "RUN_OR_MODEL",
    "--round",
    "--base-url",
    "--concurrency",
    "--data",
    "--limit",
    "--out",
    "--max-tokens",
    "--passages",
    "--temperature",
}
EVAL_MODES = {
    "held-out tasks": {
        "RUN_OR_MODEL",
        "--round",
        "--base-url",
        "--concurrency",
        "--tasks",
        "--rollouts",
        "--temperature",
        "--catalogue",
    },
    "--benchmark": {"--benchmark", "--split", *PLAYED},
    "--all": {"--all", *PLAYED},
    "--predictions": {"--benchmark", "--data", "--split"},
}
"""What `eval` can do, and what each of these takes."""


def evaluate(
    subject: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN_OR_MODEL",
            help="A run folder, builtin:tiny, a model folder, openai:MODEL or tinker:MODEL behind a server, "
            "baseline:empty, baseline:random (ALFWorld).",
        ),
    ] = None,
    benchmark: Annotated[str | None, typer.Option(help=f"An official test set: {', '.join(NAMES)}.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Every benchmark whose data is there, in one table.")] = False,
    predictions: Annotated[
        Path | None, typer.Option(help='No model: JSONL of {"id": ..., "output": ...}, or "error" for none.')
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="The benchmark's files, --all: the folder above; none: $GENENV_DATA/NAME.")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="So many samples, drawn at random by --seed.", min=1)] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for a record of each sample; continues what it holds.")
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Tokens in one turn; none: the benchmark's.", min=1)] = None,
    split: Annotated[
        str | None, typer.Option(help="alfworld: valid_unseen, valid_seen, train; travelplanner: validation, train.")
    ] = None,
    passages: Annotated[
        Path | None, typer.Option(help='A search tool for bamboogle: JSONL of {"title": ..., "text": ...}.')
    ] = None,
    tasks: Annotated[int | None, typer.Option(help="Number of held-out tasks; none: 64.", min=1)] = None,
    rollouts: Annotated[int | None, typer.Option(help="Attempts per held-out task; none: 4.", min=1)] = None,
    temperature: Annotated[
        float | None, typer.Option(help="None: 1 for held-out tasks, 0 (greedy) for benchmarks.", min=0.0)
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the sampling.")] = 0,
    catalogue: Catalogue = None,
    round_: Annotated[
        int | None, typer.Option("--round", help="The run's checkpoint of this round; none: the newest.", min=0)
    ] = None,
    base_url: Annotated[str | None, typer.Option(help="The server of openai:MODEL or tinker:MODEL.")] = None,
    concurrency: Annotated[int | None, typer.Option(help="openai: requests in flight; none: 8.", min=1)] = None,
    as_json: JsonFlag = False,
) -> None:
    """Score an agent on held-out tasks or on official test sets. What could not be scored counts as wrong."""
    with one_line_errors():
        mode = (
            "--predictions" if predictions else "--all" if every else "--benchmark" if benchmark else "held-out tasks"
        )
        given = {"RUN_OR_MODEL": subject, "--benchmark": benchmark, "--all": every or None, "--data": data,
                 "--limit": limit, "--out": out, "--max-tokens": max_tokens, "--passages": passages, "--split": split, "--tasks": tasks,
                 "--rollouts": rollouts, "--temperature": temperature, "--catalogue": catalogue, "--round": round_,
                 "--base-url": base_url, "--concurrency": concurrency}  # fmt: skip
        if wrong := [name for name, value in given.items() if value is not None and name not in EVAL_MODES[mode]]:
            raise InputError(f"{', '.join(wrong)}: not for {mode}")
        if predictions is not None:
            _predictions(benchmark, data, split, predictions, as_json)
            return
        if subject is None:
            raise InputError("expected a run folder or a model, or --benchmark with --predictions")
        from genenv.evaluation.subjects import find_subject

        quiet_libraries()
        server = {k: v for k, v in (("base_url", base_url), ("concurrency", concurrency)) if v is not None}
        found = find_subject(subject, catalogue, server, round_, errors.print)
        if mode == "held-out tasks":
            _heldout(found, tasks or 64, rollouts or 4, 1.0 if temperature is None else temperature, seed, as_json)
            return
        from genenv.evaluation.official import Options

        _benchmarks(
            found, benchmark, data, passages, split, Options(limit, seed, temperature or 0.0, max_tokens), out, as_json
        )


def _predictions(benchmark: str | None, data: Path | None, split: str | None, file: Path, as_json: bool) -> None:
    from genenv.evaluation.official import score_predictions

    if benchmark is None:
        raise InputError("--predictions: expected --benchmark beside it")
    result = score_predictions(make_benchmark(benchmark, data, split=split), file)
    if as_json:
        emit(result)
        return
    for x in result["lines"]:
        value = "unscored" if x["value"] is None else f"{x['value']:g}"
        print(f"{x['id']}\t{value}\t{json.dumps(x['answer'], ensure_ascii=False)}\t{x['reason']}")
    _summary(result)


def _heldout(found: Subject, tasks: int, rollouts: int, temperature: float, seed: int, as_json: bool) -> None:
    from genenv.contracts.domain import released
    from genenv.evaluation import heldout
    from genenv.loop.rollouts import PlayConfig
    from genenv.session import make_domain

    domain = make_domain(found.config.domain)
    chosen = domain.heldout(tasks, derive_seed("heldout"))
    if not chosen:
        raise InputError(f"{found.name}: its domain, {domain.name}, has no held-out tasks")
    agent, _ = found.load()
    if agent is None:
        raise InputError(f"{found.name}: only for --benchmark alfworld, which says what is possible")
    settings = PlayConfig(rollouts, found.config.agent.max_tokens, found.config.agent.max_turns, temperature)
    with released(domain):
        result = heldout.evaluate(agent, domain, chosen, settings, seed)
    if as_json:
        emit({"subject": found.name, "round": found.round, **result})
    else:
        for family, value in result["families"].items():
            print(f"{family:<12} {100 * value:5.1f} %")
        detail = f"{len(chosen)} tasks x {rollouts}, {result['malformed']} malformed, {result['unscored']} unscored"
        print(f"{'all':<12} {100 * result['score']:5.1f} %   {detail}")
    _warn_unscored([result])


def _benchmarks(
    found: Subject,
    name: str | None,
    data: Path | None,
    passages: Path | None,
    split: str | None,
    options: Options,
    out: Path | None,
    as_json: bool,
) -> None:
    """One benchmark, or with `name` None all whose data is there."""
    from genenv.evaluation import table
    from genenv.evaluation.official import Player, open_all, run

    reasons: dict[str, str] = {}
    if name is not None:
        played = {name: make_benchmark(name, data, passages, split)}
        played[name].tasks()  # what is missing is found before a model is loaded
    else:
        played, reasons = open_all(data, passages)
        if not played:
            raise InputError("--all: " + "; ".join(reasons.values()))
    player = Player(found.title, *found.load())
    results: dict[str, dict[str, Json]] = {}
    for key, benchmark in played.items():

        def progress(done: int, total: int, mean: float, key: str = key) -> None:
            print(f"{key}  {done}/{total}  {100 * mean:.1f} % so far", file=sys.stderr, flush=True)

        results[key] = run(benchmark, player, options, out / key if out and name is None else out, progress)
    if as_json:
        missing = {key: {"reason": reason} for key, reason in reasons.items()}
        whole = {"subject": found.title, "benchmarks": results | missing, "mean": table.overall(results)}
        emit(whole if name is None else results[name])
    else:
        for result in results.values():
            _summary(result)
        if name is None:
            for key, reason in reasons.items():
                print(f"{key:<13}     -     {reason}")
            heading, *rows = table.rows(found.title, results)
            shown = Table(*heading, box=None, padding=(0, 1, 0, 0))
            for row in rows:
                shown.add_row(*row)
            Console(markup=False, highlight=False).print(shown)
            print(f"rows after the first: published, {table.SOURCE}; their protocols are known in part only")
            for key in table.NEAREST.keys() & results.keys():
                print(f"{table.COLUMNS[key]}: {table.NEAREST[key]}, taken to be what the published figure is")
    _warn_unscored(results.values())


def _summary(result: Mapping[str, Json]) -> None:
    from genenv.evaluation.table import line

    print(line(result))


def _warn_unscored(results: Iterable[Mapping[str, Json]]) -> None:
    for result in results:
        if result["unscored"]:
            often = f"warning: {result['unscored']} attempts could not be scored and count as wrong, most often: "
            errors.print(often + result["unscored_reason"], style="yellow", markup=False, soft_wrap=True)
