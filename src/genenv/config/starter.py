"""A configuration to start from: what a demonstration sets, and every other setting as a comment with its default."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from genenv.config.sections import Config


def starter(given: Mapping[str, Any]) -> str:
    """TOML text with the settings of `given` live and all others commented out."""
    top = [*_settings(Config, given)]
    sections = [
        f"[{name}]\n" + "\n".join(_settings(field.annotation, given.get(name, {})))
        for name, field in Config.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
    ]
    return "\n\n".join(["\n".join(top), *sections]) + "\n"


def _settings(model: type[BaseModel], given: Mapping[str, Any]) -> Iterator[str]:
    """One line a setting, what is set first; explanations stand above where they would make the line long."""
    fields = {n: f for n, f in model.model_fields.items() if not isinstance(f.default, BaseModel)}
    for name, field in sorted(fields.items(), key=lambda item: item[0] not in given):
        if name in given:
            line = f"{name} = {toml(given[name])}"
        else:
            line = f"# {name} =" if field.default is None else f"# {name} = {toml(field.default)}"
        note = field.description or ""
        if not note or len(line) + len(note) <= 96:
            yield f"{line}  # {note}" if note else line
        else:
            yield from (f"# {part}" for part in textwrap.wrap(note, 96))
            yield line


def toml(value: Any) -> str:
    """One TOML value on one line."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{k} = {toml(v)}" for k, v in value.items()) + " }" if value else "{}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(toml, value))}]"
    # a JSON string, number or truth value is TOML as it stands
    return json.dumps(value, ensure_ascii=False)
