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

_ENTRY_BYTES = 310
"""A dictionary slot, a short string and two small arrays, as CPython lays them out."""
_MOST_COUNTED = 255

Mask = NDArray[np.bool_]


class _Postings:
    """The slots that hold a term, and how often each does."""

    __slots__ = ("counts", "slots")

    def __init__(self) -> None:
        self.slots = array("I")
        self.counts = array("B")


class LexicalIndex:
    """Which slots hold which terms. Not safe for two threads at once: its stream's lock guards it."""

    def __init__(self) -> None:
        self._postings: dict[str, _Postings] = {}
        self._lengths = np.zeros(0, np.int32)
        self._size = 0
        self._entries = 0

    def add(self, slot: int, terms: Iterable[str]) -> None:
        """Note that ``slot``, never used before, holds these terms. They stay until the index is built
        anew; whoever searches says which slots live."""
        counted = Counter(terms)
        for term, count in counted.items():
            postings = self._postings.get(term)
            if postings is None:
                postings = self._postings[term] = _Postings()
            postings.slots.append(slot)
            postings.counts.append(min(count, _MOST_COUNTED))
        self._entries += len(counted)
        if slot >= len(self._lengths):
            more = max(16, slot + 1, 2 * len(self._lengths)) - len(self._lengths)
            self._lengths = np.concatenate([self._lengths, np.zeros(more, np.int32)])
        self._lengths[slot] = counted.total()
        self._size = max(self._size, slot + 1)

    def coverage(
        self, terms: Mapping[str, float], size: int, seen: Mask | None = None
    ) -> NDArray[np.float32] | None:
        """The coverage of slots 0 to ``size`` - 1; None where no term is known.

        ``terms`` are the query's with what each counts. ``seen`` says which slots there are for the caller;
        None: all. Others' coverage means nothing.
        """
        living = _living(size, seen)
        weights, held = [], []
        for count, (slots, _, frequency) in zip(terms.values(), self._found(terms, seen), strict=True):
            weight = count * _idf(frequency, living) ** 2
            weights.append(weight)
            if frequency:
                held.append((slots, np.full(len(slots), weight)))
        if not held:
            return None
        scores = _summed(held, size) / sum(heapq.nlargest(FULL_TERMS, weights))
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
        for slots, counts, frequency in self._found(terms, seen):
            weight = _idf(frequency, living)
            weights.append(weight)
            if frequency:
                often = counts.astype(np.float64)
                stretch = 1 - LENGTH_SHARE + LENGTH_SHARE * lengths[slots] / average
                held.append((slots, weight * often * (SATURATION + 1) / (often + SATURATION * stretch)))
        if not held:
            return None
        return _summed(held, size).astype(np.float32), sum(heapq.nlargest(FULL_TERMS, weights))

    def _found(
        self, terms: Iterable[str], seen: Mask | None
    ) -> Iterator[tuple[NDArray[np.uint32], NDArray[np.uint8], int]]:
        """Of each distinct term: the slots that hold it, how often, and how many of them are seen."""
        for term in dict.fromkeys(terms):
            postings = self._postings.get(term)
            if postings is None:
                yield np.empty(0, np.uint32), np.empty(0, np.uint8), 0
                continue
            slots = np.frombuffer(postings.slots, dtype=np.uint32)
            frequency = len(slots) if seen is None else int(np.count_nonzero(seen[slots]))
            yield slots, np.frombuffer(postings.counts, dtype=np.uint8), frequency

    @property
    def nbytes(self) -> int:
        """An estimate of the resident bytes."""
        entry = array("I").itemsize + array("B").itemsize
        return len(self._postings) * _ENTRY_BYTES + self._entries * entry + self._lengths.nbytes


def _idf(frequency: int, living: int) -> float:
    return math.log1p((living - frequency + 0.5) / (frequency + 0.5))


def _living(size: int, seen: Mask | None) -> int:
    return size if seen is None else int(np.count_nonzero(seen))


def _summed(held: Sequence[tuple[NDArray[np.uint32], NDArray[np.float64]]], size: int) -> NDArray[np.float64]:
    """By slot, the sum of what it was given."""
    slots, values = (np.concatenate(parts) for parts in zip(*held, strict=True))
    sums: NDArray[np.float64] = np.bincount(slots, values, minlength=size).astype(np.float64, copy=False)
    return sums
