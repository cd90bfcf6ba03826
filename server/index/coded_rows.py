"""Living vectors by label, an int8 a number and a float32 scale a row, scanned in float32.

The store keeps vectors in the same form, so what comes from it is kept here without loss; any other
vector is kept to within about 0.002 of its cosines. A row of 512 numbers takes 521 bytes instead of 2 048,
and a scan, which widens 256 rows at a time into a buffer that stays in the processor's cache, takes no
longer than one of float32 (about 0.1 µs a row; 0.2 where rows are picked out).

Nothing here locks: whoever holds it does.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from server.index.selection import nearest, ranked

LEVELS = 127
BLOCK_ROWS = 256
SCAN_SHARE = 0.6
"""The share of rows from which multiplying all and masking beats picking rows out."""
CHUNK_ROWS = 65_536
"""Rows set aside together. The system gives a chunk its memory page by page as rows are written."""


def encode(vectors: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Codes of shape (n, d) and scales of shape (n,); a row is its codes times its scale."""
    codes = np.empty(vectors.shape, np.int8)
    scales = np.empty(len(vectors), np.float32)
    for start in range(0, len(vectors), BLOCK_ROWS):
        rows = vectors[start : start + BLOCK_ROWS]
        scale = np.abs(rows).max(axis=1) / np.float32(LEVELS)
        exact = rows / np.where(scale > 0, scale, np.float32(1))[:, np.newaxis]
        codes[start : start + BLOCK_ROWS] = np.rint(exact, out=exact)
        scales[start : start + BLOCK_ROWS] = scale
    return codes, scales


class CodedRows:
    """Rows by label. ``end`` is one more than the highest label ever put."""

    def __init__(self, dimension: int, end: int = 0, chunk_rows: int = CHUNK_ROWS) -> None:
        self.dimension = dimension
        self.end = end
        self.count = 0
        self._chunk_rows = chunk_rows
        self._chunks: list[NDArray[np.int8]] = []
        self._scales = np.zeros(end, np.float32)
        self._living = np.zeros(end, np.bool_)
        self._add_chunks()

    @property
    def nbytes(self) -> int:
        """The bytes of the rows up to ``end``, dead ones included, and of the tables beside them."""
        return self.end * self.dimension + self._scales.nbytes + self._living.nbytes

    @property
    def living(self) -> NDArray[np.bool_]:
        """A view by label, of length ``end``."""
        return self._living[: self.end]

    def put(self, labels: NDArray[np.int64], codes: NDArray[np.int8], scales: NDArray[np.float32]) -> None:
        """Insert or replace rows; each label once."""
        self._reach(int(labels.max(initial=-1)) + 1)
        for chunk, places, positions in self._pieces(labels):
            chunk[places] = codes[positions]
        self._scales[labels] = scales
        self.count += len(labels) - int(np.count_nonzero(self._living[labels]))
        self._living[labels] = True

    def drop(self, labels: NDArray[np.int64]) -> None:
        """Forget rows; all must live, each label once."""
        self._living[labels] = False
        self.count -= len(labels)

    def vectors(self, labels: NDArray[np.int64]) -> NDArray[np.float32]:
        """The rows of ``labels``, in their order, as float32 of shape (n, d)."""
        return self._codes(labels) * self._scales[labels][:, np.newaxis]

    def search(
        self, query: NDArray[np.float32], k: int, mask: NDArray[np.bool_] | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The best ``k`` rows, of those in ``mask`` if there is one; as many must live (in it). ``mask``
        is by label, holds living ones only and is no longer than ``end``."""
        if mask is None:
            labels = nearest(self.score_all(query), k)
        elif np.count_nonzero(mask) < SCAN_SHARE * self.end:
            labels = np.flatnonzero(mask)
            labels = labels[nearest(self.score(query, labels), k)]
        else:
            scores = self.score_all(query)[: len(mask)]
            scores[~mask] = -np.inf
            labels = nearest(scores, k)
        return self.rank(query, labels, k)

    def rank(
        self, query: NDArray[np.float32], labels: NDArray[np.int64], k: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The best ``k`` of ``labels``, each scored by itself."""
        return ranked(labels, self.score_each(query, labels), k)

    def score_each(self, query: NDArray[np.float32], labels: NDArray[np.int64]) -> NDArray[np.float32]:
        """The cosine of each of ``labels``, scored by itself."""
        scores: NDArray[np.float32] = np.vecdot(self._codes(labels).astype(np.float32), query)
        return scores * self._scales[labels]

    def score(self, query: NDArray[np.float32], labels: NDArray[np.int64]) -> NDArray[np.float32]:
        """The cosine of each of ``labels``, which must ascend, to within rounding."""
        scores = np.empty(len(labels), np.float32)
        block = np.empty((BLOCK_ROWS, self.dimension), np.float32)
        edges = np.searchsorted(labels, self._chunk_rows * np.arange(len(self._chunks) + 1))
        for number, chunk in enumerate(self._chunks):
            for start in range(edges[number], edges[number + 1], BLOCK_ROWS):
                stop = min(start + BLOCK_ROWS, edges[number + 1])
                rows = block[: stop - start]
                np.copyto(rows, chunk[labels[start:stop] - number * self._chunk_rows])
                np.dot(rows, query, out=scores[start:stop])
        scores *= self._scales[labels]
        return scores

    def score_all(self, query: NDArray[np.float32]) -> NDArray[np.float32]:
        """The cosine of every label below ``end``, to within rounding; -inf where none lives."""
        scores = np.empty(self.end, np.float32)
        block = np.empty((BLOCK_ROWS, self.dimension), np.float32)
        for number, chunk in enumerate(self._chunks):
            first = number * self._chunk_rows
            for start in range(0, min(self._chunk_rows, self.end - first), BLOCK_ROWS):
                stop = min(start + BLOCK_ROWS, self._chunk_rows, self.end - first)
                rows = block[: stop - start]
                np.copyto(rows, chunk[start:stop])
                np.dot(rows, query, out=scores[first + start : first + stop])
        scores *= self._scales[: self.end]
        if self.count < self.end:
            scores[~self.living] = -np.inf
        return scores

    def parts(self) -> Iterator[NDArray[np.bool_] | NDArray[np.float32] | NDArray[np.int8]]:
        """Everything kept, as arrays to be written to a file, or filled from one in the same order.

        After they were filled, ``recount``.
        """
        yield self.living
        yield self._scales[: self.end]
        for number, chunk in enumerate(self._chunks):
            yield chunk[: self.end - number * self._chunk_rows]

    def recount(self) -> None:
        """Count the living again."""
        self.count = int(np.count_nonzero(self.living))

    def _codes(self, labels: NDArray[np.int64]) -> NDArray[np.int8]:
        if len(self._chunks) == 1:
            return self._chunks[0][labels]
        codes = np.empty((len(labels), self.dimension), np.int8)
        for chunk, places, positions in self._pieces(labels):
            codes[positions] = chunk[places]
        return codes

    def _pieces(
        self, labels: NDArray[np.int64]
    ) -> Iterator[tuple[NDArray[np.int8], NDArray[np.int64], NDArray[np.int64]]]:
        """Chunk by chunk: the chunk, places in it, and the positions in ``labels`` that lie there."""
        numbers, places = np.divmod(labels, self._chunk_rows)
        for number in np.unique(numbers):
            positions = np.flatnonzero(numbers == number)
            yield self._chunks[number], places[positions], positions

    def _reach(self, end: int) -> None:
        if end > len(self._living):
            more = max(end, 2 * len(self._living)) - len(self._living)
            self._scales = np.concatenate([self._scales, np.zeros(more, np.float32)])
            self._living = np.concatenate([self._living, np.zeros(more, np.bool_)])
        self.end = max(self.end, end)
        self._add_chunks()

    def _add_chunks(self) -> None:
        while len(self._chunks) * self._chunk_rows < self.end:
            self._chunks.append(np.zeros((self._chunk_rows, self.dimension), np.int8))
