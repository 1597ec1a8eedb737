"""The recipes: what `recipe = NAME` sets before the file is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# SPEC section 1 to the letter: unsharpened reward, batch filter, lambda 1, KL anchor, even seeds, no own anchor
RECIPES: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "genenv": {},
    "paper": {
        "curriculum": {
            "beta": 2.0, "k_min": 0.1, "mixed_only": False, "families": "even", "parents": 0.0,
            "share": 0, "stuck": 1.0, "alarm_share": 1.0, "alarm_variety": 0.0,
        },
        "simulator": {"weight_temperature": 1.0, "anchor": 0.0, "replay": 1.0},
        "agent": {"replay": 1.0},
    },
}  # fmt: skip
