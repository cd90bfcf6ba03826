"""Reads of a stream's feed, as it goes to replicas: light rows in commit-stamp order."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Table, and_, bindparam, select, tuple_

from scrubjay.memory import ClientId, MemoryId, Micros, PrivacyLevel
from scrubjay.stamp import CommitStamp, Stamp
from server.store.lookups import AMONG, ids_value
from server.store.rows import PRIVACY_LEVELS, Grave, StreamKey
from server.store.tables import graveyard, memories, retractions
from server.store.transaction import Row, Transaction
from tenants.tenant import Incarnation


class FeedRow(NamedTuple):
    """A living memory as the feed needs it: who may see it, and what of it is stored, unread."""

    memory_id: MemoryId
    commit_stamp: CommitStamp
    privacy_level: PrivacyLevel
    owner_client_id: ClientId
    scope: str
    message: bytes
    field_stamps: bytes
    field_commits: str


class GuardedRow(NamedTuple):
    """A living memory's place in the feed, and who may see it."""

    memory_id: MemoryId
    commit_stamp: CommitStamp
    privacy_level: PrivacyLevel
    owner_client_id: ClientId
    scope: str


class SnapshotRow(NamedTuple):
    """A living memory as a snapshot needs it: who may see it, and what of it is stored, unread."""

    memory_id: MemoryId
    commit_stamp: CommitStamp
    privacy_level: PrivacyLevel
    owner_client_id: ClientId
    scope: str
    created_at: Micros
    message: bytes
    field_stamps: bytes


@dataclass(frozen=True, slots=True)
class Retraction:
    """A memory was taken back from those who saw it with this scope and ``private_to``, see ``may_hear``."""

    memory_id: MemoryId
    commit_stamp: CommitStamp
    private_to: ClientId
    scope: str


class FeedReading:
    """What can be read of a feed; a part of ``Reading``."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._feed_lookups = _LOOKUPS[transaction.dialect_name]

    def living_after(self, key: StreamKey, after: CommitStamp, limit: int) -> list[FeedRow]:
        """At most ``limit`` living memories behind ``after``, in commit-stamp order."""
        values = _in_stream(key) | {"after": after, "limit": limit}
        return [
            FeedRow(row[0], row[1], PRIVACY_LEVELS[row[2]], *row[3:])
            for row in self._transaction.all(_LIVING, values)
        ]

    def snapshot_after(self, key: StreamKey, after: CommitStamp, limit: int) -> list[SnapshotRow]:
        """The same memories as a snapshot needs them."""
        values = _in_stream(key) | {"after": after, "limit": limit}
        return [_to_snapshot(row) for row in self._transaction.all(_SNAPSHOT, values)]

    def newest(self, key: StreamKey, before: tuple[Micros, MemoryId] | None, limit: int) -> list[SnapshotRow]:
        """At most ``limit`` living memories, newest ``created_at`` first, ties by id, behind ``before``."""
        values = _in_stream(key) | {"limit": limit}
        if before is None:
            return [_to_snapshot(row) for row in self._transaction.all(_NEWEST, values)]
        values |= {"created_at": before[0], "memory_id": before[1]}
        return [_to_snapshot(row) for row in self._transaction.all(_NEXT_NEWEST, values)]

    def guarded_after(self, key: StreamKey, after: CommitStamp, limit: int) -> list[GuardedRow]:
        """The same memories without their bodies."""
        values = _in_stream(key) | {"after": after, "limit": limit}
        return [_to_guarded(row) for row in self._transaction.all(_GUARDED, values)]

    def graves_after(self, key: StreamKey, after: CommitStamp, limit: int) -> list[Grave]:
        """At most ``limit`` deletions behind ``after``, in commit-stamp order."""
        values = _in_stream(key) | {"after": after, "limit": limit}
        return [_to_grave(row) for row in self._transaction.all(_GRAVES, values)]

    def retractions_after(self, key: StreamKey, after: CommitStamp, limit: int) -> list[Retraction]:
        """At most ``limit`` retractions behind ``after``, in commit-stamp order."""
        values = _in_stream(key) | {"after": after, "limit": limit}
        return [Retraction(*row) for row in self._transaction.all(_RETRACTIONS, values)]

    def guarded(self, key: StreamKey, ids: Collection[MemoryId]) -> dict[MemoryId, GuardedRow]:
        """Those of ``ids`` that live in the stream."""
        rows = self._transaction.all(self._feed_lookups.guarded, self._among(key, ids))
        return {row[0]: _to_guarded(row) for row in rows}

    def retractions_of(self, key: StreamKey, ids: Collection[MemoryId]) -> list[Retraction]:
        """The retractions of these memories in the stream."""
        rows = self._transaction.all(self._feed_lookups.retractions, self._among(key, ids))
        return [Retraction(*row) for row in rows]

    def graves(
        self, incarnation: Incarnation, ids: Collection[MemoryId]
    ) -> dict[MemoryId, tuple[str, Grave]]:
        """The graves of those of ``ids`` that were deleted, each with its stream."""
        values = {"incarnation": incarnation, "ids": ids_value(self._transaction.dialect_name, ids)}
        rows = self._transaction.all(self._feed_lookups.graves, values)
        return {row[0]: (row[-1], _to_grave(row[:-1])) for row in rows}

    def _among(self, key: StreamKey, ids: Collection[MemoryId]) -> dict[str, Any]:
        return _in_stream(key) | {"ids": ids_value(self._transaction.dialect_name, ids)}


def _to_guarded(row: Row) -> GuardedRow:
    return GuardedRow(row[0], row[1], PRIVACY_LEVELS[row[2]], row[3], row[4])


def _to_snapshot(row: Row) -> SnapshotRow:
    return SnapshotRow(row[0], row[1], PRIVACY_LEVELS[row[2]], *row[3:])


def _to_grave(row: Row) -> Grave:
    memory_id, commit_stamp, stamp, private_to, scope = row
    return Grave(memory_id, commit_stamp, Stamp.unpack(stamp), private_to, scope)


def _in_stream(key: StreamKey) -> dict[str, Any]:
    return {"incarnation": key.incarnation, "stream": key.stream}


def _of_stream(table: Table) -> ColumnElement[bool]:
    return and_(table.c.incarnation == bindparam("incarnation"), table.c.stream == bindparam("stream"))


def _after(table: Table, *columns: ColumnElement[Any]) -> Any:
    return (
        select(*columns)
        .where(_of_stream(table), table.c.commit_stamp > bindparam("after"))
        .order_by(table.c.commit_stamp)
        .limit(bindparam("limit"))
    )


_GUARDED_COLUMNS = (
    memories.c.id,
    memories.c.commit_stamp,
    memories.c.privacy_level,
    memories.c.owner_client_id,
    memories.c.scope,
)
_GRAVE_COLUMNS = tuple(
    graveyard.c[name] for name in ("memory_id", "commit_stamp", "stamp", "private_to", "scope")
)
_RETRACTION_COLUMNS = tuple(
    retractions.c[name] for name in ("memory_id", "commit_stamp", "private_to", "scope")
)

_GUARDED = _after(memories, *_GUARDED_COLUMNS)
_LIVING = _after(
    memories, *_GUARDED_COLUMNS, memories.c.message, memories.c.field_stamps, memories.c.field_commits
)
_SNAPSHOT_COLUMNS = (
    *_GUARDED_COLUMNS,
    memories.c.created_at,
    memories.c.message,
    memories.c.field_stamps,
)
_SNAPSHOT = _after(memories, *_SNAPSHOT_COLUMNS)
_NEWEST = (
    select(*_SNAPSHOT_COLUMNS)
    .where(_of_stream(memories))
    .order_by(memories.c.created_at.desc(), memories.c.id.desc())
    .limit(bindparam("limit"))
)
_NEXT_NEWEST = _NEWEST.where(
    tuple_(memories.c.created_at, memories.c.id)
    < tuple_(bindparam("created_at"), bindparam("memory_id", type_=memories.c.id.type))
)
_GRAVES = _after(graveyard, *_GRAVE_COLUMNS)
_RETRACTIONS = _after(retractions, *_RETRACTION_COLUMNS)


class _Lookups:
    def __init__(self, dialect_name: str) -> None:
        among = AMONG[dialect_name]
        self.guarded = select(*_GUARDED_COLUMNS).where(_of_stream(memories), among(memories.c.id))
        self.retractions = select(*_RETRACTION_COLUMNS).where(
            _of_stream(retractions), among(retractions.c.memory_id)
        )
        self.graves = select(*_GRAVE_COLUMNS, graveyard.c.stream).where(
            graveyard.c.incarnation == bindparam("incarnation"), among(graveyard.c.memory_id)
        )


_LOOKUPS = {name: _Lookups(name) for name in AMONG}
