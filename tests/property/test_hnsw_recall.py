"""HNSW against exact search, under any sequence of adding, replacing, removing and filtering."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from server.index.exact import ExactIndex
from server.index.hnsw import HnswParameters
from server.index.hnsw_index import HnswIndex
from tests.vectors import clustered

D = 32
K = 10
LABELS = 600
SMALL = HnswParameters(rows_per_candidate=0, scanned_survivors=0, candidates=96, graph_dimension=24)
"""The shipped links and width; fewer candidates and rows, so that the graph decides what is found."""


@dataclass(frozen=True)
class Add:
    """Rows for the labels from ``first`` on, new or not."""

    first: int
    count: int
    seed: int


@dataclass(frozen=True)
class Remove:
    """Every ``step``-th label of a range."""

    first: int
    count: int
    step: int


@dataclass(frozen=True)
class Settle:
    """Wait until the graph is filled."""


firsts = st.integers(0, LABELS - 1)
counts = st.integers(1, LABELS)
steps = st.lists(
    st.one_of(
        st.builds(Add, firsts, counts, st.integers(0, 99)),
        st.builds(Remove, firsts, counts, st.integers(1, 7)),
        st.just(Settle()),
    ),
    min_size=1,
    max_size=8,
)


def apply(step: Add | Remove | Settle, exact: ExactIndex, hnsw: HnswIndex) -> None:
    if isinstance(step, Settle):
        assert hnsw.drain(30)
        return
    labels = np.arange(step.first, min(step.first + step.count, LABELS))
    if isinstance(step, Remove):
        labels = labels[:: step.step]
    for index in (exact, hnsw):
        if isinstance(step, Add):
            index.add(labels, clustered(len(labels), D, seed=step.seed))
        else:
            index.remove(labels)


def recall(exact: ExactIndex, hnsw: HnswIndex, allowed: NDArray[np.bool_] | None) -> float:
    hits = []
    for query in clustered(20, D, seed=1000):
        expected, best = exact.search(query, K, allowed)
        found, scores = hnsw.search(query, K, allowed)
        assert len(found) == len(expected) == len(set(found.tolist()))
        assert (np.diff(scores) <= 0).all()
        # A tie at the end may go either way by the last bit.
        hits += (scores >= best - 1e-6).tolist()
    return float(np.mean(hits)) if hits else 1.0


@settings(max_examples=40, deadline=None)
@given(steps=steps, share=st.sampled_from([None, 0.001, 0.01, 0.1, 0.5, 0.95]), seed=st.integers(0, 99))
def test_hnsw_finds_what_exact_finds(
    steps: list[Add | Remove | Settle], share: float | None, seed: int
) -> None:
    exact, hnsw = ExactIndex(D), HnswIndex(D, SMALL)
    try:
        for step in steps:
            apply(step, exact, hnsw)
        assert len(hnsw) == len(exact)
        allowed = None if share is None else np.random.default_rng(seed).random(LABELS) < share
        assert recall(exact, hnsw, allowed) >= 0.95
        assert hnsw.drain(30)
        assert recall(exact, hnsw, allowed) >= 0.95
    finally:
        hnsw.close()
