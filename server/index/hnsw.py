"""hnswlib behind a wrapper that never raises and never crashes: the one file that touches it.

The graph holds vectors folded to 256 numbers: cut into pieces that are added up, each number with a sign of
its own. It only has to name candidates, whose scores come from the rows themselves, and folding halves its
memory and its building time. On 38 000 real sentence embeddings of 512 numbers the best 10 of 192 candidates
hold .993 of the true ten; a graph of all 512 numbers needs 128 candidates and as long for .995. (Any other
256 directions do as well, random ones or the first 256 numbers; folding leaves no number out.) With 128
numbers it is .93. ``links`` 16 and ``build_width`` 100: 24 links gain .003 for a tenth more time; a
build_width of 200 gains nothing that can be measured and nearly doubles the time of building.

hnswlib's limits, and what is done about them. Resizing during a query kills the process, and inserting during
one reads links half written: whoever changes a graph must be alone with it. A query raises where fewer nodes
can be reached than it asks for: ``neighbours`` says None, and the caller scans. Replacing a label in place
leaves bad links or two copies of it: a node is never used twice, discarded ones are marked deleted, and
``dead`` says when to build anew. An empty index takes 2.6 MB: a graph is made when there is something to put
in.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

try:
    import hnswlib
except ImportError:  # It compiles from source; without it streams stay exact.
    hnswlib = None

LEAST_CAPACITY = 1024


@dataclass(frozen=True, slots=True)
class HnswParameters:
    """What was measured to serve; tests shrink it to reach the graph with few rows."""

    links: int = 16
    """hnswlib's M."""
    build_width: int = 100
    """hnswlib's ef_construction."""
    graph_dimension: int = 256
    """Numbers a vector is folded to; vectors of no more are taken as they are."""
    candidates: int = 192
    """Candidates asked of the graph until it has been measured."""
    candidates_per_hit: int = 3
    """Candidates asked for at least, for each of k."""
    rows_per_candidate: int = 14
    """Rows that can be scanned in the time of one candidate: fewer survivors than that are scanned."""
    scanned_survivors: int = 12_000
    """Where a filter lets less than half through, this many survivors are scanned: 2.4 ms at most."""


def hnsw_available() -> bool:
    """Whether hnswlib is installed."""
    return hnswlib is not None


@dataclass(frozen=True, slots=True)
class SavedGraph:
    """A graph outside memory. The file must be whole: hnswlib checks next to nothing."""

    path: Path
    """hnswlib's own file."""
    labels: NDArray[np.int64]
    """The label of each node, -1 for a dead one."""


class Graph:
    """An hnswlib index by label. Nothing here locks; reading alone may be done by many threads."""

    def __init__(
        self, dimension: int, parameters: HnswParameters, capacity: int, saved: SavedGraph | None = None
    ) -> None:
        """A graph with room for ``capacity`` nodes, empty or as it was ``saved``; it grows.

        Raises:
            RuntimeError: hnswlib is not installed.
            ValueError: hnswlib does not read the saved file.
        """
        if hnswlib is None:
            raise RuntimeError("hnswlib is not installed; it comes with scrubjay[server]")
        self._signs = _signs(dimension)
        self._width = min(dimension, parameters.graph_dimension)
        self.labels = np.full(max(capacity, LEAST_CAPACITY), -1, np.int64)
        self.used = 0
        self.living = 0
        self._parameters = parameters
        self._nodes = np.full(0, -1, np.int32)
        self._index: Any = hnswlib.Index(space="ip", dim=self._width)
        if saved is None:
            self._index.init_index(
                max_elements=len(self.labels),
                M=parameters.links,
                ef_construction=parameters.build_width,
                random_seed=1,
            )
        else:
            self._load(saved)
        self._index.set_num_threads(1)

    @property
    def dead(self) -> int:
        """Nodes that were discarded and still take room."""
        return self.used - self.living

    @property
    def nbytes(self) -> int:
        """What hnswlib allocates, from its layout: a node's vector, links, label, level and hash entry;
        a mutex for each node there is room for and 65 536 more for labels; and the tables here."""
        node = 4 * self._width + 8 * self._parameters.links + 4 + 8 + 12 + 48
        node += (4 * self._parameters.links + 16) // self._parameters.links
        return (
            40 * 65_536 + self.used * node + 42 * len(self.labels) + self.labels.nbytes + self._nodes.nbytes
        )

    def holds(self, end: int) -> NDArray[np.bool_]:
        """Which labels below ``end`` are in the graph, as a mask of that length."""
        held = np.zeros(end, np.bool_)
        length = min(end, len(self._nodes))
        np.greater_equal(self._nodes[:length], 0, out=held[:length])
        return held

    def has(self, labels: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of ``labels`` are in the graph, as a mask over them."""
        known = labels < len(self._nodes)
        known[known] = self._nodes[labels[known]] >= 0
        return known

    def insert(self, labels: NDArray[np.int64], vectors: NDArray[np.float32]) -> None:
        """Add labels that are not in the graph, each once; at least one."""
        nodes = np.arange(self.used, self.used + len(labels))
        self._make_room(self.used + len(labels), int(labels.max()) + 1)
        self._index.add_items(self._folded(vectors), nodes, num_threads=1)
        self.labels[nodes] = labels
        self._nodes[labels] = nodes
        self.used += len(labels)
        self.living += len(labels)

    def discard(self, labels: NDArray[np.int64]) -> None:
        """Take labels out; those that are not in the graph are ignored."""
        for label in labels[labels < len(self._nodes)].tolist():
            node = int(self._nodes[label])
            if node >= 0:
                self._index.mark_deleted(node)
                self._nodes[label] = self.labels[node] = -1
                self.living -= 1

    def neighbours(self, query: NDArray[np.float32], count: int) -> NDArray[np.int64] | None:
        """Labels near ``query``, ``count`` of them or all there are; None where it cannot reach as many."""
        try:
            nodes, _ = self._index.knn_query(
                self._folded(query[np.newaxis]), k=min(count, self.living), num_threads=1
            )
        except RuntimeError:
            return None
        labels: NDArray[np.int64] = self.labels[nodes[0].astype(np.int64)]
        return labels

    def save(self, path: Path) -> None:
        """Write hnswlib's own file; ``labels[:used]`` makes it a SavedGraph."""
        self._index.save_index(str(path))

    def _load(self, saved: SavedGraph) -> None:
        try:
            self._index.load_index(str(saved.path), max_elements=len(self.labels))
        except (RuntimeError, MemoryError) as error:  # the latter for sizes that another build wrote
            raise ValueError(str(error)) from error
        self.used = len(saved.labels)
        self.labels[: self.used] = saved.labels
        nodes = np.flatnonzero(saved.labels >= 0)
        self.living = len(nodes)
        self._make_room(self.used, int(saved.labels.max(initial=-1)) + 1)
        self._nodes[saved.labels[nodes]] = nodes

    def _folded(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        count, dimension = vectors.shape
        if dimension == self._width:
            return vectors
        pieces = np.zeros((count, -(-dimension // self._width), self._width), np.float32)
        pieces.reshape(count, -1)[:, :dimension] = vectors * self._signs
        folded: NDArray[np.float32] = pieces.sum(axis=1)
        folded /= np.maximum(np.linalg.norm(folded, axis=1, keepdims=True), np.float32(1e-12))
        return folded

    def _make_room(self, used: int, end: int) -> None:
        if used > len(self.labels):
            capacity = max(used, 2 * len(self.labels))
            self._index.resize_index(capacity)
            self.labels = np.concatenate([self.labels, np.full(capacity - len(self.labels), -1, np.int64)])
        if end > len(self._nodes):
            more = max(end, 2 * len(self._nodes)) - len(self._nodes)
            self._nodes = np.concatenate([self._nodes, np.full(more, -1, np.int32)])


def _signs(dimension: int) -> NDArray[np.float32]:
    """1 or -1 for each number, as if at random and the same for ever: saved graphs depend on it."""
    bits = np.frombuffer(hashlib.shake_128(b"scrubjay").digest(-(-dimension // 8)), np.uint8)
    return 1 - 2 * np.unpackbits(bits, count=dimension).astype(np.float32)
