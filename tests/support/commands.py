"""Commands as a user types them, and what is expected of a refusal."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner, Result

from genenv.cli.app import app

runner = CliRunner()


def call(*arguments: object) -> Result:
    return runner.invoke(app, [str(a) for a in arguments])


def refused(*arguments: object) -> str:
    """The one line that a refused command prints; nothing on standard output."""
    result = call(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1
    assert "Traceback" not in result.stderr
    return lines[0]


def song(title: str, **extra: object) -> dict:
    return {"calls": [{"name": "play_song", "arguments": {"title": title}}], "distractors": [], **extra}


def lines(path: Path, *records: object) -> Path:
    path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in records))
    return path
