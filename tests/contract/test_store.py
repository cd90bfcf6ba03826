"""The store's rows and reads, on SQLite and on PostgreSQL."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from scrubjay import v1
from scrubjay.errors import MemoryNotFound
from scrubjay.memory import (
    MAX_MICROS,
    MIN_MICROS,
    ClientId,
    JsonValue,
    Memory,
    MemoryId,
    Micros,
    PrivacyLevel,
    Source,
)
from scrubjay.merge import Outcome, Write, apply
from scrubjay.operation import OperationKind
from scrubjay.stamp import CommitStamp, Stamp
from scrubjay.validity import MAX_CONTENT_BYTES
from scrubjay.wire import to_message
from server.store.history import HistoryChange, decode_changes, encode_changes
from server.store.memory_store import MemoryStore, StoredMemory, StreamHead, StreamKey, Writing
from server.store.tables import vectors
from server.store.vector_codec import decode_vectors, encode_vector, encode_vectors, split_vectors
from tenants.database import open_engine
from tests.stored import (
    ACME,
    ALICE,
    BOB,
    GLOBEX,
    NOW,
    NOW_MILLIS,
    REPLICA,
    SPACE,
    VECTOR,
    add,
    delete,
    entry,
    memory,
    new_id,
)

START = CommitStamp(0)
DAY = 24 * 3600 * 1_000_000


@pytest.fixture
def store(shard_url: str) -> Iterator[MemoryStore]:
    before = threading.active_count()
    with MemoryStore(shard_url) as store:
        yield store
    assert threading.active_count() <= before


# --- memories -------------------------------------------------------------------------------------

FULL = memory(
    "emoji 🦜👩‍👩‍👧‍👦, right to left שלום \u202eمرحبا, 记忆, a quote ' and a percent %s :id",
    agent_id="agent",
    run_id="run",
    scope="work/alpha",
    category="TASK",
    tags=frozenset({"a", "ü", "a.b", "🏷"}),
    metadata={"city": "北京", "n": 2**53, "x": -0.5, "deep": {"list": [1, None, {"k": "\x7f"}]}, "yes": True},
    source=Source("web", "conversation", ("m1", "m2"), "user", "typed"),
    confidence=0.1,
    privacy_level=PrivacyLevel.PRIVATE,
    pinned=True,
    created_at=MIN_MICROS,
    valid_from=MIN_MICROS,
    valid_to=MAX_MICROS,
    expires_at=MAX_MICROS,
)


@pytest.mark.parametrize(
    "one",
    [
        memory(),
        FULL,
        memory("x" * MAX_CONTENT_BYTES, metadata={"k": "y" * 8000}),
        memory("*", user_id="*", created_at=MAX_MICROS),
        memory("no user", user_id="", agent_id="bot"),
    ],
    ids=["plain", "full", "large", "star", "agent"],
)
def test_a_memory_comes_back_as_it_was_given(store: MemoryStore, one: Memory) -> None:
    key = StreamKey(ACME, one.subject.key)
    (row,) = add(store, one, key=key)
    with store.read() as reading:
        assert reading.get(ACME, one.id) == row
        assert reading.get_many(ACME, [one.id, new_id()]) == {one.id: row}
        assert reading.page(key, None, 10) == [row]
        (change,) = reading.changes(key, START, SPACE, 10)
        assert reading.stream_of(ACME, one.id) == key.stream
    assert (change.memory, change.message, change.vector) == (one, row.message, VECTOR)
    assert change.memory is not None
    assert type(change.memory.pinned) is bool
    assert v1.Memory.FromString(row.message) == to_message(one, row.commit_stamp)


def test_a_new_state_takes_the_place_of_the_old_one(store: MemoryStore) -> None:
    (old,) = add(store, memory(metadata={"a": 1}))

    def edit(writing: Writing) -> StoredMemory:
        (commit_stamp,) = writing.stamps(ALICE, 1, NOW_MILLIS)
        write = Write("metadata.a", None, Stamp(commit_stamp, REPLICA), old.state.stamps["metadata.a"])
        state, _ = apply(old.state, [write], ClientId("web"))
        new = old.edited(state, commit_stamp)
        writing.replace(ALICE, old, new)
        return new

    new = store.write([ALICE], edit)
    with store.read() as reading:
        assert reading.get(ACME, old.memory.id) == new
        assert [c.commit_stamp for c in reading.changes(ALICE, START, SPACE, 10)] == [new.commit_stamp]
    assert new.memory.metadata == {}
    assert "metadata.a" in new.state.stamps


def test_a_batch_of_a_hundred_is_one_run_of_stamps(store: MemoryStore) -> None:
    rows = add(store, *(memory(f"fact {n}") for n in range(100)))
    stamps = [row.commit_stamp for row in rows]
    assert stamps == list(range(NOW_MILLIS << 16, (NOW_MILLIS << 16) + 100))
    with store.read() as reading:
        assert reading.count(ALICE) == 100
        assert len(reading.get_many(ACME, [row.memory.id for row in rows])) == 100
        assert reading.ids(ALICE, 1000) == [row.memory.id for row in rows]
        assert reading.head(ALICE) == StreamHead(stamps[-1], NOW_MILLIS, START, START)


def test_stamps_go_on_where_the_clock_ran_backwards(store: MemoryStore) -> None:
    (one,) = add(store, memory())
    (stamp,) = store.write([ALICE], lambda writing: writing.stamps(ALICE, 1, 0))
    assert stamp == one.commit_stamp + 1


def test_tenants_and_streams_never_meet(store: MemoryStore) -> None:
    one = memory()
    (row,) = add(store, one)
    add(store, replace(one, content="another life"), key=StreamKey(GLOBEX, ALICE.stream))
    with store.read() as reading:
        assert reading.get(ACME, one.id) == row
        assert reading.count(BOB) == 0
        assert reading.head(BOB) is None
        assert reading.changes(BOB, START, SPACE, 10) == []
        assert reading.page(BOB, None, 10) == []
        assert [h.memory_id for h in reading.history(GLOBEX, one.id, None, 10)] == [one.id]
    delete(store, one.id)
    with store.read() as reading:
        assert reading.buried(GLOBEX, [one.id]) == {}
        assert reading.get(GLOBEX, one.id) is not None


def test_an_unknown_id_is_nowhere(store: MemoryStore) -> None:
    with store.read() as reading:
        assert reading.get(ACME, new_id()) is None
        assert reading.stream_of(ACME, new_id()) is None
        assert reading.buried(ACME, [new_id()]) == {}
        assert reading.get_many(ACME, []) == {}
        assert reading.history(ACME, new_id(), None, 10) == []


# --- pages ----------------------------------------------------------------------------------------


def test_pages_hold_every_memory_once_newest_first_with_ties_split(store: MemoryStore) -> None:
    times = [MIN_MICROS, Micros(-1), NOW, NOW, NOW, NOW, MAX_MICROS]
    rows = add(store, *(memory(f"fact {n}", created_at=time) for n, time in enumerate(times)))
    seen: list[StoredMemory] = []
    before: tuple[Micros, MemoryId] | None = None
    with store.read() as reading:
        while page := reading.page(ALICE, before, 2):
            seen += page
            before = (page[-1].memory.created_at, page[-1].memory.id)
    assert seen == sorted(rows, key=lambda r: (r.memory.created_at, r.memory.id), reverse=True)


# --- the feed -------------------------------------------------------------------------------------


def test_the_feed_holds_memories_and_tombstones_in_the_order_of_their_stamps(store: MemoryStore) -> None:
    first, second, third = add(store, memory("1"), memory("2"), memory("3"))
    (grave,) = delete(store, second.memory.id)
    (fourth,) = add(store, memory("4"))
    with store.read() as reading:
        feed = reading.changes(ALICE, first.commit_stamp, SPACE, 10)
        page = reading.changes(ALICE, first.commit_stamp, SPACE, 2)
        load = reading.changes(ALICE, START, SPACE, 10)
    third_id, second_id, fourth_id = third.memory.id, second.memory.id, fourth.memory.id
    assert [(c.memory_id, c.commit_stamp) for c in feed] == [
        (third_id, third.commit_stamp),
        (second_id, grave),
        (fourth_id, fourth.commit_stamp),
    ]
    assert (feed[1].memory, feed[1].message, feed[1].vector) == (None, None, None)
    assert page == feed[:2]
    assert [c.memory_id for c in load] == [first.memory.id, third_id, fourth_id]


def test_a_vector_counts_only_for_its_space_and_the_content_that_stands(store: MemoryStore) -> None:
    (old,) = add(store, memory("old"))
    stamp = Stamp(old.commit_stamp + 1, REPLICA)

    def edit(writing: Writing) -> None:
        (commit_stamp,) = writing.stamps(ALICE, 1, 0)
        state, _ = apply(old.state, [Write("content", "new", stamp, None)], ClientId("web"))
        writing.replace(ALICE, old, old.edited(state, commit_stamp))

    def vector(space: str = SPACE) -> bytes | None:
        with store.read() as reading:
            return reading.changes(ALICE, START, space, 10)[0].vector

    assert vector() == VECTOR
    assert vector("other/3") is None
    store.write([ALICE], edit)
    assert vector() is None
    store.write([ALICE], lambda w: w.put_vectors(ALICE, SPACE, [(old.memory.id, stamp, VECTOR[::-1])]))
    assert vector() == VECTOR[::-1]


# --- deletion -------------------------------------------------------------------------------------


def test_a_deleted_memory_leaves_its_grave_and_nothing_else(store: MemoryStore) -> None:
    kept, gone = add(store, memory("kept"), memory("gone"))
    delete(store, gone.memory.id)
    with store.read() as reading:
        assert reading.get(ACME, gone.memory.id) is None
        assert reading.buried(ACME, [kept.memory.id, gone.memory.id]) == {gone.memory.id: ALICE.stream}
        assert reading.stream_of(ACME, gone.memory.id) == ALICE.stream
        assert reading.count(ALICE) == 1
        assert [c.vector for c in reading.changes(ALICE, START, SPACE, 10)] == [VECTOR]


def test_a_vector_of_a_deleted_memory_is_gone_too(store: MemoryStore, shard_url: str) -> None:
    kept, gone = add(store, memory("kept"), memory("gone"))
    store.write([ALICE], lambda w: w.put_vectors(ALICE, "b", [(gone.memory.id, Stamp(1, REPLICA), VECTOR)]))
    delete(store, gone.memory.id)
    engine = open_engine(shard_url, read_only=True)
    with engine.connect() as connection:
        assert connection.execute(select(vectors.c.memory_id)).scalars().all() == [kept.memory.id]
    engine.dispose()


def test_a_deleted_memory_takes_no_new_state(store: MemoryStore) -> None:
    (row,) = add(store, memory())
    delete(store, row.memory.id)
    with pytest.raises(MemoryNotFound):
        store.write([ALICE], lambda writing: writing.replace(ALICE, row, row))
    with store.read() as reading:
        assert reading.count(ALICE) == 0


def test_deleting_again_keeps_the_first_grave(store: MemoryStore) -> None:
    (one,) = add(store, memory())
    (grave,) = delete(store, one.memory.id)
    delete(store, one.memory.id)
    with store.read() as reading:
        (change,) = reading.changes(ALICE, one.commit_stamp, SPACE, 10)
    assert change.commit_stamp == grave


# --- history --------------------------------------------------------------------------------------


def test_history_is_newest_first_in_pages_of_a_memory_and_of_a_stream(store: MemoryStore) -> None:
    one, other = add(store, memory("one"), memory("other"))

    def unit(writing: Writing) -> None:
        for stamp in writing.stamps(ALICE, 3, 0):
            writing.add_history(ALICE, [entry(one.memory.id, stamp, OperationKind.SET)])

    store.write([ALICE], unit)
    with store.read() as reading:
        of_memory = reading.history(ACME, one.memory.id, None, 10)
        of_stream = reading.history(ACME, ALICE, None, 10)
        rest = reading.history(ACME, ALICE, of_stream[1].commit_stamp, 2)
    assert [h.kind for h in of_memory] == [OperationKind.SET] * 3 + [OperationKind.CREATE]
    assert {h.memory_id for h in of_memory} == {one.memory.id}
    assert of_stream[3].memory_id == other.memory.id
    assert all(newer.commit_stamp > older.commit_stamp for newer, older in pairwise(of_stream))
    assert rest == of_stream[2:4]
    created = of_memory[-1]
    assert [(c.field, c.old, c.new) for c in created.changes if c.field == "content"] == [
        ("content", None, "one")
    ]


def test_a_history_entry_comes_back_as_it_was_given(store: MemoryStore) -> None:
    stamp, base = Stamp(2, REPLICA), Stamp(1, REPLICA)
    changes = [
        HistoryChange("content", "🦜", "שלום\u0000", stamp, base, Outcome.SUPERSEDED),
        HistoryChange("metadata.x", None, {"deep": [1, 2.5, None]}, stamp, None, Outcome.APPLIED),
        HistoryChange("metadata.y", 1, None, stamp, None, Outcome.APPLIED),
        HistoryChange("content", 1, 2, stamp, base, Outcome.APPLIED_CONCURRENT),
    ]
    (at,) = store.write([ALICE], lambda writing: writing.stamps(ALICE, 1, 5))
    written = entry(new_id(), at, OperationKind.SET, changes)
    given = written._replace(claimed_at=MIN_MICROS, private_to=ClientId("web"))
    store.write([ALICE], lambda writing: writing.add_history(ALICE, [given]))
    with store.read() as reading:
        assert reading.history(ACME, ALICE, None, 10) == [given]


_stamps = st.builds(Stamp, st.integers(0, 2**40), st.just(REPLICA))
_values: st.SearchStrategy[JsonValue] = (
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(-1, 1)
)
_changes = st.builds(
    HistoryChange, st.text(), _values, _values, _stamps, st.none() | _stamps, st.sampled_from(Outcome)
)


@given(st.lists(_changes, max_size=6))
@settings(max_examples=50, deadline=None)
def test_changes_survive_their_encoding(changes: list[HistoryChange]) -> None:
    assert decode_changes(encode_changes(changes)) == tuple(changes)


# --- idempotency ----------------------------------------------------------------------------------


def save(store: MemoryStore, request_id: str, response: bytes, now: int = NOW) -> None:
    store.write([], lambda w: w.save_request(ACME, request_id, b"digest", response, Micros(now)))


def kept(store: MemoryStore, request_id: str, now: int = NOW) -> tuple[bytes, bytes] | None:
    with store.read() as reading:
        return reading.request(ACME, request_id, Micros(now))


def test_a_response_is_kept_for_a_day(store: MemoryStore) -> None:
    save(store, "r", b"\0answer")
    assert kept(store, "r") == (b"digest", b"\0answer")
    assert kept(store, "r", NOW + DAY - 1) == (b"digest", b"\0answer")
    assert kept(store, "r", NOW + DAY) is None
    assert kept(store, "R") is None
    with store.read() as reading:
        assert reading.request(GLOBEX, "r", NOW) is None


def test_an_expired_request_id_may_be_used_again(store: MemoryStore) -> None:
    save(store, "r", b"first")
    save(store, "r", b"second", NOW + DAY)
    assert kept(store, "r", NOW + DAY) == (b"digest", b"second")


def test_later_writes_purge_what_has_expired(store: MemoryStore) -> None:
    for number in range(40):
        save(store, f"r{number}", b"")
    save(store, "fresh", b"", NOW + DAY)
    left = sum(kept(store, f"r{number}") is not None for number in range(40))
    assert 0 < left < 40
    for number in range(3):
        save(store, f"fresh{number}", b"", NOW + DAY)
    assert [n for n in range(40) if kept(store, f"r{n}") is not None] == []
    assert kept(store, "fresh", NOW + DAY) is not None


# --- vectors as they are stored -------------------------------------------------------------------


def test_a_vector_loses_at_most_half_a_level() -> None:
    made = np.random.default_rng(3).normal(size=(50, 384)).astype(np.float32)
    made[7] = 0
    made[8] *= 1e-30
    encoded = encode_vectors(made)
    half_a_level = np.abs(made).max(axis=1, keepdims=True) / 127 * 0.501
    assert {len(one) for one in encoded} == {4 + 384}
    assert (np.abs(decode_vectors(encoded) - made) <= half_a_level).all()
    assert encode_vector(made[3]) == encoded[3]
    codes, scales = split_vectors(encoded)
    assert (codes.shape, codes.dtype) == ((50, 384), np.dtype(np.int8))
    assert (scales.shape, scales.dtype) == ((50,), np.dtype(np.float32))


def test_no_vectors_are_none() -> None:
    assert decode_vectors([]).shape == (0, 0)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_a_vector_with_a_number_that_is_not_finite_is_refused(number: float) -> None:
    with pytest.raises(ValueError, match="not finite"):
        encode_vector(np.array([1, number], dtype=np.float32))


def test_vectors_of_different_dimensions_are_refused() -> None:
    with pytest.raises(ValueError, match="different"):
        decode_vectors([b"12345", b"123456"])
