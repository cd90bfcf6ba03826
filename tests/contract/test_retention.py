"""How long the past is kept: History goes where its tenant says so, and what is kept is as it was."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from scrubjay import v1
from scrubjay.errors import (
    EtagMismatch,
    HistoryForgotten,
    InvalidField,
    MemoryDeleted,
    MemoryExists,
    MemoryNotFound,
    StorageUnavailable,
)
from scrubjay.memory import MemoryId, Micros
from scrubjay.stamp import COUNTER_BITS, CommitStamp
from server.collection import Collector
from server.past import read_past
from server.shard import sync
from tenants.retention import Retention
from tenants.tenant import Incarnation, Tenant, TenantState
from tests.devices import ACME, DAY, KEY, Server
from tests.life import Life

NEVER = threading.Event()
RIVAL = Incarnation("33333333-3333-4333-8333-333333333333")


def collector(server: Server, *tenants: Tenant, tombstone_days: int = 90) -> Collector:
    return Collector([server.shard], tombstone_days, lambda: server.now, lambda: tenants)


def keeping(incarnation: Incarnation = ACME, **days: int) -> Tenant:
    retention = Retention(**days)
    return Tenant("acme", "", incarnation, TenantState.ACTIVE, "main", "", Micros(0), retention=retention)


def add(server: Server, *contents: str, **fields: object) -> list[v1.Memory]:
    memories = [v1.Memory(user_id="alice", content=content, **fields) for content in contents]  # type: ignore[arg-type]  # by name
    return [
        one.memory for one in server.memories.add(v1.AddRequest(memories=memories), server.service()).results
    ]


def edit(server: Server, memory: v1.Memory, content: str, etag: str = "") -> v1.Memory:
    request = v1.UpdateRequest(
        memory=v1.Memory(id=memory.id, content=content), update_mask=FieldMask(paths=["content"]), etag=etag
    )
    return server.memories.update(request, server.service()).memory


def delete(server: Server, memory: v1.Memory) -> None:
    server.memories.delete(v1.DeleteRequest(id=memory.id), server.service())


def history(server: Server, memory: v1.Memory) -> list[v1.HistoryEntry]:
    return list(server.memories.history(v1.HistoryRequest(memory_id=memory.id), server.service()).entries)


def found(server: Server, as_of: Micros) -> set[str]:
    request = v1.SearchRequest(user_id="alice", query="tea", top_k=50)
    request.as_of.FromMicroseconds(as_of)
    answer = v1.SearchResponse.FromString(server.memories.search(request, server.service()))
    return {hit.memory.content for hit in answer.hits}


# --- what is forgotten, and what is not -----------------------------------------------------------


def test_history_goes_when_its_days_have_passed_and_what_lives_stays_as_it_is(server: Server) -> None:
    old, late = add(server, "old tea", "late tea")
    edited = edit(server, old, "older tea")
    server.wait(10 * DAY // 1_000_000)
    late = edit(server, late, "later tea")
    server.wait(1)
    duty = collector(server, keeping(history_days=11))
    duty.run(NEVER)
    assert [len(history(server, one)) for one in (old, late)] == [2, 2]
    collector(server, keeping(history_days=5)).run(NEVER)
    assert history(server, old) == []
    assert [entry.kind for entry in history(server, late)] == [v1.OPERATION_KIND_SET]
    for memory in (edited, late):
        answer = server.memories.get(v1.GetRequest(id=memory.id), server.service())
        got = v1.GetResponse.FromString(answer).memory if isinstance(answer, bytes) else answer.memory
        assert got == memory
    with pytest.raises(EtagMismatch):
        edit(server, old, "lost", etag=old.etag)
    assert edit(server, old, "newest tea", etag=edited.etag).content == "newest tea"


def test_only_a_tenant_that_says_so_loses_history(server: Server) -> None:
    (kept,) = add(server, "tea")
    server.wait(100 * DAY // 1_000_000)
    collector(server, keeping(tombstone_days=3)).run(NEVER)
    collector(server, keeping(RIVAL, history_days=1)).run(NEVER)
    assert len(history(server, kept)) == 1
    with server.store.read() as reading:
        assert reading.history_horizon(KEY) == 0


def test_a_deleted_memory_that_is_forgotten_is_none_and_its_id_stays_taken(server: Server) -> None:
    gone, _ = add(server, "tea", "more tea")
    delete(server, gone)
    with pytest.raises(MemoryDeleted):
        server.memories.get(v1.GetRequest(id=gone.id), server.service())
    server.wait(10 * DAY // 1_000_000)
    collector(server, keeping(history_days=5)).run(NEVER)
    for call in (
        lambda: server.memories.get(v1.GetRequest(id=gone.id), server.service()),
        lambda: server.memories.restore(v1.RestoreRequest(memory_id=gone.id), server.service()),
        lambda: history(server, gone),
    ):
        with pytest.raises(MemoryNotFound):
            call()
    again = v1.AddRequest(memories=[v1.Memory(id=gone.id, user_id="alice", content="tea again")])
    with pytest.raises(MemoryExists):
        server.memories.add(again, server.service())


def test_a_time_before_what_is_kept_is_out_of_range_and_a_later_one_as_before(server: Server) -> None:
    memory, other = add(server, "tea", "tea with milk")
    first = server.now
    server.wait(3600)
    edit(server, memory, "green tea")
    operation = history(server, memory)[0].operation_id
    server.wait(10 * DAY // 1_000_000)
    second = server.now
    assert found(server, second) == {"green tea", "tea with milk"}
    server.wait(3600)
    edit(server, memory, "black tea")
    delete(server, other)
    collector(server, keeping(history_days=5)).run(NEVER)
    assert found(server, second) == {"green tea", "tea with milk"}
    assert found(server, server.now) == {"black tea"}
    with pytest.raises(HistoryForgotten):
        found(server, first)
    undo = v1.RestoreRequest(memory_id=memory.id, operation_id=operation)
    with pytest.raises(HistoryForgotten):
        server.memories.restore(undo, server.service())
    newest = history(server, memory)[0].operation_id
    undo.operation_id = newest
    assert server.memories.restore(undo, server.service()).memory.content == "green tea"
    undo.operation_id = newest[:-4] + "ffff"
    with pytest.raises(InvalidField):
        server.memories.restore(undo, server.service())


def known(past: object) -> dict[MemoryId, v1.Memory]:
    """The memories, but for when they were changed last."""
    found = {}
    for change in past.changes:  # type: ignore[attr-defined]  # a Past
        memory = found[change.memory_id] = v1.Memory.FromString(change.message or b"")
        memory.ClearField("etag")
        memory.ClearField("updated_at")
    return found


@pytest.mark.parametrize("seed", range(2))
def test_every_moment_that_is_kept_is_what_it_was(
    server: Server, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync, "OPERATIONS_AT_ONCE", 7)
    life, stamps = Life(server, random.Random(seed)), list[CommitStamp]()
    for _ in range(60):
        life.step()
        with server.store.read() as reading:
            stamps.append(reading.newest_operation(KEY))
        life.wait()
    space = server.embedder.space.id

    def past(stamp: CommitStamp) -> tuple[dict[MemoryId, v1.Memory], object]:
        with server.store.read() as reading:
            seen = read_past(reading, KEY, stamp, space)
        return known(seen), seen.confined

    before = {stamp: past(stamp) for stamp in stamps}
    for limit in (stamps[20], stamps[40]):
        count = server.shard.forget_history(ACME, limit, lambda: False)
        assert count > 5
        with server.store.read() as reading:
            assert reading.history_horizon(KEY) == limit
            assert reading.history(ACME, KEY, CommitStamp(limit + 1), 10) == []
        for stamp in stamps:
            if stamp < limit:
                with pytest.raises(HistoryForgotten):
                    past(stamp)
            else:
                memories, confined = past(stamp)
                assert memories == before[stamp][0]
                assert confined == before[stamp][1]
        assert server.shard.forget_history(ACME, limit, lambda: False) == 0


def test_it_may_be_stopped_anywhere_and_goes_on(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync, "OPERATIONS_AT_ONCE", 2)
    add(server, *(f"tea {n}" for n in range(7)))
    limit = CommitStamp((server.now + 1_000_000) // 1000 << COUNTER_BITS)
    asked = iter([False, False, True])
    assert server.shard.forget_history(ACME, limit, lambda: next(asked)) == 4
    with server.store.read() as reading:
        assert len(reading.history(ACME, KEY, None, 100)) == 3
    assert server.shard.forget_history(ACME, limit, lambda: False) == 3


def test_a_tenant_whose_shard_does_not_answer_holds_up_no_other(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    (memory,) = add(server, "tea")
    server.wait(10 * DAY // 1_000_000)
    forget = server.shard.forget_history

    def failing(incarnation: Incarnation, limit: CommitStamp, ending: Callable[[], bool]) -> int:
        if incarnation == RIVAL:
            raise StorageUnavailable
        return forget(incarnation, limit, ending)

    monkeypatch.setattr(server.shard, "forget_history", failing)
    collector(server, keeping(RIVAL, history_days=1), keeping(history_days=1)).run(NEVER)
    assert history(server, memory) == []


# --- tombstones -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("own", "told"), [(0, 90), (5, 5), (200, 200)])
def test_a_tenants_own_days_of_tombstones_stand_for_the_servers(server: Server, own: int, told: int) -> None:
    (gone,) = add(server, "tea")
    delete(server, gone)
    began = server.now

    def collected(days: float) -> bool:
        server.now = Micros(began + int(days * DAY))
        tenants = [keeping(tombstone_days=own)] if own else []
        return bool(collector(server, *tenants).run(NEVER))

    assert not collected(told - 0.5)
    assert collected(told + 0.5)
    assert not collected(told + 0.5)


def test_devices_come_to_the_same_where_history_is_shorter_than_tombstones(server: Server) -> None:
    phone, laptop = server.device("phone"), server.device("laptop")
    made, dead = phone.create("tea"), phone.create("coffee")
    phone.sync(made, dead)
    laptop.pull()
    phone.sync(phone.delete(dead.memory_id))
    server.wait(10 * DAY // 1_000_000)
    collector(server, keeping(history_days=1)).run(NEVER)
    late = laptop.set(dead.memory_id, {"content": "late"}), laptop.set(made.memory_id, {"category": "TASK"})
    assert laptop.sync(*late).statuses == ["GONE", "APPLIED_CONCURRENT"]
    assert [(told.memory_id, told.change.memory.category) for told in phone.pull()][-1:] == [
        (made.memory_id, "TASK")
    ]
