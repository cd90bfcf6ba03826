"""What an HnswIndex is made of, shared by its searches, its builder and its snapshots."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from server.index.coded_rows import CodedRows
from server.index.hnsw import Graph, HnswParameters
from server.index.shared_lock import SharedLock

RECENT_QUERIES = 64
"""Kept to measure the graph with."""


@dataclass(frozen=True, slots=True)
class Near:
    """Candidates of a graph, best first. ``edge`` is the score of the one the graph thinks the furthest."""

    labels: NDArray[np.int64]
    scores: NDArray[np.float32]
    edge: np.float32


class HnswState:
    """Hold ``lock.shared`` to read and ``lock.exclusive`` to change anything but ``recent``.

    Every row is in ``rows``; those in ``graph`` too are found through it, the others are the *tail*. Only
    the builder puts rows into a graph and replaces it.
    """

    def __init__(
        self,
        rows: CodedRows,
        parameters: HnswParameters,
        graph: Graph | None = None,
        candidates: int | None = None,
        measured: int = 0,
    ) -> None:
        """``candidates`` is how many to ask the graph for, 0 if it was found wanting, None to take the
        parameters' until it is measured; ``measured`` how large the graph was when it was."""
        self.lock = SharedLock()
        self.rows = rows
        self.parameters = parameters
        self.graph = graph
        self.candidates = parameters.candidates if candidates is None else candidates
        self.measured = measured
        self.recent: deque[NDArray[np.float32]] = deque(maxlen=RECENT_QUERIES)
        self._tail: NDArray[np.int64] | None = None

    @property
    def graph_length(self) -> int:
        """How many rows are in the graph."""
        return self.graph.living if self.graph else 0

    @property
    def tail_length(self) -> int:
        """How many rows are not in the graph."""
        return self.rows.count - self.graph_length

    def tail(self) -> NDArray[np.int64]:
        """Labels of the rows that are not in the graph, ascending."""
        if self.tail_length == 0:
            return np.empty(0, np.int64)
        tail = self._tail
        if tail is None:
            outside = self.rows.living.copy()
            if self.graph is not None:
                outside &= ~self.graph.holds(self.rows.end)
            tail = self._tail = np.flatnonzero(outside)
        return tail

    def in_tail(self, labels: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of ``labels`` live and are not in the graph."""
        living = self.rows.living[labels]
        return living if self.graph is None else living & ~self.graph.has(labels)

    def linked(self) -> NDArray[np.int64]:
        """Labels of the rows in the graph, ascending."""
        return (
            np.empty(0, np.int64) if self.graph is None else np.flatnonzero(self.graph.holds(self.rows.end))
        )

    def put(self, labels: NDArray[np.int64], codes: NDArray[np.int8], scales: NDArray[np.float32]) -> None:
        """Insert or replace rows, each label once; they join the tail."""
        if self.graph is not None:
            self.graph.discard(labels)
        self.rows.put(labels, codes, scales)
        self._tail = None

    def drop(self, labels: NDArray[np.int64]) -> None:
        """Forget living rows, each label once."""
        if self.graph is not None:
            self.graph.discard(labels)
        self.rows.drop(labels)
        self._tail = None

    def link(self, labels: NDArray[np.int64]) -> None:
        """Put rows of the tail into the graph, and make one if there is none."""
        if len(labels) == 0:
            return
        if self.graph is None:
            self.graph = Graph(self.rows.dimension, self.parameters, self.rows.count + self.rows.count // 4)
        self.graph.insert(labels, self.rows.vectors(labels))
        self._tail = None

    def replace_graph(self, graph: Graph | None) -> Graph | None:
        """Take another graph of the same rows, less those that left the present one; return that one."""
        linked = self.linked()
        old, self.graph = self.graph, graph
        if graph is not None:
            graph.discard(np.setdiff1d(self.linked(), linked, assume_unique=True))
        self.measured = 0
        self._tail = None
        return old

    def near(self, query: NDArray[np.float32], count: int) -> Near | None:
        """The graph's ``count`` candidates, scored; None where it cannot reach as many."""
        assert self.graph is not None
        found = self.graph.neighbours(query, count)
        if found is None:
            return None
        labels, scores = self.rows.rank(query, found, len(found))
        return Near(labels, scores, edge=scores[labels == found[-1]][0])
