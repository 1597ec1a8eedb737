"""Claims against figures made by hand."""

from __future__ import annotations

from argparse import Namespace

import numpy as np
import pytest

from genenv.contracts.types import Json
from genenv.studies.claims import claims
from genenv.studies.comparison import Finished, final_scores, mean_scores
from genenv.studies.evidence import resampled

ROLLOUTS = [0.0, 100.0, 200.0, 300.0, 400.0]


def arm(
    curves: list[list[float]], never: list[float], success: list[float], against: dict[str, Json] | None = None
) -> Json:
    return {
        "seeds": list(range(len(curves))),
        "final": {"by_seed": [c[-1] for c in curves]},
        "heldout": {"rollouts": ROLLOUTS, "by_seed": curves},
        "curves": {"success": {"mean": success}},
        "never_solved_by_seed": never,
        "against": against or {},
    }


def by_text(arms: dict[str, Json]) -> dict[str, tuple[bool | None, str]]:
    return {c["text"].split(" (")[0]: (c["holds"], c["figures"]) for c in claims(arms, rounds=10)}


PAPER = [[0.1, 0.2, 0.3, 0.35, 0.4]] * 3
SOONER = [[0.1, 0.3, 0.4, 0.45, 0.5]] * 3
CLEAR = {"mean": 0.1, "low": 0.02, "high": 0.2, "p": 0.25}
CHANCE = {"mean": 0.1, "low": -0.01, "high": 0.2, "p": 0.25}
BAND = [0.2, *[0.5] * 9]


def test_what_is_not_in_a_suite_is_not_measured() -> None:
    assert [c["holds"] for c in claims({}, 10)] == [None] * 10
    found = by_text({"genenv": arm(SOONER, [0.1] * 3, BAND)})
    assert [holds for holds, _ in found.values() if holds is not None] == [True]


def test_a_difference_that_chance_can_make_does_not_hold() -> None:
    text = "genenv has a higher final held-out score than paper"
    for against, holds in ((CLEAR, True), (CHANCE, False)):
        arms = {"genenv": arm(SOONER, [0.1] * 3, BAND, {"paper": against}), "paper": arm(PAPER, [0.1] * 3, BAND)}
        found = by_text(arms)[text]
        assert found[0] is holds
        assert found[1].startswith("+10.0 points (")
        assert "+25.0 % relative" in found[1]


@pytest.mark.parametrize("one", ["paper", "genenv"])
@pytest.mark.parametrize(
    ("never", "holds"),
    [([0.2, 0.3, 0.1], True), ([0.3, 0.45, 0.17], False), ([0.5, 0.1, 0.2], False), ([0, 0, 0], True)],
)
def test_never_solved_tasks_are_counted_relative_to_random(never: list[float], holds: bool, one: str) -> None:
    arms = {
        one: arm(PAPER, never, BAND, {"random": CLEAR}),
        "random": arm(PAPER, [0.4, 0.6, 0.2], BAND),
    }
    found = by_text(arms)[f"{one} leaves at least 20 % fewer tasks never solved than random"]
    assert found[0] is holds
    assert f"{100 * sum(never) / 3:.1f} % against 40.0 %" in found[1]


@pytest.mark.parametrize("theirs", [[0.0, 0.0, 0.0], [0.2, None, 0.2]])
def test_where_random_has_none_unsolved_or_an_unknown_share_nothing_is_said(theirs: list[float | None]) -> None:
    arms = {"paper": arm(PAPER, [0.0, 0.0, 0.0], BAND, {"random": CLEAR}), "random": arm(PAPER, theirs, BAND)}
    assert by_text(arms)["paper leaves at least 20 % fewer tasks never solved than random"] == (None, "")


def test_the_band_counts_after_the_first_fifth() -> None:
    text = "with genenv, success on fresh tasks is inside 40-60 % in each round after the first fifth"
    assert by_text({"genenv": arm(SOONER, [0.1] * 3, BAND)})[text] == (True, "mean over 3 seeds: in 8 of 8 rounds")
    edge = [*BAND[:9], 0.6 + 1e-16]
    assert by_text({"genenv": arm(SOONER, [0.1] * 3, edge)})[text][0] is True
    assert by_text({"genenv": arm(SOONER, [0.1] * 3, [*BAND[:9], 0.61])})[text][0] is False
    late = [0.2, 0.2, 0.2, *[0.5] * 7]
    assert by_text({"genenv": arm(SOONER, [0.1] * 3, late)})[text] == (False, "mean over 3 seeds: in 7 of 8 rounds")


def test_rollouts_for_the_same_score_are_a_share_of_what_paper_played() -> None:
    text = "genenv has the final score of paper after at most 70 % of its rollouts"
    late = [[0.1, 0.15, 0.2, 0.3, 0.39]] * 3
    one_late = [*SOONER[:2], late[0]]
    cases = (
        (SOONER, True, "50 % (50 % to 50 %)"),
        (late, False, "never (never to never)"),
        ([[0.4, 0.5, 0.5, 0.5, 0.5]] * 3, True, "0 % (0 % to 0 %)"),
        # the mean curve is 0.1, 0.25, 1/3, 0.4; in 1 of 27 resamples all three are the late one
        (one_late, False, "75 % (50 % to never)"),
    )
    for curves, expected, shown in cases:
        arms = {"genenv": arm(curves, [0.1] * 3, BAND, {"paper": CLEAR}), "paper": arm(PAPER, [0.1] * 3, BAND)}
        holds, figures = by_text(arms)[text]
        assert (holds, figures) == (expected, f"{shown}, 3 seeds")


def test_two_seeds_decide_nothing_and_only_common_ones_count() -> None:
    few = {"genenv": arm(SOONER[:2], [0.1] * 2, BAND, {"paper": CLEAR}), "paper": arm(PAPER, [0.1] * 3, BAND)}
    assert [c["holds"] for c in claims(few, 10)] == [None, None, True, *[None] * 7]
    wide = [*PAPER, [0.9] * 5]
    arms = {"genenv": arm(SOONER, [0.1] * 3, BAND, {"paper": CLEAR}), "paper": arm(wide, [0.1] * 4, [0.5] * 10)}
    found = by_text(arms)
    assert "+25.0 % relative, p = 0.25, 3 seeds" in found["genenv has a higher final held-out score than paper"][1]
    assert found["genenv has the final score of paper after at most 70 % of its rollouts"][1].startswith("50 %")


def test_seeds_are_resampled_as_rows() -> None:
    means = resampled(np.array([[0.0, 10.0], [1.0, 11.0]]))
    assert means.shape[1] == 2
    assert np.allclose(means[:, 1] - means[:, 0], 10.0)
    assert set(means[:, 0]) == {0.0, 0.5, 1.0}


def test_the_score_over_a_run_is_the_area_under_its_curve() -> None:
    run_of_five = Namespace(config=Namespace(rounds=5))
    scores = {0: {"a": 0.0, "b": 1.0}, 2: {"a": 0.5, "b": 1.0}, 5: {"a": 1.0, "b": 0.0}}
    run = Finished(run_of_five, {}, scores, 0, 0, 0)  # type: ignore[arg-type]
    assert final_scores([run]).tolist() == [[1.0, 0.0]]
    assert mean_scores([run])[0].tolist() == pytest.approx([(2 * 0.25 + 3 * 0.75) / 5, (2 * 1.0 + 3 * 0.5) / 5])
