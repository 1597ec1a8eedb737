"""The training text of household: what the agent and the simulator are shown to write."""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from genenv.contracts.types import Json
from genenv.domains.household.domain import Household
from genenv.domains.household.things import HELDOUT_OBJECTS, HELDOUT_PLACES
from genenv.domains.household.world import parse

SCRIPTS = Path(__file__).parents[3] / "scripts"


@pytest.fixture
def text(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import base_text_household

    yield base_text_household
    for name in ("base_text", "base_text_household"):
        sys.modules.pop(name)


def test_agents_and_simulators(text: ModuleType) -> None:
    domain, kinds = Household(), Counter[str]()
    found = [e for e, _ in zip(text.examples(random.Random(1)), range(600), strict=False)]
    for example in found:
        request = example.chat.messages[-1].content
        words = {w for t in example.turns for w in t.text.replace('"', " ").split()}
        assert not words & (HELDOUT_OBJECTS | HELDOUT_PLACES)
        if not request.startswith("Example: "):
            kinds["agent"] += 1
            assert 3 <= len(example.turns) <= text.LARGE_TURNS
            assert all(turn.answer for turn in example.turns[:-1])
            assert not example.turns[-1].answer
            continue
        shown, _ = json.JSONDecoder().raw_decode(request.removeprefix("Example: "))
        answer: Json = json.loads(example.turns[0].text)
        assert domain.build(answer).family == domain.build(shown).family
        changed = [field for field in answer if answer[field] != shown[field]]
        if "Change one thing in it" in request:
            kinds["edit"] += 1
            assert len(changed) == 1
        else:
            kinds["new"] += 1
    assert 380 < kinds["agent"] < 460
    assert 30 < kinds["edit"] < 90
    again = [e for e, _ in zip(text.examples(random.Random(1)), range(30), strict=False)]
    assert again == found[:30]


def test_a_searcher_without_mistakes_wins_every_house(text: ModuleType) -> None:
    """It finds what it does not know: by looking, at most once into each receptacle."""
    domain = Household()
    for seed in domain.seeds(120, seed=3):
        example, score = text.play(domain, seed.spec, random.Random(seed.id), 0.0, 50)
        assert score is not None
        assert score.value == 1.0, seed.spec
        shortest = len(domain.build(seed.spec).target["plan"])
        assert shortest <= len(example.turns) <= shortest + 2 * len(parse(seed.spec).places)


def test_a_searcher_knows_only_what_it_has_read(text: ModuleType) -> None:
    """Two houses that look alike so far get the same commands."""
    spec: Json = {
        "goal": {"do": "place", "object": "apple", "to": "sidetable"},
        "places": {"countertop": 2, "fridge": 1, "garbagecan": 1, "sidetable": 1},
        "objects": [["apple", "countertop 1"], ["mug", "fridge 1"]],
    }
    one = text.play(Household(), spec, random.Random(5), 0.0, 50)[0]
    two = text.play(
        Household(), {**spec, "objects": [["apple", "garbagecan 1"], spec["objects"][1]]}, random.Random(5), 0.0, 50
    )[0]
    same = 0
    while one.turns[same].answer == two.turns[same].answer:
        assert one.turns[same].text == two.turns[same].text
        same += 1
    assert one.turns[same].text == two.turns[same].text
    assert same >= 1


def test_words(text: ModuleType) -> None:
    assert len(set(text.WORDS)) == len(text.WORDS) <= 250
    assert all(word.isalpha() for word in text.WORDS)
