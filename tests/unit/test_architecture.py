"""Imports point one way: types <- stages <- coevolve <- session <- cli; engines know no stage."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import genenv

ROOT = Path(genenv.__file__).parent
BELOW = {"types", "errors"}
ALLOWED = {
    "types": set(),
    "errors": set(),
    "chat": BELOW,
    "parsing": BELOW,
    "matching": BELOW | {"parsing"},
    "rewards": BELOW,
    "updates": BELOW,
    "config": BELOW | {"rewards"},
    "sources": BELOW | {"config"},
    "arms": BELOW | {"config", "sources"},
    "suite": BELOW | {"arms", "config", "store"},
    "evidence": set(),
    "pools": BELOW | {"rewards"},
    "engines.base": BELOW | {"chat"},
    "engines.local": BELOW | {"chat", "engines.base", "engines._decode", "engines._fast", "engines._packing"},
    "engines._decode": BELOW | {"engines._fast"},
    "engines._fast": set(),
    "engines._packing": BELOW,
    "engines.tinker": BELOW | {"chat", "engines.base", "engines._packing", "engines._tinker_server"},
    "engines._tinker_server": BELOW,
    "engines.scripted": BELOW | {"chat", "engines.base"},
    "engines.openai": BELOW | {"chat", "engines.base", "parsing"},
    "domains.base": BELOW,
    "domains._qa_facts": BELOW | {"benchmarks.search", "domains.base", "parsing"},
    "domains.multihop_qa": BELOW
    | {"benchmarks.bamboogle", "benchmarks.search", "domains._qa_facts", "domains.base", "parsing"},
    "domains.functions": BELOW | {"parsing"},
    "domains.openapi": BELOW | {"domains.functions"},
    "domains.catalogue": BELOW | {"domains.functions", "domains.openapi", "files", "parsing"},
    "domains.helpers": BELOW | {"domains.base", "parsing"},
    "domains.own": BELOW | {"domains.base"},
    "domains.isolated": BELOW | {"domains.base", "domains.own", "processes"},
    "domains.reasoning_gym": BELOW | {"domains.base", "domains.python_checker", "processes"},
    "processes": BELOW,
    "rollouts": BELOW | {"chat", "domains.base", "engines.base"},
    "near": BELOW | {"matching"},
    "edits": BELOW,
    "gate": BELOW | {"domains.base", "edits", "rewards", "matching", "near"},
    "misranking": BELOW,
    "theory": BELOW | {"domains.base", "engines.base", "rewards", "rollouts"},
    "analysis": BELOW | {"_figures", "domains.base", "engines.base", "pools", "rewards", "rollouts", "store", "theory"},
    "store": BELOW | {"config", "edits"},
    "benchmarks.base": BELOW | {"domains.base"},
    "benchmarks.api_bank": BELOW | {"benchmarks.base", "domains.base", "parsing"},
    "benchmarks.search": BELOW | {"files", "parsing"},
    "benchmarks.bamboogle": BELOW | {"benchmarks.base", "benchmarks.search", "domains.base", "parsing"},
    "benchmarks.table": BELOW,
}


def imported(module: str) -> set[str]:
    tree = ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text("utf-8"))
    names = [n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
    return {n.removeprefix("genenv.") for n in names if n.startswith("genenv.")}


@pytest.mark.parametrize("module", ALLOWED)
def test_imports_point_one_way(module: str) -> None:
    assert imported(module) <= ALLOWED[module]


def test_only_the_command_line_imports_the_command_line() -> None:
    upper = {"cli", "cli_compare", "cli_eval", "cli_theory", "subjects", "session", "coevolve"}
    for path in ROOT.rglob("*.py"):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        if name not in upper | {"report", "_figures", "__main__"}:
            assert not imported(name) & upper, name
