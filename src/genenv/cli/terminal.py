"""What all commands share: errors as one line, results as one JSON document."""

from __future__ import annotations

import importlib.util
import json
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from genenv.contracts.errors import GenEnvError, InputError
from genenv.contracts.types import Json

errors = Console(stderr=True)

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
Catalogue = Annotated[Path | None, typer.Option(help="Functions; none: the built-in catalogue.")]


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Expected errors become one line on standard error: status 2 for bad input, 1 for a failure while working."""
    try:
        yield
    except InputError as error:
        print(f"genenv: {error}", file=sys.stderr)
        raise typer.Exit(2) from None
    except GenEnvError as error:
        print(f"genenv: {error}", file=sys.stderr)
        raise typer.Exit(1) from None
    except BrokenPipeError:
        raise
    except (OSError, sqlite3.Error) as error:
        print(f"genenv: {failure(error)}", file=sys.stderr)
        raise typer.Exit(1) from None


def failure(error: Exception) -> str:
    """What the machine says, on one line: a full disk, a file that is gone, a locked database."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror + (f": {error.filename}" if error.filename else "")
    return " ".join(str(error).split()) or type(error).__name__


def emit(document: Json) -> None:
    print(json.dumps(document, ensure_ascii=False))


def quiet_libraries() -> None:
    """No foreign progress bars or notices between ours."""
    if importlib.util.find_spec("transformers") is None:
        return
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
