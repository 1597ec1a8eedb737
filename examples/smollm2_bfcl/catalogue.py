"""Turn the function documents of BFCL multi-turn into a function catalogue for the tool_use domain.

    python examples/smollm2_bfcl/catalogue.py FOLDER_OR_bfcl_eval OUT.jsonl

FOLDER holds the `*.json` documents (one JSON object a line); `bfcl_eval` finds those of the installed package, which
`pip install --no-deps bfcl-eval` brings. Every tenth function is kept for evaluation only.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": "string"}
PREFIX = "Tool description: "


def schema(document: dict[str, Any]) -> dict[str, Any]:
    """Their schema as JSON Schema: other type names, no textual None as a default."""
    kind = TYPES.get(document["type"], document["type"])
    result: dict[str, Any] = {"type": kind}
    if text := document.get("description", "").strip():
        result["description"] = text
    if "properties" in document:
        result["properties"] = {name: schema(inner) for name, inner in document["properties"].items()}
        result["required"] = document.get("required", [])
        result["additionalProperties"] = False
    if "items" in document:
        result["items"] = schema(document["items"])
    if document.get("default") not in (None, "None"):
        result["default"] = document["default"]
    return result


def convert(folder: Path) -> list[dict[str, Any]]:
    """All functions of the folder's documents, each name once."""
    functions: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.glob("*.json")):
        for line in path.read_text("utf-8").splitlines():
            document = json.loads(line)
            functions.setdefault(
                document["name"],
                {
                    "name": document["name"],
                    "description": document["description"].rpartition(PREFIX)[2],
                    "parameters": schema(document["parameters"]),
                    "field": path.stem,
                    "split": "heldout" if len(functions) % 10 == 9 else "train",
                },
            )
    return list(functions.values())


def source(name: str) -> Path:
    """The folder with the documents."""
    if Path(name).is_dir():
        return Path(name)
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"{name}: neither a folder nor an installed package; pip install --no-deps bfcl-eval")
    found = sorted(Path(spec.submodule_search_locations[0]).rglob("multi_turn_func_doc"))
    if not found:
        raise SystemExit(f"{name}: the package holds no folder multi_turn_func_doc")
    return found[0]


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    records = convert(source(sys.argv[1]))
    Path(sys.argv[2]).write_text("".join(json.dumps(r) + "\n" for r in records), "utf-8")
    print(f"{len(records)} functions written to {sys.argv[2]}")
