"""The best k of many scores, the same for every index.

A matrix product rounds a row by where it stands in its block, so two equal vectors may differ in the last
bit. Rows near the k-th place are therefore scored once more, each by itself, before they are ranked: equal
vectors get equal scores, and the newer one comes first.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

ROUNDING = np.float32(4e-6)
"""More than the scores of a matrix product differ from those of rows multiplied one by one."""


def nearest(scores: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    """Positions, ascending, of the ``k`` highest of ``scores`` and of all that may tie with the last.

    At least ``k`` of ``scores`` must be finite, and ``k`` positive.
    """
    if k >= len(scores):
        return np.arange(len(scores))
    last = len(scores) - k
    return np.flatnonzero(scores >= np.partition(scores, last)[last] - ROUNDING)


def ranked(
    labels: NDArray[np.int64], scores: NDArray[np.float32], k: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The first ``k`` by score, highest first, then by label, highest first."""
    order = np.lexsort((-labels, -scores))[:k]
    return labels[order], scores[order]


def nothing() -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The answer when there is nothing to find."""
    return np.empty(0, np.int64), np.empty(0, np.float32)


def survivors(living: NDArray[np.bool_], allowed: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The living labels that ``allowed`` names, as a mask as long as the shorter of both."""
    length = min(len(living), len(allowed))
    return living[:length] & allowed[:length]
