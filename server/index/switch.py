"""Which index a stream of so many rows gets."""

from __future__ import annotations

from server.index.exact import ExactIndex
from server.index.hnsw import hnsw_available
from server.index.hnsw_index import HnswIndex
from server.index.vector_index import VectorIndex

EXACT_ROWS = 6_000
"""To be measured."""


def open_index(dimension: int, expected_count: int) -> VectorIndex:
    """An empty index fit for ``expected_count`` rows; exact, whatever their number, without hnswlib."""
    if expected_count > EXACT_ROWS and hnsw_available():
        return HnswIndex(dimension)
    return ExactIndex(dimension, expected_count)


def grown(index: VectorIndex) -> VectorIndex:
    """The index to go on with: ``index``, or one for more rows where it has outgrown its kind.

    The other one has every row of ``index`` and answers at once; its graph is filled in the background.
    The caller closes ``index`` when nobody uses it any more, and adds nothing to it meanwhile.
    """
    if not isinstance(index, ExactIndex) or len(index) <= EXACT_ROWS or not hnsw_available():
        return index
    larger = HnswIndex(index.dimension)
    larger.add(*index.rows())
    return larger
