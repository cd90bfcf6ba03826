"""Which index a stream of so many rows gets."""

from __future__ import annotations

from server.index.coded_rows import CodedRows, encode
from server.index.exact import ExactIndex
from server.index.hnsw import HnswParameters, hnsw_available
from server.index.hnsw_index import HnswIndex
from server.index.hnsw_state import HnswState
from server.index.vector_index import VectorIndex

EXACT_ROWS = 10_000
"""Rows up to which a stream is exact, measured with 512 numbers (bench/index.py; 1 is equal speed):

    rows                      1 000   5 000   10 000   20 000   100 000
    graph ÷ exact, k = 10       .9     1.6      2.3      3.7      22
    graph ÷ exact, k = 100      .9     1.0      1.3      2.1      13

A search wants a pool of 100 or more, and needs a second search for what the keywords found, where an exact
index scores all rows at once: that evens the two at 10 000 rows, at about 0.9 ms. Up to there recall is 1.0
on any data, and no thread spends 0.2 ms a row on building a graph each time a stream is loaded.
"""


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
    rows = CodedRows(index.dimension)
    for labels, vectors in index.pages():
        rows.put(labels, *encode(vectors))
    return HnswIndex(index.dimension, state=HnswState(rows, HnswParameters()))
