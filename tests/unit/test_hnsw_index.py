"""What HNSW adds to the contract: when it uses its graph, when it scans, and what its thread does."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import islice

import numpy as np
import pytest
from numpy.typing import NDArray

from server.index import hnsw, switch
from server.index.coded_rows import CodedRows, encode
from server.index.exact import ExactIndex
from server.index.graph_builder import build, fill
from server.index.hnsw import LEAST_CAPACITY, HnswParameters
from server.index.hnsw_index import HnswIndex
from server.index.hnsw_state import HnswState
from server.index.switch import EXACT_ROWS, grown, open_index
from tests.vectors import clustered, gaussian

D = 32
K = 10
GRAPH = HnswParameters(rows_per_candidate=0, scanned_survivors=0, candidates=64)


@pytest.fixture
def index() -> Iterator[HnswIndex]:
    index = HnswIndex(D, GRAPH)
    yield index
    index.close()


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch, index: HnswIndex) -> list[int]:
    """The k of every search that ended in a scan of the rows."""
    seen: list[int] = []
    search = index.state.rows.search

    def counted(
        query: NDArray[np.float32], k: int, mask: NDArray[np.bool_] | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        seen.append(k)
        return search(query, k, mask)

    monkeypatch.setattr(index.state.rows, "search", counted)
    return seen


def add(index: HnswIndex, rows: NDArray[np.float32]) -> None:
    index.add(np.arange(len(rows)), rows)
    assert index.drain(30)


def recall(index: HnswIndex, rows: NDArray[np.float32], queries: NDArray[np.float32]) -> float:
    nearest = np.argsort(-(queries @ rows.T), axis=1)[:, :K]
    return float(
        np.mean([np.isin(index.search(q, K)[0], n).mean() for q, n in zip(queries, nearest, strict=True)])
    )


def test_finds_through_the_graph_without_a_scan(index: HnswIndex, scans: list[int]) -> None:
    rows = clustered(900, D)
    add(index, rows)
    assert recall(index, rows, clustered(50, D, seed=1)) >= 0.99
    assert scans == []


def test_finds_through_the_graph_what_a_filter_lets_through(index: HnswIndex, scans: list[int]) -> None:
    rows = clustered(900, D)
    add(index, rows)
    allowed = np.arange(900) % 10 != 0
    for query in clustered(20, D, seed=1):
        assert allowed[index.search(query, 5, allowed)[0]].all()
    assert len(scans) < 5


def test_projects_long_vectors_for_the_graph_and_scores_them_whole() -> None:
    index = HnswIndex(96, HnswParameters(rows_per_candidate=0, graph_dimension=48))
    try:
        rows = clustered(1000, 96)
        add(index, rows)
        assert recall(index, rows, clustered(50, 96, seed=1)) >= 0.95
        found, scores = index.search(rows[3], K)
        np.testing.assert_allclose(scores, rows[found] @ rows[3], atol=1e-5)
    finally:
        index.close()


def test_scans_when_a_filter_leaves_too_few_candidates(index: HnswIndex, scans: list[int]) -> None:
    rows = clustered(900, D)
    add(index, rows)
    allowed = rows @ rows[0] < 0.3
    assert len(index.search(rows[0], K, allowed)[0]) == K
    assert scans == [K]


def test_scans_when_more_rows_tie_than_candidates_were_asked_for(index: HnswIndex, scans: list[int]) -> None:
    rows = clustered(900, D)
    rows[:500] = rows[0]
    add(index, rows)
    assert index.search(rows[0], K)[0].tolist() == list(range(499, 489, -1))
    assert scans == [K]


def test_scans_when_the_graph_reaches_fewer_than_asked_for(index: HnswIndex) -> None:
    rows = np.repeat(clustered(3, D), 400, axis=0)
    add(index, rows)
    for query in rows[::400]:
        assert (index.search(query, 600)[1][:400] > 0.99).all()


def test_what_no_graph_can_find_is_scanned_for() -> None:
    index = HnswIndex(256)
    try:
        rows = gaussian(3000, 256)
        add(index, rows)
        assert index.state.candidates == 0
        assert recall(index, rows, gaussian(50, 256, seed=1)) == 1.0
    finally:
        index.close()


def test_takes_as_many_candidates_as_were_measured_to_be_enough() -> None:
    index = HnswIndex(D)
    try:
        rows = clustered(6000, D, clusters=200)
        add(index, rows)
        assert index.state.candidates >= 128
        assert recall(index, rows, clustered(50, D, seed=1, clusters=200)) >= 0.98
    finally:
        index.close()


def test_a_graph_grows_by_doubling_and_keeps_every_row(index: HnswIndex) -> None:
    rows = clustered(3 * LEAST_CAPACITY, D)
    add(index, rows[:100])
    assert index.state.graph is not None
    assert len(index.state.graph.labels) == LEAST_CAPACITY
    index.add(np.arange(100, len(rows)), rows[100:])
    assert index.drain(30)
    assert len(index.state.graph.labels) == 4 * LEAST_CAPACITY
    assert recall(index, rows, rows[::100]) >= 0.95


def test_a_graph_is_built_anew_when_three_tenths_are_dead(index: HnswIndex) -> None:
    rows = clustered(1000, D)
    add(index, rows)
    index.remove(np.arange(299))
    assert index.drain(30)
    assert index.state.graph is not None
    assert index.state.graph.dead == 299
    index.remove(np.arange(300))
    assert index.drain(30)
    assert (index.state.graph.dead, index.state.graph.living) == (0, 700)
    for query in clustered(20, D, seed=1):
        assert index.search(query, 1)[0][0] == 300 + np.argmax(rows[300:] @ query)


def test_what_changes_while_the_graph_is_built_anew_is_right_afterwards(index: HnswIndex) -> None:
    rows = clustered(4000, D)
    add(index, rows)
    index.remove(np.arange(1500))
    for label in range(1500, 1700):
        index.remove(np.array([label]))
    rows[1700:1900] = gaussian(200, D, seed=5)
    index.add(np.arange(1700, 1900), rows[1700:1900])
    assert index.drain(30)
    assert len(index) == 2300
    assert index.search(rows[1600], 4000)[0].min() == 1700
    assert [int(index.search(rows[label], 1)[0][0]) for label in range(1700, 1900)] == list(range(1700, 1900))


def test_rows_replaced_while_the_graph_is_young_are_within_reach() -> None:
    rows = clustered(460, D, seed=2)
    state = HnswState(CodedRows(D), GRAPH)
    state.put(np.arange(460), *encode(clustered(460, D)))
    for _ in islice(fill(state, np.arange(256)), 15):
        pass
    state.put(np.arange(460), *encode(rows))
    assert state.graph is not None
    assert state.graph.dead == state.graph.used > 0
    for _ in fill(state, np.arange(256)):
        pass
    assert state.graph_length == 0
    for _ in build(state):
        pass
    assert state.graph.dead == 0
    assert recall(HnswIndex(D, state=state), rows, clustered(20, D, seed=1)) >= 0.99


def test_an_index_that_lost_all_its_rows_holds_no_graph(index: HnswIndex) -> None:
    add(index, clustered(500, D))
    index.remove(np.arange(500))
    assert index.drain(30)
    assert index.state.graph is None


def test_takes_no_memory_for_a_graph_before_there_is_a_row(index: HnswIndex) -> None:
    assert index.nbytes == 0


def test_closing_stops_the_thread_in_the_middle_of_its_work(index: HnswIndex) -> None:
    index.add(np.arange(20_000), clustered(20_000, D))
    index.close()
    assert [t for t in threading.enumerate() if t.name == "vector-index-builder"] == []
    assert index.state.tail_length > 0
    assert not index.drain(1)


def test_a_small_stream_is_exact_and_a_large_one_is_not() -> None:
    small, large = open_index(D, EXACT_ROWS), open_index(D, EXACT_ROWS + 1)
    assert isinstance(small, ExactIndex)
    assert isinstance(large, HnswIndex)
    large.close()


def test_an_exact_index_that_outgrew_its_kind_becomes_a_graph_with_the_same_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(switch, "EXACT_ROWS", 500)
    exact = ExactIndex(D)
    rows = clustered(502, D)
    exact.add(np.arange(501), rows[:501])
    exact.remove(np.array([7]))
    assert grown(exact) is exact
    exact.add(np.array([501]), rows[501:])
    larger = grown(exact)
    try:
        assert isinstance(larger, HnswIndex)
        assert grown(larger) is larger
        assert len(larger) == 501
        for query in rows[::100]:
            assert larger.search(query, K)[0].tolist() == exact.search(query, K)[0].tolist()
    finally:
        larger.close()


def test_without_hnswlib_streams_stay_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hnsw, "hnswlib", None)
    monkeypatch.setattr(switch, "EXACT_ROWS", 5)
    assert not hnsw.hnsw_available()
    index = open_index(D, 1_000_000)
    index.add(np.arange(10), gaussian(10, D))
    assert isinstance(index, ExactIndex)
    assert grown(index) is index


CROWD = """
import threading
import numpy as np
from server.index.hnsw import HnswParameters
from server.index.hnsw_index import HnswIndex

D, SHARE, WRITERS = 16, 1600, 5
rows = np.random.default_rng(0).standard_normal((SHARE * WRITERS, D), dtype=np.float32)
rows /= np.linalg.norm(rows, axis=1, keepdims=True)
index = HnswIndex(D, HnswParameters(rows_per_candidate=0, scanned_survivors=0, candidates=32))
index.add(np.arange(50), rows[:50])
assert index.drain(30)
done = threading.Event()
errors = []

def write(number):
    labels = np.arange(number * SHARE, (number + 1) * SHARE)
    for part in np.array_split(labels, 40):
        index.add(part, rows[part])
        index.remove(part[::7])
        index.add(part[::7], rows[part[::7]])
        index.drain(0.02)

def read(number):
    allowed = np.arange(SHARE * WRITERS) % 2 == 0
    while not done.is_set():
        for query in rows[number :: 997]:
            found, scores = index.search(query, 10, allowed if number % 2 else None)
            assert len(found) == 10 and len(set(found.tolist())) == 10 and (np.diff(scores) <= 0).all()

def run(work, number):
    try:
        work(number)
    except BaseException as error:
        errors.append(error)
        done.set()

readers = [threading.Thread(target=run, args=(read, n)) for n in range(3)]
writers = [threading.Thread(target=run, args=(write, n)) for n in range(WRITERS)]
for thread in readers + writers:
    thread.start()
for thread in writers:
    thread.join()
drained = index.drain(60)
done.set()
for thread in readers:
    thread.join()
assert not errors, errors
assert drained
assert len(index) == SHARE * WRITERS
assert len(index.state.graph.labels) >= 8 * 1024, len(index.state.graph.labels)
assert [int(index.search(row, 1)[0][0]) for row in rows[::97]] == list(range(0, len(rows), 97))
index.close()
print("whole")
"""


def test_eight_threads_search_and_add_through_growth_without_a_crash() -> None:
    """In a process of its own: a crash there ends it by a signal, and this test with a message."""
    ended = subprocess.run(
        [sys.executable, "-c", CROWD], capture_output=True, text=True, timeout=100, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, "whole\n"), ended.stderr
