"""A class of one's own by its path: what is found, and what is said where it is not."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import pytest
from planted import Levels
from typer.testing import CliRunner

from genenv import session
from genenv.cli.app import app
from genenv.config.load import build_config
from genenv.contracts.domain import Domain, released
from genenv.contracts.errors import InputError
from genenv.domains import own
from genenv.domains.isolated import Isolated
from genenv.session import make_domain

MODULE = """
from genenv.contracts.domain import Domain, released

class Stub(Domain):
    name = "stub"
    families = ("a",)
    def __init__(self, size: int, colour: str = "red") -> None:
        if size < 0:
            raise ValueError("size is below zero")
        self.size, self.colour = size, colour
    def seeds(self, count, seed): ...
    def heldout(self, count, seed): ...
    def simulator_chat(self, *given, **more): ...
    def direction(self, example, other): ...
    def build(self, spec): ...
    def reference(self, task): ...
    def perturbed(self, task): ...
    def episode(self, task): ...

class Half(Domain):
    families = ()
    def seeds(self, count, seed): ...

def make(size: int) -> Stub:
    return Stub(size, "blue")

number = 7
class inner:
    Stub = Stub
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", ":".join(p for p in sys.path if p))
    (tmp_path / "my_field.py").write_text(MODULE)
    (tmp_path / "my_broken.py").write_text("import os\n\nprint(1 / 0)\n")
    (tmp_path / "my_needy.py").write_text("import not_there_at_all\n")
    for name in ("my_field", "my_broken", "my_needy"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def test_classes_functions_and_members(here: Path) -> None:
    assert own.load("my_field:Stub", {"size": 3, "colour": "green"}).colour == "green"
    assert own.load("my_field:make", {"size": 4}).colour == "blue"
    assert own.load("my_field:inner.Stub", {"size": 5}).size == 5


@pytest.mark.parametrize(
    ("path", "options", "line"),
    [
        (
            "my_feild:Stub",
            {},
            r"domain.name: no module my_feild in \S+ or installed: run from the folder that holds it",
        ),
        ("my_field.deep:Stub", {}, "domain.name: no module my_field.deep in "),
        ("my_broken:Stub", {}, r"my_broken cannot be imported: ZeroDivisionError: division by zero \(my_broken.py:3\)"),
        ("my_needy:Stub", {}, r"my_needy cannot be imported: ModuleNotFoundError: No module named 'not_there_at_all'"),
        ("my_field:Stab", {}, "domain.name: my_field has no Stab: expected a class or function"),
        ("builtins:dict", {}, "domain.options: builtins:dict: no signature found"),
        ("my_field:number", {}, "my_field:number is a int: expected a class or function"),
        ("my_field:Stub", {}, "domain.options: my_field:Stub: missing a required argument: 'size'"),
        ("my_field:Stub", {"size": 1, "tint": 2}, "my_field:Stub: got an unexpected keyword argument 'tint'"),
        ("my_field:Stub", {"size": -1}, r"refuses {'size': -1}: ValueError: size is below zero \(my_field.py:9\)"),
        (
            "my_field:Half",
            {},
            r"my_field:Half is no domain: it lacks build, direction, episode, heldout, name, perturbed, reference, "
            r"simulator_chat \(genenv.contracts.domain.Domain\)",
        ),
    ],
)
def test_one_line_says_what_is_wrong(here: Path, path: str, options: dict, line: str) -> None:
    with pytest.raises(InputError, match=line) as caught:
        make_domain(build_config({"domain": {"name": path, "options": options}}, "x").domain)
    assert "\n" not in str(caught.value)


def test_a_domain_of_ones_own_is_isolated_unless_told_otherwise(here: Path) -> None:
    settings = build_config({"domain": {"name": "my_field:make", "options": {"size": 1}}}, "x").domain
    with released(make_domain(settings)) as domain:
        assert isinstance(domain, Isolated)
    assert not isinstance(make_domain(settings.model_copy(update={"timeout": 0.0})), Isolated)


@pytest.mark.parametrize(
    ("domain", "line"),
    [
        ({"name": "shop"}, r"domain.name: expected tool_use, .* or the path of a class, MODULE:CLASS"),
        ({"name": "shop:"}, "domain.name: expected"),
        ({"name": ":Shop"}, "domain.name: expected"),
        ({"options": {"a": 1}}, r"domain: options: not for tool_use, only for MODULE:CLASS"),
        ({"name": "a:B", "options": {"day": float("inf")}}, "domain.options.day"),
        ({"name": "a:B", "timeout": -1}, "domain.timeout"),
    ],
)
def test_configurations_that_are_refused(domain: dict, line: str) -> None:
    with pytest.raises(InputError, match=line):
        build_config({"domain": domain}, "x")


def test_the_members_are_those_of_the_protocol() -> None:
    methods = {n for n, m in inspect.getmembers(Domain, inspect.isfunction) if not n.startswith("_")}
    assert set(own.MEMBERS) == methods | {"name", "families"}
    assert len(own.MEMBERS) == 10


def test_genenv_gate_takes_a_configuration(here: Path) -> None:
    (here / "c.toml").write_text('[domain]\nname = "my_field:make"\ntimeout = 0\noptions = {size = -2}\n')
    (here / "t.jsonl").write_text("{}\n")
    result = CliRunner().invoke(app, ["gate", "c.toml", "t.jsonl"])
    assert (result.exit_code, "size is below zero" in result.stderr) == (2, True)
    result = CliRunner().invoke(app, ["gate", "c.toml", "t.jsonl", "--catalogue", "x.jsonl"])
    assert "--catalogue: not beside c.toml" in result.stderr


@pytest.mark.parametrize("command", ["gate", "score"])
def test_a_domain_is_closed_after_use(here: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    closed = []
    (here / "t.jsonl").write_text('{"level": 1, "serial": "000001"}\n')
    (here / "o.jsonl").write_text('{"id": "1", "output": "ok 000001"}\n')

    class Closing(Levels):
        def close(self) -> None:
            closed.append(True)

    monkeypatch.setattr(session, "make_domain", lambda config: Closing())
    arguments = ["gate", "tool_use", "t.jsonl"] if command == "gate" else ["score", "t.jsonl", "o.jsonl"]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert closed == [True]
