"""What the examples of property tests are made of."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from genenv.reading.parsing import Call


def examples(count: int) -> settings:
    """The same `count` examples in every run, on a machine of any speed."""
    return settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    )


SAFE_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.floats(allow_nan=False, allow_infinity=False),
    SAFE_TEXT,
    st.sampled_from(["</tool_call>", "<tool_call>", '"', "\\", "{", "]", "\\boxed{"]),
)
VALUES = st.recursive(
    SCALARS, lambda v: st.lists(v, max_size=3) | st.dictionaries(SAFE_TEXT, v, max_size=3), max_leaves=5
)
CALLS = st.lists(
    st.builds(Call, st.text("abc_", min_size=1, max_size=3), st.dictionaries(SAFE_TEXT, VALUES, max_size=3)),
    max_size=3,
)

FRAGMENTS = st.sampled_from(
    [
        "<tool_call>",
        "</tool_call>",
        "<tool_call",
        '{"name": "f", "arguments": {"x": 1}}',
        '{"name": "f", "arguments": ',
        '"name"',
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        '"',
        "\\",
        "'",
        "\\ud800",
        "\\u0061",
        "\ud800",
        "\0",
        "\n",
        " ",
        "1",
        "-",
        "0.1",
        "1e999",
        "1e-999",
        "9" * 5000,
        "NaN",
        "null",
        "true",
        "True",
        "[" * 100,
        '{"a":' * 100,
        "\\boxed",
        "\\boxed{",
        "\\}",
        "Answer:",
        "\u00bd",
    ]
)
ANY_TEXT = st.one_of(
    st.lists(st.one_of(FRAGMENTS, st.text(st.characters(exclude_categories=[]), max_size=4)), max_size=12).map("".join),
    st.text(st.characters(exclude_categories=[]), max_size=30),
)
