"""Edits: the simulator changes one thing in a task that was measured before, to make it easier, harder or just different.

An edit is what it claims to be only if the agent says so: it is accepted if success moved in the asked direction. The
edited task is tried again in the same round, by the same policy, so that the agent's own progress is no movement. An edit
that is not accepted is a task like any other for the agent, but earns the simulator nothing and does not enter D_env.
"""

from __future__ import annotations

from collections.abc import Mapping

from genenv.contracts.types import Direction, EditOutcome, Json, canonical

SIMILAR = 0.25
"""Success of an edit that was to be equally hard may differ by so much."""


def changed_fields(before: Mapping[str, Json], after: Mapping[str, Json]) -> list[str]:
    """The top-level fields in which two specifications differ; one that is missing differs from any value."""
    fields = dict.fromkeys([*before, *after])
    return [f for f in fields if f not in before or f not in after or canonical(before[f]) != canonical(after[f])]


def outcome(direction: Direction, before: float | None, after: float | None) -> EditOutcome:
    """What became of an edit: `before` is the success on the task that was edited, `after` on the edit, in one round."""
    if before is None or after is None:
        return "unscored"
    change = after - before
    if direction == "similar":
        return "accepted" if abs(change) <= SIMILAR else "opposite"
    if change == 0.0:
        return "unmoved"
    return "accepted" if (change > 0.0) == (direction == "easier") else "opposite"
