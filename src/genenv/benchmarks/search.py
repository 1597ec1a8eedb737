"""Looking things up: what a search tool is, and a small one over given passages, for worlds, tests and closed networks."""

from __future__ import annotations

import functools
import math
import string
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from genenv.contracts.errors import InputError
from genenv.contracts.types import content_id
from genenv.reading.parsing import parse_json_object
from genenv.reading.records import read_lines

FOUND = 5
"""Passages that one search returns at most."""

_PUNCTUATION = str.maketrans("", "", string.punctuation)


class Search(Protocol):
    """A search tool: passages for a query, best first. What it raises is told to the agent as a failed search.

    One with an attribute `id` is told from others: an evaluation is not continued with another.
    """

    def __call__(self, query: str) -> Sequence[str]: ...


def normalized(text: str) -> list[str]:
    """Words of `text` in the way of SQuAD's script: lower case, without ASCII punctuation, without a, an and the."""
    return [w for w in text.lower().translate(_PUNCTUATION).split() if w not in ("a", "an", "the")]


class Passages:
    """BM25 (k1 = 1.2, b = 0.75) over some passages; a search returns `found` of them at most."""

    def __init__(self, passages: Sequence[str], found: int = FOUND) -> None:
        self._passages = tuple(passages)
        self._found = found
        counts = [Counter(normalized(p)) for p in self._passages]
        self._lengths = [c.total() for c in counts]
        self._mean = max(1.0, sum(self._lengths) / max(1, len(counts)))
        self._postings: dict[str, list[tuple[int, int]]] = {}
        for i, count in enumerate(counts):
            for word, times in count.items():
                self._postings.setdefault(word, []).append((i, times))

    @classmethod
    def read(cls, path: Path) -> Passages:
        """The passages of a JSONL file of `{"title": ..., "text": ...}`. Raises InputError with the line."""
        passages = []
        for number, line in read_lines(path):
            try:
                record = parse_json_object(line)
            except ValueError as error:
                raise InputError(f"{path}:{number}: {error}") from None
            if not (isinstance(record.get("title"), str) and isinstance(record.get("text"), str)):
                raise InputError(f'{path}:{number}: expected {{"title": "...", "text": "..."}}')
            passages.append(f"{record['title']}: {record['text']}")
        return cls(passages)

    @functools.cached_property
    def id(self) -> str:
        return content_id(self._passages)

    def __call__(self, query: str) -> list[str]:
        scores: dict[int, float] = {}
        for word in set(normalized(query)):
            found = self._postings.get(word, [])
            rarity = math.log(1.0 + (len(self._passages) - len(found) + 0.5) / (len(found) + 0.5))
            for i, times in found:
                length = 0.25 + 0.75 * self._lengths[i] / self._mean
                scores[i] = scores.get(i, 0.0) + rarity * times * 2.2 / (times + 1.2 * length)
        return [self._passages[i] for i in sorted(scores, key=lambda i: (-scores[i], i))[: self._found]]
