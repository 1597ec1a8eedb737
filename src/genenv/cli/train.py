"""`genenv train`: thin. A run, new or resumed, and what a person sees while it plays."""

from __future__ import annotations

import sqlite3
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from genenv.cli.terminal import JsonFlag, emit, errors, failure, one_line_errors, quiet_libraries
from genenv.config.load import load_config
from genenv.contracts.errors import GenEnvError, InputError
from genenv.contracts.types import Json


class Display:
    """A progress bar with the figures that a person watches: success, band, admission, speed."""

    def __init__(self, rounds: int, done: int) -> None:
        self.trackers: list[Any] = []
        self._heldout: float | None = None
        self._started = time.monotonic()
        self._tokens = 0
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed}/{task.total}"),
            TextColumn("{task.fields[figures]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(elapsed_when_finished=False),
            console=errors,
            disable=not errors.is_terminal,
        )
        self._task = self._bar.add_task("rounds", total=rounds, completed=done, figures="")

    def __enter__(self) -> Display:
        self._bar.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._bar.stop()

    def __call__(self, stage: str, figures: Mapping[str, Json]) -> None:
        if stage == "evaluate":
            self._heldout = figures["heldout"]
            errors.print(f"round {figures['round']:>4}  held-out {100 * figures['heldout']:5.1f} %")
        if stage == "alarm":
            errors.print(f"round {figures['round']:>4}  warning: {figures['message']}", style="yellow", soft_wrap=True)
        elif stage == "round":
            self._round(figures)
        else:
            self._bar.update(self._task, description=stage.replace("_", " "))

    def _round(self, m: Mapping[str, Json]) -> None:
        from genenv.runs.trackers import flat

        self._tokens += m["agent_tokens"] + m["simulator_tokens"]
        speed = self._tokens / (time.monotonic() - self._started)
        success = "  - " if m["success"] is None else f"{100 * m['success']:3.0f}%"
        played = max(1, sum(f["tasks"] for f in m["families"].values()))
        line = (
            f"success {success}  in band {100 * m['tasks_in_band'] / played:3.0f}%"
            f"  admitted {100 * m['admitted'] / max(1, m['candidates']):3.0f}%"
            f"  useful {100 * m['useful_groups'] / max(1, m['groups']):3.0f}%  {speed:,.0f} tok/s"
        )
        self._bar.update(self._task, completed=m["round"], figures=line)
        if not errors.is_terminal:
            print(f"round {m['round']:>4}  {line}", file=sys.stderr, flush=True)
        numbers = flat(m)
        for tracker in self.trackers:
            tracker(m["round"], numbers)


def train(
    config: Annotated[
        Path, typer.Argument(help="A TOML file, the name of a shipped one such as demo, or with --resume a run folder.")
    ],
    run_dir: Annotated[Path | None, typer.Option(help="Folder of the run; default: runs/NAME-SEED.")] = None,
    seed: Annotated[int | None, typer.Option(help="Overrides the configuration's seed.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Override: --set agent.group_size=4")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a run exactly where it stopped.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Co-evolve agent and simulator; writes a run folder with metrics, tasks, checkpoints and a report."""
    with one_line_errors():
        from genenv.contracts.domain import released
        from genenv.reports.run_page import write_report
        from genenv.runs.summary import summary
        from genenv.runs.trackers import open_trackers, require_trackers
        from genenv.session import new_run, resumed_run

        folder = config if resume else run_dir
        if resume:
            if seed is not None or set_ or run_dir is not None:
                raise InputError("--resume continues a run as configured: drop --seed, --set and --run-dir")
            from genenv.runs.store import Store

            store = Store.read(config)
            settings, done = store.config, len(store.metrics())
            store.close()
        else:
            settings, done = load_config(config, [*(set_ or []), *([f"seed={seed}"] if seed is not None else [])]), 0
        folder = folder or Path("runs") / f"{config.stem}-{settings.seed}"
        if not resume and (folder / "run.sqlite").exists():
            raise InputError(f"{folder} already holds a run: resume it with --resume, or choose another --run-dir")
        quiet_libraries()
        require_trackers(settings)
        with Display(settings.rounds, done) as display:
            game = resumed_run(folder, display) if resume else new_run(settings, folder, display)
            display.trackers = open_trackers(settings, folder)
            try:
                with released(game.domain):
                    game.run(resume=resume, warn=lambda message: errors.print(f"warning: {message}", style="yellow"))
            except (OSError, sqlite3.Error, GenEnvError) as error:
                game.store.close()
                if isinstance(error, GenEnvError):
                    raise
                remedy = f"nothing before it is lost: genenv train {folder} --resume"
                raise GenEnvError(f"the run stopped: {failure(error)}; {remedy}") from error
        report = write_report(game.store, folder / "report.html")
        if as_json:
            emit(summary(game.store) | {"run": str(folder), "report": str(report)})
        else:
            print(f"run     {folder}\nreport  {report}")
        game.store.close()
