"""What is the same, a rewording, or merely alike; and that the index finds it among many, in any process."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

from genenv.domains.tool_use.domain import ToolUse
from genenv.loop.near import BANDS, ROWS, THRESHOLD, Known, LeaderIndex, fingerprint, normal_form, signature

BASE = "Find a restaurant in Lagos serving greek food for at most 84 euros"


def alike(a: str, b: str) -> float:
    return float((signature(normal_form(a)) == signature(normal_form(b))).mean())


def known(*requests: str, answer: str = "a") -> Known:
    known = Known()
    for i, request in enumerate(requests):
        mark = fingerprint(request, [answer])
        known.add(mark, f"t{i}", known.leader(mark))
    return known


@pytest.mark.parametrize(
    "other",
    [
        f"  {BASE.upper()}!! ",
        BASE.replace(" ", "\n\t"),
        BASE.replace("Lagos serving", "Lagos, serving"),
        BASE.replace("a restaurant", "the restaurant"),
        "Find a restaurant in La\u00adgos serving greek food for at most \uff18\uff14 euros",
    ],
)
def test_the_same_request_in_other_dress(other: str) -> None:
    mark = fingerprint(other, ["a"])
    assert known(BASE).same_request(mark)
    assert known(BASE).same_answer(mark)
    assert not known(BASE, answer="b").same_answer(mark)


@pytest.mark.parametrize(
    ("other", "same_cluster", "reworded"),
    [
        (BASE + " please", True, True),
        (BASE.replace("84", "85"), True, False),  # another number is another task of the same cluster
        (BASE.replace("84", "984"), True, False),
        (BASE.replace("Lagos", "Oslo"), False, False),
        ("Play Echoes at volume 30", False, False),
    ],
)
def test_rewordings_and_clusters(other: str, same_cluster: bool, reworded: bool) -> None:
    mark = fingerprint(other, ["a"] if reworded else ["b"])
    leader = known(BASE).leader(mark)
    assert not known(BASE).same_request(mark)
    assert (leader == "t0") == same_cluster
    assert known(BASE).reworded(mark, leader) == reworded


def test_a_rewording_of_a_member_is_found_although_only_leaders_are_compared() -> None:
    tasks = known(BASE, BASE.replace("84", "85"))
    assert tasks.clusters == 1
    mark = fingerprint(BASE.replace("84", "85") + " now", ["a"])
    assert tasks.reworded(mark, tasks.leader(mark))


def test_likeness_estimates_the_jaccard_index() -> None:
    rng = random.Random(0)
    errors = []
    for _ in range(200):
        letters = "".join(rng.choices("abcdefgh ", k=300))
        cut = rng.randrange(20, 280)
        a, b = normal_form(letters), normal_form(letters[:cut] + "".join(rng.choices("abcdefgh ", k=300 - cut)))
        grams = [{x[i : i + 5] for i in range(len(x) - 4)} for x in (a, b)]
        errors.append(alike(a, b) - len(grams[0] & grams[1]) / len(grams[0] | grams[1]))
    assert abs(np.mean(errors)) < 0.015
    assert np.std(errors) < 0.08


def test_digits_do_not_make_variety_but_their_number_does() -> None:
    assert alike("Set the volume to 34.", "set the volume to 71") == 1.0
    assert alike("Track order G7725", "Track order G1026") == 1.0
    assert alike("3 + 4", "8937 + 2347") < THRESHOLD


@pytest.mark.parametrize("text", ["", " ", "?", "!!!", "1", "ab", "\ud800", "\U0001f600", "a" * 100_000])
def test_any_text_has_a_signature(text: str) -> None:
    mark = fingerprint(text, ["a"])
    assert mark.signature.shape == (BANDS * ROWS,)
    assert alike(text, text) == 1.0
    assert known(text).same_request(mark)


def test_texts_of_signs_alone_stay_apart() -> None:
    assert not known("?!").same_request(fingerprint("!?", ["a"]))


def test_the_index_finds_each_leader_among_many() -> None:
    """Also after it has grown several times, and the oldest of equals."""
    rng = random.Random(1)
    index = LeaderIndex()
    made = [signature("".join(rng.choices("abcdefghijklmnop ", k=60))) for _ in range(3000)]
    assert [index.add(s) for s in made] == list(range(3000))
    assert [index.find(s) for s in made] == list(range(3000))
    assert index.add(made[7]) == 3000
    assert index.find(made[7]) == 7
    assert index.find(signature("something else entirely")) is None


def test_growth_changes_no_answer() -> None:
    """An index that grew and one that was born large visit the same rows in the same order."""
    rng = random.Random(2)
    words = ["alpha", "north", "river", "silver", "maple", "delta"]
    texts = [" ".join(rng.choices(words, k=8)) for _ in range(1500)]
    grown, large = LeaderIndex(), LeaderIndex()
    large._signatures = np.zeros((4096, BANDS * ROWS), np.uint32)
    large._next = np.full((4096, BANDS), -1, np.int32)
    large._heads = np.full((BANDS, 2048), -1, np.int32)
    for text in texts:
        mark = signature(text)
        assert grown.find(mark) == large.find(mark)
        grown.add(mark)
        large.add(mark)
    assert grown._heads.shape == large._heads.shape
    assert (grown._next[:1500] == large._next[:1500]).all()
    assert (grown._heads == large._heads).all()


def test_signatures_are_the_same_in_every_process() -> None:
    code = "from genenv.loop.near import *; f = fingerprint('Play Echoes at 30', ['x']); print(f.request, f.signature.sum())"
    runs = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    mark = fingerprint("Play Echoes at 30", ["x"])
    assert runs == {f"{mark.request} {mark.signature.sum()}\n".encode()}


def test_honest_tasks_are_seldom_alike_and_a_machine_of_small_edits_always() -> None:
    domain = ToolUse()
    honest, copies = Counter[str](), Counter[str]()
    tasks = [domain.build(s.spec) for s in domain.seeds(400, 1)]
    seen = Known()
    for task in tasks:
        mark = fingerprint(task.messages[-1].content, domain.reference(task))
        if not seen.same_request(mark):
            honest[seen.add(mark, task.id, seen.leader(mark))] += 1
    assert len(honest) > 0.97 * len(tasks)
    seen = Known()
    for volume in range(100):
        for title in ("Echoes", "echoes", "ECHOES"):
            mark = fingerprint(f"Play {title} at volume {volume}.", [f"{title}{volume}"])
            if not seen.same_request(mark):
                copies[seen.add(mark, f"{title}{volume}", seen.leader(mark))] += 1
    assert len(copies) == 1
    assert copies.total() == 100
