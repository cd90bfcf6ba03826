"""Memories in a store: what the store's tests write, and how."""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from typing import Any

from scrubjay.memory import DEFAULT_SCOPE, ClientId, Memory, MemoryId, Micros, new_memory_id
from scrubjay.merge import Outcome, create, registers
from scrubjay.operation import OperationKind
from scrubjay.stamp import CommitStamp, ReplicaId, Stamp
from server.store.history import HistoryChange, HistoryRow
from server.store.memory_store import Grave, MemoryStore, StoredMemory, StreamKey, Writing
from tenants.tenant import Incarnation

ACME = Incarnation("11111111-1111-4111-8111-111111111111")
GLOBEX = Incarnation("22222222-2222-4222-8222-222222222222")
ALICE = StreamKey(ACME, "user:alice")
BOB = StreamKey(ACME, "user:bob")
REPLICA = ReplicaId(b"r" * 16)
SPACE = "test/3"
VECTOR = b"\0\0\0\x40\1\2\3"
NOW = Micros(1_796_000_000_000_000)
NOW_MILLIS = NOW // 1000


def memory(content: str = "Likes tea.", **fields: Any) -> Memory:
    """A memory of alice with a new id."""
    given = {"id": new_id(), "created_at": NOW, "user_id": "alice", "owner_client_id": ClientId("web")}
    return Memory(content=content, **{**given, **fields})


def new_id() -> MemoryId:
    """A memory's id that was never used."""
    return new_memory_id(NOW_MILLIS, os.urandom(10))


def stored(one: Memory, commit_stamp: CommitStamp) -> StoredMemory:
    """The memory as a create at ``commit_stamp`` stores it."""
    return StoredMemory.of(create(one, Stamp(commit_stamp, REPLICA)), commit_stamp)


def entry(
    memory_id: MemoryId, commit_stamp: CommitStamp, kind: OperationKind, changes: Sequence[HistoryChange] = ()
) -> HistoryRow:
    """An operation that was applied."""
    return HistoryRow(
        operation_id=str(uuid.uuid4()),
        memory_id=memory_id,
        commit_stamp=commit_stamp,
        kind=kind,
        changes=tuple(changes),
        client_id=ClientId("web"),
        replica_id=REPLICA,
        actor="key-1",
        role="SERVICE",
        outcome=Outcome.APPLIED,
        claimed_at=NOW,
        private_to=ClientId(""),
    )


def insert(writing: Writing, key: StreamKey, memories: Sequence[Memory]) -> list[StoredMemory]:
    """Store memories with their history and vectors."""
    stamps = writing.stamps(key, len(memories), NOW_MILLIS)
    rows = [stored(one, stamp) for one, stamp in zip(memories, stamps, strict=True)]
    writing.insert(key, rows)
    writing.put_vectors(key, SPACE, [(r.memory.id, r.state.stamps["content"], VECTOR) for r in rows])
    writing.add_history(key, [_created(row) for row in rows])
    return rows


def _created(row: StoredMemory) -> HistoryRow:
    stamp = Stamp(row.commit_stamp, REPLICA)
    changes = [HistoryChange(f, None, v, stamp, None, Outcome.APPLIED) for f, v in registers(row.memory)]
    return entry(row.memory.id, row.commit_stamp, OperationKind.CREATE, changes)


def add(store: MemoryStore, *memories: Memory, key: StreamKey = ALICE) -> list[StoredMemory]:
    """Store memories in a write of their own."""
    return store.write([key], lambda writing: insert(writing, key, memories))


def grave(memory_id: MemoryId, commit_stamp: CommitStamp) -> Grave:
    """The grave of a memory that all saw."""
    return Grave(memory_id, commit_stamp, Stamp(commit_stamp, REPLICA), ClientId(""), DEFAULT_SCOPE)


def delete(store: MemoryStore, *ids: MemoryId, key: StreamKey = ALICE) -> list[CommitStamp]:
    """Bury memories in a write of their own."""

    def unit(writing: Writing) -> list[CommitStamp]:
        stamps = writing.stamps(key, len(ids), NOW_MILLIS)
        writing.bury(key, [grave(i, s) for i, s in zip(ids, stamps, strict=True)])
        return stamps

    return store.write([key], unit)
