"""The keyword arms: how much of a query's weight a memory's words cover, and BM25.

Statistics are one stream's own, never shared between subjects or tenants, and of that only what the caller
may see: anything else would leak how often a word is in what is hidden. Coverage of a memory is the weight of
the query's distinct terms that it holds, divided by the weight of the query: 0 to 1, and comparable between
queries, which a BM25 score is not.

* A term weighs the square of its idf, as in the cosine of two tf-idf vectors. With idf itself the words of
  every sentence ("my", 的) together outweigh what the query is about, where it shares no other word.
* A query weighs what all its terms do, but no more than ``FULL_TERMS`` of them. One memory can't hold the
  words of a whole dialogue; without the bound words count for the less the longer the query is.
"""

from __future__ import annotations

import heapq
import math
import sys
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

FULL_TERMS = 32
"""The terms of a long question: 30 English words, or 16 Chinese characters with their pairs. From 16 to 48
measured alike."""

SATURATION = 1.2
"""BM25's k1: how soon more of the same word says no more."""
LENGTH_SHARE = 0.75
"""BM25's b: how far a long text is held to its length."""

COMMON_SHARE = 16
"""A term that is in more than one slot of so many is added up as a column of all slots: cheaper than one by
one from an eighth on, and most of what is common in a text is far more common."""
COMMON_SIZE = 4096
"""In fewer slots nothing is to be gained."""
_ENTRY_BYTES = 130
"""A dictionary slot and, shared by streams that hold it, a short string, as CPython lays them out."""
_POSTINGS_BYTES = 200
"""A small array and what holds it."""

Mask = NDArray[np.bool_]


class _Postings:
    """The slots that hold a term; by place among them, how often those do that do so more than once."""

    __slots__ = ("_column", "_noted", "repeats", "slots")

    def __init__(self, *slots: int) -> None:
        self.slots = array("I", slots)
        self.repeats: dict[int, int] | None = None
        self._column: Mask | None = None
        self._noted = 0

    @property
    def nbytes(self) -> int:
        return 0 if self._column is None else self._column.nbytes

    def repeat(self, count: int) -> None:
        """The slot added last holds the term so often."""
        if self.repeats is None:
            self.repeats = {}
        self.repeats[len(self.slots) - 1] = count

    def slots_array(self) -> NDArray[np.uint32]:
        return np.frombuffer(self.slots, np.uint32)

    def counts(self) -> NDArray[np.float64]:
        """How often each slot holds the term."""
        found = np.ones(len(self.slots))
        if self.repeats:
            found[list(self.repeats)] = list(self.repeats.values())
        return found

    def column(self, size: int) -> Mask:
        """Which of slots 0 to ``size`` - 1 hold the term."""
        if self._column is None or len(self._column) < size:
            self._column, self._noted = np.zeros(2 * size, np.bool_), 0
        if self._noted < len(self.slots):
            self._column[self.slots_array()[self._noted :]] = True
            self._noted = len(self.slots)
        return self._column[:size]


class LexicalIndex:
    """Which slots hold which terms. Not safe for two threads at once: its stream's lock guards it."""

    def __init__(self) -> None:
        self._postings: dict[str, _Postings | int] = {}
        self._postings_count = 0
        self._lengths = np.zeros(0, np.int32)
        self._entries = 0
        self._column_bytes = 0

    def add(self, slot: int, terms: Sequence[str]) -> None:
        """Note that ``slot``, never used before, holds these terms. They stay until the index is built
        anew; whoever searches says which slots live."""
        held = self._postings
        distinct = set(terms)
        for term in distinct:
            postings = held.get(term)
            if postings is None:
                # Most terms are in one memory, once, and in many streams, each with an index of its own.
                held[sys.intern(term)] = slot
            elif isinstance(postings, int):
                held[term] = self._postings_of(postings, slot)
            else:
                postings.slots.append(slot)
        if len(distinct) < len(terms):
            for term, count in Counter(terms).items():
                if count > 1:
                    postings = held[term]
                    if isinstance(postings, int):
                        postings = held[term] = self._postings_of(slot)
                    postings.repeat(count)
        self._entries += len(distinct)
        if slot >= len(self._lengths):
            more = max(16, slot + 1, 2 * len(self._lengths)) - len(self._lengths)
            self._lengths = np.concatenate([self._lengths, np.zeros(more, np.int32)])
        self._lengths[slot] = len(terms)

    def coverage(
        self, terms: Mapping[str, float], size: int, seen: Mask | None = None
    ) -> NDArray[np.float32] | None:
        """The coverage of slots 0 to ``size`` - 1; None where no term is known.

        ``terms`` are the query's with what each counts. ``seen`` says which slots there are for the caller;
        None: all. Others' coverage means nothing.
        """
        living = _living(size, seen)
        weights: list[float] = []
        rare: list[tuple[_Postings, float]] = []
        common: list[tuple[_Postings, float]] = []
        for count, (postings, frequency) in zip(terms.values(), self._found(terms, seen), strict=True):
            weight = count * _idf(frequency, living) ** 2
            weights.append(weight)
            if postings is not None and frequency:
                (common if self._is_common(postings, size) else rare).append((postings, weight))
        if not rare and not common:
            return None
        scores = _summed([(held.slots_array(), np.full(len(held.slots), w)) for held, w in rare], size)
        for held, weight in common:
            scores += np.multiply(self._column(held, size), weight)
        scores /= sum(heapq.nlargest(FULL_TERMS, weights))
        return np.minimum(scores, 1).astype(np.float32)

    def bm25(
        self, terms: Iterable[str], size: int, seen: Mask | None = None
    ) -> tuple[NDArray[np.float32], float] | None:
        """BM25 of slots 0 to ``size`` - 1, and that of a text of middle length that holds each term once;
        None where no term is known. ``seen`` as in ``coverage``."""
        living = _living(size, seen)
        lengths = self._lengths[:size]
        total = int(lengths.sum() if seen is None else lengths[seen[: len(lengths)]].sum())
        average = max(total / max(living, 1), 1.0)
        weights, held = [], []
        for postings, frequency in self._found(terms, seen):
            weight = _idf(frequency, living)
            weights.append(weight)
            if postings is not None and frequency:
                slots = postings.slots_array()
                often = postings.counts()
                stretch = 1 - LENGTH_SHARE + LENGTH_SHARE * lengths[slots] / average
                held.append((slots, weight * often * (SATURATION + 1) / (often + SATURATION * stretch)))
        if not held:
            return None
        return _summed(held, size).astype(np.float32), sum(heapq.nlargest(FULL_TERMS, weights))

    def _found(self, terms: Iterable[str], seen: Mask | None) -> Iterator[tuple[_Postings | None, int]]:
        """Of each distinct term: what holds it, and how many of that are seen."""
        for term in dict.fromkeys(terms):
            postings = self._postings.get(term)
            if postings is None:
                yield None, 0
            elif isinstance(postings, int):
                yield _Postings(postings), 1 if seen is None else int(seen[postings])
            elif seen is None:
                yield postings, len(postings.slots)
            elif self._is_common(postings, len(seen)):
                yield postings, int(np.count_nonzero(self._column(postings, len(seen)) & seen))
            else:
                yield postings, int(np.count_nonzero(seen[postings.slots_array()]))

    def _postings_of(self, *slots: int) -> _Postings:
        self._postings_count += 1
        return _Postings(*slots)

    def _is_common(self, postings: _Postings, size: int) -> bool:
        return size > COMMON_SIZE and COMMON_SHARE * len(postings.slots) > size

    def _column(self, postings: _Postings, size: int) -> Mask:
        before = postings.nbytes
        column = postings.column(size)
        self._column_bytes += postings.nbytes - before
        return column

    @property
    def nbytes(self) -> int:
        """An estimate of the resident bytes."""
        held = len(self._postings) * _ENTRY_BYTES + self._postings_count * _POSTINGS_BYTES
        return held + self._entries * array("I").itemsize + self._lengths.nbytes + self._column_bytes


def _idf(frequency: int, living: int) -> float:
    return math.log1p((living - frequency + 0.5) / (frequency + 0.5))


def _living(size: int, seen: Mask | None) -> int:
    return size if seen is None else int(np.count_nonzero(seen))


def _summed(held: Sequence[tuple[NDArray[np.uint32], NDArray[np.float64]]], size: int) -> NDArray[np.float64]:
    """By slot, the sum of what it was given."""
    if not held:
        return np.zeros(size)
    slots, values = (np.concatenate(parts) for parts in zip(*held, strict=True))
    sums: NDArray[np.float64] = np.bincount(slots, values, minlength=size).astype(np.float64, copy=False)
    return sums
