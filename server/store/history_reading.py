"""Reads of History: the operations on a memory or in a stream."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import ColumnElement, and_, bindparam, exists, func, or_, select

from scrubjay.memory import ClientId, MemoryId, Viewer
from scrubjay.merge import Outcome
from scrubjay.operation import OperationKind
from scrubjay.stamp import CommitStamp
from server.store.history import HistoryRow
from server.store.lookups import AMONG, ids_value
from server.store.rows import HISTORY_COLUMNS, StreamKey, owner_of, to_history
from server.store.tables import graveyard, history, streams
from server.store.transaction import Transaction
from tenants.tenant import Incarnation


class HistoryReading:
    """What can be read of History; a part of ``Reading``."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._changed_at = _CHANGED_AT[transaction.dialect_name]

    def history(
        self,
        incarnation: Incarnation,
        of: MemoryId | StreamKey,
        before: CommitStamp | None,
        limit: int,
        after: CommitStamp | None = None,
    ) -> list[HistoryRow]:
        """At most ``limit`` operations on a memory or in a stream, newest first, older than ``before`` and
        newer than ``after``."""
        newest, oldest = _BEHIND_ALL if before is None else before, 0 if after is None else after
        values = {"incarnation": incarnation, "before": newest, "after": oldest, "limit": limit}
        if isinstance(of, StreamKey):
            rows = self._transaction.all(_HISTORY_OF_STREAM, values | {"stream": of.stream})
        else:
            rows = self._transaction.all(_HISTORY_OF_MEMORY, values | {"memory_id": of})
        return [to_history(row) for row in rows]

    def operation(
        self, incarnation: Incarnation, memory_id: MemoryId, operation_id: str
    ) -> HistoryRow | None:
        """One operation on a memory."""
        values = {"incarnation": incarnation, "memory_id": memory_id, "operation_id": operation_id}
        row = self._transaction.first(_OPERATION, values)
        return None if row is None else to_history(row)

    def deletion(self, incarnation: Incarnation, memory_id: MemoryId) -> HistoryRow | None:
        """The operation that deleted a memory."""
        row = self._transaction.first(_DELETING, _applied(incarnation, memory_id, OperationKind.DELETE))
        return None if row is None else to_history(row)

    def deleted_for(self, incarnation: Incarnation, memory_id: MemoryId, viewer: Viewer) -> bool:
        """Whether the memory was deleted and the viewer may know: it was not another one's private memory,
        and lay within its scopes, as far as the grave tells still."""
        row = self._transaction.first(_DELETION, _applied(incarnation, memory_id, OperationKind.DELETE))
        if row is None or row[0] not in ("", viewer.client_id):
            return False
        if not viewer.scopes:
            return True
        grave = self._transaction.first(_GRAVE_SCOPE, {"incarnation": incarnation, "memory_id": memory_id})
        return grave is not None and bool(grave[0]) and viewer.may_enter(grave[0])

    def owner_of_dead(self, incarnation: Incarnation, memory_id: MemoryId) -> ClientId | None:
        """The client that owned a deleted memory, as far as History knows; of old deletions its creator's."""
        row = self._transaction.first(_DELETION, _applied(incarnation, memory_id, OperationKind.DELETE))
        if row is not None and row[1]:
            return owner_of(row[1])
        row = self._transaction.first(_CREATION, _applied(incarnation, memory_id, OperationKind.CREATE))
        return None if row is None else row[0]

    def history_horizon(self, key: StreamKey) -> CommitStamp:
        """Up to where the stream's history was forgotten; 0 where all of it is there."""
        row = self._transaction.first(_HORIZON, {"incarnation": key.incarnation, "stream": key.stream})
        return CommitStamp(0 if row is None else row[0])

    def with_history_until(self, incarnation: Incarnation, limit: CommitStamp) -> list[StreamKey]:
        """The streams of a tenant that have operations up to ``limit``."""
        rows = self._transaction.all(_WITH_HISTORY, {"incarnation": incarnation, "limit": limit})
        return [StreamKey(incarnation, row[0]) for row in rows]

    def newest_operation(self, key: StreamKey, until: CommitStamp | None = None) -> CommitStamp:
        """The commit stamp of the stream's last operation, or of its last one up to ``until``; 0 for none."""
        values = {
            "incarnation": key.incarnation,
            "stream": key.stream,
            "until": _BEHIND_ALL if until is None else until,
        }
        return CommitStamp(self._transaction.all(_NEWEST, values)[0][0] or 0)

    def changed_at(
        self, incarnation: Incarnation, ids: Collection[MemoryId], until: CommitStamp
    ) -> dict[MemoryId, CommitStamp]:
        """The commit stamps of the last operations up to ``until`` that changed those memories."""
        values = {
            "incarnation": incarnation,
            "ids": ids_value(self._transaction.dialect_name, ids),
            "until": until,
            "applied": int(Outcome.APPLIED),
            "concurrent": int(Outcome.APPLIED_CONCURRENT),
        }
        return dict(self._transaction.all(self._changed_at, values))


def _applied(incarnation: Incarnation, memory_id: MemoryId, kind: OperationKind) -> dict[str, object]:
    return {
        "incarnation": incarnation,
        "memory_id": memory_id,
        "kind": int(kind),
        "outcome": int(Outcome.APPLIED),
    }


_BEHIND_ALL = (1 << 63) - 1


# --- the statements, built once -------------------------------------------------------------------

_OF_TENANT: ColumnElement[bool] = history.c.incarnation == bindparam("incarnation")
_OF_MEMORY = and_(_OF_TENANT, history.c.memory_id == bindparam("memory_id"))
_OF_STREAM = and_(_OF_TENANT, history.c.stream == bindparam("stream"))

_NEWEST_FIRST = (
    select(*HISTORY_COLUMNS)
    .where(history.c.commit_stamp < bindparam("before"), history.c.commit_stamp > bindparam("after"))
    .order_by(history.c.commit_stamp.desc())
    .limit(bindparam("limit"))
)
_HISTORY_OF_STREAM = _NEWEST_FIRST.where(_OF_STREAM)
_HISTORY_OF_MEMORY = _NEWEST_FIRST.where(_OF_MEMORY)
_OPERATION = select(*HISTORY_COLUMNS).where(_OF_MEMORY, history.c.operation_id == bindparam("operation_id"))

_OF_KIND = and_(_OF_MEMORY, history.c.kind == bindparam("kind"), history.c.outcome == bindparam("outcome"))
_DELETING = select(*HISTORY_COLUMNS).where(_OF_KIND).order_by(history.c.commit_stamp.desc())
_DELETION = (
    select(history.c.private_to, history.c.deleted).where(_OF_KIND).order_by(history.c.commit_stamp.desc())
)
_GRAVE_SCOPE = select(graveyard.c.scope).where(
    graveyard.c.incarnation == bindparam("incarnation"), graveyard.c.memory_id == bindparam("memory_id")
)
_CREATION = select(history.c.client_id).where(_OF_KIND).order_by(history.c.commit_stamp)

_HORIZON = select(streams.c.history_horizon).where(
    streams.c.incarnation == bindparam("incarnation"), streams.c.stream == bindparam("stream")
)
_WITH_HISTORY = select(streams.c.stream).where(
    streams.c.incarnation == bindparam("incarnation"),
    exists().where(
        history.c.incarnation == streams.c.incarnation,
        history.c.stream == streams.c.stream,
        history.c.commit_stamp <= bindparam("limit"),
    ),
)
_NEWEST = select(func.max(history.c.commit_stamp)).where(
    _OF_STREAM, history.c.commit_stamp <= bindparam("until")
)
_CHANGED_AT = {
    name: select(history.c.memory_id, func.max(history.c.commit_stamp))
    .where(
        _OF_TENANT,
        among(history.c.memory_id),
        history.c.commit_stamp <= bindparam("until"),
        or_(history.c.outcome == bindparam("applied"), history.c.outcome == bindparam("concurrent")),
    )
    .group_by(history.c.memory_id)
    for name, among in AMONG.items()
}
"""By dialect."""
