"""Which tasks are the same, nearly the same, or alike: an index that stays fast at a million tasks.

Three degrees, from a task's last user message and its reference solution:

- *Same request*: the normal forms are equal (`grading.text.normalize_text`: case, white space, punctuation and articles do
  not count; numbers, signs and symbols do).
- *Reworded*: the requests are alike, hold the same numbers, and the reference solutions are equal.
- *Alike*: the requests share four fifths of their character 5-grams (Jaccard index), every digit read as 0. So
  `volume 30` is like `volume 31`, and serial numbers do not make variety; another name, place or action mostly does.

Alike is found by MinHash: 60 minima, so the estimate has a standard error of 0.05 at the threshold, and locality-
sensitive hashing in 12 bands of 5, which finds 99 % of the pairs at the threshold and all that differ in digits only.
Clusters have a leader, their oldest task: a task joins the cluster of the most similar leader, or leads a new one. Only
leaders are compared, so clusters cannot creep. A million tasks that are all different take 0.75 GB (`bench/gate.py`).

All hashes are fixed functions of the text: the same in every process, on every platform.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from genenv.grading.text import normalize_text

THRESHOLD = 0.8
GRAM = 5
BANDS, ROWS = 12, 5
MAX_VISITS = 32
"""Leaders looked at per band, the newest first: bounds the time where very many tasks share a phrase."""

_CHUNK = 4096
_DIGITS = re.compile(r"\d")
_NUMBERS = re.compile(r"\d+")

Words = NDArray[np.uint32]


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finalizer of splitmix64: every input bit changes half of the output bits."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _constants(count: int, start: int) -> NDArray[np.uint64]:
    steps = np.arange(start + 1, start + count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return _mixed(steps)


_POWERS = _constants(GRAM, 0) | np.uint64(1)
_FACTORS = _constants(BANDS * ROWS, 100) | np.uint64(1)
_SHIFTS = _constants(BANDS * ROWS, 200)
_BAND_FACTORS = _constants(ROWS, 300) | np.uint64(1)
_BAND = np.arange(BANDS)


def digest(*parts: str) -> int:
    """64 bits of the SHA-256 of some texts."""
    return int.from_bytes(hashlib.sha256("\x1f".join(parts).encode("utf-8", "surrogatepass")).digest()[:8], "big")


def normal_form(text: str) -> str:
    """The text as far as it makes a task its own; never empty for a text that is not blank."""
    return normalize_text(text) or " ".join(text.split())


def signature(normal: str) -> Words:
    """The MinHash signature of a normal form, every digit read as 0."""
    masked = _DIGITS.sub("0", normal)
    codes = np.frombuffer(masked.encode("utf-32-le", "surrogatepass"), np.uint32).astype(np.uint64)
    if len(codes) < GRAM:
        codes = np.concatenate([codes, np.zeros(GRAM - len(codes), np.uint64)])
    grams = codes[GRAM - 1 :] * _POWERS[-1]
    for i in range(GRAM - 1):
        grams += codes[i : len(codes) - GRAM + 1 + i] * _POWERS[i]
    hashed = _mixed(grams)
    lowest = np.full(BANDS * ROWS, np.iinfo(np.uint64).max, np.uint64)
    for start in range(0, len(hashed), _CHUNK):
        part = hashed[start : start + _CHUNK, None] * _FACTORS + _SHIFTS
        np.minimum(lowest, part.min(axis=0), out=lowest)
    return (lowest >> np.uint64(32)).astype(np.uint32)


def _slots(signatures: Words, mask: int) -> NDArray[np.int64]:
    """The place of each band of each signature in a table of `mask + 1` places."""
    bands = signatures.reshape(-1, BANDS, ROWS).astype(np.uint64) @ _BAND_FACTORS
    return (_mixed(bands) & np.uint64(mask)).astype(np.int64)


class LeaderIndex:
    """Signatures of cluster leaders, found by likeness. One hash table per band; rows that collide form a chain."""

    def __init__(self) -> None:
        self._count = 0
        self._signatures = np.zeros((256, BANDS * ROWS), np.uint32)
        self._next = np.full((256, BANDS), -1, np.int32)
        self._heads = np.full((BANDS, 256), -1, np.int32)

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        return self._signatures.nbytes + self._next.nbytes + self._heads.nbytes

    def find(self, wanted: Words) -> int | None:
        """The most similar leader at or above the threshold, of equals the oldest."""
        if not self._count:
            return None
        rows = self._heads[_BAND, _slots(wanted, self._heads.shape[1] - 1)[0]]
        bands = _BAND
        seen: list[NDArray[np.int32]] = []
        for _ in range(MAX_VISITS):
            live = rows >= 0
            if not live.any():
                break
            rows, bands = rows[live], bands[live]
            seen.append(rows)
            rows = self._next[rows, bands]
        if not seen:
            return None
        found = np.unique(np.concatenate(seen))
        alike = (self._signatures[found] == wanted).mean(axis=1)
        best = int(alike.argmax())
        return int(found[best]) if alike[best] >= THRESHOLD else None

    def add(self, new: Words) -> int:
        """Make a leader; returns its row, one more than the last one's."""
        if self._count == len(self._signatures):
            self._grow()
        row = self._count
        self._signatures[row] = new
        slots = _slots(new, self._heads.shape[1] - 1)[0]
        self._next[row] = self._heads[_BAND, slots]
        self._heads[_BAND, slots] = row
        self._count += 1
        return row

    def _grow(self) -> None:
        """Twice the room, with chains rebuilt in the same order of age."""
        size = 2 * self._count
        self._signatures = np.concatenate([self._signatures, np.zeros_like(self._signatures)])
        self._next = np.full((size, BANDS), -1, np.int32)
        self._heads = np.full((BANDS, size), -1, np.int32)
        rows = np.arange(self._count, dtype=np.int32)
        places = _slots(self._signatures[: self._count], size - 1)
        for band in range(BANDS):
            slots = places[:, band]
            order = np.argsort(slots, kind="stable")
            inside = slots[order]
            same = inside[1:] == inside[:-1]
            self._next[order[1:][same], band] = rows[order[:-1][same]]
            self._heads[band, slots] = rows  # of equal slots the last assignment stays: the newest row


@dataclass(frozen=True)
class Print:
    """What is compared of one task."""

    request: int
    answer: int
    numbers: str
    signature: Words


def fingerprint(request: str, reference: Sequence[str]) -> Print:
    """`request` is what the user says last, `reference` the turns that solve the task."""
    normal = normal_form(request)
    return Print(digest(normal), digest(*reference), " ".join(sorted(_NUMBERS.findall(normal))), signature(normal))


class Known:
    """A set of tasks that others are compared with."""

    def __init__(self) -> None:
        self._answers: dict[int, int] = {}
        self._reworded: set[int] = set()
        self._leaders = LeaderIndex()
        self._names: list[str] = []

    def __len__(self) -> int:
        """Different requests."""
        return len(self._answers)

    @property
    def clusters(self) -> int:
        return len(self._leaders)

    def leader(self, mark: Print) -> str | None:
        """The name of the cluster that a task belongs to."""
        row = self._leaders.find(mark.signature)
        return None if row is None else self._names[row]

    def same_request(self, mark: Print) -> bool:
        return mark.request in self._answers

    def same_answer(self, mark: Print) -> bool:
        """Whether the known task with the same request has the same reference solution."""
        return self._answers.get(mark.request) == mark.answer

    def reworded(self, mark: Print, leader: str | None) -> bool:
        """Whether a task of the same cluster has the same numbers and the same reference solution."""
        return leader is not None and _wording(mark, leader) in self._reworded

    def add(self, mark: Print, name: str, leader: str | None) -> str:
        """Make a task known under a name, given what `leader` said; returns the name of its cluster's leader."""
        if leader is None:
            leader = name
            self._leaders.add(mark.signature)
            self._names.append(name)
        self._answers.setdefault(mark.request, mark.answer)
        self._reworded.add(_wording(mark, leader))
        return leader


def _wording(mark: Print, leader: str) -> int:
    return digest(leader, str(mark.answer), mark.numbers)
