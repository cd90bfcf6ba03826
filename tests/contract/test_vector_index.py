"""What every vector index does: the exact one, and HNSW with its graph empty, part filled and whole."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from server.index.exact import ExactIndex
from server.index.hnsw import HnswParameters
from server.index.hnsw_index import HnswIndex
from server.index.vector_index import LABEL_LIMIT, VectorIndex
from tests.vectors import clustered, gaussian

D = 12
K = 10
ALWAYS_GRAPH = HnswParameters(rows_per_candidate=0, scanned_survivors=0)


def labels(*values: int) -> NDArray[np.int64]:
    return np.array(values, np.int64)


class OnlyTail(HnswIndex):
    """No row ever reaches the graph."""

    def __init__(self, dimension: int) -> None:
        super().__init__(dimension, ALWAYS_GRAPH)
        self.close()


class PartFilled(HnswIndex):
    """Three rows of four of the first batch are in the graph, later ones are not."""

    def __init__(self, dimension: int) -> None:
        super().__init__(dimension, ALWAYS_GRAPH)
        self._begun = False

    def add(self, labels: NDArray[np.int64], vectors: NDArray[np.float32]) -> None:
        if self._begun or len(labels) < 4 or vectors.shape != (len(labels), self.dimension):
            super().add(labels, vectors)
            return
        self._begun = True
        cut = len(labels) * 3 // 4
        super().add(labels[:cut], vectors[:cut])
        assert self.drain(30)
        self.close()
        super().add(labels[cut:], vectors[cut:])


class Whole(HnswIndex):
    """Every row is in the graph before the next call, until it is closed."""

    def __init__(self, dimension: int) -> None:
        super().__init__(dimension, ALWAYS_GRAPH)
        self._closed = False

    def add(self, labels: NDArray[np.int64], vectors: NDArray[np.float32]) -> None:
        super().add(labels, vectors)
        assert self._closed or self.drain(30)

    def remove(self, labels: NDArray[np.int64]) -> None:
        super().remove(labels)
        assert self._closed or self.drain(30)

    def close(self) -> None:
        self._closed = True
        super().close()


@pytest.fixture(params=[ExactIndex, OnlyTail, PartFilled, Whole, HnswIndex])
def index(request: pytest.FixtureRequest) -> Iterator[VectorIndex]:
    index: VectorIndex = request.param(D)
    yield index
    index.close()
    assert [t.name for t in threading.enumerate() if t.name == "vector-index-builder"] == []


def nearest(
    rows: NDArray[np.float32], query: NDArray[np.float32], among: NDArray[np.int64], k: int
) -> NDArray[np.int64]:
    """By definition: sorted by cosine, then by label, both descending."""
    scores = rows[among].astype(np.float64) @ query.astype(np.float64)
    return among[np.lexsort((-among, -scores))][:k]


@pytest.mark.parametrize("count", [0, 1, K - 1, K, K + 1, 300])
def test_finds_as_many_as_there_are_best_first(index: VectorIndex, count: int) -> None:
    rows = clustered(count, D)
    index.add(np.arange(count), rows)
    for query in clustered(10, D, seed=1):
        found, scores = index.search(query, K)
        assert found.tolist() == nearest(rows, query, np.arange(count), K).tolist()
        assert found.dtype == np.int64
        assert scores.dtype == np.float32
        np.testing.assert_allclose(scores, rows[found] @ query, atol=1e-5)
    assert len(index) == count


@pytest.mark.parametrize("k", [0, -1])
def test_finds_nothing_for_no_k(index: VectorIndex, k: int) -> None:
    index.add(np.arange(20), gaussian(20, D))
    found, scores = index.search(gaussian(1, D)[0], k)
    assert (len(found), len(scores)) == (0, 0)


@pytest.mark.parametrize("k", [K, 10_000_000])
def test_an_empty_index_finds_nothing(index: VectorIndex, k: int) -> None:
    assert len(index.search(gaussian(1, D)[0], k)[0]) == 0
    assert len(index.search(gaussian(1, D)[0], k, np.ones(5, np.bool_))[0]) == 0


def test_a_k_beyond_the_living_gives_all(index: VectorIndex) -> None:
    index.add(np.arange(50), gaussian(50, D))
    assert sorted(index.search(gaussian(1, D)[0], 1000)[0].tolist()) == list(range(50))


def test_nothing_is_found_when_all_are_removed_and_rows_can_come_back(index: VectorIndex) -> None:
    rows = gaussian(100, D)
    index.add(np.arange(100), rows)
    index.remove(np.arange(100))
    assert len(index) == 0
    assert len(index.search(rows[7], K)[0]) == 0
    index.add(labels(7), rows[7:8])
    assert index.search(rows[7], K)[0].tolist() == [7]


def test_the_one_alive_among_ten_thousand_is_found(index: VectorIndex) -> None:
    rows = clustered(10_000, D)
    index.add(np.arange(10_000), rows)
    index.remove(np.delete(np.arange(10_000), 4321))
    assert len(index) == 1
    for query in gaussian(5, D):
        assert index.search(query, K)[0].tolist() == [4321]


def test_of_equal_cosines_the_newer_comes_first(index: VectorIndex) -> None:
    rows = clustered(200, D)
    rows[[3, 50, 160, 199]] = rows[120]
    index.add(np.arange(200), rows)
    found, scores = index.search(rows[120], 5)
    assert found.tolist() == [199, 160, 120, 50, 3]
    assert len(set(scores.tolist())) == 1
    assert index.search(rows[120], 2)[0].tolist() == [199, 160]


def test_a_label_that_is_added_again_has_its_new_vector_only(index: VectorIndex) -> None:
    rows = clustered(200, D)
    index.add(np.arange(200), rows)
    index.add(labels(11, 12), -rows[[11, 12]])
    rows[[11, 12]] *= -1
    assert len(index) == 200
    for query in (rows[11], -rows[11], rows[12]):
        found, _ = index.search(query, 200)
        assert found.tolist() == nearest(rows, query, np.arange(200), 200).tolist()


def test_of_a_label_given_twice_the_last_vector_counts(index: VectorIndex) -> None:
    first, last = gaussian(2, D)
    index.add(labels(5, 5), np.stack([first, last]))
    assert len(index) == 1
    np.testing.assert_allclose(index.search(last, K)[1], [last @ last], atol=1e-5)


def test_labels_may_leave_gaps(index: VectorIndex) -> None:
    rows = gaussian(3, D)
    index.add(labels(2, 700, 40), rows)
    assert index.search(rows[1], 3)[0][0] == 700
    assert len(index) == 3


def test_a_removed_row_is_not_found(index: VectorIndex) -> None:
    rows = clustered(300, D)
    index.add(np.arange(300), rows)
    gone = np.arange(0, 300, 3)
    index.remove(gone)
    kept = np.setdiff1d(np.arange(300), gone)
    assert len(index) == 200
    for query in rows[:6]:
        assert index.search(query, K)[0].tolist() == nearest(rows, query, kept, K).tolist()


def test_removing_what_does_not_live_changes_nothing(index: VectorIndex) -> None:
    index.add(np.arange(10), gaussian(10, D))
    index.remove(labels(-1, 10, 5_000_000, 3, 3))
    index.remove(labels(3))
    index.remove(labels())
    assert len(index) == 9


@pytest.mark.parametrize("share", [0.001, 0.01, 0.1, 0.5, 0.9])
def test_a_filter_loses_nothing(index: VectorIndex, share: float) -> None:
    rows = clustered(1000, D)
    index.add(np.arange(1000), rows)
    allowed = np.random.default_rng(1).random(1000) < share
    for query in clustered(10, D, seed=2):
        expected = nearest(rows, query, np.flatnonzero(allowed), K)
        assert index.search(query, K, allowed)[0].tolist() == expected.tolist()


def test_a_filter_that_turns_away_from_the_query_loses_nothing(index: VectorIndex) -> None:
    rows = clustered(1000, D)
    index.add(np.arange(1000), rows)
    query = rows[0]
    allowed = rows @ query < 0.5
    assert index.search(query, K, allowed)[0].tolist() == (
        nearest(rows, query, np.flatnonzero(allowed), K).tolist()
    )


def test_what_the_mask_does_not_reach_is_not_allowed(index: VectorIndex) -> None:
    rows = gaussian(100, D)
    index.add(np.arange(100), rows)
    query = rows[80]
    assert index.search(query, 100, np.ones(30, np.bool_))[0].max() == 29
    assert len(index.search(query, K, np.zeros(0, np.bool_))[0]) == 0
    assert len(index.search(query, K, np.zeros(100, np.bool_))[0]) == 0
    assert len(index.search(query, 200, np.ones(5000, np.bool_))[0]) == 100


def test_scores_every_label_and_says_where_none_lives(index: VectorIndex) -> None:
    rows = gaussian(60, D)
    index.add(np.arange(60), rows)
    index.remove(labels(4, 59))
    query = gaussian(1, D, seed=3)[0]
    scores = index.scores(query, 70)
    expected = np.append(rows @ query, np.full(10, -np.inf, np.float32))
    expected[[4, 59]] = -np.inf
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, expected, atol=1e-5)
    np.testing.assert_allclose(index.scores(query, 3), expected[:3], atol=1e-5)
    assert len(index.scores(query, 0)) == 0


VECTORS = gaussian(2, D)


def test_each_score_is_its_own_wherever_it_lies(index: VectorIndex) -> None:
    rows = gaussian(300, D)
    rows[[17, 211, 299]] = rows[3]
    index.add(np.arange(300), rows)
    index.remove(labels(5))
    query = gaussian(1, D, seed=1)[0]
    few, many = labels(299, 3, 5, 400, -1, 17), np.arange(299, -1, -1)
    scores = index.score(query, few)
    np.testing.assert_allclose(scores[[0, 1]], rows[[299, 3]] @ query, atol=0.02)
    assert scores[0] == scores[1] == scores[5] == index.score(query, many)[299 - 211]
    assert not np.isfinite(scores[[2, 3, 4]]).any()
    assert len(index.score(query, labels())) == 0
    np.testing.assert_allclose(index.vectors(labels(299, 0)), rows[[299, 0]], atol=1e-6)
    with pytest.raises(ValueError, match="labels"):
        index.score(query, np.zeros(2, np.int32))  # type: ignore[arg-type]  # the wrong kind


@pytest.mark.parametrize(
    ("wrong_labels", "vectors"),
    [
        (labels(0), VECTORS),
        (labels(0, 1), VECTORS[:, 1:]),
        (labels(0, 1), VECTORS.astype(np.float64)),
        (labels(0, 1), VECTORS.ravel()),
        (labels(0, 1).astype(np.int32), VECTORS),
        (labels(0, 1)[np.newaxis], VECTORS),
        (labels(0, -1), VECTORS),
        (labels(0, LABEL_LIMIT), VECTORS),
        (labels(0, 1), np.full_like(VECTORS, np.nan)),
        (labels(0, 1), np.full_like(VECTORS, np.inf)),
    ],
)
def test_rows_of_a_wrong_kind_are_refused_whole(
    index: VectorIndex, wrong_labels: NDArray[np.int64], vectors: NDArray[np.float32]
) -> None:
    rows = gaussian(5, D, seed=4)
    index.add(np.arange(5), rows)
    with pytest.raises(ValueError, match="must be"):
        index.add(wrong_labels, vectors)
    assert len(index) == 5
    np.testing.assert_allclose(index.scores(rows[0], 5), rows @ rows[0], atol=1e-5)


@pytest.mark.parametrize(
    ("query", "allowed"),
    [
        (VECTORS[0, 1:], None),
        (VECTORS, None),
        (VECTORS[0].astype(np.float64), None),
        (np.full_like(VECTORS[0], np.nan), None),
        (VECTORS[0], np.ones(5, np.int64)),
        (VECTORS[0], np.ones((5, 1), np.bool_)),
    ],
)
def test_a_query_of_a_wrong_kind_is_refused(
    index: VectorIndex, query: NDArray[np.float32], allowed: NDArray[np.bool_] | None
) -> None:
    index.add(np.arange(2), VECTORS)
    with pytest.raises(ValueError, match="must be"):
        index.search(query, 1, allowed)
    if allowed is None:
        with pytest.raises(ValueError, match="must be"):
            index.scores(query, 2)


def test_labels_of_a_wrong_kind_are_not_removed(index: VectorIndex) -> None:
    index.add(np.arange(2), VECTORS)
    with pytest.raises(ValueError, match="must be"):
        index.remove(labels(1).astype(np.int32))
    assert len(index) == 2


def test_a_closed_index_goes_on_answering(index: VectorIndex) -> None:
    rows = clustered(300, D)
    index.add(np.arange(200), rows[:200])
    index.close()
    index.close()
    index.add(np.arange(200, 300), rows[200:])
    index.remove(labels(250))
    kept = np.delete(np.arange(300), 250)
    for query in rows[::50]:
        assert index.search(query, K)[0].tolist() == nearest(rows, query, kept, K).tolist()


def test_says_its_dimension_and_how_much_memory_it_takes(index: VectorIndex) -> None:
    empty = index.nbytes
    index.add(np.arange(4096), clustered(4096, D))
    assert index.dimension == D
    assert 4096 * D < index.nbytes - empty < 4096 * (4 * D + 300) + 4_000_000
