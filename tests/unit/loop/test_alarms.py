"""Signs of collapse, by hand."""

from __future__ import annotations

import random

import pytest

from genenv.loop.alarms import alarms, largest_share, usual_variety, variety


def test_variety_by_hand() -> None:
    assert variety([]) is None
    assert variety(["a", "b", "c", "d"]) == pytest.approx(1.0)
    assert variety(["a"] * 10) == pytest.approx(0.1)
    assert variety(["a", "a", "b", "b"]) == pytest.approx(0.5)
    assert usual_variety(["a", "b", "c"], 10, random.Random(0)) == pytest.approx(1.0)
    assert usual_variety(["a"] * 20, 10, random.Random(0)) == pytest.approx(0.1)
    assert largest_share(["b", "a", "b", "a"]) == ("a", 0.5)


@pytest.mark.parametrize(
    ("written", "asked", "clusters", "expected"),
    [
        ("a" * 10, "abababab" + "ab", "abcdefghij", 1),
        ("a" * 10, "a" * 10, "abcdefghij", 0),  # as asked
        ("aaaaaaaaab", "ababababab", "abcdefghij", 0),  # not above the limit
        ("ababababab", "ababababab", "aaaaaaaaaa", 1),
        ("ababababab", "ababababab", "aaaabbbbcc", 1),
        ("ababababab", "ababababab", "aabbccddee", 0),
        ("a" * 10, "ababababab", "aaaaaaaaaa", 2),
        ("aaaaaaa", "ababaab", "aaaaaaa", 0),  # too few to tell
    ],
)
def test_alarms(written: str, asked: str, clusters: str, expected: int) -> None:
    assert len(alarms(list(written), list(asked), list(clusters), 1.0, 0.9, 0.3)) == expected
    assert alarms(list(written), list(asked), list(clusters), 1.0, 1.0, 0.0) == []


def test_seeds_without_variety_set_no_standard() -> None:
    assert alarms(["a"] * 10, ["a"] * 10, ["x"] * 10, 0.1, 0.9, 0.3) == []
