"""What every vector index does, whatever it is made of.

Labels are ints from 0 to ``LABEL_LIMIT`` chosen by the caller: slots, dense, because memory follows the
highest one. A label may be used again once it was removed. Vectors are rows of float32, L2-normalised by
the caller, so the inner product is the cosine. One index holds vectors of one space and one dimension.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

LABEL_LIMIT = 2**31 - 1
"""One more than the highest label: tables by label keep four bytes a label."""


class VectorIndex(Protocol):
    """An index of unit vectors. Safe to use from many threads at once; every call sees whole rows only.

    ``close`` may be called any number of times. A closed index goes on answering and taking rows, so that
    a search under way never fails; it only stops working in the background, and its memory goes with
    the last reference.
    """

    @property
    def dimension(self) -> int:
        """How many numbers a vector has."""
        ...

    @property
    def nbytes(self) -> int:
        """Resident bytes, the vectors and everything beside them."""
        ...

    def __len__(self) -> int:
        """How many labels live."""
        ...

    def add(self, labels: NDArray[np.int64], vectors: NDArray[np.float32]) -> None:
        """Insert or replace rows: ``labels`` of shape (n,), ``vectors`` of shape (n, dimension).

        Of a label given twice the last vector counts. A search that starts after the return sees all rows.

        Raises:
            ValueError: a wrong shape or dtype, a label outside 0..LABEL_LIMIT, a number that is not finite.
                Nothing has changed then.
        """
        ...

    def remove(self, labels: NDArray[np.int64]) -> None:
        """Forget rows. A label that does not live is ignored.

        Raises:
            ValueError: ``labels`` is not a one-dimensional int64 array.
        """
        ...

    def search(
        self, query: NDArray[np.float32], k: int, allowed: NDArray[np.bool_] | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The nearest living labels and their cosines, best first; of equal cosines the higher label first.

        As many as there are, ``k`` at most, none for ``k`` <= 0. ``allowed`` is a mask by label; a label
        beyond its end is not allowed.

        Raises:
            ValueError: ``query`` is not a finite float32 vector of this dimension, ``allowed`` not a mask.
        """
        ...

    def scores(self, query: NDArray[np.float32], size: int) -> NDArray[np.float32]:
        """The cosine of every label from 0 to ``size`` - 1, shape (size,); -inf where none lives.

        Raises:
            ValueError: as ``search``.
        """
        ...

    def score(self, query: NDArray[np.float32], labels: NDArray[np.int64]) -> NDArray[np.float32]:
        """The cosine of each of ``labels``, shape (n,), scored by itself: equal vectors score the same,
        wherever they lie. -inf where one does not live.

        Raises:
            ValueError: as ``search``, and where ``labels`` is not a one-dimensional int64 array.
        """
        ...

    def vectors(self, labels: NDArray[np.int64]) -> NDArray[np.float32]:
        """The rows of ``labels``, all of which must live, in their order: shape (n, dimension)."""
        ...

    def close(self) -> None:
        """Stop all background work and wait for its end."""
        ...


def check_rows(labels: NDArray[np.int64], vectors: NDArray[np.float32], dimension: int) -> None:
    """Raise ValueError unless ``labels`` and ``vectors`` may be added to an index of this dimension."""
    check_labels(labels)
    if vectors.dtype != np.float32 or vectors.shape != (len(labels), dimension):
        raise ValueError(
            f"vectors must be float32 of shape ({len(labels)}, {dimension}), "
            f"not {vectors.dtype} of shape {vectors.shape}"
        )
    if len(labels) == 0:
        return
    if labels.min() < 0 or labels.max() >= LABEL_LIMIT:
        raise ValueError(
            f"labels must be from 0 to {LABEL_LIMIT - 1}, not from {labels.min()} to {labels.max()}"
        )
    if not np.isfinite(np.vecdot(vectors, vectors)).all():
        raise ValueError("vectors must be finite; normalise them before they are added")


def check_labels(labels: NDArray[np.int64]) -> None:
    """Raise ValueError unless ``labels`` is a one-dimensional int64 array."""
    if labels.dtype != np.int64 or labels.ndim != 1:
        raise ValueError(f"labels must be int64 of one dimension, not {labels.dtype} of {labels.ndim}")


def check_query(query: NDArray[np.float32], dimension: int, allowed: NDArray[np.bool_] | None = None) -> None:
    """Raise ValueError unless ``query`` (and the mask beside it) may be searched for."""
    if query.dtype != np.float32 or query.shape != (dimension,):
        raise ValueError(
            f"the query must be float32 of shape ({dimension},), not {query.dtype} of shape {query.shape}"
        )
    if not math.isfinite(float(query @ query)):
        raise ValueError("the query must be finite")
    if allowed is not None and (allowed.dtype != np.bool_ or allowed.ndim != 1):
        raise ValueError(f"allowed must be bool of one dimension, not {allowed.dtype} of {allowed.ndim}")
