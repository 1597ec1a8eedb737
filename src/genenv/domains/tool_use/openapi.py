"""Functions from an OpenAPI 3 document: one for each operation.

The name is the operationId, or method and path; the parameters are those in path and query and the properties of the
request body. Headers and cookies are the client's business. `$ref` is followed within the document. What the body's schema
requires is required, whether or not the body itself is. A body that is no object is the parameter `body`.

Left out, each with a reason: what refers to other files, contains itself, is deeper than MAX_DEPTH or longer than
MAX_NODES, or needs a choice between schemas (`oneOf`, `anyOf`, `not`). If a parameter that nobody requires is like that, it
goes; if a required one is, the operation goes. So does an operation for which no valid arguments can be made up.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema

from genenv.contracts.types import Json
from genenv.domains.tool_use.functions import Function, checked, random_call

METHODS = ("get", "put", "post", "delete", "patch", "head", "options")
MAX_DEPTH = 8
MAX_NODES = 2000
"""Schemas in one operation, every `$ref` written out."""
MAX_DESCRIPTION = 200
TRIES = 20

_KEPT = {
    "type", "enum", "const", "default", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
    "minLength", "maxLength", "pattern", "format", "minItems", "maxItems", "uniqueItems",
}  # fmt: skip
_SAMPLES: Mapping[str, list[str]] = {
    "email": ["ada@example.com", "grace@example.org", "alan@example.net"],
    "uuid": ["0f8fad5b-d9cb-469f-a165-70867728950e", "7c9e6679-7425-40de-944b-e07fc1f90ae7"],
    "uri": ["https://example.com/a", "https://example.org/b", "https://example.net/c"],
    "date-time": ["2026-03-01T09:00:00Z", "2026-07-15T18:30:00Z", "2027-01-31T12:45:00Z"],
}


class _Unsupported(ValueError):
    """Why something is left out."""


def functions(document: Mapping[str, Json]) -> tuple[list[Function], list[str]]:
    """The functions, and one line for each thing that is left out. Nothing in a document is an error."""
    found: dict[str, Function] = {}
    skipped: list[str] = []
    for place, shared, operation in _operations(document):
        try:
            function = _Reader(document, place, skipped).function(shared, operation)
            if function.name in found:
                raise _Unsupported(f"another operation is called {function.name}")
            found[function.name] = function
        except _Unsupported as reason:
            skipped.append(f"{place}: {reason}")
    return list(found.values()), skipped


def _operations(document: Mapping[str, Json]) -> Iterator[tuple[str, Json, Mapping[str, Json]]]:
    """(`GET /pets`, the parameters of the path, the operation)."""
    for path, item in _mapping(document.get("paths")).items():
        for method in METHODS:
            operation = _mapping(item).get(method)
            if isinstance(operation, Mapping):
                yield f"{method.upper()} {path}", item.get("parameters"), operation


class _Reader:
    """Reads one operation; counts the schemas that it takes."""

    def __init__(self, document: Mapping[str, Json], place: str, skipped: list[str]) -> None:
        self._document = document
        self._place = place
        self._skipped = skipped
        self._nodes = 0

    def function(self, shared: Json, operation: Mapping[str, Json]) -> Function:
        """Raises _Unsupported."""
        properties: dict[str, Json] = {}
        required: list[str] = []
        for name, needed, schema in [*self._parameters(shared, operation), *self._body(operation)]:
            if name in properties:
                raise _Unsupported(f"{name} is both a parameter and a property of the body")
            try:
                properties[name] = self._schema(schema, ())
            except _Unsupported as reason:
                self._leave_out(name, reason, needed)
            else:
                required += [name] * needed
        method, _, path = self._place.partition(" ")
        name = operation.get("operationId") or method.lower() + path
        record = {
            "name": re.sub(r"[^A-Za-z0-9_.-]+", "_", str(name)).strip("_")[:64],
            "description": _text(operation, "summary") or _text(operation, "description"),
            "parameters": {"type": "object", "properties": properties, "required": required},
            "field": str((_list(operation.get("tags")) or ["other"])[0]),
        }
        return _usable(record)

    def _parameters(self, shared: Json, operation: Mapping[str, Json]) -> Iterator[tuple[str, bool, Json]]:
        chosen: dict[tuple[str, str], Mapping[str, Json]] = {}
        for given in [*_list(shared), *_list(operation.get("parameters"))]:  # an operation's own come last and win
            parameter = self._found(given, ())[0]
            chosen[str(parameter.get("name", "")), str(parameter.get("in"))] = parameter
        for (name, where), parameter in chosen.items():
            if name and where in ("path", "query"):
                schema = parameter.get("schema") or _first_schema(parameter)
                extra = {k: parameter[k] for k in ("description", "example") if k in parameter}
                yield name, where == "path" or parameter.get("required") is True, _with(schema, extra)

    def _body(self, operation: Mapping[str, Json]) -> Iterator[tuple[str, bool, Json]]:
        if "requestBody" not in operation:
            return
        body = self._found(operation["requestBody"], ())[0]
        schema, trail = self._found(_first_schema(body), ())
        if not _is_object(schema):
            yield "body", body.get("required") is True, schema
            return
        whole = self._merged(schema, trail)
        for name, inner in _mapping(whole.get("properties")).items():
            if _mapping(inner).get("readOnly") is not True:
                yield str(name), name in _list(whole.get("required")), inner

    def _found(self, given: Json, trail: tuple[str, ...]) -> tuple[Mapping[str, Json], tuple[str, ...]]:
        """What `given` is or refers to, and the references on the way there. Raises _Unsupported."""
        while "$ref" in _mapping(given):
            reference = str(given["$ref"])
            if not reference.startswith("#/"):
                raise _Unsupported(f"{reference[:80]} is outside the document")
            if reference in trail:
                raise _Unsupported(f"{reference[:80]} contains itself")
            trail = (*trail, reference)
            given = self._document
            for key in reference[2:].split("/"):
                given = _mapping(given).get(key.replace("~1", "/").replace("~0", "~"))
            if given is None:
                raise _Unsupported(f"{reference[:80]} does not exist")
        return _mapping(given), trail

    def _merged(self, schema: Mapping[str, Json], trail: tuple[str, ...]) -> Mapping[str, Json]:
        """A schema with the objects of its `allOf` written into it."""
        if "allOf" not in schema:
            return schema
        whole: dict[str, Json] = {k: v for k, v in schema.items() if k != "allOf"}
        for part in _list(schema["allOf"]):
            inner, below = self._found(part, trail)
            self._count(below)
            inner = self._merged(inner, below)
            known, more = _mapping(whole.get("properties")), _mapping(inner.get("properties"))
            properties = {**known, **{n: s for n, s in more.items() if n not in known}}
            required = [*_list(whole.get("required")), *_list(inner.get("required"))]
            whole = {**inner, **whole, "properties": properties, "required": required}
        return whole

    def _schema(self, given: Json, trail: tuple[str, ...], depth: int = 0) -> dict[str, Json]:
        """A JSON schema without references. Raises _Unsupported."""
        schema, trail = self._found(given, trail)
        self._count(trail)
        if depth > MAX_DEPTH:
            raise _Unsupported(f"deeper than {MAX_DEPTH} levels")
        schema = self._merged(schema, trail)
        if choice := {"oneOf", "anyOf", "not"} & schema.keys():
            raise _Unsupported(f"{min(choice)} leaves a choice")
        plain = {k: v for k, v in schema.items() if k in _KEPT}
        for key in ("exclusiveMinimum", "exclusiveMaximum"):  # OpenAPI 3.0 says true or false
            if isinstance(plain.get(key), bool):
                bound = plain.pop(key.replace("exclusiveM", "m"), None) if plain.pop(key) else None
                plain |= {} if bound is None else {key: bound}
        if text := _text(schema, "description"):
            plain["description"] = text
        samples = [schema["example"]] if "example" in schema else _list(schema.get("examples"))
        samples = samples or _SAMPLES.get(str(plain.get("format")), [])
        if samples and "enum" not in plain:
            plain["examples"] = samples
        if _is_object(schema):
            plain |= {"type": "object", **self._members(schema, trail, depth)}
        elif plain.get("type") == "array":
            plain["items"] = self._schema(schema.get("items"), trail, depth + 1)
        return plain

    def _members(self, schema: Mapping[str, Json], trail: tuple[str, ...], depth: int) -> dict[str, Json]:
        properties: dict[str, Json] = {}
        required = [n for n in _list(schema.get("required")) if n in _mapping(schema.get("properties"))]
        for name, inner in _mapping(schema.get("properties")).items():
            try:
                properties[str(name)] = self._schema(inner, trail, depth + 1)
            except _Unsupported as reason:
                self._leave_out(str(name), reason, name in required)
        return {"properties": properties, "required": required}

    def _leave_out(self, name: str, reason: _Unsupported, needed: bool) -> None:
        if needed or self._nodes > MAX_NODES:
            raise _Unsupported(f"{name[:60]}: {reason}") from None
        self._skipped.append(f"{self._place}: without {name[:60]}: {reason}")

    def _count(self, trail: tuple[str, ...]) -> None:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise _Unsupported(f"more than {MAX_NODES} schemas")
        if len(trail) > 4 * MAX_DEPTH:
            raise _Unsupported("too many references in a row")


def _usable(record: dict[str, Json]) -> Function:
    """The function, if the record is one and arguments can be made up for it."""
    try:
        json.dumps(record, allow_nan=False)  # YAML has values that JSON has not
        function = checked(record)
        validator = jsonschema.Draft202012Validator(
            dict(function.parameters), format_checker=jsonschema.FormatChecker()
        )
        calls = [random_call(function, random.Random(i)) for i in range(TRIES)]
        faults = [f for f in (next(validator.iter_errors(dict(c.arguments)), None) for c in calls) if f is not None]
    except Exception as error:  # schemas are foreign, and what reads them raises what it likes
        raise _Unsupported(" ".join(str(error).split())[:160]) from None
    if faults:
        where = ".".join(map(str, faults[0].path)) or "arguments"
        raise _Unsupported(f"{where}: no valid value can be made up, give an example: {faults[0].message[:100]}")
    return function


def _mapping(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Json) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(record: Mapping[str, Json], key: str) -> str:
    """The first line, not too long."""
    lines = str(record.get(key) or "").strip().splitlines()
    return lines[0][:MAX_DESCRIPTION] if lines else ""


def _is_object(schema: Mapping[str, Json]) -> bool:
    return schema.get("type", "object") == "object" and ("properties" in schema or "allOf" in schema)


def _first_schema(record: Mapping[str, Json]) -> Json:
    """The schema of a `content`: JSON if there is some."""
    content = _mapping(record.get("content"))
    kinds = sorted(map(str, content), key=lambda kind: "json" not in kind)
    return _mapping(content.get(kinds[0])).get("schema") if kinds else None


def _with(schema: Json, extra: Mapping[str, Json]) -> Json:
    """A parameter's description and example belong to its schema; a reference keeps what it refers to."""
    return schema if "$ref" in _mapping(schema) else {**extra, **_mapping(schema)}
