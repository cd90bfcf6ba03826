"""The keyword arm: how much of a query's weight a memory's words cover.

Statistics are one stream's own, never shared between subjects or tenants: a common table would leak
document frequencies and rank wrongly. Coverage of a memory is the weight of the query's distinct terms
that it holds, divided by the weight of the query: 0 to 1, and comparable between queries, which a BM25
score is not.

* A term weighs the square of its idf, as in the cosine of two tf-idf vectors. With idf itself the words of
  every sentence ("my", 的) together outweigh what the query is about, where it shares no other word.
* A query weighs what all its terms do, but no more than ``FULL_TERMS`` of them. One memory can't hold the
  words of a whole dialogue; without the bound words count for the less the longer the query is.
"""

from __future__ import annotations

import heapq
import math
from array import array
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

FULL_TERMS = 32
"""The terms of a long question: 30 English words, or 16 Chinese characters with their pairs. From 16 to 48
measured alike."""

_ENTRY_BYTES = 190
"""A dictionary slot, a short string and a small array, as CPython lays them out."""


class LexicalIndex:
    """Which slots hold which terms. Not safe for two threads at once: its stream's lock guards it."""

    def __init__(self) -> None:
        self._postings: dict[str, array[int]] = {}
        self._dead: dict[str, int] = {}
        self._living = 0
        self._entries = 0

    def add(self, slot: int, terms: Iterable[str]) -> None:
        """Note that ``slot``, never used before, holds these terms."""
        for term in set(terms):
            postings = self._postings.get(term)
            if postings is None:
                self._postings[term] = array("I", (slot,))
            else:
                postings.append(slot)
            self._entries += 1
        self._living += 1

    def remove(self, terms: Iterable[str]) -> None:
        """Note that a slot with these terms is dead. Its postings stay until the index is rebuilt;
        document frequencies count living slots only."""
        for term in set(terms):
            self._dead[term] = self._dead.get(term, 0) + 1
        self._living -= 1

    def coverage(self, terms: Sequence[str], size: int) -> NDArray[np.float32] | None:
        """The coverage of slots 0 to ``size`` - 1, dead ones included; None where no term is known."""
        scores: NDArray[np.float32] | None = None
        weights = []
        for term in dict.fromkeys(terms):
            postings = self._postings.get(term)
            frequency = len(postings) - self._dead.get(term, 0) if postings is not None else 0
            weight = math.log1p((self._living - frequency + 0.5) / (frequency + 0.5)) ** 2
            weights.append(weight)
            if frequency and postings is not None:
                if scores is None:
                    scores = np.zeros(size, dtype=np.float32)
                scores[np.frombuffer(postings, dtype=np.uint32)] += weight
        if scores is not None:
            scores /= np.float32(sum(heapq.nlargest(FULL_TERMS, weights)))
            np.minimum(scores, 1, out=scores)
        return scores

    @property
    def nbytes(self) -> int:
        """An estimate of the resident bytes."""
        return len(self._postings) * _ENTRY_BYTES + self._entries * array("I").itemsize
