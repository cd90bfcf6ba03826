"""Reads for forgetting: what may go, and how memories were used."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import Boolean, Select, Text, and_, any_, bindparam, func, not_, or_, select, tuple_
from sqlalchemy.dialects import postgresql

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
    """What may go: what expired by ``now``, and what was written by ``written_until``, is less sure than
    ``below`` and of one of the ``categories``; None: of any."""

    now: Micros
    written_until: Micros
    below: float
    categories: frozenset[str] | None


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
            "any_category": unused.categories is None,
            "categories": ids_value(self._transaction.dialect_name, unused.categories or ()),
            "after_stream": after.stream,
            "after": after.commit_stamp,
            "limit": limit,
        }
        if stream is None:
            rows = self._transaction.all(self._use_lookups.of_tenant, values)
        else:
            rows = self._transaction.all(self._use_lookups.of_stream, values | {"stream": stream})
        return [(StreamKey(incarnation, row[0]), to_stored(row[1:])) for row in rows]


def _forgettable(dialect_name: str) -> Select[Any]:
    if dialect_name == "postgresql":
        of_one = memories.c.category == any_(bindparam("categories", type_=postgresql.ARRAY(Text)))
    else:
        named = select(func.json_each(bindparam("categories")).table_valued("value").c.value)
        of_one = memories.c.category.in_(named)
    return (
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
                    or_(bindparam("any_category", type_=Boolean), of_one),
                ),
            ),
        )
        .order_by(memories.c.stream, memories.c.commit_stamp)
        .limit(bindparam("limit"))
    )


class _Lookups:
    def __init__(self, dialect_name: str) -> None:
        self.of_tenant = _forgettable(dialect_name)
        self.of_stream = self.of_tenant.where(memories.c.stream == bindparam("stream"))
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
