"""From a file to a `Config`.

A TOML file plus `--set a.b=c` overrides gives one `Config`; the resolved copy is kept in the run folder. `recipe`
chooses defaults for the curriculum and both updates; whatever a file sets explicitly wins over the recipe.
"""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from genenv.config.recipes import RECIPES
from genenv.config.sections import DOMAIN_FILES, Config
from genenv.config.shipped import find_config
from genenv.contracts.errors import InputError


def load_config(path: Path, overrides: Sequence[str] = ()) -> Config:
    """Read a file or a shipped configuration, apply `a.b=c` overrides. Raises InputError naming file, section and key.

    The files of its section domain are looked for beside it; those that an override names, in the working directory.
    """
    path = find_config(path)
    raw = anchored(read_raw(path), path.parent)
    for override in overrides:
        _override(raw, override)
    return build_config(anchored(raw, Path()), str(path))


def anchored(raw: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """`raw` with the files of its section domain as absolute paths: a run's copy of them does not hang on where it is read."""
    domain = raw.get("domain")
    if not isinstance(domain, Mapping):
        return dict(raw)  # a wrong type is for the validation to say
    files = {k: str((folder / domain[k]).resolve()) for k in DOMAIN_FILES if isinstance(domain.get(k), str)}
    return merge(raw, {"domain": files})


def read_raw(path: Path) -> dict[str, Any]:
    """A TOML file, or a run's resolved config.json, as it stands. Raises InputError naming the file."""
    try:
        text = path.read_text("utf-8-sig")
        raw = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise InputError(f"cannot read the configuration {path}: {error.strerror}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, json.JSONDecodeError) as error:
        kind = "JSON" if path.suffix == ".json" else "TOML"
        raise InputError(f"{path}: not valid {kind}: {error}") from None
    if not isinstance(raw, dict):
        raise InputError(f"{path}: expected the configuration as a JSON object")
    return raw


def build_config(raw: dict[str, Any], source: str) -> Config:
    """Validate a nested dictionary. Raises InputError with one line."""
    recipe = raw.get("recipe", "genenv")
    merged = merge(RECIPES.get(recipe, {}) if isinstance(recipe, str) else {}, raw)
    try:
        return Config.model_validate(merged)
    except ValidationError as error:
        raise InputError(f"{source}: {explain(error, Config)}") from None


def _override(raw: dict[str, Any], text: str) -> None:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise InputError(f"--set {text}: expected KEY=VALUE, for example --set agent.group_size=4")
    *sections, name = key.strip().split(".")
    target = raw
    for section in sections:
        target = target.setdefault(section, {})
        if not isinstance(target, dict):
            raise InputError(f"--set {text}: {section} is a value, not a section")
    try:
        target[name] = tomllib.loads(f"x = {value}")["x"]
    except tomllib.TOMLDecodeError:
        target[name] = value  # a bare word is a string


def merge(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """`given` over `defaults`, section by section."""
    merged = dict(defaults)
    for key, value in given.items():
        below = merged.get(key)
        merged[key] = merge(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return merged


def _sections(model: type[BaseModel]) -> dict[str, type[BaseModel]]:
    """Section name to its model; the top level is ""."""
    named = {n: f.annotation for n, f in model.model_fields.items()}
    return {"": model} | {n: a for n, a in named.items() if isinstance(a, type) and issubclass(a, BaseModel)}


def explain(error: ValidationError, model: type[BaseModel]) -> str:
    """The first fault of a file that was to be a `model`, on one line, with the nearest valid key."""
    found = error.errors()
    first = next((e for e in found if e["type"] == "extra_forbidden"), found[0])  # a wrong name explains a missing one
    where = ".".join(map(str, first["loc"]))
    if not where:  # a rule about several sections
        return first["msg"].removeprefix("Value error, ")
    if first["type"] == "value_error":
        return f"{where}: {first['msg'].removeprefix('Value error, ')}"
    if first["type"] != "extra_forbidden":
        return f"{where}: {first['msg']}, found {json.dumps(first['input'], default=str)[:80]}"
    *parents, key = map(str, first["loc"])
    sections = _sections(model)
    here = sections.get(".".join(parents))
    homes = [f"{s}.{key}" if s else key for s, m in sections.items() if key.replace("-", "_") in m.model_fields]
    near = difflib.get_close_matches(key.replace("-", "_"), list(here.model_fields) if here else [], n=1)
    hints = [".".join([*parents, near[0]])] if near else [h.replace("-", "_") for h in homes]
    hint = f"; did you mean {hints[0]}?" if hints else ""
    return f"unknown key {where}{hint}"
