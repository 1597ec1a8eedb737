"""Write the generated parts of the documentation: `python docs/generate.py`. A test compares them with the code."""

from __future__ import annotations

import os
import typing
from pathlib import Path

from pydantic import BaseModel
from pydantic_core import PydanticUndefined
from typer.testing import CliRunner

from genenv.cli.app import app
from genenv.config.sections import Config

DOCS = Path(__file__).parent
MARK = "<!-- generated below -->\n"
COMMANDS = ("init", "train", "eval", "compare", "report", "tasks", "gate", "score", "theory", "analyse", "doctor")


def _type(annotation: object) -> str:
    if isinstance(annotation, type):
        return annotation.__name__
    if typing.get_origin(annotation) is typing.Literal:
        return " or ".join(map(str, typing.get_args(annotation)))
    if typing.get_origin(annotation) is dict:
        return "table"
    parts = [_type(a) for a in typing.get_args(annotation)]
    return " or ".join("none" if p == "NoneType" else p for p in parts)


def settings() -> str:
    """A table per section."""
    text = ""
    sections: list[tuple[str, type[BaseModel]]] = [("", Config)]
    sections += [(n, f.annotation) for n, f in Config.model_fields.items() if isinstance(f.default, BaseModel)]  # type: ignore[misc]
    for name, model in sections:
        text += f"\n## {f'[{name}]' if name else 'Top level'}\n\n{(model.__doc__ or '').splitlines()[0]}\n\n"
        text += "| key | type | default | meaning |\n|---|---|---|---|\n"
        for key, field in model.model_fields.items():
            if isinstance(field.default, BaseModel):
                continue
            default = "" if field.default is PydanticUndefined else "none" if field.default is None else field.default
            text += f"| `{key}` | {_type(field.annotation)} | {default} | {field.description or ''} |\n"
    return text


def commands() -> str:
    """The help text of every command."""
    os.environ |= {"COLUMNS": "100", "TERMINAL_WIDTH": "100", "NO_COLOR": "1"}
    text = "# Commands\n\nGenerated from the code (`python docs/generate.py`).\n"
    for command in COMMANDS:
        output = CliRunner().invoke(app, [command, "--help"], prog_name="genenv").output
        lines = "\n".join(line.rstrip() for line in output.strip().splitlines())
        text += f"\n## genenv {command}\n\n```\n{lines}\n```\n"
    return text


def pages() -> dict[Path, str]:
    """Every page with a generated part, as it should be."""
    configuration = DOCS / "configuration.md"
    head = configuration.read_text("utf-8").partition(MARK)[0]
    return {configuration: head + MARK + settings(), DOCS / "commands.md": commands()}


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, "utf-8")
        print(path)
