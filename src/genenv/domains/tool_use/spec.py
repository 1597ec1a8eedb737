"""What the simulator of `tool_use` writes: the specification and its JSON schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict, Field

from genenv.contracts.domain import object_schema
from genenv.contracts.types import Json
from genenv.domains.tool_use.functions import Function

MAX_CALLS = 4
MAX_DISTRACTORS = 6
MAX_STRING = 60


class CallSpec(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    name: str
    arguments: dict[str, Json]


class ToolSpec(BaseModel):
    """What the simulator writes."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    calls: list[CallSpec] = Field(min_length=1, max_length=MAX_CALLS)
    distractors: list[str] = Field(default_factory=list, max_length=MAX_DISTRACTORS)
    request: str | None = Field(default=None, max_length=2000)


def spec_schema(functions: Sequence[Function], max_calls: int, written: bool) -> Json:
    """JSON schema of a specification over `functions`, properties in the order they are to be written.

    `written`: the simulator words the request itself.
    """

    def call(function: Function) -> Json:
        parameters = function.tool["function"]["parameters"]
        properties = {n: _bounded(s) for n, s in parameters.get("properties", {}).items()}
        arguments = {**parameters, "properties": properties, "additionalProperties": False}
        return object_schema({"name": {"const": function.name}, "arguments": arguments})

    names: Json = {"enum": [f.name for f in functions]}
    properties: dict[str, Json] = {
        "calls": _array({"anyOf": [call(f) for f in functions]}, 1, max_calls),
        "distractors": _array(names, 0, MAX_DISTRACTORS),
    }
    if written:
        properties["request"] = {"type": "string", "maxLength": 600}
    return object_schema(properties)


def functions_of(spec: Mapping[str, Json]) -> list[str]:
    """The functions of a specification, each once."""
    return sorted({*(c["name"] for c in spec["calls"]), *spec.get("distractors", ())})


def _array(items: Json, low: int, high: int) -> Json:
    return {"type": "array", "items": items, "minItems": low, "maxItems": high}


def _bounded(schema: Mapping[str, Json]) -> Json:
    """Strings without a limit get one, so that a rambling simulator ends its string."""
    free = schema.get("type") == "string" and not {"enum", "const", "maxLength", "format", "pattern"} & schema.keys()
    return {**schema, "minLength": 1, "maxLength": MAX_STRING} if free else dict(schema)
