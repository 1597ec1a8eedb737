"""`genenv compare`: thin. Play what is left of a suite, then write what it has come to."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from genenv.cli.terminal import JsonFlag, emit, errors, one_line_errors
from genenv.contracts.errors import GenEnvError, InputError
from genenv.studies.suite import Run, load_suite, play_all, runs_of

_ROUND = re.compile(r"round +(\d+)")


class SuiteDisplay:
    """A bar over all rounds of all runs, and a line for each run that ends. Called from several threads."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self._lock = threading.Lock()
        self._at: dict[str, int] = {r.name: r.config.rounds if r.state() == "finished" else 0 for r in runs}
        self._ended = sum(self._at.values()) // max(1, runs[0].config.rounds)
        self._active: dict[str, str] = {}
        self._bar = Progress(
            TextColumn("rounds"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed}/{task.total}"),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
            console=errors,
            disable=not errors.is_terminal,
        )
        total = sum(r.config.rounds for r in runs)
        self._task = self._bar.add_task("", total=total, completed=sum(self._at.values()))

    def __enter__(self) -> SuiteDisplay:
        self._bar.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._bar.stop()

    def note(self, run: Run, line: str) -> None:
        with self._lock:
            if found := _ROUND.match(line):
                self._at[run.name] = int(found[1])
            self._active[run.name] = f"{run.name} {self._at[run.name]}"
            self._update()

    def done(self, run: Run, failure: str) -> None:
        with self._lock:
            self._active.pop(run.name, None)
            self._ended += 1
            line = f"{self._ended:>4} of {len(self._at)}  {f'failed: {failure}' if failure else f'{run.name} finished'}"
            errors.print(line, style="red" if failure else None, soft_wrap=True)
            self._update()

    def _update(self) -> None:
        self._bar.update(self._task, completed=sum(self._at.values()), description=", ".join(self._active.values()))


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """SIGTERM ends what is inside with status 143, as Ctrl-C would, so that no run goes on without its suite."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def compare(
    suite: Annotated[Path, typer.Argument(help="A TOML file that names a base configuration, arms and seeds.")],
    out: Annotated[Path | None, typer.Option(help="Folder of all runs and the report; default: runs/NAME.")] = None,
    jobs: Annotated[int, typer.Option(help="Runs at a time, each a process of its own.", min=1)] = 1,
    only_report: Annotated[bool, typer.Option("--only-report", help="Play nothing; report what is finished.")] = False,
    png: Annotated[bool, typer.Option("--png", help="Also draw compare.png (needs the extra plots).")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Run arms x seeds, or what is left of them, and compare: curves, intervals, paired tests, cost."""
    with one_line_errors():
        from genenv.reports.compare_page import markdown, page
        from genenv.reports.compare_plots import require_plots, write_png
        from genenv.reports.page import write_whole
        from genenv.studies.comparison import comparison

        if png:
            require_plots()
        plan = load_suite(suite)
        folder = out or Path("runs") / suite.stem
        runs = runs_of(plan, folder)
        failures: list[str] = []
        if not only_report:
            folder.mkdir(parents=True, exist_ok=True)
            with ended_by_sigterm(), SuiteDisplay(runs) as display:
                failures = play_all(runs, jobs, display.note, display.done)
        found = comparison(plan, runs)
        if not found["arms"]:
            raise (GenEnvError if failures else InputError)(f"no run of {folder} is finished: nothing to compare")
        table = markdown(found)
        written = [
            write_whole(folder / "compare.html", page(suite.stem, found)),
            write_whole(folder / "compare.md", table),
            *([write_png(found, folder / "compare.png")] if png else []),
        ]
        if as_json:
            emit(found | {"written": [str(p) for p in written], "failures": failures})
        else:
            print(table)
            print("\n".join(map(str, written)))
        if failures:
            raise GenEnvError(f"{len(failures)} of {len(runs)} runs failed; `genenv compare` again goes on with them")
