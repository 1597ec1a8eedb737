"""OpenAPI documents and lists of tools as catalogues: what becomes a function, and what is left out and why."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from genenv.cli.app import app
from genenv.contracts.errors import InputError
from genenv.contracts.types import Json
from genenv.domains.tool_use import openapi
from genenv.domains.tool_use.catalogue import read_catalogue
from genenv.domains.tool_use.domain import ToolUse
from genenv.loop.gate import Gate

SHOP: Json = {
    "openapi": "3.0.3",
    "paths": {
        "/orders/{orderId}": {
            "parameters": [
                {"name": "orderId", "in": "path", "required": True, "schema": {"type": "integer", "minimum": 1}},
                {"name": "lang", "in": "query", "schema": {"type": "string"}},
                {"name": "X-Trace", "in": "header", "required": True, "schema": {"type": "string"}},
            ],
            "get": {
                "operationId": "getOrder",
                "summary": "Look up an order.\nAnd more.",
                "tags": ["orders"],
                "parameters": [{"name": "lang", "in": "query", "required": True, "schema": {"enum": ["de", "en"]}}],
            },
            "patch": {"operationId": "change order!", "requestBody": {"$ref": "#/components/requestBodies/Change"}},
        },
        "/orders": {
            "post": {
                "description": "Order.",
                "requestBody": {
                    "content": {
                        "text/plain": {"schema": {"type": "string"}},
                        "application/json": {"schema": {"$ref": "#/components/schemas/Order"}},
                    }
                },
            },
            "put": {
                "operationId": "setOrders",
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": {"type": "array", "items": {"type": "integer"}}}},
                },
            },
        },
    },
    "components": {
        "requestBodies": {
            "Change": {"content": {"application/json": {"schema": {"properties": {"note": {"type": "string"}}}}}}
        },
        "schemas": {
            "Base": {"type": "object", "required": ["id", "buyer"], "properties": {
                "id": {"type": "integer", "readOnly": True},
                "buyer": {"type": "string", "format": "email"},
            }},
            "Order": {"allOf": [
                {"$ref": "#/components/schemas/Base"},
                {"type": "object", "required": ["items"], "properties": {
                    "items": {"type": "array", "maxItems": 3, "items": {"$ref": "#/components/schemas/Item"}},
                    "gift": {"type": "boolean", "nullable": True},
                    "share": {"type": "number", "minimum": 0, "exclusiveMinimum": True, "example": 0.5},
                }},
            ]},
            "Item": {"type": "object", "required": ["sku"], "properties": {
                "sku": {"type": "string", "pattern": "^[A-Z][0-9]$", "example": "A1"},
                "kind": {"type": "string", "enum": ["new", "used"], "description": "Its state."},
                "parts": {"type": "array", "items": {"$ref": "#/components/schemas/Item"}},
            }},
        },
    },
}  # fmt: skip


def written(folder: Path, document: Json, name: str = "api.json") -> Path:
    path = folder / name
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def test_operations_become_functions() -> None:
    functions, skipped = openapi.functions(SHOP)
    assert [(f.name, f.description, f.field) for f in functions] == [
        ("getOrder", "Look up an order.", "orders"),
        ("change_order", "", "other"),
        ("setOrders", "", "other"),
        ("post_orders", "Order.", "other"),
    ]
    get, change, put, post = (f.parameters for f in functions)
    integer = {"type": "integer", "minimum": 1}
    assert get == {
        "type": "object",
        "properties": {"orderId": integer, "lang": {"enum": ["de", "en"]}},
        "required": ["orderId", "lang"],
    }
    assert change["properties"] == {
        "orderId": integer,
        "lang": {"type": "string"},
        "note": {"type": "string"},
    }
    assert change["required"] == ["orderId"]
    assert put["properties"] == {"body": {"type": "array", "items": {"type": "integer"}}}
    assert put["required"] == ["body"]
    assert post["required"] == ["buyer", "items"]
    assert post["properties"] == {
        "buyer": {
            "type": "string",
            "format": "email",
            "examples": ["ada@example.com", "grace@example.org", "alan@example.net"],
        },
        "items": {
            "type": "array",
            "maxItems": 3,
            "items": {
                "type": "object",
                "properties": {
                    "sku": {"type": "string", "pattern": "^[A-Z][0-9]$", "examples": ["A1"]},
                    "kind": {"type": "string", "enum": ["new", "used"], "description": "Its state."},
                },
                "required": ["sku"],
            },
        },
        "gift": {"type": "boolean"},
        "share": {"type": "number", "exclusiveMinimum": 0, "examples": [0.5]},
    }
    assert skipped == ["POST /orders: without parts: #/components/schemas/Item contains itself"]


def operation(schema: Json, **more: Json) -> Json:
    body = {"required": True, "content": {"application/json": {"schema": schema}}}
    return {"openapi": "3.1.0", "paths": {"/x": {"post": {"operationId": "x", "requestBody": body, **more}}}}


def needed(schema: Json) -> Json:
    return {"type": "object", "required": ["a"], "properties": {"a": schema}}


LOOP = {"type": "object", "required": ["next"], "properties": {"next": {"$ref": "#/components/schemas/Loop"}}}
DEEP: Json = {"type": "string"}
for _ in range(12):
    DEEP = {"type": "array", "items": DEEP}
WIDE = {f"S{i}": {"type": "object", "properties": {k: {"$ref": f"#/components/schemas/S{i + 1}"} for k in "abcdefgh"}}
        for i in range(7)} | {"S7": {"type": "string"}}  # fmt: skip


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (operation({"$ref": "#/components/schemas/Loop"}) | {"components": {"schemas": {"Loop": LOOP}}},
         "next: #/components/schemas/Loop contains itself"),
        (operation({"$ref": "#/a"}) | {"a": {"$ref": "#/b"}, "b": {"$ref": "#/a"}}, "#/a contains itself"),
        (operation({"$ref": "other.json#/A"}), "other.json#/A is outside the document"),
        (operation({"$ref": "#/nowhere/at/all"}), "#/nowhere/at/all does not exist"),
        (operation(needed(DEEP)), "a: deeper than 8 levels"),
        (operation(needed({"$ref": "#/components/schemas/S0"})) | {"components": {"schemas": WIDE}}, "more than 2000 schemas"),
        (operation(needed({"oneOf": [{"type": "string"}]})), "a: oneOf leaves a choice"),
        (operation(needed({"type": "string", "pattern": "^[0-9]{9}$"})), "a: no valid value can be made up, give an example"),
        (operation(needed({"type": "nonsense"})), "not a function record"),
        (operation(needed({"type": "array", "items": {"type": "string"}, "minItems": 4})), "no valid value can be made up"),
        (operation(needed({"type": "string"}), parameters=[{"name": "a", "in": "query"}]), "a is both a parameter and"),
        (operation(needed({"type": "string"}), operationId="!!"), "function record: name"),
        (operation({"allOf": [{"$ref": "#/paths/~1x/post/requestBody/content/application~1json/schema"}]}),
         "contains itself"),
    ],
)  # fmt: skip
def test_an_operation_that_cannot_be_is_left_out_with_its_reason(tmp_path: Path, document: Json, reason: str) -> None:
    functions, skipped = openapi.functions(document)
    assert functions == []
    assert skipped[-1].startswith("POST /x: ")
    assert reason in skipped[-1]
    with pytest.raises(
        InputError, match="expected at least one operation that becomes a function, found none: POST /x"
    ):
        read_catalogue(written(tmp_path, document))


def test_a_name_is_given_once() -> None:
    get = {"operationId": "same"}
    functions, skipped = openapi.functions({"paths": {"/a": {"get": get}, "/b": {"get": get, "post": {}}}})
    assert [f.name for f in functions] == ["same", "post_b"]
    assert skipped == ["GET /b: another operation is called same"]


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"paths": []},
        {"paths": {"/a": None, "/b": [], "/c": {"get": 3}, "/d": {"parameters": 4, "get": {"parameters": "x"}}}},
        {"paths": {"/a": {"get": {"parameters": [None, 1, {}, {"in": "query"}], "tags": [None]}}}},
        {"paths": {"/a": {"post": {"requestBody": {"content": {"a/b": None}}}}}},
        {"paths": {"/a": {"post": {"requestBody": {"content": {"json": {"schema": {"allOf": 1, "properties": []}}}}}}}},
        {"paths": {"/a": {"post": {"requestBody": {"content": {3: {"schema": needed({"enum": []})}}}}}}},
    ],
)
def test_odd_documents_are_no_crash(document: Json) -> None:
    functions, skipped = openapi.functions(document)
    assert all(isinstance(line, str) and "\n" not in line for line in skipped)
    assert len(functions) <= 1


def test_yaml_with_anchors_that_contain_themselves_and_dates(tmp_path: Path) -> None:
    text = """
openapi: 3.0.0
paths:
  /loop:
    post:
      operationId: loop
      requestBody: {content: {application/json: {schema: &s {type: object, required: [a], properties: {a: *s}}}}}
  /day:
    get:
      operationId: day
      parameters: [{name: on, in: query, required: true, schema: {type: string, example: 2026-01-01}}]
  /ok:
    get: {operationId: ok, parameters: [{name: n, in: query, schema: {type: integer}}]}
"""
    catalogue, skipped = read_catalogue(written(tmp_path, text, "api.yaml"))
    assert list(catalogue) == ["ok"]
    assert [line.partition(": ")[0] for line in skipped] == ["POST /loop", "GET /day"]
    assert "levels" in skipped[0]
    assert "not JSON serializable" in skipped[1]


@pytest.mark.parametrize(
    ("document", "line"),
    [
        ({"swagger": "2.0", "paths": {}}, "expected a list of tools or an OpenAPI 3 document, found version 2.0"),
        ({"paths": {}}, "found an object without openapi"),
        ("7", "found int"),
        ("[", "cannot be read: Expecting value"),
        ("[" * 100_000, "cannot be read: "),
        ([{"name": "f", "parameters": {}}, 3], "api.json:2: not a function record: expected an object"),
        ([{"name": "f", "parameters": {}}] * 2, "api.json:2: function 'f' is declared twice"),
        ([{"type": "function", "function": 3}], "api.json:1: not a function record"),
        ([], "expected at least one function to train on, found none"),
        ({"openapi": "3.1.0"}, "found none: it has no operations"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, document: Json, line: str) -> None:
    with pytest.raises(InputError, match=r"api\.json") as caught:
        read_catalogue(written(tmp_path, document))
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_list_of_tools(tmp_path: Path) -> None:
    parameters = {"type": "object", "properties": {"a": {"type": "string"}}}
    tools = [{"type": "function", "function": {"name": "f", "parameters": parameters}}, {"name": "g", "parameters": {}}]
    assert list(read_catalogue(written(tmp_path, tools))[0]) == ["f", "g"]


def test_the_tasks_of_a_document_pass_the_gate(tmp_path: Path) -> None:
    domain = ToolUse(written(tmp_path, SHOP), max_calls=2)
    gate = Gate(domain)
    reasons = [gate.judge(domain.build(s.spec)).reason for s in domain.seeds(40, 0)]
    assert reasons.count("admitted") + reasons.count("duplicate") == 40


def test_doctor_shows_what_came_out(tmp_path: Path) -> None:
    path = written(tmp_path, SHOP)
    config = tmp_path / "c.toml"
    config.write_text(f'[domain]\ncatalogue = "{path}"\n')
    result = CliRunner().invoke(app, ["doctor", str(config), "--json"])
    findings = json.loads(result.stdout)
    assert findings["functions"] == f"4 from {path}, 1 things left out"
    assert findings["function getOrder"] == "orderId: integer, lang: any"
    assert findings["function post_orders"] == "buyer: string, items: array, gift?: boolean, share?: number"
    assert findings["left out 1"] == "POST /orders: without parts: #/components/schemas/Item contains itself"


def test_functions_without_a_valid_call_are_an_error_and_no_endless_search(tmp_path: Path) -> None:
    code = {"type": "string", "pattern": "^[0-9]{9}$"}
    tools = [{"name": "f", "parameters": {"type": "object", "properties": {"code": code}, "required": ["code"]}}]
    with pytest.raises(InputError, match="1000 random tasks of 1-call are none, the last one: schema: f: "):
        ToolUse(written(tmp_path, tools)).seeds(1, 0)
