"""What happens when several servers share a shard, and when one of them or the database dies."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import psycopg
import pytest

from scrubjay.errors import MemoryExists, RequestIdReused, StorageUnavailable
from scrubjay.memory import ClientId, Memory
from scrubjay.merge import Write, apply
from scrubjay.stamp import CommitStamp, Stamp
from server.store import writing as store_writing
from server.store.memory_store import Grave, MemoryStore, StreamKey, Writing
from tenants.database import DatabaseUnusable
from tests.stored import (
    ACME,
    ALICE,
    BOB,
    NOW,
    NOW_MILLIS,
    REPLICA,
    SPACE,
    add,
    delete,
    insert,
    memory,
)

PATIENCE = 20
START = CommitStamp(0)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as pool:
        yield pool


@pytest.fixture
def stores(postgres_shard_url: str) -> Iterator[tuple[MemoryStore, MemoryStore]]:
    """Two servers' stores on one PostgreSQL database."""
    with MemoryStore(postgres_shard_url) as one, MemoryStore(postgres_shard_url) as other:
        yield one, other


class Held:
    """A write that waits inside its transaction, after its unit's first part."""

    def __init__(
        self,
        pool: ThreadPoolExecutor,
        store: MemoryStore,
        key: StreamKey,
        first: Callable[[Writing], object],
        then: Callable[[Writing], object] = lambda _writing: None,
    ) -> None:
        self.reached, self.go = threading.Event(), threading.Event()

        def unit(writing: Writing) -> None:
            first(writing)
            self.reached.set()
            assert self.go.wait(PATIENCE)
            then(writing)

        self.answer = pool.submit(store.write, [key], unit)
        assert self.reached.wait(PATIENCE)


def waiting(url: str, count: int = 1) -> None:
    """Wait until ``count`` backends of the database wait for a lock."""
    turn = threading.Event()
    question = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    with psycopg.connect(url, autocommit=True) as connection:
        while connection.execute(question).fetchone() != (count,):
            assert not turn.wait(0.002)


def terminate(url: str, state: str) -> int:
    """Kill the database's backends that are in ``state``; how many there were."""
    with psycopg.connect(url, autocommit=True) as connection:
        victims = connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid() AND state = %s",
            [state],
        )
        return len(victims.fetchall())


# --- stamps ---------------------------------------------------------------------------------------


def test_stamps_of_two_servers_rise_and_a_reader_that_goes_by_cursor_misses_none(
    stores: tuple[MemoryStore, MemoryStore], pool: ThreadPoolExecutor
) -> None:
    each, writers = 20, 3
    done = threading.Event()

    def write(store: MemoryStore) -> list[CommitStamp]:
        return [row.commit_stamp for n in range(each) for row in add(store, memory("a"), memory(f"b{n}"))]

    def follow() -> list[CommitStamp]:
        """Read on from the last stamp seen, as a cache or a device does."""
        seen = [START]
        last = False
        while not last:
            last = done.is_set()
            with stores[0].read() as reading:
                changes = reading.changes(ALICE, seen[-1], SPACE, 7)
                head = reading.head(ALICE)
                if changes and len(changes) < 7:
                    assert head is not None
                    assert head.head == changes[-1].commit_stamp
            seen += [change.commit_stamp for change in changes]
            last = last and not changes
        return seen[1:]

    follower = pool.submit(follow)
    writes = [pool.submit(write, store) for store in stores for _ in range(writers)]
    stamps = [stamp for answer in writes for stamp in answer.result(PATIENCE)]
    done.set()
    seen = follower.result(PATIENCE)
    assert len(set(stamps)) == len(stamps) == 2 * writers * each * 2
    assert all(b > a for a, b in pairwise(seen))
    assert seen == sorted(stamps)


def test_edits_of_two_servers_to_different_keys_all_stand(
    stores: tuple[MemoryStore, MemoryStore], pool: ThreadPoolExecutor
) -> None:
    (made,) = add(stores[0], memory())

    def edit(number: int) -> None:
        def unit(writing: Writing) -> None:
            (commit_stamp,) = writing.stamps(ALICE, 1, NOW_MILLIS)
            old = writing.get(ACME, made.memory.id)
            assert old is not None
            write = Write(f"metadata.k{number}", number, Stamp(commit_stamp, REPLICA), None)
            state, _ = apply(old.state, [write], ClientId("web"))
            writing.replace(ALICE, old, old.edited(state, commit_stamp))

        stores[number % 2].write([ALICE], unit)

    list(pool.map(edit, range(16)))
    with stores[0].read() as reading:
        found = reading.get(ACME, made.memory.id)
    assert found is not None
    assert found.memory.metadata == {f"k{n}": n for n in range(16)}


def test_writers_of_the_same_streams_in_any_order_never_deadlock(
    stores: tuple[MemoryStore, MemoryStore], pool: ThreadPoolExecutor, postgres_shard_url: str
) -> None:
    keys = [StreamKey(ACME, f"user:{n}") for n in range(5)]

    def advance_all(writing: Writing) -> None:
        for key in keys:
            writing.stamps(key, 1, NOW_MILLIS)

    stores[0].write([keys[2]], lambda writing: writing.stamps(keys[2], 1, NOW_MILLIS))
    with psycopg.connect(postgres_shard_url) as connection:
        connection.execute("SELECT head FROM streams FOR UPDATE")
        # Each would hold the streams that the other waits for, were they locked in the given order.
        there = pool.submit(stores[0].write, keys, advance_all)
        waiting(postgres_shard_url, 1)
        back = pool.submit(stores[1].write, keys[::-1], advance_all)
        waiting(postgres_shard_url, 2)
    there.result(PATIENCE)
    back.result(PATIENCE)
    with stores[0].read() as reading:
        heads = [head.head for key in keys if (head := reading.head(key))]
    assert [head - (NOW_MILLIS << 16) + 1 for head in heads] == [2, 2, 3, 2, 2]


# --- races ----------------------------------------------------------------------------------------


def once(store: MemoryStore, key: StreamKey, digest: bytes, one: Memory) -> bytes:
    """Add a memory under one request id, as the server does."""

    def unit(writing: Writing) -> bytes:
        found = writing.request(ACME, "request", NOW)
        if found is not None:
            if found[0] != digest:
                raise RequestIdReused("request")
            return found[1]
        insert(writing, key, [one])
        writing.save_request(ACME, "request", digest, one.id.encode(), NOW)
        return one.id.encode()

    return store.write([key], unit)


def test_one_request_to_two_servers_is_done_once(
    stores: tuple[MemoryStore, MemoryStore], pool: ThreadPoolExecutor
) -> None:
    answers = [pool.submit(once, stores[n % 2], ALICE, b"same", memory(user_id="alice")) for n in range(16)]
    assert len({answer.result(PATIENCE) for answer in answers}) == 1
    with stores[0].read() as reading:
        assert reading.count(ALICE) == 1
        assert len(reading.history(ACME, ALICE, None, 10)) == 1


def test_a_request_id_that_another_server_is_using_for_another_stream_is_run_again_and_refused(
    stores: tuple[MemoryStore, MemoryStore], pool: ThreadPoolExecutor, postgres_shard_url: str
) -> None:
    first = Held(pool, stores[0], BOB, lambda w: w.save_request(ACME, "request", b"other", b"", NOW))
    second = pool.submit(once, stores[1], ALICE, b"mine", memory())
    waiting(postgres_shard_url)
    first.go.set()
    with pytest.raises(RequestIdReused):
        second.result(PATIENCE)
    first.answer.result(PATIENCE)
    with stores[0].read() as reading:
        assert reading.count(ALICE) == 0


def test_an_id_that_two_servers_insert_at_once_is_stored_once(
    stores: tuple[MemoryStore, MemoryStore], pool: ThreadPoolExecutor, postgres_shard_url: str
) -> None:
    one = memory()
    bobs = replace(one, user_id="bob")
    first = Held(pool, stores[0], ALICE, lambda writing: insert(writing, ALICE, [one]))
    second = pool.submit(add, stores[1], memory(user_id="bob"), bobs, key=BOB)
    waiting(postgres_shard_url)
    first.go.set()
    with pytest.raises(MemoryExists) as caught:
        second.result(PATIENCE)
    assert caught.value.metadata == {"memory_id": one.id}
    with stores[1].read() as reading:
        assert reading.count(BOB) == 0
        assert reading.stream_of(ACME, one.id) == ALICE.stream


def test_a_unit_that_looks_again_after_a_lost_race_stores_the_rest(
    stores: tuple[MemoryStore, MemoryStore], pool: ThreadPoolExecutor, postgres_shard_url: str
) -> None:
    one, other = memory(), memory(user_id="bob")

    def looking(writing: Writing) -> int:
        candidates = [replace(one, user_id="bob"), other]
        taken = writing.get_many(ACME, [c.id for c in candidates])
        return len(insert(writing, BOB, [c for c in candidates if c.id not in taken]))

    first = Held(pool, stores[0], ALICE, lambda writing: insert(writing, ALICE, [one]))
    second = pool.submit(stores[1].write, [BOB], looking)
    waiting(postgres_shard_url)
    first.go.set()
    assert second.result(PATIENCE) == 1


def test_an_id_that_another_server_is_burying_never_comes_back(
    stores: tuple[MemoryStore, MemoryStore], pool: ThreadPoolExecutor, postgres_shard_url: str
) -> None:
    (row,) = add(stores[0], memory())

    def bury(writing: Writing) -> None:
        (commit_stamp,) = writing.stamps(ALICE, 1, NOW_MILLIS)
        writing.bury(ALICE, [Grave.of(row.memory, commit_stamp, Stamp(commit_stamp, REPLICA))])

    first = Held(pool, stores[0], ALICE, bury)
    second = pool.submit(add, stores[1], replace(row.memory, user_id="bob"), key=BOB)
    waiting(postgres_shard_url)
    first.go.set()
    with pytest.raises(MemoryExists):
        second.result(PATIENCE)
    with stores[1].read() as reading:
        assert reading.buried(ACME, [row.memory.id]) == {row.memory.id: ALICE.stream}
        assert reading.get(ACME, row.memory.id) is None


def test_units_that_deadlock_are_run_again(
    stores: tuple[MemoryStore, MemoryStore], pool: ThreadPoolExecutor, postgres_shard_url: str
) -> None:
    one, other = memory(), memory()

    def cross(here: Memory, there: Memory, name: str) -> tuple[Callable[[Writing], object], ...]:
        key = StreamKey(ACME, f"user:{name}")

        def put(writing: Writing, candidate: Memory) -> None:
            if candidate.id not in writing.get_many(ACME, [candidate.id]):
                insert(writing, key, [replace(candidate, user_id=name)])

        return (lambda writing: put(writing, here)), (lambda writing: put(writing, there))

    held = [
        Held(pool, stores[0], ALICE, *cross(one, other, "alice")),
        Held(pool, stores[1], BOB, *cross(other, one, "bob")),
    ]
    for write in held:
        write.go.set()
    for write in held:
        write.answer.result(PATIENCE)
    with stores[0].read() as reading:
        assert reading.count(ALICE) + reading.count(BOB) == 2


def test_a_stream_that_another_server_holds_too_long_is_unavailable(
    stores: tuple[MemoryStore, MemoryStore], pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_writing, "LOCK_TIMEOUT_SECONDS", 0.1)
    first = Held(pool, stores[0], ALICE, lambda _writing: None)
    with pytest.raises(StorageUnavailable):
        add(stores[1], memory())
    add(stores[1], memory(user_id="bob"), key=BOB)
    first.go.set()
    first.answer.result(PATIENCE)
    assert len(add(stores[1], memory())) == 1


# --- a database that goes away --------------------------------------------------------------------


def test_a_backend_killed_in_a_write_fails_it_and_the_next_one_works(
    stores: tuple[MemoryStore, MemoryStore], pool: ThreadPoolExecutor, postgres_shard_url: str
) -> None:
    hooks: list[str] = []
    kept = memory("kept")
    add(stores[0], kept)

    def lost(writing: Writing) -> None:
        writing.on_commit(lambda: hooks.append("published"))
        insert(writing, ALICE, [memory("lost")])

    write = Held(pool, stores[0], ALICE, lost, lambda writing: writing.count(ALICE))
    assert terminate(postgres_shard_url, "idle in transaction") == 1
    write.go.set()
    with pytest.raises(StorageUnavailable) as caught:
        write.answer.result(PATIENCE)
    assert "terminat" not in str(caught.value)
    assert hooks == []
    (row,) = add(stores[0], memory("after"))
    with stores[0].read() as reading:
        assert reading.ids(ALICE, 10) == [kept.id, row.memory.id]


def test_a_backend_killed_before_the_commit_fails_it(
    stores: tuple[MemoryStore, MemoryStore], pool: ThreadPoolExecutor, postgres_shard_url: str
) -> None:
    write = Held(pool, stores[0], ALICE, lambda writing: insert(writing, ALICE, [memory()]))
    assert terminate(postgres_shard_url, "idle in transaction") == 1
    write.go.set()
    with pytest.raises(StorageUnavailable):
        write.answer.result(PATIENCE)
    with stores[1].read() as reading:
        assert reading.head(ALICE) is None


def test_reads_work_again_after_one_failed(
    stores: tuple[MemoryStore, MemoryStore], postgres_shard_url: str
) -> None:
    add(stores[0], memory())
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(stores[0].read()).count(ALICE)
    assert terminate(postgres_shard_url, "idle") == 4
    with pytest.raises(StorageUnavailable), stores[0].read() as reading:
        reading.count(ALICE)
    with ExitStack() as stack:
        readings = [stack.enter_context(stores[0].read()) for _ in range(3)]
        assert [reading.count(ALICE) for reading in readings] == [1, 1, 1]


def test_a_database_that_is_not_there_is_unavailable_to_reads_and_writes(tmp_path: Path) -> None:
    for url in (f"postgresql://nobody@/nothing?host={tmp_path}", f"sqlite:///{tmp_path}/no/such/folder.db"):
        with MemoryStore(url) as store:
            with pytest.raises(StorageUnavailable), store.read() as reading:
                reading.count(ALICE)
            with pytest.raises(StorageUnavailable):
                add(store, memory())
            with pytest.raises(DatabaseUnusable, match="can't be used"):
                store.migrate()


def test_readers_that_find_no_connection_free_are_told_so(
    shard_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenants.database.POOL_TIMEOUT_SECONDS", 0.05)
    with MemoryStore(shard_url, readers=1) as store:
        with store.read() as reading:
            assert reading.count(ALICE) == 0
            with pytest.raises(StorageUnavailable), store.read():
                pass
        with store.read() as reading:
            assert reading.count(ALICE) == 0


def test_a_database_without_tables_is_a_fault_of_its_operator_and_stores_nothing(database_url: str) -> None:
    with MemoryStore(database_url) as store:
        assert store.pending()
        with pytest.raises(StorageUnavailable):
            add(store, memory())
        store.migrate()
        assert not store.pending()
        assert len(add(store, memory())) == 1


# --- a server that is killed ----------------------------------------------------------------------

WRITER = """
import sys
from tests.stored import add, delete, memory
from server.store.memory_store import MemoryStore

store = MemoryStore(sys.argv[1])
while True:
    rows = add(store, memory("one"), memory("two"), memory("three"))
    delete(store, rows[2].memory.id)
    print(rows[0].memory.id, rows[1].memory.id, rows[2].memory.id, flush=True)
"""


def test_what_was_acknowledged_survives_a_kill(shard_url: str) -> None:
    acknowledged: list[list[str]] = []
    for lines in (1, 7, 30):
        command = [sys.executable, "-c", WRITER, shard_url]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            acknowledged += [writer.stdout.readline().split() for _ in range(lines)]
            writer.kill()
            acknowledged += [line.split() for line in writer.stdout if line.endswith("\n")]
    with MemoryStore(shard_url) as store, store.read() as reading:
        living = reading.ids(ALICE, 10_000)
        for one, two, three in acknowledged:
            assert one in living
            assert two in living
            assert three not in living
        entries = [row.memory_id for row in reading.history(ACME, ALICE, None, 10_000)]
        dead = reading.buried(ACME, entries)
    assert len(entries) == len(set(entries)) == len(living) + len(dead)


def test_stamps_go_on_rising_when_the_store_is_opened_again(shard_url: str) -> None:
    with MemoryStore(shard_url) as store:
        (first,) = add(store, memory())
        (grave,) = delete(store, first.memory.id)
    with MemoryStore(shard_url) as store:
        (second,) = add(store, memory())
    assert first.commit_stamp < grave < second.commit_stamp
