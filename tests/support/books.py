"""What must be the same of two equal runs."""

from __future__ import annotations

from genenv.contracts.types import Json
from genenv.runs.store import Store


def everything(store: Store) -> Json:
    return [store.metrics(), store.heldout(), [(r.text, r.reason, r.p_hat, r.reward) for r in store.candidates()]]
