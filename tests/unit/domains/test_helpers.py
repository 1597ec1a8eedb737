"""Worlds and domains made of them, where they are not as they should be. The web shop's tests have the rest."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from genenv.contracts.domain import SpecError, Step
from genenv.contracts.errors import InputError
from genenv.contracts.types import Json, Message, Score
from genenv.domains.helpers import Spec, ToolDomain, World
from genenv.loop.gate import Gate
from genenv.reading.parsing import Call, format_tool_calls


class Sum(Spec):
    a: int
    b: int = 1
    calls: tuple[str, ...] = ("add", "tell")


class Board(World):
    def __init__(self, spec: Sum) -> None:
        self._spec = spec
        self._sum = 0

    def add(self, more: float = 1, *, label: str = "") -> Json:
        """Add."""
        if more > 90:
            raise KeyError("a bug")
        self._sum = self._spec.a + self._spec.b
        return {"sum": self._sum}

    def tell(self) -> str:
        """Tell."""
        self.result = {"sum": self._sum}
        return "told"

    def refuse(self) -> None:
        raise ValueError("never")

    def _hidden(self) -> None:
        self.result = "cheated"


class Louder(Board):
    def shout(self) -> None:
        """Shout."""


class Sums(ToolDomain[Sum]):
    name, families = "sums", ("sum", "negative")
    spec_model, world = Sum, Louder

    def random_spec(self, family: str, rng: random.Random) -> Sum:
        return Sum(a=rng.randint(-5, 5), b=rng.randint(6, 9)) if family == "sum" else Sum(a=0)

    def describe(self, spec: Sum) -> tuple[str, str]:
        return "sum" if spec.b >= 0 else "other", f"What is {spec.a} and {spec.b}?"

    def solution(self, spec: Sum) -> Sequence[Sequence[Call]]:
        if spec.a == 0:
            raise SpecError("schema", "nothing to add")
        return [[Call(name, {})] for name in spec.calls]


@pytest.fixture
def sums() -> Sums:
    return Sums()


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ({"a": 1, "calls": ["add"]}, "reference_fails: the solution ends without a result"),
        ({"a": 1, "calls": ["add", "refuse"]}, "reference_fails: refuse: error: never"),
        ({"a": 1, "calls": ["_hidden"]}, "reference_fails: _hidden: error: no function _hidden"),
        ({"a": 1, "b": -2}, "schema: a specification of other: expected one of sum, negative"),
        ({"a": 0}, "schema: nothing to add"),
        ({"a": 1.5}, "schema: a: Input should be a valid integer"),
    ],
)
def test_specifications_that_are_no_tasks(sums: Sums, spec: Json, error: str) -> None:
    with pytest.raises(SpecError) as caught:
        sums.build(spec)
    assert str(caught.value) == error


def test_tools_are_the_public_methods_base_first(sums: Sums) -> None:
    tools = [t["function"] for t in sums.build({"a": 1}).tools]
    assert [t["name"] for t in tools] == ["add", "tell", "refuse", "shout"]
    assert tools[0] == {
        "name": "add",
        "description": "Add.",
        "parameters": {
            "type": "object",
            "properties": {"more": {"default": 1, "type": "number"}, "label": {"default": "", "type": "string"}},
            "required": [],
            "additionalProperties": False,
        },
    }


def test_turns_one_by_one(sums: Sums) -> None:
    episode = sums.episode(sums.build({"a": 2, "b": 3}))
    assert episode.step(format_tool_calls([Call("add", {"self": 1}), Call("add", {"more": 2})])) == Step(
        (Message("tool", "error: self: Got multiple values for argument"), Message("tool", '{"sum": 5}'))
    )
    assert episode.step(format_tool_calls([Call("tell", {}), Call("refuse", {})])) == Step(
        score=Score(1.0, "right", {"sum": 5})
    )


def test_a_bug_in_the_world_is_not_the_agents(sums: Sums) -> None:
    score = Gate(sums).execute(sums.build({"a": 2}), [format_tool_calls([Call("add", {"more": 91})])])
    assert score == Score(None, "environment error: KeyError: 'a bug'")


def test_damaged_turns_lead_elsewhere(sums: Sums) -> None:
    tell, add = format_tool_calls([Call("tell", {})]), format_tool_calls([Call("add", {})])
    wrong = sums.perturbed(sums.build({"a": 2}))
    assert sorted(map(tuple, wrong)) == sorted([("", tell), (add, "")])


def test_seeds_are_drawn_until_they_are_tasks(sums: Sums) -> None:
    sums.families = ("sum",)
    seeds = sums.seeds(40, 0)
    assert len(seeds) == 40
    assert all(s.spec["a"] != 0 for s in seeds)
    assert [t.origin for t in sums.heldout(2, 0)] == ["heldout"] * 2
    assert not {s.id for s in seeds[:3]} & {s.id for s in sums.seeds(3, 1)}


def test_a_family_without_tasks_is_an_error(sums: Sums) -> None:
    with pytest.raises(
        InputError, match="sums: 1000 random specifications of negative are no tasks: schema: nothing to add"
    ):
        sums.seeds(2, 0)


def test_what_the_simulator_reads(sums: Sums) -> None:
    one, two = sums.seeds(1, 0)[0], sums.seeds(1, 5)[0]
    chat, schema = sums.simulator_chat(one, None, "easier", 0)
    assert chat.messages[1].content.endswith("\nFamily: sum. Solved: unknown. Write a new task, easier.")
    edit = sums.simulator_chat(one, 0.5, "harder", 0, edit=True)[0].messages[1].content
    assert edit.endswith("Family: sum. Solved: 50%. Change one thing in it so that it gets harder.")
    assert schema["properties"].keys() == {"a", "b", "calls"}
    assert sums.direction(one, two) == "similar"
