"""What an export reads of a stream beside its memories, history and graves: who asks may see all of it."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Table, bindparam, func, select, union

from scrubjay.memory import ClientId, MemoryId, Micros
from scrubjay.stamp import ReplicaId
from server.store.entities import RelationRow
from server.store.lookups import AMONG, as_one, ids_value
from server.store.recent_messages import RecentMessage
from server.store.replicas import WaitingOperation, to_waiting
from server.store.rows import StreamKey
from server.store.tables import access_counts, jobs, memories, recent_messages, relations, streams, waiting
from server.store.transaction import Transaction
from tenants.tenant import Incarnation


@dataclass(frozen=True, slots=True)
class RecentMessages:
    """The last messages of a scope that a client told of."""

    scope: str
    client_id: ClientId
    messages: tuple[RecentMessage, ...]


@dataclass(frozen=True, slots=True)
class ReplicaAccesses:
    """How often one replica's user looked at a memory in all, and when last."""

    memory_id: MemoryId
    replica_id: ReplicaId
    total: int
    last_access_at: Micros


@dataclass(frozen=True, slots=True)
class Unread:
    """The encoded request of a job that has not ended, and for whom it is done: see ``Job``."""

    job_id: str
    kind: str
    client_id: ClientId
    actor: str
    role: str
    request_id: str
    private_to: str
    created_at: Micros
    request: bytes


class ExportReading:
    """What can be read for an export; a part of ``Reading``. Pages begin behind the key of a row."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._relations_of = _RELATIONS_OF[transaction.dialect_name]
        self._accesses_of = _ACCESSES_OF[transaction.dialect_name]

    def held_streams(self, incarnation: Incarnation, after: str, limit: int) -> list[str]:
        """At most ``limit`` streams of a tenant of which anything is held, in order, behind ``after``."""
        values = {"incarnation": incarnation, "after": after, "limit": limit}
        return [row[0] for row in self._transaction.all(_HELD, values)]

    def is_written(self, incarnation: Incarnation) -> bool:
        """Whether anything was ever written to a tenant, or is about to be: even if it is deleted again."""
        return bool(self.held_streams(incarnation, "", 1))

    def living_count(self, incarnation: Incarnation) -> int:
        """How many memories live in all streams of a tenant."""
        return int(self._transaction.all(_LIVING_COUNT, {"incarnation": incarnation})[0][0])

    def accesses_of(self, key: StreamKey, ids: Collection[MemoryId]) -> list[ReplicaAccesses]:
        """How often each replica looked at these memories."""
        values = {**_of(key), "ids": ids_value(self._transaction.dialect_name, ids)}
        rows = self._transaction.all(self._accesses_of, values)
        return [ReplicaAccesses(row[0], ReplicaId(bytes(row[1])), row[2], row[3]) for row in rows]

    def relations_of(self, incarnation: Incarnation, ids: Collection[MemoryId]) -> list[RelationRow]:
        """What these memories say of entities."""
        values = {"incarnation": incarnation, "ids": ids_value(self._transaction.dialect_name, ids)}
        return [RelationRow(*row) for row in self._transaction.all(self._relations_of, values)]

    def recent_messages_after(
        self, key: StreamKey, after: tuple[str, str], limit: int
    ) -> list[RecentMessages]:
        """What was said last in each scope, by each client, behind the (scope, client) ``after``."""
        values = {**_of(key), "scope": after[0], "client_id": after[1], "limit": limit}
        return [
            RecentMessages(scope, client_id, tuple(RecentMessage(**one) for one in json.loads(messages)))
            for scope, client_id, messages in self._transaction.all(_RECENT, values)
        ]

    def waiting_after(self, key: StreamKey, after: tuple[str, str], limit: int) -> list[WaitingOperation]:
        """The edits that wait, behind the (memory, operation) ``after``, without their vectors."""
        values = {**_of(key), "memory_id": after[0], "operation_id": after[1], "limit": limit}
        rows = self._transaction.all(_WAITING, values)
        return [to_waiting((*row, None)) for row in rows]

    def unread_after(self, key: StreamKey, after: str, limit: int) -> list[Unread]:
        """The requests of jobs that have not ended, behind the job ``after``."""
        values = {**_of(key), "id": after, "limit": limit}
        rows = self._transaction.all(_UNREAD, values)
        return [Unread(*(*row[:-1], bytes(row[-1]))) for row in rows]


NO_UUID = "00000000-0000-0000-0000-000000000000"
"""Before every id."""


def _of(key: StreamKey) -> dict[str, Any]:
    return {"incarnation": key.incarnation, "stream": key.stream}


def _page(table: Table, keys: tuple[str, ...], *rest: str) -> Any:
    columns = [table.c[name] for name in keys]
    begin = [bindparam(name, type_=table.c[name].type) for name in keys]
    behind = as_one(columns) > as_one(begin)
    of_stream = table.c.incarnation == bindparam("incarnation"), table.c.stream == bindparam("stream")
    page = select(*columns, *(table.c[name] for name in rest)).where(*of_stream, behind)
    return page.order_by(*columns).limit(bindparam("limit"))


_RECENT = _page(recent_messages, ("scope", "client_id"), "messages")
_WAITING = _page(
    waiting,
    ("memory_id", "operation_id"),
    *("commit_stamp", "client_id", "scopes", "actor", "role", "replica_id", "spell", "operation"),
)
_IS_OPEN = jobs.c.lease_until.is_not(None)
_UNREAD = _page(
    jobs,
    ("id",),
    *("kind", "client_id", "actor", "role", "request_id", "private_to", "created_at", "request"),
).where(_IS_OPEN)
_STREAMS = union(
    *(
        select(table.c.stream).where(
            table.c.incarnation == bindparam("incarnation"), table.c.stream > bindparam("after"), *which
        )
        for table, which in ((streams, ()), (jobs, (_IS_OPEN,)))
    )
).subquery()
_HELD = select(_STREAMS.c.stream).order_by(_STREAMS.c.stream).limit(bindparam("limit"))
_LIVING_COUNT = (
    select(func.count()).select_from(memories).where(memories.c.incarnation == bindparam("incarnation"))
)
_ACCESSES_OF = {
    name: select(
        *(access_counts.c[field] for field in ("memory_id", "replica_id", "total", "last_access_at"))
    )
    .where(
        access_counts.c.incarnation == bindparam("incarnation"),
        access_counts.c.stream == bindparam("stream"),
        among(access_counts.c.memory_id),
    )
    .order_by(access_counts.c.memory_id, access_counts.c.replica_id)
    for name, among in AMONG.items()
}
_RELATIONS_OF = {
    name: select(*(relations.c[field] for field in RelationRow.__slots__))
    .where(relations.c.incarnation == bindparam("incarnation"), among(relations.c.memory_id))
    .order_by(relations.c.memory_id, relations.c.number)
    for name, among in AMONG.items()
}
