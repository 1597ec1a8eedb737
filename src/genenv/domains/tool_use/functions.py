"""Functions as OpenAI-style JSON schemas: random arguments, and requests in words.

A function is `{"name", "description", "parameters"}` or the OpenAI form `{"type": "function", "function": {...}}`. Three keys
are optional and ours: `field` (functions of a field serve as each other's distractors), `split` ("heldout": only used for
evaluation) and `request`, the wording of a request: a `head` with every required parameter in braces and a clause for each
optional one (for booleans: one for true, one for false). `examples` in a parameter's schema are its sample values. Without
a wording, requests are rendered from the description and the parameter names.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from functools import cached_property
from typing import Literal

import jsonschema
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from genenv.contracts.types import Json
from genenv.reading.parsing import Call


class Wording(BaseModel):
    """How a call is asked for in words."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    head: str
    clauses: Mapping[str, str | Mapping[Literal["true", "false"], str]] = Field(default_factory=dict)


class Function(BaseModel):
    """One function that the agent may call."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str = Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_.-]+$")
    description: str = ""
    parameters: Mapping[str, Json]
    field: str = "other"
    split: Literal["train", "heldout"] = "train"
    request: Wording | None = None

    @property
    def properties(self) -> Mapping[str, Mapping[str, Json]]:
        return self.parameters.get("properties", {})  # type: ignore[no-any-return]

    @property
    def required(self) -> Sequence[str]:
        return self.parameters.get("required", ())  # type: ignore[no-any-return]

    @cached_property
    def tool(self) -> dict[str, Json]:
        """The OpenAI tool object that models see: without sample values. One object for all tasks: not to be changed."""
        properties = {n: {k: v for k, v in s.items() if k != "examples"} for n, s in self.properties.items()}
        parameters = {**self.parameters, "properties": properties}
        return {
            "type": "function",
            "function": {"name": self.name, "description": self.description, "parameters": parameters},
        }


Catalogue = Mapping[str, Function]


def checked(record: Json) -> Function:
    """The function of a record in either form. Raises ValueError with one line."""
    if not isinstance(record, dict) or not isinstance(record.get("function", {}), dict):
        raise ValueError("not a function record: expected an object")
    flat = {**record.get("function", {}), **{k: v for k, v in record.items() if k not in ("function", "type")}}
    try:
        function = Function.model_validate(flat)
        jsonschema.Draft202012Validator.check_schema(dict(function.parameters))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "record"
        raise ValueError(f"function record: {where}: {first['msg']}") from None
    except jsonschema.SchemaError as error:
        raise ValueError(f"not a function record: {str(error).splitlines()[0]}") from None
    return function


_FIRST_DAY = date(2026, 1, 1)
_WORDS = ("alpha", "north", "river", "silver", "maple", "delta", "stone", "amber", "orbit", "cedar", "lotus", "prime")


def random_value(schema: Mapping[str, Json], rng: random.Random) -> Json:
    """A plausible value for one parameter: from `enum`, `examples`, `format`, bounds or, failing those, a word."""
    for source in ("enum", "examples"):
        if schema.get(source):
            return rng.choice(schema[source])
    kind = schema.get("type", "string")
    kind = kind if isinstance(kind, str) else kind[0]
    if kind == "boolean":
        return rng.random() < 0.5
    if kind == "integer":
        low = int(schema.get("minimum", 1))
        return rng.randint(low, max(low, int(schema.get("maximum", low + 99))))
    if kind == "number":
        bound = float(schema.get("minimum", 1))
        halves = rng.randint(round(2 * bound), round(2 * max(bound, float(schema.get("maximum", bound + 99)))))
        return halves // 2 if halves % 2 == 0 else halves / 2
    if kind == "array":
        return [random_value(schema.get("items", {}), rng) for _ in range(rng.randint(1, 2))]
    if kind == "object":
        properties: Mapping[str, Mapping[str, Json]] = schema.get("properties", {})
        keys = [k for k in properties if k in schema.get("required", ()) or rng.random() < 0.5]
        return {k: random_value(properties[k], rng) for k in keys}
    if schema.get("format") == "date":
        return (_FIRST_DAY + timedelta(days=rng.randrange(730))).isoformat()
    return rng.choice(_WORDS)


def random_call(function: Function, rng: random.Random, optional: float = 0.5) -> Call:
    """A valid call: all required arguments, each optional one with probability `optional`."""
    keys = [n for n in function.properties if n in function.required or rng.random() < optional]
    return Call(function.name, {n: random_value(function.properties[n], rng) for n in keys})


_SAFE = {"type", "enum", "minimum", "maximum", "minLength", "maxLength", "default", "description", "title", "examples"}
_TYPES: Mapping[str, type] = {"string": str, "integer": int, "boolean": bool}


def surely_valid(arguments: Mapping[str, Json], parameters: Mapping[str, Json]) -> bool:
    """Whether the arguments fit a schema of few simple keywords; False means only that jsonschema must decide.

    Nearly all calls are decided here, a hundred times sooner.
    """
    properties = parameters.get("properties", {})
    if parameters.get("type", "object") != "object" or not parameters.keys() <= _OBJECT:
        return False
    if any(key not in arguments for key in parameters.get("required", ())):
        return False
    for key, value in arguments.items():
        schema = properties.get(key)
        if not isinstance(schema, Mapping) or not schema.keys() <= _SAFE:
            return False
        if type(value) is not _TYPES.get(str(schema.get("type"))):
            return False
        if "enum" in schema and (type(value) is not str or value not in schema["enum"]):
            return False
        if type(value) is int and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
            return False
        if type(value) is str and not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
            return False
    return True


_OBJECT = {"type", "properties", "required", "additionalProperties", "description", "title"}


def value_text(value: Json) -> str:
    """A value as it stands in a request: strings bare, everything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def render_call(call: Call, function: Function) -> str:
    """One call in words, every argument value verbatim: `book a table at Luna for 4 people, outside`."""
    wording = function.request
    if wording is None:
        purpose = (function.description.strip() or function.name.replace("_", " ")).split(". ")[0].rstrip(".")
        pairs = [f"{n.replace('_', ' ')} {value_text(v)}" for n, v in call.arguments.items()]
        return purpose[:1].lower() + purpose[1:] + (f" with {', '.join(pairs)}" if pairs else "")
    text = re.sub(r"\{(\w+)\}", lambda m: value_text(call.arguments[m[1]]), wording.head)
    for name, value in call.arguments.items():
        if name in function.required:
            continue
        clause = wording.clauses[name]
        if not isinstance(clause, str):
            text += " " + clause["true" if value else "false"]
        else:
            text += " " + clause.replace("{}", value_text(value))
    return text


def render_request(calls: Sequence[Call], catalogue: Catalogue) -> str:
    """The user's request for `calls`, one sentence a call."""
    parts = [render_call(c, catalogue[c.name]) for c in calls]
    sentences = [parts[0][:1].upper() + parts[0][1:]] + ["Then " + p for p in parts[1:]]
    return ". ".join(sentences) + "."
