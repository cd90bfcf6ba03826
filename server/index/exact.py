"""The exact index: one block of float32 and one matrix product a search.

Recall is 1.0 on any data, a filter costs nothing, and a row costs its own bytes. Time grows with the rows:
about 90 ns each at 512 numbers, so ``server.index.switch`` says up to how many it is used.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from server.index.selection import nearest, nothing, ranked, survivors
from server.index.shared_lock import SharedLock
from server.index.vector_index import check_labels, check_query, check_rows

GATHER_BELOW = 0.3
"""The share of rows below which copying them together beats multiplying all and masking."""

PAGE_ROWS = 1024


class ExactIndex:
    """A VectorIndex that multiplies every row. A label is the row's place in the block."""

    def __init__(self, dimension: int, capacity: int = 0) -> None:
        """``capacity`` rows are set aside at once; the block doubles when it is full."""
        self._block = np.zeros((capacity, dimension), np.float32)
        self._living = np.zeros(capacity, np.bool_)
        self._end = 0
        self._count = 0
        self._lock = SharedLock()

    @property
    def dimension(self) -> int:
        return self._block.shape[1]

    @property
    def nbytes(self) -> int:
        return self._block.nbytes + self._living.nbytes

    def __len__(self) -> int:
        return self._count

    def add(self, labels: NDArray[np.int64], vectors: NDArray[np.float32]) -> None:
        check_rows(labels, vectors, self.dimension)
        if len(labels) == 0:
            return
        with self._lock.exclusive:
            end = max(self._end, int(labels.max()) + 1)
            if end > len(self._living):
                self._grow(max(end, 2 * len(self._living)))
            self._block[labels] = vectors
            self._living[labels] = True
            self._settle(end)

    def remove(self, labels: NDArray[np.int64]) -> None:
        check_labels(labels)
        with self._lock.exclusive:
            known = labels[(labels >= 0) & (labels < self._end)]
            self._living[known] = False
            self._settle(self._end)

    def search(
        self, query: NDArray[np.float32], k: int, allowed: NDArray[np.bool_] | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        check_query(query, self.dimension, allowed)
        with self._lock.shared:
            if allowed is None:
                return self._search_all(query, min(k, self._count))
            return self._search_some(query, k, survivors(self._living[: self._end], allowed))

    def scores(self, query: NDArray[np.float32], size: int) -> NDArray[np.float32]:
        check_query(query, self.dimension)
        with self._lock.shared:
            length = min(size, self._end)
            scores = np.full(max(size, 0), -np.inf, np.float32)
            if length > 0:
                np.dot(self._block[:length], query, out=scores[:length])
                if self._count < self._end:
                    scores[:length][~self._living[:length]] = -np.inf
            return scores

    def score(self, query: NDArray[np.float32], labels: NDArray[np.int64]) -> NDArray[np.float32]:
        check_query(query, self.dimension)
        check_labels(labels)
        with self._lock.shared:
            if len(labels) < GATHER_BELOW * self._end:
                return self._score_some(query, labels)
            scores = np.vecdot(self._block[: self._end], query)
            scores[~self._living[: self._end]] = -np.inf
            return _taken(scores, labels)

    def vectors(self, labels: NDArray[np.int64]) -> NDArray[np.float32]:
        with self._lock.shared:
            return self._block[labels]

    def pages(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """The living labels, ascending, and their vectors, copied page by page."""
        for start in range(0, self._end, PAGE_ROWS):
            with self._lock.shared:
                labels = start + np.flatnonzero(self._living[start : min(start + PAGE_ROWS, self._end)])
                vectors = self._block[labels]
            yield labels, vectors

    def close(self) -> None:
        """Nothing runs in the background."""

    def _search_all(
        self, query: NDArray[np.float32], k: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        if k <= 0:
            return nothing()
        scores = self._block[: self._end] @ query
        if self._count < self._end:
            scores[~self._living[: self._end]] = -np.inf
        return self._ranked(nearest(scores, k), query, k)

    def _search_some(
        self, query: NDArray[np.float32], k: int, mask: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        count = int(np.count_nonzero(mask))
        k = min(k, count)
        if k <= 0:
            return nothing()
        if count < GATHER_BELOW * len(mask):
            labels = np.flatnonzero(mask)
            return self._ranked(labels[nearest(self._block[labels] @ query, k)], query, k)
        scores = self._block[: len(mask)] @ query
        scores[~mask] = -np.inf
        return self._ranked(nearest(scores, k), query, k)

    def _score_some(self, query: NDArray[np.float32], labels: NDArray[np.int64]) -> NDArray[np.float32]:
        scores = np.full(len(labels), -np.inf, np.float32)
        here = np.flatnonzero((labels >= 0) & (labels < self._end))
        here = here[self._living[labels[here]]]
        scores[here] = np.vecdot(self._block[labels[here]], query)
        return scores

    def _ranked(
        self, labels: NDArray[np.int64], query: NDArray[np.float32], k: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        return ranked(labels, np.vecdot(self._block[labels], query), k)

    def _grow(self, capacity: int) -> None:
        # Zeros, since a product also reads what lies in a gap between labels.
        block = np.zeros((capacity, self.dimension), np.float32)
        living = np.zeros(capacity, np.bool_)
        block[: self._end] = self._block[: self._end]
        living[: self._end] = self._living[: self._end]
        self._block, self._living = block, living

    def _settle(self, end: int) -> None:
        self._end = end
        self._count = int(np.count_nonzero(self._living[:end]))


def _taken(scores: NDArray[np.float32], labels: NDArray[np.int64]) -> NDArray[np.float32]:
    """The scores of ``labels``; -inf for one that is no place in ``scores``."""
    here = (labels >= 0) & (labels < len(scores))
    if here.all():
        return scores[labels]
    found = np.full(len(labels), -np.inf, np.float32)
    found[here] = scores[labels[here]]
    return found
