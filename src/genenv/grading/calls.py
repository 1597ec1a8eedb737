"""Do structured calls equal their target? A typed comparison with JSON Schema as the referee.

Each value is reduced to a normal form under its schema and the forms are
compared, so equality is an equivalence relation whatever the schema says:

- bool is not a number and a number is not a bool, at any depth; a string is never converted.
- Numbers compare by exact value. 1 and 1.0 are equal where the schema declares a number: `number` or `integer` in `type`
  (also in a list of types), or a number in `enum` or `const`. Elsewhere an integer and a float differ.
- null is a value: it is neither "missing" nor equal to anything but null.
- An optional argument left out equals its schema's `default`, if it has one, at any depth; `required` ones have no
  default. Lists compare in order, objects by keys; extra keys and extra calls are errors.
- Keywords that lead to a value's schema: `properties`, `additionalProperties`, `items`, `prefixItems` (also spelled as a
  list of `items`), `allOf`, and `$ref` into the same schema (`#/...`). Of `anyOf` and `oneOf` the first branch counts that
  fits by the type and constants of the value and by the keys and constants of an object's own properties. All other
  keywords are left to validation: here they change nothing, and nothing in a schema raises.
- What is not a JSON value (NaN, infinity, a date) equals nothing, not even itself.
- Calls are compared as a multiset: the order of calls does not matter, since each is checked on its own.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from genenv.contracts.types import Json
from genenv.reading.parsing import Call, shorten

Schema = Mapping[str, Json]
_NO_SCHEMA: Schema = {}

_MAX_FILLS = 6
"""Defaults inside defaults: a schema may refer to itself, and its full expansion would be endless."""


def _kind(value: Json) -> str:
    """The JSON Schema type of a value, "" if it is not a JSON value. Whole floats count as `number` here."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number" if math.isfinite(value) else ""
    if isinstance(value, (list, tuple)):
        return "array"
    return "object" if isinstance(value, Mapping) else ""


def _types(schema: Schema) -> Sequence[Json]:
    kinds = schema.get("type", ())
    return kinds if isinstance(kinds, (list, tuple)) else (kinds,)


def _constants(schema: Schema) -> list[Json] | None:
    """The values that `enum` and `const` allow, None if there is no such keyword."""
    listed = schema.get("enum")
    if isinstance(listed, (list, tuple)):
        return list(listed)
    return [schema["const"]] if "const" in schema else None


def _mapping(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, Mapping) else {}


def _strings(value: Json) -> set[str]:
    return {v for v in value if isinstance(v, str)} if isinstance(value, (list, tuple)) else set()


def _allows(value: Json, schema: Schema) -> bool:
    """Whether `value` has a type and, if it is a scalar, a constant that `schema` allows."""
    kind = _kind(value)
    if types := _types(schema):
        kinds = {kind, "number"} if kind == "integer" else {kind}
        if kind == "number" and value == int(value):
            kinds.add("integer")
        if not kinds & _strings(types):
            return False
    constants = _constants(schema)
    if constants is None or kind in ("array", "object"):
        return True
    return any(_kind(c) not in ("array", "object") and _same_scalar(c, value) for c in constants)


def _same_scalar(left: Json, right: Json) -> bool:
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)


def _resolve(ref: Json, root: Schema) -> Json:
    """The part of `root` that a local `$ref` (a JSON pointer) names, None if there is none."""
    if not isinstance(ref, str) or not ref.startswith("#"):
        return None
    node: Json = root
    for part in ref[1:].split("/")[1:]:
        node = _mapping(node).get(part.replace("~1", "/").replace("~0", "~"))
    return node


def _fits(value: Json, branch: Json, root: Schema) -> bool:
    """Whether a branch of anyOf or oneOf speaks of `value`: one level deep, so that the choice stays cheap."""
    for view in _views(branch, root):
        if not _allows(value, view):
            return False
        if isinstance(value, Mapping):
            if not _strings(view.get("required")) <= value.keys():
                return False
            properties = _mapping(view.get("properties"))
            if view.get("additionalProperties") is False and not value.keys() <= properties.keys():
                return False
            for key in value.keys() & properties.keys():
                if not all(_allows(value[key], v) for v in _views(properties[key], root)):
                    return False
    return True


def _views(schema: Json, root: Schema) -> list[Schema]:
    """`schema` with what it refers to by `$ref` and `allOf`: all of them hold at once. Cycles are cut."""
    views: list[Schema] = []
    waiting, seen = [schema], set[int]()
    for node in waiting:  # grows while it is walked
        if not isinstance(node, Mapping) or id(node) in seen:
            continue
        seen.add(id(node))
        views.append(node)
        if "$ref" in node:
            waiting.append(_resolve(node["$ref"], root))
        if isinstance(parts := node.get("allOf"), (list, tuple)):
            waiting += parts
    return views


def _schemas(value: Json, schemas: Sequence[Json], root: Schema) -> list[Schema]:
    """All schemas that hold for `value`: `schemas`, what they refer to, and the branches that fit."""
    result: list[Schema] = []
    waiting, seen = list(schemas), set[int]()
    for schema in waiting:  # grows while it is walked
        for view in _views(schema, root):
            if id(view) in seen:
                continue
            seen.add(id(view))
            result.append(view)
            for word in ("anyOf", "oneOf"):
                branches = view.get(word)
                if isinstance(branches, (list, tuple)):
                    waiting += [b for b in branches if _fits(value, b, root)][:1]
    return result


def _form(value: Json, schemas: Sequence[Json], root: Schema, fills: int = 0) -> Hashable:
    """The normal form of `value`: equal for equal values, and only for those."""
    kind = _kind(value)
    if kind in ("string", "boolean", "null"):
        return (kind, value)
    if not kind:
        return object()
    views = _schemas(value, schemas, root)
    if kind in ("integer", "number"):
        declared = any(
            {"number", "integer"} & _strings(_types(v))
            or any(_kind(c) in ("integer", "number") for c in _constants(v) or ())
            for v in views
        )
        return ("any number" if declared else kind, value)
    if kind == "array":
        return (kind, *(_form(v, _item_schemas(views, i), root, fills) for i, v in enumerate(value)))
    return _object_form(value, views, root, fills)


def _item_schemas(views: Sequence[Schema], index: int) -> list[Json]:
    result = []
    for view in views:
        rest = view.get("items")
        prefix = rest if isinstance(rest, (list, tuple)) else view.get("prefixItems")
        if isinstance(prefix, (list, tuple)) and index < len(prefix):
            result.append(prefix[index])
        elif isinstance(rest, Mapping):
            result.append(rest)
    return result


def _object_form(value: Mapping[str, Json], views: Sequence[Schema], root: Schema, fills: int) -> Hashable:
    required = {k for view in views for k in _strings(view.get("required"))}
    schemas: dict[str, list[Json]] = {k: [] for k in value}
    for view in views:
        properties = _mapping(view.get("properties"))
        for key, schema in properties.items():
            schemas.setdefault(key, []).append(schema)
        if isinstance(others := view.get("additionalProperties"), Mapping):
            for key in value.keys() - properties.keys():
                schemas[key].append(others)
    entries = []
    for key, found in schemas.items():
        if key in value:
            entries.append((key, _form(value[key], found, root, fills)))
        elif key not in required and fills < _MAX_FILLS:
            defaults = [v["default"] for s in found for v in _views(s, root) if "default" in v]
            entries += [(key, _form(d, found, root, fills + 1)) for d in defaults[:1]]
    return ("object", frozenset(entries))


def equal_values(target: Json, answer: Json, schema: Schema | None = None) -> bool:
    """Whether two JSON values are the same value under `schema`."""
    root = schema or {}
    return _form(target, [root], root) == _form(answer, [root], root)


def equal_arguments(target: Mapping[str, Json], answer: Mapping[str, Json], schema: Schema) -> bool:
    """Whether two argument objects are equal, with defaults of `schema["properties"]` filled in."""
    return equal_values(target, answer, schema)


@dataclass(frozen=True)
class _Flat:
    """An object schema whose properties stand alone, as nearly all of functions do: its forms need no search."""

    schema: Schema
    numeric: frozenset[str]
    properties: Mapping[str, Schema]
    defaults: dict[str, Hashable]


_COMPOUND = {"$ref", "allOf", "anyOf", "oneOf"}
_FLAT: dict[int, _Flat | None] = {}
_KEPT: list[Schema] = []
"""Schemas in `_FLAT`, so that no other object gets the same id."""


def _flat(schema: Schema) -> _Flat | None:
    """What `_object_form` would find out about `schema` for every value; None where it depends on the value."""
    if (place := id(schema)) in _FLAT:
        return _FLAT[place]
    if len(_KEPT) >= 4096:
        _FLAT.clear()
        _KEPT.clear()
    properties = _mapping(_mapping(schema).get("properties"))
    plain = isinstance(schema, Mapping) and not _COMPOUND & schema.keys()
    plain = plain and not isinstance(schema.get("additionalProperties"), Mapping)
    plain = plain and all(isinstance(p, Mapping) and not _COMPOUND & p.keys() for p in properties.values())
    found = None
    if plain:
        required = _strings(schema.get("required"))
        number = frozenset(k for k, p in properties.items() if _form(0, [p], schema) == ("any number", 0))
        found = _Flat(schema, number, properties, {})
        for key, below in properties.items():
            if "default" in below and key not in required:
                found.defaults[key] = _property_form(key, below["default"], found)
    _KEPT.append(schema)
    _FLAT[place] = found
    return found


def _property_form(key: str, value: Json, flat: _Flat) -> Hashable:
    """What stands for the value of a property: itself where Python's equality is the right one, else its normal form."""
    if isinstance(value, str) or (key in flat.numeric and _kind(value) in ("integer", "number")):
        own: Hashable = value
        return own
    return _form(value, [flat.properties[key]] if key in flat.properties else [], flat.schema, 1)


def _arguments_form(arguments: Mapping[str, Json], schema: Schema) -> Hashable:
    """As `_form`, equal for equal arguments and only for those; sooner where the schema is flat."""
    flat = _flat(schema)
    if flat is None:
        return _form(arguments, [schema], schema)
    form = dict(flat.defaults)
    for key, value in arguments.items():
        form[key] = _property_form(key, value, flat)
    return frozenset(form.items())


class CallMatcher:
    """Compares answers with one target: `difference` is "" for an answer that makes exactly the target's calls.

    `schemas` maps a function's name to the JSON schema of its parameters. The target's normal forms are made once.
    """

    def __init__(self, target: Sequence[Call], schemas: Mapping[str, Schema]) -> None:
        self._schemas = schemas
        self._wanted = [(c.name, self._form(c)) for c in target]
        self._counts = Counter(self._wanted)
        self._names = {c.name for c in target}

    def _form(self, call: Call) -> Hashable:
        return _arguments_form(call.arguments, self._schemas.get(call.name, _NO_SCHEMA))

    def difference(self, answer: Sequence[Call]) -> str:
        """The reason of the first difference."""
        if self._wanted and not answer:
            return "no call"
        missing, extra = dict(self._counts), []
        for call in answer:
            # whatever the arguments of an unknown function, no call of the target is equal
            form = (call.name, self._form(call)) if call.name in self._names else None
            if form is not None and missing.get(form):
                missing[form] -= 1
            else:
                extra.append(call.name)
        for name, arguments in self._wanted:
            if missing[name, arguments]:
                return f"wrong arguments for {name}" if name in extra else f"missing call of {name}"
        return f"extra call of {shorten(extra[0])}" if extra else ""
