"""What an export reads of a stream beside its memories, history and graves: who asks may see all of it."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Table, bindparam, select, tuple_

from scrubjay.memory import ClientId, MemoryId
from server.store.entities import RelationRow
from server.store.lookups import AMONG, ids_value
from server.store.recent_messages import RecentMessage
from server.store.rows import StreamKey
from server.store.tables import jobs, recent_messages, relations, waiting
from server.store.transaction import Transaction
from tenants.tenant import Incarnation


@dataclass(frozen=True, slots=True)
class RecentMessages:
    """The last messages of a scope that a client told of."""

    scope: str
    client_id: ClientId
    messages: tuple[RecentMessage, ...]


@dataclass(frozen=True, slots=True)
class WaitingEdit:
    """An edit that waits for its memory's create; ``operation`` is encoded as its replica sent it."""

    memory_id: MemoryId
    operation_id: str
    client_id: ClientId
    operation: bytes


@dataclass(frozen=True, slots=True)
class Unread:
    """The encoded request of a job that has not ended."""

    job_id: str
    kind: str
    client_id: ClientId
    request: bytes


class ExportReading:
    """What can be read for an export; a part of ``Reading``. Pages begin behind the key of a row."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._relations_of = _RELATIONS_OF[transaction.dialect_name]

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

    def waiting_after(self, key: StreamKey, after: tuple[str, str], limit: int) -> list[WaitingEdit]:
        """The edits that wait, behind the (memory, operation) ``after``."""
        values = {**_of(key), "memory_id": after[0], "operation_id": after[1], "limit": limit}
        rows = self._transaction.all(_WAITING, values)
        return [WaitingEdit(row[0], row[1], row[2], bytes(row[3])) for row in rows]

    def unread_after(self, key: StreamKey, after: str, limit: int) -> list[Unread]:
        """The requests of jobs that have not ended, behind the job ``after``."""
        values = {**_of(key), "id": after, "limit": limit}
        rows = self._transaction.all(_UNREAD, values)
        return [Unread(row[0], row[1], row[2], bytes(row[3])) for row in rows]


NO_UUID = "00000000-0000-0000-0000-000000000000"
"""Before every id."""


def _of(key: StreamKey) -> dict[str, Any]:
    return {"incarnation": key.incarnation, "stream": key.stream}


def _page(table: Table, keys: tuple[str, ...], *rest: str) -> Any:
    columns = [table.c[name] for name in keys]
    begin = [bindparam(name, type_=table.c[name].type) for name in keys]
    behind = tuple_(*columns) > tuple_(*begin) if len(keys) > 1 else columns[0] > begin[0]
    of_stream = table.c.incarnation == bindparam("incarnation"), table.c.stream == bindparam("stream")
    page = select(*columns, *(table.c[name] for name in rest)).where(*of_stream, behind)
    return page.order_by(*columns).limit(bindparam("limit"))


_RECENT = _page(recent_messages, ("scope", "client_id"), "messages")
_WAITING = _page(waiting, ("memory_id", "operation_id"), "client_id", "operation")
_UNREAD = _page(jobs, ("id",), "kind", "client_id", "request").where(jobs.c.lease_until.is_not(None))
_RELATIONS_OF = {
    name: select(*(relations.c[field] for field in RelationRow.__slots__))
    .where(relations.c.incarnation == bindparam("incarnation"), among(relations.c.memory_id))
    .order_by(relations.c.memory_id, relations.c.number)
    for name, among in AMONG.items()
}
