"""Text files of a user's own, read one record a line: UTF-8, with or without a byte order mark, any line ending."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from genenv.contracts.errors import InputError

MAX_RECORD = 2_000_000
"""Bytes in one line: no task and no answer is longer, and reading it must not fill the memory."""


def read_records(path: Path) -> Iterator[tuple[int, str | None]]:
    """(line number, text) of the lines that are not blank; text is None for one longer than MAX_RECORD.

    Only line feeds end a line: Unicode's other separators may stand in a JSON string. Raises InputError.
    """
    try:
        with path.open("rb") as handle:
            number = 0
            while raw := handle.readline(MAX_RECORD + 1):
                number += 1
                if len(raw) > MAX_RECORD and not raw.endswith(b"\n"):
                    while (rest := handle.readline(MAX_RECORD)) and not rest.endswith(b"\n"):
                        pass
                    yield number, None
                    continue
                if number == 1:
                    raw = raw.removeprefix(b"\xef\xbb\xbf")
                try:
                    text = raw.decode()
                except UnicodeDecodeError as error:
                    raise InputError(
                        f"{path}:{number}: expected UTF-8, found {error.reason} at byte {error.start}"
                    ) from None
                if text.strip():
                    yield number, text.rstrip("\r\n")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None


def read_lines(path: Path) -> list[tuple[int, str]]:
    """As `read_records`, all at once. Raises InputError also for a line that is too long and for an empty file."""
    lines = []
    for number, text in read_records(path):
        if text is None:
            raise InputError(f"{path}:{number}: expected a record of at most {MAX_RECORD:,} bytes")
        lines.append((number, text))
    if not lines:
        raise InputError(f"{path}: expected at least one JSON record, found none")
    return lines
