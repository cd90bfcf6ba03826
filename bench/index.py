"""Vector indexes against the bare libraries they are made of, as ratios of one run on one machine.

    python bench/index.py                 1 000, 5 000 and 20 000 rows of 512 numbers, in about a minute
    python bench/index.py --rows 100000   as many rows as you like

Bare numpy is a matrix product and ``argpartition``; bare hnswlib is ``knn_query`` on the whole vectors with
links, width and a number of candidates as shipped. Each ratio is the median of pairs timed in turn, bare,
ours, bare, ours: above 1 ours is faster. CPU time stands beside wall time. Recall is against a float32 scan;
a score within 1e-5 of the true k-th counts as a hit.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import hnswlib
import numpy as np
from numpy.typing import NDArray

from server.index.exact import ExactIndex
from server.index.hnsw import HnswParameters
from server.index.hnsw_index import HnswIndex
from server.index.vector_index import VectorIndex
from server.store.vector_codec import decode_vectors, encode_vectors

DIMENSION = 512
PAIRS = 5
PAGE = 1000
QUERIES = 60
CLUSTER_ROWS = 50
BARE_CANDIDATES = 128
SHARES = (0.5, 0.1, 0.01, 0.001)
SLACK = 1e-5

Vectors = NDArray[np.float32]
Search = Callable[[Vectors], object]


@dataclass(frozen=True)
class Ratio:
    """How many times faster the second of a pair is, by the clock and by CPU time."""

    wall: float
    cpu: float

    def __str__(self) -> str:
        return f"{self.wall:5.2f} ({self.cpu:4.2f} cpu)"


def main() -> None:
    """Run what the command line asks for and print it."""
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1":
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "OPENBLAS_NUM_THREADS": "1"})
    parser = argparse.ArgumentParser(description="Vector indexes against the bare libraries.")
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000, 5_000, 20_000])
    for count in parser.parse_args().rows:
        for kind, make in (("clustered", clustered), ("gaussian", gaussian)):
            measure(kind, make(count + QUERIES))


def unit(vectors: Vectors) -> Vectors:
    """Rows of length 1."""
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def gaussian(count: int) -> Vectors:
    """Rows without any structure: no index but a scan can find its way among them."""
    return unit(np.random.default_rng(1).standard_normal((count, DIMENSION), dtype=np.float32))


def clustered(count: int) -> Vectors:
    """Rows around centres, some fifty to each, with a cosine near .6 to the others of their cluster."""
    random = np.random.default_rng(2)
    centres = gaussian(max(count // CLUSTER_ROWS, 1))
    noise = random.standard_normal((count, DIMENSION), dtype=np.float32) * np.float32(0.8 / DIMENSION**0.5)
    return unit(centres[random.integers(0, len(centres), count)] + noise)


def measure(kind: str, vectors: Vectors) -> None:
    """Print one size and kind of data; the last rows are the queries."""
    queries = vectors[-QUERIES:]
    rows = decode_vectors(encode_vectors(vectors[:-QUERIES]))
    labels = np.arange(len(rows))
    exact, before = ExactIndex(DIMENSION, len(rows)), resident_bytes()
    hnsw = HnswIndex(DIMENSION)
    try:
        exact.add(labels, rows)
        between, began = resident_bytes(), time.perf_counter()
        for start in range(0, len(rows), PAGE):
            hnsw.add(labels[start : start + PAGE], rows[start : start + PAGE])
        added = time.perf_counter() - began
        if not hnsw.drain(3600):
            raise SystemExit("the graph was not filled within an hour")
        built = time.perf_counter() - began
        after = resident_bytes()
        bare = bare_graph(rows)
        print(
            f"\n{len(rows)} {kind} rows: bytes a row exact {exact.nbytes / len(rows):.0f}"
            f" (resident {(between - before) / len(rows):.0f}), hnsw {hnsw.nbytes / len(rows):.0f}"
            f" (resident {(after - between) / len(rows):.0f}); hnsw added in {added * 1e6 / len(rows):.0f}"
            f" µs a row, graph filled in {built * 1e6 / len(rows):.0f};"
            f" candidates {hnsw.state.candidates or 'none, scans'}"
        )
        product = ratio(lambda query: rows @ query, lambda query: exact.scores(query, len(rows)), queries)
        print(f"  every score: exact ÷ numpy {product}")
        for k in (10, 100):
            compare(k, rows, queries, exact, hnsw, bare)
        for share in SHARES:
            filtered(share, rows, queries, exact, hnsw)
    finally:
        hnsw.close()


def compare(
    k: int, rows: Vectors, queries: Vectors, exact: ExactIndex, hnsw: HnswIndex, bare: hnswlib.Index
) -> None:
    """Each index against its library, and one against the other."""

    def product(query: Vectors) -> NDArray[np.int64]:
        scores = rows @ query
        best = np.argpartition(scores, len(scores) - k)[len(scores) - k :]
        return best[np.argsort(-scores[best])]

    def graph(query: Vectors) -> NDArray[np.int64]:
        return bare.knn_query(query, k=k, num_threads=1)[0][0].astype(np.int64)

    def found(index: VectorIndex) -> Callable[[Vectors], NDArray[np.int64]]:
        return lambda query: index.search(query, k)[0]

    print(
        f"  k {k:3}: exact ÷ numpy {ratio(product, found(exact), queries)}"
        f" · hnsw ÷ hnswlib {ratio(graph, found(hnsw), queries)}"
        f" · hnsw ÷ exact {ratio(found(exact), found(hnsw), queries)}"
        f" · recall exact {recall(found(exact), rows, queries, k):.3f}"
        f" hnsw {recall(found(hnsw), rows, queries, k):.3f}"
        f" hnswlib {recall(graph, rows, queries, k):.3f}"
    )


def filtered(share: float, rows: Vectors, queries: Vectors, exact: ExactIndex, hnsw: HnswIndex) -> None:
    """Recall and time with a filter that lets ``share`` of the rows through."""
    allowed = np.random.default_rng(3).random(len(rows)) < share
    k = min(10, int(allowed.sum()))
    if k == 0:
        return

    def found(index: VectorIndex) -> Callable[[Vectors], NDArray[np.int64]]:
        return lambda query: index.search(query, k, allowed)[0]

    print(
        f"  filter {share:5.1%}: hnsw ÷ exact {ratio(found(exact), found(hnsw), queries)}"
        f" · recall exact {recall(found(exact), rows, queries, k, allowed):.3f}"
        f" hnsw {recall(found(hnsw), rows, queries, k, allowed):.3f}"
    )


def bare_graph(rows: Vectors) -> hnswlib.Index:
    """hnswlib with the whole vectors and the shipped links and width."""
    shipped = HnswParameters()
    index = hnswlib.Index(space="ip", dim=DIMENSION)
    index.init_index(
        max_elements=len(rows), M=shipped.links, ef_construction=shipped.build_width, random_seed=1
    )
    index.add_items(rows, np.arange(len(rows)), num_threads=1)
    index.set_ef(BARE_CANDIDATES)
    return index


def ratio(first: Search, second: Search, queries: Vectors) -> Ratio:
    """The median over pairs of the first's time by the second's, all queries each."""
    pairs = [(timed(first, queries), timed(second, queries)) for _ in range(PAIRS)]
    return Ratio(
        wall=statistics.median(a[0] / b[0] for a, b in pairs),
        cpu=statistics.median(a[1] / b[1] for a, b in pairs),
    )


def timed(search: Search, queries: Vectors) -> tuple[float, float]:
    """Wall and CPU seconds of all queries."""
    wall, cpu = time.perf_counter(), time.process_time()
    for query in queries:
        search(query)
    return time.perf_counter() - wall, time.process_time() - cpu


def recall(
    search: Callable[[Vectors], NDArray[np.int64]],
    rows: Vectors,
    queries: Vectors,
    k: int,
    allowed: NDArray[np.bool_] | None = None,
) -> float:
    """The mean share of the k nearest that are found."""
    hits = []
    for query in queries:
        scores = rows @ query
        if allowed is not None:
            scores[~allowed] = -np.inf
        kth = np.partition(scores, len(scores) - k)[len(scores) - k]
        hits.append(np.count_nonzero(scores[search(query)] >= kth - SLACK) / k)
    return statistics.mean(hits)


def resident_bytes() -> int:
    """Of this process, as Linux counts them."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main()
