"""One self-contained HTML file in the project's style, written whole or not at all."""

from __future__ import annotations

import importlib.resources
import os
import string
from collections.abc import Sequence
from pathlib import Path

from genenv.contracts.errors import InputError
from genenv.reports.charts import escape


def html_page(title: str, body: Sequence[str]) -> str:
    """HTML parts as one self-contained document in the project's style."""
    template = importlib.resources.files("genenv.reports").joinpath("page.html").read_text("utf-8")
    return string.Template(template).substitute(title=escape(title), body="\n".join(body))


def write_page(path: Path, title: str, body: Sequence[str]) -> Path:
    """HTML parts as one file. Raises InputError if it cannot be written."""
    return write_whole(path, html_page(title, body))


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
