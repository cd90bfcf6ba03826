"""What a shard remembers of replicas: how far each came, what became of their operations, which of those
wait for their memory, and how often each looked at what."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Table, and_, bindparam, func, select

from scrubjay.memory import ClientId, MemoryId, Micros
from scrubjay.operation import OperationId
from scrubjay.stamp import CommitStamp, ReplicaId
from server.store.lookups import AMONG, ids_value
from server.store.rows import StreamKey
from server.store.tables import access_counts, operations, replicas, streams, waiting
from server.store.transaction import Row, Transaction
from tenants.tenant import Incarnation


@dataclass(frozen=True, slots=True)
class ReplicaMark:
    """How far a replica came: the number of its last answered operation, and its chain behind that."""

    client_id: ClientId
    number: int
    chain: bytes


@dataclass(frozen=True, slots=True)
class SavedOperation:
    """What became of an operation; ``result`` is an encoded ``v1.OperationResult`` of that ``status``."""

    operation_id: OperationId
    commit_stamp: CommitStamp
    status: int
    result: bytes


@dataclass(frozen=True, slots=True)
class WaitingOperation:
    """A SET that waits for its memory's create, and whose it is.

    ``operation`` is encoded as its replica would send it, with its id; ``vector`` is its new content's,
    of the ``space``.
    """

    memory_id: MemoryId
    operation_id: OperationId
    commit_stamp: CommitStamp
    client_id: ClientId
    scopes: tuple[str, ...]
    actor: str
    role: str
    replica_id: ReplicaId
    spell: str
    operation: bytes
    vector: bytes | None
    space: str = ""


@dataclass(frozen=True, slots=True)
class AccessTotal:
    """How often one replica's user looked at a memory in all, and when last."""

    memory_id: MemoryId
    total: int
    last_access_at: Micros


@dataclass(frozen=True, slots=True)
class AccessCount:
    """How often a memory was looked at over all replicas, and its place in the lane of counts."""

    memory_id: MemoryId
    count: int
    last_access_at: Micros
    lane_stamp: CommitStamp


SCOPE_SEPARATOR = "\n"


class ReplicaReading:
    """What can be read of replicas; a part of ``Reading``."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._replica_lookups = _LOOKUPS[transaction.dialect_name]

    def replica(self, key: StreamKey, replica_id: ReplicaId) -> ReplicaMark | None:
        """How far a replica came; None for one that never sent an operation."""
        row = self._transaction.first(_REPLICA, _in_stream(key) | {"replica_id": replica_id})
        return None if row is None else ReplicaMark(*row)

    def operation_results(
        self, incarnation: Incarnation, ids: Collection[OperationId]
    ) -> dict[OperationId, tuple[str, bytes]]:
        """What became of those of the operations that are known: their streams and encoded results."""
        if not ids:
            return {}
        values = {"incarnation": incarnation, "ids": ids_value(self._transaction.dialect_name, ids)}
        rows = self._transaction.all(self._replica_lookups.results, values)
        return {row[0]: (row[1], row[2]) for row in rows}

    def waiting(self, key: StreamKey, ids: Collection[MemoryId]) -> list[WaitingOperation]:
        """The operations that wait for these memories, in commit-stamp order."""
        if not ids:
            return []
        values = _in_stream(key) | {"ids": ids_value(self._transaction.dialect_name, ids)}
        return [to_waiting(row) for row in self._transaction.all(self._replica_lookups.waiting, values)]

    def access_totals(
        self, key: StreamKey, replica_id: ReplicaId, ids: Collection[MemoryId]
    ) -> dict[MemoryId, AccessTotal]:
        """One replica's totals of these memories, where it has one."""
        values = _in_stream(key) | {
            "replica_id": replica_id,
            "ids": ids_value(self._transaction.dialect_name, ids),
        }
        rows = self._transaction.all(self._replica_lookups.totals, values)
        return {row[0]: AccessTotal(*row) for row in rows}

    def counts_heads(self, incarnation: Incarnation, stream: str | None = None) -> dict[str, CommitStamp]:
        """The last stamp in the lane of counts of each stream of a tenant, or of the one named, that has
        any."""
        values: dict[str, Any] = {"incarnation": incarnation, "never": 0}
        if stream is None:
            return dict(self._transaction.all(_COUNTS_HEADS, values))
        return dict(self._transaction.all(_COUNTS_HEAD, values | {"stream": stream}))

    def access_counts(self, key: StreamKey, after: CommitStamp, limit: int) -> list[AccessCount]:
        """At most ``limit`` counts that changed behind ``after``, in the order of the lane."""
        values = _in_stream(key) | {"after": after, "limit": limit}
        return [
            AccessCount(memory_id, int(count), last_access_at, lane_stamp)
            for memory_id, count, last_access_at, lane_stamp in self._transaction.all(_COUNTS, values)
        ]


def to_waiting(row: Row) -> WaitingOperation:
    """A row of the columns of WaitingOperation as a value."""
    values = list(row)
    values[4] = tuple(values[4].split(SCOPE_SEPARATOR)) if values[4] else ()
    return WaitingOperation(*values)


def _in_stream(key: StreamKey) -> dict[str, Any]:
    return {"incarnation": key.incarnation, "stream": key.stream}


def _of_stream(table: Table) -> ColumnElement[bool]:
    return and_(table.c.incarnation == bindparam("incarnation"), table.c.stream == bindparam("stream"))


_REPLICA = select(replicas.c.client_id, replicas.c.number, replicas.c.chain).where(
    _of_stream(replicas), replicas.c.replica_id == bindparam("replica_id")
)
_COUNTS_HEADS = select(streams.c.stream, streams.c.counts_head).where(
    streams.c.incarnation == bindparam("incarnation"), streams.c.counts_head > bindparam("never")
)
_COUNTS_HEAD = _COUNTS_HEADS.where(streams.c.stream == bindparam("stream"))
_TOUCHED = select(access_counts.c.memory_id).where(
    _of_stream(access_counts), access_counts.c.lane_stamp > bindparam("after")
)
_COUNTS = (
    select(
        access_counts.c.memory_id,
        func.sum(access_counts.c.total),
        func.max(access_counts.c.last_access_at),
        func.max(access_counts.c.lane_stamp).label("latest"),
    )
    .where(_of_stream(access_counts), access_counts.c.memory_id.in_(_TOUCHED))
    .group_by(access_counts.c.memory_id)
    .order_by("latest")
    .limit(bindparam("limit"))
)


class _Lookups:
    def __init__(self, dialect_name: str) -> None:
        among = AMONG[dialect_name]
        self.results = select(operations.c.operation_id, operations.c.stream, operations.c.result).where(
            operations.c.incarnation == bindparam("incarnation"), among(operations.c.operation_id)
        )
        self.waiting = (
            select(
                *(
                    waiting.c[name]
                    for name in (
                        "memory_id",
                        "operation_id",
                        "commit_stamp",
                        "client_id",
                        "scopes",
                        "actor",
                        "role",
                        "replica_id",
                        "spell",
                        "operation",
                        "vector",
                        "space",
                    )
                )
            )
            .where(_of_stream(waiting), among(waiting.c.memory_id))
            .order_by(waiting.c.commit_stamp)
        )
        self.totals = select(
            access_counts.c.memory_id, access_counts.c.total, access_counts.c.last_access_at
        ).where(
            _of_stream(access_counts),
            access_counts.c.replica_id == bindparam("replica_id"),
            among(access_counts.c.memory_id),
        )


_LOOKUPS = {name: _Lookups(name) for name in AMONG}
