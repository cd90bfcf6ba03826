"""What the builder thread does to an HnswState: fill the graph, build it anew, measure it.

Each function yields between its steps. A step holds the lock alone for about a millisecond, or shared.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from server.index.hnsw import Graph
from server.index.hnsw_state import HnswState

FILL_ROWS = 256
"""Rows of the tail chosen together, to be inserted turn by turn."""
ROWS_PER_TURN = 4
"""Rows inserted while holding the lock alone: about a millisecond, which a search may have to wait."""
MOST_DEAD = 0.3
"""The share of a graph's nodes that may be dead; they cost memory and every query's time."""
TARGET_RECALL = 0.99
MEASURED_K = 10
MEASURED_QUERIES = 64
MEASURE_FROM = 1024
MEASURE_GROWTH = 1.5
CANDIDATES = (128, 192, 256, 384, 512, 768, 1024)


@dataclass(frozen=True, slots=True)
class _Question:
    vector: NDArray[np.float32]
    itself: int
    """The label of the row it was taken from, which is no answer to it; -1 for a query."""


def build(state: HnswState) -> Iterator[None]:
    """Everything there is to do, until the tail is empty."""
    while True:
        if _is_worn(state):
            yield from rebuild(state)
        elif _is_outgrown(state):
            yield from measure(state)
        else:
            with state.lock.shared:
                labels = state.tail()[:FILL_ROWS]
            if len(labels) == 0:
                return
            yield from fill(state, labels)


def fill(state: HnswState, labels: NDArray[np.int64]) -> Iterator[None]:
    """Put ``labels`` into the graph, but for those that left the tail meanwhile.

    Ends early when the graph is worn: hnswlib links new nodes to living ones only, so among dead ones they
    would stay out of reach.
    """
    for turn in _turns(labels):
        with state.lock.exclusive:
            if _is_worn(state):
                return
            state.link(turn[state.in_tail(turn)])
        yield


def rebuild(state: HnswState) -> Iterator[None]:
    """Build the graph anew from the rows that are in it; searches use the old one until then."""
    with state.lock.shared:
        held = state.linked()
    graph = None
    if len(held):
        graph = Graph(state.rows.dimension, state.parameters, len(held) + len(held) // 4)
        for turn in _turns(held):
            with state.lock.shared:
                vectors = state.rows.vectors(turn)
            graph.insert(turn, vectors)
            yield
    with state.lock.exclusive:
        old = state.replace_graph(graph)
    del old  # Freed here, not while holding the lock.


def measure(state: HnswState) -> Iterator[None]:
    """Find the least number of candidates that hold ``TARGET_RECALL`` of the nearest ten.

    Recent queries, and rows of the graph beside them, are searched both ways. Where no number reaches
    that for less than the cost of a scan, the answer is 0, and searches scan.
    """
    with state.lock.shared:
        linked = state.linked()
        questions = _questions(state, linked)
    nearest = []
    for question in questions:
        with state.lock.shared:
            nearest.append(_nearest(state, question))
        yield
    found = 0
    for candidates in CANDIDATES:
        if candidates * state.parameters.rows_per_candidate > len(linked):
            break
        hits = 0
        for question, labels in zip(questions, nearest, strict=True):
            with state.lock.shared:
                hits += _hits(state, question, candidates, labels)
            yield
        if hits >= TARGET_RECALL * sum(map(len, nearest)):
            found = candidates
            break
    with state.lock.exclusive:
        state.candidates, state.measured = found, len(linked)


def _is_worn(state: HnswState) -> bool:
    graph = state.graph
    return graph is not None and graph.dead > 0 and graph.dead >= MOST_DEAD * graph.used


def _is_outgrown(state: HnswState) -> bool:
    graph = state.graph
    return graph is not None and graph.living >= max(MEASURE_FROM, MEASURE_GROWTH * state.measured)


def _turns(labels: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    for start in range(0, len(labels), ROWS_PER_TURN):
        yield labels[start : start + ROWS_PER_TURN]


def _questions(state: HnswState, linked: NDArray[np.int64]) -> list[_Question]:
    recent = [_Question(query, -1) for query in list(state.recent)]
    some = np.random.default_rng(len(linked)).choice(linked, MEASURED_QUERIES - len(recent))
    return recent + [_Question(*one) for one in zip(state.rows.vectors(some), some.tolist(), strict=True)]


def _nearest(state: HnswState, question: _Question) -> NDArray[np.int64]:
    """The nearest labels in the graph, by a scan."""
    mask = np.zeros(state.rows.end, np.bool_)
    mask[state.linked()] = True
    if question.itself >= 0:
        mask[question.itself] = False
    k = min(MEASURED_K, int(np.count_nonzero(mask)))
    return state.rows.search(question.vector, k, mask)[0] if k else np.empty(0, np.int64)


def _hits(state: HnswState, question: _Question, count: int, nearest: NDArray[np.int64]) -> int:
    """How many of ``nearest`` are the first of the graph's candidates."""
    found = state.near(question.vector, count) if state.graph_length else None
    if found is None:
        return 0
    others = found.labels[found.labels != question.itself]
    return len(np.intersect1d(others[: len(nearest)], nearest))
