"""Whether a request says all that its answer needs."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping, Sequence

from genenv.contracts.domain import SpecError
from genenv.contracts.types import Json
from genenv.domains.tool_use.functions import value_text
from genenv.grading.text import contains_words
from genenv.reading.parsing import Call


def check_grounding(calls: Sequence[Call], request: str, written: bool) -> None:
    """Raises SpecError unless every argument's value stands in the request; `written`: by somebody, not rendered."""
    text = _fold(request)
    for call in calls:
        for name, value in call.arguments.items():
            for leaf in _leaves(value):
                if isinstance(leaf, bool) or leaf is None:
                    # a yes or no has no words of its own; a writer must at least speak of the parameter
                    grounded = not written or any(w in text for w in _fold(name).split("_"))
                else:
                    grounded = contains_words(text, _fold(value_text(leaf)))
                if not grounded:
                    raise SpecError("ungrounded", f"{call.name}.{name} is not in the request")


def _fold(text: str) -> str:
    return unicodedata.normalize("NFC", text).casefold()


def _leaves(value: Json) -> Iterator[Json]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    else:
        yield value
