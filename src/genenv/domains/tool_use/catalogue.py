"""Catalogues of functions: a JSONL file, a JSON list of tools, or an OpenAPI 3 document in JSON or YAML."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable
from functools import cache
from importlib import resources
from pathlib import Path

from genenv.contracts.errors import InputError
from genenv.contracts.types import Json
from genenv.domains.tool_use.functions import Catalogue, Function, checked
from genenv.domains.tool_use.openapi import functions as from_openapi
from genenv.reading.parsing import parse_json_object
from genenv.reading.records import read_lines

YAML = (".yaml", ".yml")
SHOWN = 3
"""Reasons in one line."""


@cache
def builtin_catalogue() -> Catalogue:
    """The 84 functions over 14 fields that ship with the package."""
    file = resources.files("genenv.domains.tool_use") / "catalogue.jsonl"
    return _catalogue(_lines(enumerate(file.read_text("utf-8").splitlines(), 1), "catalogue.jsonl"), "catalogue.jsonl")


def load_catalogue(path: Path | None) -> Catalogue:
    """A user's functions, or the built-in ones. Raises InputError naming file and line."""
    return builtin_catalogue() if path is None else read_catalogue(path)[0]


def read_catalogue(path: Path) -> tuple[Catalogue, list[str]]:
    """The functions of a file, and one line for each thing in it that is no function. Raises InputError."""
    if path.suffix not in (".json", *YAML):
        return _catalogue(_lines(read_lines(path), str(path)), str(path)), []
    document = _document(path)
    if isinstance(document, list):
        return _catalogue(_records(enumerate(document, 1), str(path)), str(path)), []
    version = document.get("openapi") if isinstance(document, dict) else None
    if not str(version).startswith("3."):
        raise InputError(f"{path}: expected a list of tools or an OpenAPI 3 document, found {_kind(document)}")
    functions, skipped = from_openapi(document)
    if not functions:
        reasons = "; ".join(skipped[:SHOWN]) or "it has no operations"
        raise InputError(f"{path}: expected at least one operation that becomes a function, found none: {reasons}")
    return {f.name: f for f in functions}, skipped


def _document(path: Path) -> Json:
    try:
        text = path.read_text("utf-8-sig")
        if path.suffix not in YAML:
            return json.loads(text)
        return importlib.import_module("yaml").safe_load(text)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except ModuleNotFoundError:
        raise InputError(f"{path}: YAML needs PyYAML: pip install pyyaml") from None
    except (Exception, RecursionError) as error:  # what the two readers raise for a damaged or hostile document
        raise InputError(f"{path}: cannot be read: {' '.join(str(error).split())[:200]}") from None


def _kind(document: Json) -> str:
    if isinstance(document, dict):
        version = document.get("swagger") or document.get("openapi")
        return f"version {version}, which can be converted" if version else "an object without openapi"
    return type(document).__name__


def _lines(lines: Iterable[tuple[int, str]], source: str) -> Iterable[tuple[int, Function]]:
    for number, line in lines:
        try:
            record = parse_json_object(line)
        except ValueError as error:
            raise InputError(f"{source}:{number}: not a function record: {error}") from None
        yield from _records([(number, record)], source)


def _records(records: Iterable[tuple[int, Json]], source: str) -> Iterable[tuple[int, Function]]:
    for number, record in records:
        try:
            yield number, checked(record)
        except ValueError as error:
            raise InputError(f"{source}:{number}: {error}") from None


def _catalogue(functions: Iterable[tuple[int, Function]], source: str) -> Catalogue:
    catalogue: dict[str, Function] = {}
    for number, function in functions:
        if function.name in catalogue:
            raise InputError(f"{source}:{number}: function {function.name!r} is declared twice")
        catalogue[function.name] = function
    if not any(f.split == "train" for f in catalogue.values()):
        raise InputError(f"{source}: expected at least one function to train on, found none")
    return catalogue
