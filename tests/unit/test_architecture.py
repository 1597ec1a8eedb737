"""The house: which rooms there are, which of them may import which, and how large a file may grow."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import genenv

ROOT = Path(genenv.__file__).parent
ROOMS: dict[str, set[str]] = {
    "contracts": set(),
    "reading": {"contracts"},
    "config": {"contracts"},
    "sandbox": {"contracts"},
    "models": {"contracts"},
    "grading": {"contracts", "reading"},
    "runs": {"contracts", "config"},
    "engines": {"contracts", "reading"},
    "benchmarks": {"contracts", "reading", "sandbox"},
    "domains": {"contracts", "reading", "grading", "sandbox", "benchmarks"},
    "loop": {"contracts", "reading", "grading", "config", "runs"},
    "session": {"contracts", "config", "models", "engines", "domains", "loop", "runs"},
    "evaluation": {"contracts", "reading", "config", "engines", "benchmarks", "loop", "runs", "session"},
    "studies": {"contracts", "config", "loop", "runs"},
    "planning": {"contracts", "config", "models", "domains", "sandbox"},
    "reports": {"contracts", "config", "runs", "studies"},
    "cli": {
        "contracts", "config", "benchmarks", "domains", "loop", "runs", "session", "evaluation", "studies", "planning", "reports",
    },
}  # fmt: skip
"""What each room may import. `contracts` imports nothing of ours; nothing imports `cli`."""
LONGEST = 350
"""Lines of a module. A table of rules may be longer; there is none."""
HEAVY = {"torch", "transformers", "peft", "safetensors", "llguidance"}
"""What only the extra `local` brings."""
WITH_TORCH = {"engines.local", "engines.tinker", "engines.losses"}
"""Where they may be imported as soon as the module is; everywhere else within a function."""
MODULES = sorted(ROOT.rglob("*.py"))


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def room_of(module: str) -> str:
    return module.partition(".")[0]


def imports(path: Path) -> Iterator[str]:
    """Modules of this package that a file names, relative to it."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            if node.module == "genenv":
                yield from (alias.name for alias in node.names if alias.name != "__version__")
            elif (node.module or "").startswith("genenv."):
                yield (node.module or "").removeprefix("genenv.")


def test_every_module_is_in_a_room() -> None:
    assert {room_of(name_of(path)) for path in MODULES} - {"__init__"} == set(ROOMS)


def test_no_two_rooms_need_each_other() -> None:
    TopologicalSorter(ROOMS).prepare()


@pytest.mark.parametrize("room", ROOMS)
def test_imports_point_one_way(room: str) -> None:
    found = {
        (name_of(path), module)
        for path in MODULES
        if room_of(name_of(path)) == room
        for module in imports(path)
        if room_of(module) != room and room_of(module) not in ROOMS[room]
    }
    assert not found


def test_what_may_be_imported_is() -> None:
    """A permission that nobody uses would hide the day on which somebody does."""
    used = {room: {room_of(m) for p in MODULES if room_of(name_of(p)) == room for m in imports(p)} for room in ROOMS}
    assert {room: allowed - used[room] for room, allowed in ROOMS.items() if allowed - used[room]} == {}


def test_inside_a_room_no_two_modules_need_each_other() -> None:
    graph = {name_of(path): {m for m in imports(path) if m != name_of(path)} for path in MODULES}
    TopologicalSorter(graph).prepare()


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_modules_are_short(path: Path) -> None:
    assert len(path.read_text("utf-8").splitlines()) <= LONGEST


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_heavy_libraries_are_imported_where_they_are_needed(path: Path) -> None:
    if name_of(path).startswith(tuple(WITH_TORCH)):
        return
    for node in ast.parse(path.read_text("utf-8")).body:
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert not {n.partition(".")[0] for n in names} & HEAVY
