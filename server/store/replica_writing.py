"""Writes of what a shard remembers of replicas, and the forgetting of what is old."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import Insert, Table, and_, bindparam, delete, func, select, update
from sqlalchemy.dialects import postgresql, sqlite

from scrubjay.errors import Unavailable
from scrubjay.memory import MemoryId, Micros
from scrubjay.stamp import CommitStamp, ReplicaId
from server.store.replicas import (
    SCOPE_SEPARATOR,
    AccessTotal,
    ReplicaMark,
    SavedOperation,
    WaitingOperation,
)
from server.store.rows import StreamKey
from server.store.tables import (
    FORGOTTEN,
    access_counts,
    graveyard,
    operations,
    replicas,
    waiting,
)
from server.store.transaction import LostRace, Transaction


class ReplicaWriting:
    """What a unit may write about replicas of a stream that it named; a part of ``Writing``."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._replica_statements = _STATEMENTS[transaction.dialect_name]

    def save_replica(self, key: StreamKey, replica_id: ReplicaId, mark: ReplicaMark, now: Micros) -> None:
        """Remember how far a replica came."""
        row = {
            **_columns(key),
            "replica_id": replica_id,
            "client_id": mark.client_id,
            "number": mark.number,
            "chain": mark.chain,
            "seen_at": now,
        }
        self._transaction.run(self._replica_statements.save_replica, row)

    def save_operations(self, key: StreamKey, saved: Sequence[SavedOperation]) -> None:
        """Remember what became of operations that are not known yet."""
        rows = [{**_columns(key), **_saved(one)} for one in saved]
        if rows and self._transaction.run_many(self._replica_statements.save_operations, rows) != len(rows):
            raise LostRace(Unavailable("another server takes the same operations; retry"))

    def resolve_operations(self, key: StreamKey, saved: Sequence[SavedOperation]) -> None:
        """Remember what became in the end of operations that waited."""
        rows = [{**_of_row(key), **{f"new_{n}": v for n, v in _saved(one).items()}} for one in saved]
        if rows:
            self._transaction.run_many(_RESOLVE, rows)

    def wait(self, key: StreamKey, pending: Sequence[WaitingOperation]) -> None:
        """Keep operations until their memories are made."""
        rows = [
            {
                **_columns(key),
                "memory_id": one.memory_id,
                "operation_id": one.operation_id,
                "commit_stamp": one.commit_stamp,
                "client_id": one.client_id,
                "scopes": SCOPE_SEPARATOR.join(one.scopes),
                "actor": one.actor,
                "role": one.role,
                "replica_id": one.replica_id,
                "spell": one.spell,
                "operation": one.operation,
                "vector": one.vector,
                "space": one.space,
            }
            for one in pending
        ]
        if rows:
            self._transaction.run_many(_WAIT, rows)

    def end_waiting(self, key: StreamKey, ids: Collection[MemoryId]) -> None:
        """Forget the operations that wait for these memories."""
        if ids:
            self._transaction.run_many(
                _END_WAITING, [{**_of_row(key), "of_memory": memory_id} for memory_id in ids]
            )

    def put_access_totals(
        self,
        key: StreamKey,
        replica_id: ReplicaId,
        totals: Sequence[tuple[AccessTotal, CommitStamp]],
    ) -> None:
        """Store one replica's totals, each with its place in the lane of counts."""
        rows = [
            {
                **_columns(key),
                "memory_id": one.memory_id,
                "replica_id": replica_id,
                "total": one.total,
                "last_access_at": one.last_access_at,
                "lane_stamp": lane_stamp,
            }
            for one, lane_stamp in totals
        ]
        if rows:
            self._transaction.run_many(self._replica_statements.put_totals, rows)

    def forget_memories(self, key: StreamKey, ids: Collection[MemoryId]) -> None:
        """Forget what waits for these memories and how often they were looked at."""
        self.end_waiting(key, ids)
        if ids:
            self._transaction.run_many(
                _END_COUNTS, [{**_of_row(key), "of_memory": memory_id} for memory_id in ids]
            )

    def newest_forgettable(self, key: StreamKey, limit: CommitStamp) -> CommitStamp:
        """The newest in the stream, not later than ``limit``, of what is kept for a time alone; 0 if none."""
        values = {**_of_row(key), "of_limit": limit}
        rows = [row for statement in _NEWEST for row in self._transaction.all(statement, values)]
        return CommitStamp(max(row[0] or 0 for row in rows))

    def forget_before(self, key: StreamKey, horizon: CommitStamp) -> None:
        """Forget who may hear of graves up to ``horizon``, and retractions, operations and waiting ones.

        The ids of deleted memories stay for ever.
        """
        values = {**_of_row(key), "of_limit": horizon}
        self._transaction.run(_BLANK_GRAVES, {**values, "no_client": "", "no_scope": ""})
        for statement in _FORGET:
            self._transaction.run(statement, values)


def _saved(one: SavedOperation) -> dict[str, Any]:
    return {
        "operation_id": one.operation_id,
        "commit_stamp": one.commit_stamp,
        "status": one.status,
        "result": one.result,
    }


def _columns(key: StreamKey) -> dict[str, Any]:
    return {"incarnation": key.incarnation, "stream": key.stream}


def _of_row(key: StreamKey) -> dict[str, Any]:
    return {"of_incarnation": key.incarnation, "of_stream": key.stream}


def _is_stream(table: Table) -> Any:
    return and_(table.c.incarnation == bindparam("of_incarnation"), table.c.stream == bindparam("of_stream"))


def _is_old(table: Table) -> Any:
    return and_(_is_stream(table), table.c.commit_stamp <= bindparam("of_limit"))


_WAIT = waiting.insert()
_END_WAITING = delete(waiting).where(_is_stream(waiting), waiting.c.memory_id == bindparam("of_memory"))
_END_COUNTS = delete(access_counts).where(
    _is_stream(access_counts), access_counts.c.memory_id == bindparam("of_memory")
)
_RESOLVE = (
    update(operations)
    .where(_is_stream(operations), operations.c.operation_id == bindparam("new_operation_id"))
    .values({name: bindparam(f"new_{name}") for name in ("commit_stamp", "status", "result")})
)
_NEWEST = tuple(
    select(func.max(table.c.commit_stamp)).where(_is_old(table)) for table in (graveyard, *FORGOTTEN)
)
_BLANK_GRAVES = (
    update(graveyard)
    .where(_is_old(graveyard))
    .values(private_to=bindparam("no_client"), scope=bindparam("no_scope"))
)
_FORGET = tuple(delete(table).where(_is_old(table)) for table in FORGOTTEN)


class _Statements:
    """The statements whose ON CONFLICT each dialect has a construct of its own for."""

    def __init__(self, insert: Callable[[Table], Any]) -> None:
        mark = insert(replicas)
        self.save_replica: Insert = mark.on_conflict_do_update(
            index_elements=list(replicas.primary_key),
            set_={name: mark.excluded[name] for name in ("client_id", "number", "chain", "seen_at")},
        )
        self.save_operations: Insert = insert(operations).on_conflict_do_nothing(
            index_elements=list(operations.primary_key)
        )
        total = insert(access_counts)
        self.put_totals: Insert = total.on_conflict_do_update(
            index_elements=list(access_counts.primary_key),
            set_={name: total.excluded[name] for name in ("total", "last_access_at", "lane_stamp")},
        )


_STATEMENTS: Mapping[str, _Statements] = {
    "postgresql": _Statements(postgresql.insert),
    "sqlite": _Statements(sqlite.insert),
}
