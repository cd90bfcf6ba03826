"""What the store keeps for sync, on both databases."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from scrubjay import v1
from scrubjay.errors import Unavailable
from scrubjay.memory import ClientId, JsonValue, Micros, PrivacyLevel, Viewer
from scrubjay.merge import Write, apply
from scrubjay.operation import OperationId
from scrubjay.stamp import CommitStamp, ReplicaId, Stamp
from server.collection import Collector
from server.heads import HeadMarks, WentBack, forget_marks
from server.periodic import Periodic
from server.shard import Shard
from server.store.collection import collect
from server.store.memory_store import MemoryStore, Retraction, StoredMemory, StreamKey, Writing
from server.store.replicas import AccessCount, AccessTotal, ReplicaMark, SavedOperation, WaitingOperation
from server.store.rows import CREATED, Grave, may_hear
from tests.stored import (
    ACME,
    ALICE,
    BOB,
    GLOBEX,
    NOW,
    NOW_MILLIS,
    REPLICA,
    SPACE,
    add,
    delete,
    memory,
    new_id,
)

START = CommitStamp(0)
OTHER = ReplicaId(b"o" * 16)
PRIVATE, SHARED = PrivacyLevel.PRIVATE, PrivacyLevel.SHARED


@pytest.fixture
def store(shard_url: str) -> Iterator[MemoryStore]:
    before = threading.active_count()
    with MemoryStore(shard_url) as store:
        yield store
    assert threading.active_count() <= before


def edit(store: MemoryStore, before: StoredMemory, values: dict[str, JsonValue]) -> StoredMemory:
    """Write registers of a memory, as its owner."""

    def unit(writing: Writing) -> StoredMemory:
        (commit_stamp,) = writing.stamps(ALICE, 1, NOW_MILLIS)
        stamp = Stamp(commit_stamp, REPLICA)
        state, _ = apply(
            before.state, [Write(name, value, stamp, None) for name, value in values.items()], ClientId("web")
        )
        after = before.edited(state, commit_stamp)
        writing.replace(ALICE, before, after)
        return after

    return store.write([ALICE], unit)


# --- registers and their commits ------------------------------------------------------------------


def test_a_memory_knows_which_commit_wrote_each_register(store: MemoryStore) -> None:
    (made,) = add(store, memory(tags=frozenset({"a"})))
    second = edit(store, made, {"content": "coffee", "tags.a": None})
    third = edit(store, second, {"content": "milk"})
    assert made.field_commits == {CREATED: made.commit_stamp}
    with store.read() as reading:
        assert reading.get(ACME, made.memory.id) == third
        (row,) = reading.living_after(ALICE, made.commit_stamp, 10)
    assert third.field_commits == {
        CREATED: made.commit_stamp,
        "content": third.commit_stamp,
        "tags.a": second.commit_stamp,
    }
    assert (row.message, row.commit_stamp, row.privacy_level) == (third.message, third.commit_stamp, SHARED)


# --- who may hear of what -------------------------------------------------------------------------

PHONE, BADGE = Viewer(ClientId("phone")), Viewer(ClientId("phone"), ("work",))


@pytest.mark.parametrize(
    ("viewer", "private_to", "scope", "heard"),
    [
        (PHONE, "", "home", True),
        (PHONE, "phone", "home", True),
        (PHONE, "web", "home", False),
        (BADGE, "", "home", False),
        (BADGE, "", "work/a", True),
        (BADGE, "", "", True),
        (BADGE, "web", "", False),
    ],
)
def test_who_may_hear(viewer: Viewer, private_to: str, scope: str, heard: bool) -> None:
    assert may_hear(viewer, ClientId(private_to), scope) is heard


def test_a_grave_says_who_may_hear_of_it(store: MemoryStore) -> None:
    shared, secret = add(store, memory(scope="work"), memory(privacy_level=PRIVATE))

    def unit(writing: Writing) -> list[Grave]:
        stamps = writing.stamps(ALICE, 2, NOW_MILLIS)
        graves = [
            Grave.of(one.memory, stamp, Stamp(stamp, REPLICA))
            for one, stamp in zip((shared, secret), stamps, strict=True)
        ]
        writing.bury(ALICE, graves)
        return graves

    graves = store.write([ALICE], unit)
    with store.read() as reading:
        assert reading.graves_after(ALICE, START, 10) == graves
        assert reading.graves_after(ALICE, graves[0].commit_stamp, 10) == graves[1:]
        assert reading.graves_after(BOB, START, 10) == []
        assert reading.graves(ACME, [shared.memory.id]) == {shared.memory.id: (ALICE.stream, graves[0])}
        assert reading.graves(GLOBEX, [shared.memory.id]) == {}
    assert [(one.private_to, one.scope) for one in graves] == [("", "work"), ("web", "general")]


def test_a_replacement_is_taken_back_from_whom_it_is_hidden(store: MemoryStore) -> None:
    (one,) = add(store, memory(scope="a"))

    def back(**values: JsonValue) -> list[tuple[str, str]]:
        nonlocal one
        one = edit(store, one, dict(values))
        with store.read() as reading:
            found = reading.retractions_after(ALICE, CommitStamp(one.commit_stamp - 1), 10)
        assert {entry.memory_id for entry in found} <= {one.memory.id}
        return [(entry.private_to, entry.scope) for entry in found]

    assert back(content="x") == []
    assert back(privacy_level=int(PRIVATE)) == [("", "a")]
    assert back(privacy_level=int(PRIVATE), content="y") == []
    assert back(scope="b") == [("web", "a")]
    assert back(privacy_level=int(SHARED)) == []
    assert back(scope="a") == [("", "b")]
    assert back(scope="a", privacy_level=int(PRIVATE)) == [("", "a")]
    with store.read() as reading:
        every = reading.retractions_after(ALICE, START, 10)
        of_memory = reading.retractions_of(ALICE, [one.memory.id])
        assert reading.retractions_of(BOB, [one.memory.id]) == []
    assert sorted(of_memory, key=lambda entry: entry.commit_stamp) == every
    assert len(every) == 3
    assert every[-1] == Retraction(one.memory.id, one.commit_stamp, ClientId(""), "a")


# --- epochs ---------------------------------------------------------------------------------------


def test_a_stream_has_the_epoch_of_when_it_was_made(store: MemoryStore) -> None:
    add(store, memory())
    store.write([BOB], lambda writing: writing.stamps(BOB, 1, NOW_MILLIS + 7))
    with store.read() as reading:
        alice, bob = reading.head(ALICE), reading.head(BOB)
        assert reading.streams(None, 10) == [ALICE, BOB]
        assert reading.streams(ALICE, 10) == [BOB]
        assert bob is not None
        assert reading.highest_head() == bob.head
    assert alice is not None
    assert (alice.epoch, bob.epoch) == (NOW_MILLIS, NOW_MILLIS + 7)


def test_a_restored_database_begins_new_epochs(store: MemoryStore) -> None:
    keys = [StreamKey(ACME, f"user:{n}") for n in range(7)]
    for key in keys:
        store.write([key], lambda writing, key=key: writing.stamps(key, 1, NOW_MILLIS))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("server.store.memory_store.EPOCHS_AT_ONCE", 3)
        assert store.begin_epochs(NOW_MILLIS - 5) == 7
        assert store.begin_epochs(NOW_MILLIS + 5) == 7
    with store.read() as reading:
        heads = [reading.head(key) for key in keys]
    assert {(head.epoch, head.head) for head in heads if head} == {(NOW_MILLIS + 5, NOW_MILLIS << 16)}
    assert store.begin_epochs(0) == 7
    with store.read() as reading:
        head = reading.head(keys[0])
    assert head is not None
    assert head.epoch == NOW_MILLIS + 6


# --- replicas and operations ----------------------------------------------------------------------


def test_a_replicas_mark_is_kept_and_moves(store: MemoryStore) -> None:
    for number in (1, 5):
        mark = ReplicaMark(ClientId("phone"), number, bytes([number]) * 16)
        store.write(
            [ALICE], lambda writing, mark=mark: writing.save_replica(ALICE, REPLICA, mark, Micros(NOW))
        )
    with store.read() as reading:
        assert reading.replica(ALICE, REPLICA) == mark
        assert reading.replica(BOB, REPLICA) is None
        assert reading.replica(ALICE, OTHER) is None


def saved(commit_stamp: int, status: int = 1) -> SavedOperation:
    result = v1.OperationResult(status=v1.OperationStatus.ValueType(status), commit_stamp=commit_stamp)
    return SavedOperation(
        OperationId(new_id()), CommitStamp(commit_stamp), status, result.SerializeToString()
    )


def test_results_of_operations_are_kept_and_may_be_resolved(store: MemoryStore) -> None:
    first, second = saved(1), saved(2, 8)
    store.write([ALICE], lambda writing: writing.save_operations(ALICE, [first, second]))
    end = SavedOperation(second.operation_id, CommitStamp(9), 1, b"end")
    store.write([ALICE], lambda writing: writing.resolve_operations(ALICE, [end]))
    ids = [first.operation_id, second.operation_id, OperationId(new_id())]
    with store.read() as reading:
        found = reading.operation_results(ACME, ids)
        assert reading.operation_results(GLOBEX, ids) == {}
        assert reading.operation_results(ACME, []) == {}
    assert found == {
        first.operation_id: (ALICE.stream, first.result),
        second.operation_id: (ALICE.stream, b"end"),
    }


def test_an_operation_that_another_server_stored_first_is_tried_again(store: MemoryStore) -> None:
    one, attempts = saved(1), 0
    store.write([BOB], lambda writing: writing.save_operations(BOB, [one]))

    def unit(writing: Writing) -> None:
        nonlocal attempts
        attempts += 1
        writing.save_operations(ALICE, [one])

    with pytest.raises(Unavailable, match="retry"):
        store.write([ALICE], unit)
    assert attempts > 1


def waits(memory_id: str, commit_stamp: int, vector: bytes | None = b"v") -> WaitingOperation:
    return WaitingOperation(
        memory_id=memory_id,  # type: ignore[arg-type]  # a memory's id, by its callers
        operation_id=OperationId(new_id()),
        commit_stamp=CommitStamp(commit_stamp),
        client_id=ClientId("phone"),
        scopes=("work", "home/garden"),
        actor="key",
        role="DEVICE",
        replica_id=REPLICA,
        spell="ab-1",
        operation=b"encoded",
        vector=vector,
    )


def test_operations_wait_for_their_memory_in_order(store: MemoryStore) -> None:
    one, other = new_id(), new_id()
    pending = [waits(one, 3), waits(one, 1, None), waits(other, 2)]
    store.write([ALICE], lambda writing: writing.wait(ALICE, pending))
    with store.read() as reading:
        assert reading.waiting(ALICE, [one, other]) == [pending[1], pending[2], pending[0]]
        assert reading.waiting(BOB, [one]) == reading.waiting(ALICE, []) == []
    store.write([ALICE], lambda writing: writing.end_waiting(ALICE, [one]))
    with store.read() as reading:
        assert reading.waiting(ALICE, [one, other]) == [pending[2]]


# --- access counts --------------------------------------------------------------------------------


def count(store: MemoryStore, replica: ReplicaId, *totals: AccessTotal) -> list[CommitStamp]:
    def unit(writing: Writing) -> list[CommitStamp]:
        lane = writing.lane_stamps(ALICE, len(totals), NOW_MILLIS)
        writing.put_access_totals(ALICE, replica, list(zip(totals, lane, strict=True)))
        return lane

    return store.write([ALICE], unit)


def test_counts_are_sums_in_a_lane_of_their_own(store: MemoryStore) -> None:
    one, other = (row.memory.id for row in add(store, memory(), memory()))
    first = count(store, REPLICA, AccessTotal(one, 3, Micros(5)), AccessTotal(other, 1, Micros(1)))
    (second,) = count(store, OTHER, AccessTotal(one, 4, Micros(2)))
    with store.read() as reading:
        head = reading.head(ALICE)
        assert reading.access_counts(ALICE, START, 10) == [
            AccessCount(other, 1, Micros(1), first[1]),
            AccessCount(one, 7, Micros(5), second),
        ]
        assert reading.access_counts(ALICE, START, 1) == [AccessCount(other, 1, Micros(1), first[1])]
        assert reading.access_counts(ALICE, first[1], 10) == [AccessCount(one, 7, Micros(5), second)]
        assert reading.access_counts(ALICE, second, 10) == []
        assert reading.access_totals(ALICE, OTHER, [one, other]) == {one: AccessTotal(one, 4, Micros(2))}
        changes = reading.changes(ALICE, START, SPACE, 10)
    assert head is not None
    assert head.counts_head == second
    assert head.head == changes[-1].commit_stamp
    delete(store, one)
    with store.read() as reading:
        assert [entry.memory_id for entry in reading.access_counts(ALICE, START, 10)] == [other]


# --- collection -----------------------------------------------------------------------------------


def test_collection_forgets_what_is_old_and_never_a_dead_id(store: MemoryStore) -> None:
    secret, moved, kept = add(store, memory(privacy_level=PRIVATE), memory(), memory())
    hidden = edit(store, moved, {"privacy_level": int(PRIVATE)}).commit_stamp

    def bury(row: StoredMemory) -> CommitStamp:
        def unit(writing: Writing) -> CommitStamp:
            (stamp,) = writing.stamps(ALICE, 1, NOW_MILLIS)
            writing.bury(ALICE, [Grave.of(row.memory, stamp, Stamp(stamp, REPLICA))])
            writing.save_operations(ALICE, [saved(stamp)])
            writing.wait(ALICE, [waits(unknown, stamp)])
            return stamp

        return store.write([ALICE], unit)

    unknown = new_id()
    old, young = bury(secret), bury(kept)
    with store.read() as reading:
        assert reading.collectable(CommitStamp(hidden - 1)) == []
        assert reading.collectable(old) == [ALICE]
    assert not store.write([ALICE], lambda writing: collect(writing, ALICE, CommitStamp(hidden - 1)))
    assert store.write([ALICE], lambda writing: collect(writing, ALICE, old))
    assert not store.write([ALICE], lambda writing: collect(writing, ALICE, old))
    with store.read() as reading:
        head = reading.head(ALICE)
        graves = reading.graves_after(ALICE, START, 10)
        assert reading.collectable(old) == []
        assert reading.retractions_after(ALICE, START, 10) == []
        assert [one.commit_stamp for one in reading.waiting(ALICE, [unknown])] == [young]
        assert reading.buried(ACME, [secret.memory.id, kept.memory.id]).keys() == {
            secret.memory.id,
            kept.memory.id,
        }
    assert head is not None
    assert (head.horizon, head.head) == (old, young)
    assert [(one.private_to, one.scope) for one in graves] == [("", ""), ("", "general")]


def test_a_stream_in_which_nothing_was_deleted_forgets_old_operations_too(store: MemoryStore) -> None:
    (row,) = add(store, memory())
    one = saved(row.commit_stamp)
    store.write([ALICE], lambda writing: writing.save_operations(ALICE, [one]))
    assert store.write([ALICE], lambda writing: collect(writing, ALICE, row.commit_stamp))
    with store.read() as reading:
        assert reading.operation_results(ACME, [one.operation_id]) == {}
        head = reading.head(ALICE)
    assert head is not None
    assert head.horizon == row.commit_stamp


class NoCache:
    """A cache that hears of commits and keeps nothing."""

    def note(self, key: StreamKey, head: CommitStamp) -> None: ...


def shard(store: MemoryStore) -> Shard:
    return Shard("shard-0", store, NoCache())  # type: ignore[arg-type]  # it is only told of commits


def test_the_collector_keeps_the_days_it_was_told(store: MemoryStore) -> None:
    (row,) = add(store, memory())
    delete(store, row.memory.id)
    day = 24 * 3600 * 1_000_000
    never = threading.Event()
    for days, count in ((90, 0), (89, 1), (89, 0)):
        collector = Collector([shard(store)], days, lambda: Micros(NOW + 90 * day - 1))
        assert collector.run(never) == count
    ending = threading.Event()
    ending.set()
    (row,) = add(store, memory(), key=BOB)
    delete(store, row.memory.id, key=BOB)
    assert Collector([shard(store)], 1, lambda: Micros(NOW + 90 * day)).run(ending) == 0


# --- beside the calls -----------------------------------------------------------------------------


def test_periodic_work_goes_on_after_a_failure_and_ends_at_once(caplog: pytest.LogCaptureFixture) -> None:
    done = threading.Event()
    runs: list[int] = []

    def work(ending: threading.Event) -> None:
        runs.append(1)
        if len(runs) == 1:
            raise ArithmeticError("once")
        done.set()
        assert ending.wait(20)

    periodic = Periodic("test", 0.001, work)
    assert done.wait(20)
    began = time.monotonic()
    periodic.close()
    periodic.close()
    assert time.monotonic() - began < 5
    assert "test failed" in caplog.text


def test_a_database_that_went_back_is_noticed_until_it_is_said(store: MemoryStore, tmp_path: Path) -> None:
    add(store, memory())
    one = shard(store)
    marks = HeadMarks(tmp_path, {"shard-0": one})
    marks.write()
    assert HeadMarks(tmp_path, {"shard-0": shard(store)}) is not None
    store.write([ALICE], lambda writing: writing.stamps(ALICE, 1, NOW_MILLIS + 1))
    one.highest_head()
    written = (tmp_path / "heads.json").stat().st_ino
    marks.write()
    assert (tmp_path / "heads.json").stat().st_ino != written
    (tmp_path / "heads.json").write_text(f'{{"shard-0": {one.highest + 1}}}')
    with pytest.raises(WentBack, match="python -m server restored"):
        HeadMarks(tmp_path, {"shard-0": shard(store)})
    forget_marks(tmp_path)
    HeadMarks(tmp_path, {"shard-0": shard(store)}).write()
    (tmp_path / "heads.json").write_text("damaged")
    HeadMarks(tmp_path, {"shard-0": shard(store)})
