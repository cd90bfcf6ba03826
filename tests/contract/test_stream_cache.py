"""Resident streams agree with SQL, whatever was dropped, restored or committed by another server."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from scrubjay.errors import StorageUnavailable
from scrubjay.memory import ClientId, Memory, MemoryId, Micros
from scrubjay.merge import State, create
from scrubjay.stamp import CommitStamp, ReplicaId, Stamp
from server.index import cache as stream_cache
from server.index import switch
from server.index.cache import StreamCache
from server.index.columns import View
from server.index.hnsw_index import HnswIndex
from server.index.resident import ResidentStream
from server.index.shelf import Shelf
from server.index.switch import EXACT_ROWS
from server.recall.recipes import RECIPES
from server.recall.search import Query, search
from server.store.memory_store import Change, Extent, MemoryStore, Reading, StoredMemory, StreamKey, Writing
from server.store.replicas import AccessTotal
from server.store.vector_codec import encode_vectors
from tenants.tenant import Incarnation
from tests.stored import grave

SPACE = "test/8"
DIMENSION = 8
KEY = StreamKey(Incarnation(str(uuid.UUID(int=1))), "user:alice")
OTHER = StreamKey(KEY.incarnation, "user:bob")
TENANT = KEY.incarnation
REPLICA = ReplicaId(bytes(16))
NOW = 1_800_000_000_000
PLENTY = 1 << 30


@pytest.fixture
def store(shard_url: str) -> Iterator[MemoryStore]:
    with MemoryStore(shard_url) as opened:
        yield opened


@contextmanager
def caching(store: MemoryStore, folder: Path, budget_bytes: int = PLENTY) -> Iterator[StreamCache]:
    shelf = Shelf(folder)
    with ExitStack() as stack:
        cache = StreamCache(store, shelf, {SPACE: DIMENSION}, budget_bytes=budget_bytes)
        stack.callback(cache.close)
        yield cache


def vectors(count: int, seed: int = 0) -> NDArray[np.float32]:
    rows = np.random.default_rng(seed).normal(size=(count, DIMENSION)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def add(
    store: MemoryStore,
    cache: StreamCache,
    rows: NDArray[np.float32],
    key: StreamKey = KEY,
    now_millis: int = NOW,
) -> list[MemoryId]:
    ids = [MemoryId(str(uuid.uuid4())) for _ in rows]

    def unit(writing: Writing) -> None:
        stored, made = [], []
        stamps = writing.stamps(key, len(ids), now_millis)
        for memory_id, stamp, vector in zip(ids, stamps, encode_vectors(rows), strict=True):
            memory = Memory(memory_id, f"row {memory_id}", Micros(0), user_id=key.stream.partition(":")[2])
            edit = Stamp(stamp, REPLICA)
            stored.append(StoredMemory.of(create(memory, edit), stamp))
            made.append((memory_id, edit, vector))
        writing.insert(key, stored)
        writing.put_vectors(key, SPACE, made)
        writing.on_commit(lambda: cache.note(key, stamps[-1]))

    store.write([key], unit)
    return ids


def bury(store: MemoryStore, cache: StreamCache, ids: Sequence[MemoryId]) -> None:
    def unit(writing: Writing) -> None:
        stamps = writing.stamps(KEY, len(ids), NOW)
        writing.bury(KEY, [grave(i, s) for i, s in zip(ids, stamps, strict=True)])
        writing.on_commit(lambda: cache.note(KEY, stamps[-1]))

    store.write([KEY], unit)


def rewrite(
    store: MemoryStore, cache: StreamCache, key: StreamKey, memory_id: MemoryId, row: NDArray[np.float32]
) -> None:
    def unit(writing: Writing) -> None:
        before = writing.get(key.incarnation, memory_id)
        assert before is not None
        (stamp,) = writing.stamps(key, 1, NOW)
        edit = Stamp(stamp, REPLICA)
        state = State(replace(before.memory, content="another"), {**before.state.stamps, "content": edit})
        writing.replace(key, before, before.edited(state, stamp))
        writing.put_vectors(key, SPACE, [(memory_id, edit, encode_vectors(row[np.newaxis])[0])])
        writing.on_commit(lambda: cache.note(key, stamp))

    store.write([key], unit)


def nearest(stream: ResidentStream, vector: NDArray[np.float32], k: int = 3) -> list[MemoryId]:
    view = View(ClientId("c"), Micros(0))
    hits = search(stream, Query("x", vector, RECIPES["semantic"], view, k))
    return [hit.row.memory.id for hit in hits]


def agrees(store: MemoryStore, cache: StreamCache, extent: Extent = KEY) -> bool:
    with store.read() as reading:
        if isinstance(extent, StreamKey):
            keys = [extent]
        else:
            keys = [StreamKey(extent, name) for name in reading.heads(extent)]
        living = sum(reading.count(key) for key in keys)
    with cache.reading(extent, SPACE) as stream:
        return len(stream) == living == len(stream.vectors)


def test_a_commit_is_seen_by_the_next_read_and_by_another_server(store: MemoryStore, tmp_path: Path) -> None:
    rows = vectors(20)
    with caching(store, tmp_path / "a") as one:
        ids = add(store, one, rows[:10])
        with one.reading(KEY, SPACE) as stream:
            assert nearest(stream, rows[3], 1) == [ids[3]]
        ids += add(store, one, rows[10:])
        bury(store, one, [ids[3]])
        with one.reading(KEY, SPACE) as stream:
            assert nearest(stream, rows[15], 1) == [ids[15]]
            assert nearest(stream, rows[3], 1) != [ids[3]]
            assert len(stream) == 19
        with caching(store, tmp_path / "b") as two:
            assert agrees(store, two)


def test_streams_leave_when_the_budget_is_spent_and_come_back_whole(
    store: MemoryStore, tmp_path: Path
) -> None:
    with caching(store, tmp_path, budget_bytes=40_000) as cache:
        keys = [StreamKey(KEY.incarnation, f"user:{n}") for n in range(12)]
        for key in keys:
            add(store, cache, vectors(10), key)
        for _ in range(2):
            for key in keys:
                assert agrees(store, cache, key)
                assert cache.nbytes <= 40_000 + 30_000
        add(store, cache, vectors(1, seed=5), keys[0])
        assert agrees(store, cache, keys[0])


def test_a_worn_stream_is_loaded_again(store: MemoryStore, tmp_path: Path) -> None:
    with caching(store, tmp_path) as cache:
        ids = add(store, cache, vectors(400))
        assert agrees(store, cache)
        bury(store, cache, ids[:200])
        assert agrees(store, cache)
        with cache.reading(KEY, SPACE) as stream:
            assert len(stream.rows) == 200


@pytest.mark.parametrize("backend", ["sqlite"])
def test_the_graph_of_a_large_stream_is_taken_from_the_shelf(store: MemoryStore, tmp_path: Path) -> None:
    count = EXACT_ROWS + 100
    rows = vectors(count)
    with caching(store, tmp_path) as cache:
        ids = [i for at in range(0, count, 1000) for i in add(store, cache, rows[at : at + 1000])]
        with cache.reading(KEY, SPACE) as stream:
            assert isinstance(stream.vectors, HnswIndex)
            assert stream.vectors.drain(60)
            assert nearest(stream, rows[7], 1) == [ids[7]]
    assert len(list(tmp_path.rglob("*.hnsw"))) == 1
    with caching(store, tmp_path) as cache:
        # While nothing is resident: some leave, some come, and the restored graph must not know better.
        bury(store, cache, ids[:50])
        fresh = vectors(30, seed=9)
        new = add(store, cache, fresh)
        assert agrees(store, cache)
        with cache.reading(KEY, SPACE) as stream:
            assert nearest(stream, fresh[4], 1) == [new[4]]
            assert nearest(stream, rows[60], 1) == [ids[60]]
            assert ids[7] not in nearest(stream, rows[7], 50)
            assert len(stream.rows) == count + 30
    with caching(store, tmp_path) as cache:
        # The last slots of the shelved residency are dead by now: masks must still be as long as the rows.
        bury(store, cache, new)
        with cache.reading(KEY, SPACE) as stream:
            view = View(ClientId("c"), Micros(0), scopes=("general",))
            query = Query(f"row {ids[60]}", rows[60], RECIPES["default"], view, 1)
            assert [hit.row.memory.id for hit in search(stream, query)] == [ids[60]]
    for path in tmp_path.rglob("*.hnsw"):
        damaged = bytearray(path.read_bytes())
        damaged[len(damaged) // 2] ^= 1
        path.write_bytes(damaged)
    with caching(store, tmp_path) as cache:
        assert agrees(store, cache)


def test_a_tenant_as_one_follows_each_of_its_streams(store: MemoryStore, tmp_path: Path) -> None:
    rows = vectors(40)
    foreign = StreamKey(Incarnation(str(uuid.UUID(int=2))), KEY.stream)
    with caching(store, tmp_path) as cache:
        add(store, cache, vectors(5, seed=3), foreign)
        assert agrees(store, cache, TENANT)
        ids = add(store, cache, rows[:10], now_millis=NOW + 60_000)
        assert agrees(store, cache, TENANT)
        # Their stamps lie before those that the other stream has: stamps order one stream alone.
        ids += add(store, cache, rows[10:20], OTHER)
        ids += add(store, cache, rows[20:30], StreamKey(TENANT, "user:carol"))
        bury(store, cache, ids[:3])
        assert agrees(store, cache, TENANT)
        with cache.reading(TENANT, SPACE) as stream:
            assert len(stream) == 27
            for n in (3, 12, 25):
                assert nearest(stream, rows[n], 1) == [ids[n]]
            assert ids[1] not in nearest(stream, rows[1], 30)
        ids += add(store, cache, rows[30:], OTHER)
        assert agrees(store, cache, TENANT)
        assert agrees(store, cache, OTHER)


@pytest.mark.parametrize("backend", ["postgresql"])
def test_a_tenant_as_one_sees_what_another_server_committed(store: MemoryStore, tmp_path: Path) -> None:
    with caching(store, tmp_path / "a") as one, caching(store, tmp_path / "b") as two:
        for number in range(3):
            add(store, two, vectors(5), StreamKey(TENANT, f"user:{number}"))
            add(store, one, vectors(5), KEY)
            assert agrees(store, one, TENANT)
            assert agrees(store, two, TENANT)


def test_tenants_and_streams_share_one_budget(store: MemoryStore, tmp_path: Path) -> None:
    with caching(store, tmp_path, budget_bytes=100_000) as cache:
        keys = [StreamKey(TENANT, f"user:{n}") for n in range(4)]
        for key in keys:
            add(store, cache, vectors(10), key)
        extents: list[Extent] = [TENANT, *keys, TENANT, *keys]
        for extent in extents:
            assert agrees(store, cache, extent)
            assert cache.nbytes <= 100_000 + 80_000
        assert cache.nbytes > 0


def test_the_graph_of_a_tenant_is_taken_from_the_shelf(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(switch, "EXACT_ROWS", 60)
    rows, fresh = vectors(100), vectors(10, seed=9)
    with caching(store, tmp_path) as cache:
        ids = add(store, cache, rows[:50], now_millis=NOW + 60_000) + add(store, cache, rows[50:], OTHER)
        with cache.reading(TENANT, SPACE) as stream:
            assert isinstance(stream.vectors, HnswIndex)
            assert stream.vectors.drain(60)
    assert len(list(tmp_path.rglob("*.hnsw"))) == 1
    with caching(store, tmp_path) as cache:
        bury(store, cache, ids[:5])
        new = add(store, cache, fresh[:9], OTHER)
        # Its stamp lies before those of the other stream that the graph was kept at.
        rewrite(store, cache, OTHER, ids[70], fresh[9])
        assert agrees(store, cache, TENANT)
        with cache.reading(TENANT, SPACE) as stream:
            assert len(stream.rows) == 110
            assert nearest(stream, fresh[4], 1) == [new[4]]
            assert nearest(stream, fresh[9], 1) == [ids[70]]
            assert nearest(stream, rows[60], 1) == [ids[60]]
            assert ids[2] not in nearest(stream, rows[2], 50)


def test_a_load_that_failed_leaves_nothing_behind(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    living = Reading.living

    def fails(
        self: Reading, tenant: Incarnation, after: tuple[str, CommitStamp], space: str, limit: int
    ) -> list[Change]:
        if after[0]:
            raise StorageUnavailable
        return living(self, tenant, after, space, limit)

    monkeypatch.setattr(stream_cache, "_PAGE", 4)
    with caching(store, tmp_path) as cache:
        ids = add(store, cache, vectors(10))
        add(store, cache, vectors(10), OTHER)
        monkeypatch.setattr(Reading, "living", fails)
        with pytest.raises(StorageUnavailable), cache.reading(TENANT, SPACE):
            raise AssertionError("half a tenant was given out")
        monkeypatch.setattr(Reading, "living", living)
        bury(store, cache, ids[:2])
        assert agrees(store, cache, TENANT)


def look(store: MemoryStore, memory_id: MemoryId, at: int, replica: bytes = b"d" * 16) -> None:
    def unit(writing: Writing) -> None:
        (stamp,) = writing.lane_stamps(KEY, 1, NOW)
        total = AccessTotal(memory_id, 1, Micros(at))
        writing.put_access_totals(KEY, ReplicaId(replica), [(total, stamp)])

    store.write([KEY], unit)


@pytest.mark.parametrize("extent", [KEY, KEY.incarnation])
def test_the_last_access_is_known_where_it_is_asked_for(
    store: MemoryStore, tmp_path: Path, extent: Extent
) -> None:
    with caching(store, tmp_path) as cache:
        one, two = add(store, cache, vectors(2))
        look(store, one, 5)

        def last() -> dict[MemoryId, int]:
            with cache.reading(extent, SPACE, accesses=True) as stream:
                times = stream.columns.last_access()
                return {i: int(times[slot]) for i in (one, two) if (slot := stream.slot(i)) is not None}

        assert last() == {one: 5, two: 0}
        look(store, two, 7)
        look(store, one, 6, b"e" * 16)
        look(store, one, 4)
        with cache.reading(extent, SPACE) as stream:
            assert stream.columns.last_access()[stream.slot(two) or 0] == 0
        assert last() == {one: 6, two: 7}
    with caching(store, tmp_path) as other:
        cache = other
        assert last() == {one: 6, two: 7}


# --- memories without a vector --------------------------------------------------------------------


def add_bare(store: MemoryStore, cache: StreamCache, content: str, key: StreamKey = KEY) -> MemoryId:
    """A memory whose vector of the space is not there yet."""
    (memory_id,) = add(store, cache, vectors(1), key)

    def unit(writing: Writing) -> None:
        before = writing.get(key.incarnation, memory_id)
        assert before is not None
        (stamp,) = writing.stamps(key, 1, NOW)
        edit = Stamp(stamp, REPLICA)
        state = State(replace(before.memory, content=content), {**before.state.stamps, "content": edit})
        writing.replace(key, before, before.edited(state, stamp))
        writing.on_commit(lambda: cache.note(key, stamp))

    store.write([key], unit)
    return memory_id


def dress(store: MemoryStore, row: NDArray[np.float32], key: StreamKey = KEY) -> int:
    """Give the vector to whatever has none, as another server would."""
    with store.read() as reading:
        bare = reading.unembedded(key.incarnation, SPACE, ("", CommitStamp(0)), 1000)
    (vector,) = encode_vectors(row[np.newaxis])

    def unit(writing: Writing) -> None:
        writing.put_vectors(key, SPACE, [(one.memory_id, one.content_stamp, vector) for one in bare])

    store.write([key], unit)
    return len(bare)


@pytest.mark.parametrize("extent", [KEY, TENANT])
def test_a_memory_without_a_vector_is_found_by_its_words_until_it_has_one(
    store: MemoryStore, tmp_path: Path, extent: Extent
) -> None:
    rows = vectors(3, seed=1)
    with caching(store, tmp_path) as cache:
        ids = add(store, cache, rows[:2])
        ids.append(add_bare(store, cache, "chess on Fridays"))
        for _ in range(2):
            with cache.reading(extent, SPACE) as stream:
                assert set(nearest(stream, rows[0], 3)) == set(ids)
                query = Query("Fridays", rows[2], RECIPES["default"], View(ClientId("c"), Micros(0)), 1)
                assert [hit.row.memory.id for hit in search(stream, query)] == [ids[2]]
                assert stream.bare.keys() == {ids[2]}
        assert cache.take_bare() == {(KEY, SPACE)}
        assert cache.take_bare() == set()
        assert dress(store, rows[2]) == 1
        with cache.reading(extent, SPACE) as stream:
            assert nearest(stream, rows[2], 1) == [ids[2]]
            assert not stream.bare
        assert cache.take_bare() == set()
        assert agrees(store, cache, extent)


def test_a_memory_without_a_vector_may_be_edited_and_deleted(store: MemoryStore, tmp_path: Path) -> None:
    row = vectors(1, seed=2)
    with caching(store, tmp_path) as cache:
        first, second = (add_bare(store, cache, f"said {n}") for n in range(2))
        with cache.reading(KEY, SPACE) as stream:
            assert len(stream.bare) == 2
        rewrite(store, cache, KEY, first, row[0])
        bury(store, cache, [second])
        with cache.reading(KEY, SPACE) as stream:
            assert nearest(stream, row[0], 3) == [first]
            assert not stream.bare
        assert agrees(store, cache)


def test_a_graph_is_kept_without_those_that_have_no_vector(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(switch, "EXACT_ROWS", 20)
    rows = vectors(40, seed=3)
    with caching(store, tmp_path) as cache:
        ids = add(store, cache, rows[:39])
        late = add_bare(store, cache, "said late")
        with cache.reading(KEY, SPACE) as stream:
            assert isinstance(stream.vectors, HnswIndex)
            assert stream.bare.keys() == {late}
    dress(store, rows[39])
    with caching(store, tmp_path) as cache, cache.reading(KEY, SPACE) as stream:
        assert nearest(stream, rows[39], 1) == [late]
        assert nearest(stream, rows[5], 1) == [ids[5]]
        assert len(stream.vectors) == len(stream) == 40


def test_two_spaces_are_resident_under_one_budget(store: MemoryStore, tmp_path: Path) -> None:
    other = "other/4"
    with ExitStack() as stack:
        cache = StreamCache(store, Shelf(tmp_path), {SPACE: DIMENSION, other: 4}, budget_bytes=PLENTY)
        stack.callback(cache.close)
        rows = vectors(4)
        ids = add(store, cache, rows)
        for space in (SPACE, other):
            with cache.reading(KEY, space) as stream:
                assert len(stream) == 4
                assert len(stream.bare) == (0 if space == SPACE else 4)
        whole = cache.nbytes
        ids += add(store, cache, vectors(1, seed=5))
        for space in (SPACE, other):
            with cache.reading(KEY, space) as stream:
                assert len(stream) == 5
        cache.discard_other(TENANT, SPACE)
        assert 0 < cache.nbytes < whole
        assert list(cache._entries) == [(KEY, SPACE)]


def test_a_graph_of_another_space_is_no_graph(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(switch, "EXACT_ROWS", 20)
    with caching(store, tmp_path) as cache:
        add(store, cache, vectors(30))
        with cache.reading(KEY, SPACE):
            pass
    shelf = Shelf(tmp_path)
    assert len(shelf.files_of(KEY)) == 2
    shelf.discard_other(TENANT, SPACE)
    assert len(shelf.files_of(KEY)) == 2
    assert shelf.take(KEY, "other/4", 4) is None
    shelf.discard_other(TENANT, "other/4")
    assert shelf.files_of(KEY) == []
