"""Snapshots of an index: what comes back is what was saved, or a typed error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.index.hnsw import HnswParameters
from server.index.hnsw_index import HnswIndex
from server.index.snapshot import SnapshotDamaged, load_snapshot, save_snapshot
from tests.vectors import clustered

D = 24
SPACE = "lite-1/24"
STAMP = 7_000_000_123
PARAMETERS = HnswParameters(rows_per_candidate=0, scanned_survivors=0, candidates=64, graph_dimension=16)


def filled(count: int = 600, parameters: HnswParameters = PARAMETERS) -> HnswIndex:
    """Rows in the graph, dead nodes, and rows that are in the tail: its thread has stopped."""
    index = HnswIndex(D, parameters)
    rows = clustered(count, D)
    cut = count * 3 // 4
    index.add(np.arange(cut), rows[:cut])
    assert index.drain(30)
    index.close()
    index.remove(np.arange(0, cut, 9))
    index.add(np.arange(cut, count), rows[cut:])
    return index


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "stream.index"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("saved") / "stream.index"
    save_snapshot(path, filled(), space_id=SPACE, commit_stamp=STAMP)
    yield path
    assert [p.name for p in path.parent.iterdir()] == ["stream.index"]


@pytest.mark.parametrize("count", [0, 1, 3, 600, 3000])
def test_what_is_loaded_answers_as_what_was_saved(path: Path, count: int) -> None:
    index = filled(count)
    save_snapshot(path, index, space_id=SPACE, commit_stamp=STAMP)
    loaded, stamp = load_snapshot(path, space_id=SPACE, dimension=D)
    try:
        assert stamp == STAMP
        assert len(loaded) == len(index)
        assert loaded.state.parameters == PARAMETERS
        assert loaded.state.candidates == index.state.candidates
        assert loaded.drain(30)
        allowed = np.arange(count) % 2 == 0
        for query in clustered(20, D, seed=1):
            np.testing.assert_array_equal(loaded.scores(query, count), index.scores(query, count))
            for mask in (None, allowed):
                assert loaded.search(query, 10, mask)[0].tolist() == index.search(query, 10, mask)[0].tolist()
    finally:
        loaded.close()


def test_what_is_loaded_can_change_and_grow(saved: Path) -> None:
    index, _ = load_snapshot(saved, space_id=SPACE, dimension=D)
    try:
        rows = clustered(3000, D, seed=3)
        index.add(np.arange(3000), rows)
        index.remove(np.arange(500))
        assert index.drain(30)
        assert len(index) == 2500
        for query in clustered(20, D, seed=1):
            assert index.search(query, 1)[0][0] == 500 + np.argmax(rows[500:] @ query)
    finally:
        index.close()


def test_a_save_leaves_one_file_and_replaces_the_one_before(path: Path) -> None:
    index = filled()
    save_snapshot(path, index, space_id=SPACE, commit_stamp=1)
    save_snapshot(path, index, space_id=SPACE, commit_stamp=2)
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    loaded, stamp = load_snapshot(path, space_id=SPACE, dimension=D)
    loaded.close()
    assert stamp == 2


def test_a_save_that_fails_leaves_the_one_before(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = filled()
    save_snapshot(path, index, space_id=SPACE, commit_stamp=1)

    def full(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="no space"):
        save_snapshot(path, index, space_id=SPACE, commit_stamp=2)
    loaded, stamp = load_snapshot(path, space_id=SPACE, dimension=D)
    loaded.close()
    assert stamp == 1
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_missing_snapshot_is_a_missing_file(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load_snapshot(path, space_id=SPACE, dimension=D)


@pytest.mark.parametrize(
    ("space", "dimension", "message"),
    [("lite-2/24", D, "space 'lite-1/24'"), (SPACE, D + 1, "24 numbers")],
)
def test_a_snapshot_of_another_space_or_dimension_is_refused(
    saved: Path, space: str, dimension: int, message: str
) -> None:
    with pytest.raises(SnapshotDamaged, match=message):
        load_snapshot(saved, space_id=space, dimension=dimension)


@pytest.mark.parametrize(
    ("at", "data", "message"),
    [(0, b"X", "not a snapshot"), (8, b"\x02", "version 2"), (200, b"\xff\xff", "checksum")],
)
def test_a_changed_file_is_refused_for_what_was_changed(
    saved: Path, path: Path, at: int, data: bytes, message: str
) -> None:
    whole = bytearray(saved.read_bytes())
    whole[at : at + len(data)] = data
    path.write_bytes(whole)
    with pytest.raises(SnapshotDamaged, match=message):
        load_snapshot(path, space_id=SPACE, dimension=D)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_a_flipped_bit_never_loads(saved: Path, data: st.DataObject) -> None:
    whole = bytearray(saved.read_bytes())
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= 1 << data.draw(st.integers(0, 7))
    assert_refused(saved, bytes(whole))


@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_a_file_cut_short_or_made_longer_never_loads(saved: Path, data: st.DataObject) -> None:
    whole = saved.read_bytes()
    length = data.draw(st.integers(0, len(whole) - 1))
    assert_refused(saved, whole[:length])
    assert_refused(saved, whole + whole[:length] + b"\0")


def assert_refused(saved: Path, data: bytes) -> None:
    changed = saved.with_name("changed.index")
    changed.write_bytes(data)
    try:
        with pytest.raises(SnapshotDamaged):
            load_snapshot(changed, space_id=SPACE, dimension=D)
    finally:
        changed.unlink()
