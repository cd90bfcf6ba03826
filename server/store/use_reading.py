"""Reads for forgetting: what may go, and how memories were used."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import and_, bindparam, func, not_, or_, select, tuple_

from scrubjay.memory import MemoryId, Micros
from scrubjay.stamp import CommitStamp
from server.store.lookups import AMONG, ids_value
from server.store.replicas import AccessTotal
from server.store.rows import STORED_COLUMNS, StoredMemory, StreamKey, to_stored
from server.store.tables import access_counts, memories
from server.store.transaction import Transaction
from tenants.tenant import Incarnation


class Place(NamedTuple):
    """Where a walk through a tenant's memories has come: behind this stamp of this stream."""

    stream: str
    commit_stamp: CommitStamp


FIRST = Place("", CommitStamp(0))
"""Before everything: no stream has an empty key."""


@dataclass(frozen=True, slots=True)
class Unused:
    """What may go: what expired by ``now``, and what was written by ``written_until`` and is not surer than
    ``below``."""

    now: Micros
    written_until: Micros
    below: float


class UseReading:
    """What can be read of how memories are used; a part of ``Reading``."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._use_lookups = _LOOKUPS[transaction.dialect_name]

    def accesses(self, key: StreamKey, ids: Collection[MemoryId]) -> dict[MemoryId, AccessTotal]:
        """How often these memories were looked at over all replicas, and when last, where they were."""
        values = {
            "incarnation": key.incarnation,
            "stream": key.stream,
            "ids": ids_value(self._transaction.dialect_name, ids),
        }
        rows = self._transaction.all(self._use_lookups.accesses, values)
        return {row[0]: AccessTotal(row[0], int(row[1]), row[2]) for row in rows}

    def forgettable(
        self, incarnation: Incarnation, stream: str | None, unused: Unused, after: Place, limit: int
    ) -> list[tuple[StreamKey, StoredMemory]]:
        """At most ``limit`` memories that may go, of a tenant or of one stream of it, in the order of places
        behind ``after``. Pinned ones are not among them; whether one does go is not decided here."""
        values = {
            "incarnation": incarnation,
            "expired": unused.now,
            "written_until": unused.written_until,
            "committed_until": unused.written_until // 1000 + 1 << 16,
            "below": unused.below,
            "after_stream": after.stream,
            "after": after.commit_stamp,
            "limit": limit,
        }
        if stream is None:
            rows = self._transaction.all(_OF_TENANT, values)
        else:
            rows = self._transaction.all(_OF_STREAM, values | {"stream": stream})
        return [(StreamKey(incarnation, row[0]), to_stored(row[1:])) for row in rows]


_OF_TENANT = (
    select(memories.c.stream, *STORED_COLUMNS)
    .where(
        memories.c.incarnation == bindparam("incarnation"),
        tuple_(memories.c.stream, memories.c.commit_stamp)
        > tuple_(bindparam("after_stream", type_=memories.c.stream.type), bindparam("after")),
        not_(memories.c.pinned),
        or_(
            memories.c.expires_at <= bindparam("expired"),
            and_(
                memories.c.commit_stamp < bindparam("committed_until"),
                memories.c.created_at <= bindparam("written_until"),
                memories.c.confidence < bindparam("below"),
            ),
        ),
    )
    .order_by(memories.c.stream, memories.c.commit_stamp)
    .limit(bindparam("limit"))
)
_OF_STREAM = _OF_TENANT.where(memories.c.stream == bindparam("stream"))


class _Lookups:
    def __init__(self, dialect_name: str) -> None:
        self.accesses = (
            select(
                access_counts.c.memory_id,
                func.sum(access_counts.c.total),
                func.max(access_counts.c.last_access_at),
            )
            .where(
                access_counts.c.incarnation == bindparam("incarnation"),
                access_counts.c.stream == bindparam("stream"),
                AMONG[dialect_name](access_counts.c.memory_id),
            )
            .group_by(access_counts.c.memory_id)
        )


_LOOKUPS = {name: _Lookups(name) for name in AMONG}
