"""The index for large streams: a graph for the candidates, coded rows for the scores.

A row lives in two steps. ``add`` codes it (see ``coded_rows``) and returns; until a background thread has
put it into the graph it belongs to the *tail*, which every search scans; from then on the graph finds it.
Scores come from the coded rows either way, so they do not depend on where a row is.

How far a graph may be trusted depends on the data: vectors without clusters defeat any (.2 with 192
candidates on 20 000 Gaussian ones). So the thread measures it against scans whenever it has grown by a half,
with recent queries, and searches take as many candidates as that showed to be enough; where none are for less
than the cost of a scan, they scan. They also scan

- where most rows are in the tail, as long as a graph is young;
- where what a filter lets through costs less to scan than candidates to judge;
- where the graph reaches fewer nodes than asked for, or the filter leaves too few of the candidates, or its
  k-th so far down among them that nearer ones may have been missed;
- where the last candidate ties with the k-th, for then newer ones of the same score may lie beyond.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from server.index.background import Background
from server.index.coded_rows import CodedRows, encode
from server.index.graph_builder import build
from server.index.hnsw import HnswParameters
from server.index.hnsw_state import HnswState, Near
from server.index.selection import nearest, nothing, ranked, survivors
from server.index.vector_index import check_labels, check_query, check_rows

FILTER_ALLOWANCE = 1.5
"""How many more candidates are taken than a filter that knows nothing of the query would need."""

Found = tuple[NDArray[np.int64], NDArray[np.float32]]


class HnswIndex:
    """A VectorIndex for many rows. Its builder thread starts with the first row and ends with ``close``."""

    def __init__(
        self, dimension: int, parameters: HnswParameters | None = None, state: HnswState | None = None
    ) -> None:
        """An empty index, or one of the ``state`` of a snapshot, which it takes over."""
        self.state = state or HnswState(CodedRows(dimension), parameters or HnswParameters())
        self._builder = Background("vector-index-builder", lambda: build(self.state))
        if self.state.tail_length:
            self._builder.wake()

    @property
    def dimension(self) -> int:
        return self.state.rows.dimension

    @property
    def nbytes(self) -> int:
        graph = self.state.graph
        return self.state.rows.nbytes + (graph.nbytes if graph else 0)

    def __len__(self) -> int:
        return self.state.rows.count

    def add(self, labels: NDArray[np.int64], vectors: NDArray[np.float32]) -> None:
        check_rows(labels, vectors, self.dimension)
        if len(labels) == 0:
            return
        once, last = np.unique(labels[::-1], return_index=True)
        if len(once) < len(labels):
            labels, vectors = once, vectors[len(labels) - 1 - last]
        codes, scales = encode(vectors)
        with self.state.lock.exclusive:
            self.state.put(labels, codes, scales)
        self._builder.wake()

    def remove(self, labels: NDArray[np.int64]) -> None:
        check_labels(labels)
        with self.state.lock.exclusive:
            rows = self.state.rows
            known = np.unique(labels[(labels >= 0) & (labels < rows.end)])
            self.state.drop(known[rows.living[known]])
        self._builder.wake()

    def search(self, query: NDArray[np.float32], k: int, allowed: NDArray[np.bool_] | None = None) -> Found:
        check_query(query, self.dimension, allowed)
        state = self.state
        state.recent.append(query.copy())
        with state.lock.shared:
            mask = None if allowed is None else survivors(state.rows.living, allowed)
            count = state.rows.count if mask is None else int(np.count_nonzero(mask))
            if count == state.rows.count:
                mask = None
            k = min(k, count)
            if k <= 0:
                return nothing()
            candidates = self._candidates(k, count)
            found = self._search_graph(query, k, mask, count, candidates) if candidates else None
            return found or state.rows.search(query, k, mask)

    def scores(self, query: NDArray[np.float32], size: int) -> NDArray[np.float32]:
        check_query(query, self.dimension)
        scores = np.full(max(size, 0), -np.inf, np.float32)
        with self.state.lock.shared:
            known = self.state.rows.score_all(query)[: len(scores)]
        scores[: len(known)] = known
        return scores

    def score(self, query: NDArray[np.float32], labels: NDArray[np.int64]) -> NDArray[np.float32]:
        check_query(query, self.dimension)
        check_labels(labels)
        scores = np.full(len(labels), -np.inf, np.float32)
        with self.state.lock.shared:
            rows = self.state.rows
            here = np.flatnonzero((labels >= 0) & (labels < rows.end))
            here = here[rows.living[labels[here]]]
            scores[here] = rows.score_each(query, labels[here])
        return scores

    def vectors(self, labels: NDArray[np.int64]) -> NDArray[np.float32]:
        with self.state.lock.shared:
            return self.state.rows.vectors(labels)

    def drain(self, timeout_seconds: float) -> bool:
        """Wait until every row is in the graph, and it is measured and not worn; whether that came in time.

        False too where the builder was closed before.
        """
        self._builder.wake()
        return self._builder.wait_idle(timeout_seconds) and self.state.tail_length == 0

    def close(self) -> None:
        """Stop the builder, after the few rows it has in hand, and wait for its end."""
        self._builder.close()

    def _candidates(self, k: int, count: int) -> int:
        """How many candidates to ask the graph for, where ``count`` rows survive; 0: scan those."""
        state, parameters = self.state, self.state.parameters
        if state.graph_length <= state.tail_length or not state.candidates:
            return 0
        share = count / state.rows.count
        rank = k if share == 1 else FILTER_ALLOWANCE * k / share
        candidates = math.ceil(max(state.candidates / share, parameters.candidates_per_hit * rank))
        scanned = parameters.rows_per_candidate * candidates
        if share < 0.5:
            scanned = max(scanned, parameters.scanned_survivors)
        return 0 if count <= scanned else candidates

    def _search_graph(
        self,
        query: NDArray[np.float32],
        k: int,
        mask: NDArray[np.bool_] | None,
        count: int,
        candidates: int,
    ) -> Found | None:
        """Through the graph and the tail; None where that may have missed something."""
        state = self.state
        near = state.near(query, candidates)
        if near is None:
            return None
        tail, places = state.tail(), np.arange(len(near.labels))
        if mask is not None:
            tail, places = tail[_lets(mask, tail)], np.flatnonzero(_lets(mask, near.labels))
        wanted = min(k, count - len(tail))
        if len(near.labels) < state.graph_length and wanted and not self._suffice(near, places, wanted):
            return None
        labels, scores = near.labels[places[:wanted]], near.scores[places[:wanted]]
        if len(tail) == 0:
            return labels, scores
        rest = tail[nearest(state.rows.score(query, tail), min(k, len(tail)))]
        rest, more = state.rows.rank(query, rest, k)
        return ranked(np.concatenate([labels, rest]), np.concatenate([scores, more]), k)

    def _suffice(self, near: Near, places: NDArray[np.int64], wanted: int) -> bool:
        """Whether ``near``, which is not all there is, holds the best ``wanted`` of those at ``places``."""
        if len(places) < wanted:
            return False
        last = int(places[wanted - 1])
        deep = (last + 1) * self.state.parameters.candidates_per_hit > len(near.labels)
        return not deep and near.edge != near.scores[last]


def _lets(mask: NDArray[np.bool_], labels: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of ``labels`` are in ``mask``, as a mask over them."""
    through = labels < len(mask)
    through[through] = mask[labels[through]]
    return through
