"""Vectors as they are stored: those of a space, and the memories that have none of it yet."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sqlalchemy import BindParameter, Select, and_, bindparam, exists, func, select, tuple_

from scrubjay.memory import MemoryId
from scrubjay.stamp import CommitStamp, Stamp
from server.store.lookups import AMONG, ids_value
from server.store.rows import StreamKey
from server.store.tables import memories, vectors
from server.store.transaction import Row, Transaction
from tenants.tenant import Incarnation

HAS_VECTOR = and_(
    vectors.c.incarnation == memories.c.incarnation,
    vectors.c.stream == memories.c.stream,
    vectors.c.memory_id == memories.c.id,
    vectors.c.space == bindparam("space"),
    vectors.c.content_stamp == memories.c.content_stamp,
)
"""That a vector of the space was made from the content that stands."""


@dataclass(frozen=True, slots=True)
class Unembedded:
    """A memory without a vector of a space: where it is, and the content that it needs one of."""

    stream: str
    commit_stamp: CommitStamp
    memory_id: MemoryId
    content_stamp: Stamp
    content: str


class VectorReading:
    """What can be read of vectors; a part of ``Reading``."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._vector_lookups = _LOOKUPS[transaction.dialect_name]

    def vectors(
        self, key: StreamKey, space: str, ids: Collection[MemoryId]
    ) -> dict[MemoryId, tuple[Stamp, bytes]]:
        """The encoded vectors of those memories that have one, each with the stamp of its content."""
        values = self._of_ids(key.incarnation, ids) | {"stream": key.stream, "space": space}
        rows = self._transaction.all(self._vector_lookups.vectors, values)
        return {row[0]: (Stamp.unpack(row[1]), row[2]) for row in rows}

    def standing_vectors(
        self, incarnation: Incarnation, space: str, ids: Collection[MemoryId]
    ) -> dict[MemoryId, bytes]:
        """The encoded vectors of a space of those memories that have one of the content that stands."""
        values = self._of_ids(incarnation, ids) | {"space": space}
        return dict(self._transaction.all(self._vector_lookups.standing, values))

    def content_stamps(self, incarnation: Incarnation, ids: Collection[MemoryId]) -> dict[MemoryId, Stamp]:
        """The stamps of the contents of those memories that live."""
        rows = self._transaction.all(self._vector_lookups.content_stamps, self._of_ids(incarnation, ids))
        return {row[0]: Stamp.unpack(row[1]) for row in rows}

    def unembedded(
        self, incarnation: Incarnation, space: str, after: tuple[str, CommitStamp], limit: int
    ) -> list[Unembedded]:
        """At most ``limit`` memories of a tenant that have no vector of the space, by stream and commit
        stamp, behind those of the last one of the page before."""
        values = {"incarnation": incarnation, "space": space, "limit": limit}
        rows = self._transaction.all(_UNEMBEDDED, {**values, "stream": after[0], "after": after[1]})
        return [_unembedded(row) for row in rows]

    def unembedded_of(self, key: StreamKey, space: str, after: CommitStamp, limit: int) -> list[Unembedded]:
        """The same of one stream, behind a commit stamp."""
        values = {"incarnation": key.incarnation, "stream": key.stream, "space": space}
        rows = self._transaction.all(_UNEMBEDDED_OF, {**values, "after": after, "limit": limit})
        return [_unembedded(row) for row in rows]

    def count_embedded(self, incarnation: Incarnation, space: str) -> tuple[int, int]:
        """How many memories of a tenant have a vector of the space, and how many there are."""
        values = {"incarnation": incarnation, "space": space}
        embedded = self._transaction.all(_COUNT_EMBEDDED, values)[0][0]
        return int(embedded), int(self._transaction.all(_COUNT, {"incarnation": incarnation})[0][0])

    def vector_keys(
        self, incarnation: Incarnation, space: str, after: tuple[str, MemoryId] | None, limit: int
    ) -> list[tuple[str, MemoryId]]:
        """At most ``limit`` vectors of a tenant in the space, by stream and memory, behind the last one."""
        values = {"incarnation": incarnation, "space": space, "limit": limit}
        if after is None:
            rows = self._transaction.all(_FIRST_KEYS, values)
        else:
            rows = self._transaction.all(_NEXT_KEYS, {**values, "stream": after[0], "memory_id": after[1]})
        return [(row[0], row[1]) for row in rows]

    def _of_ids(self, incarnation: Incarnation, ids: Collection[MemoryId]) -> dict[str, object]:
        return {"incarnation": incarnation, "ids": ids_value(self._transaction.dialect_name, ids)}


def _unembedded(row: Row) -> Unembedded:
    stream, commit_stamp, memory_id, content_stamp, content = row
    return Unembedded(stream, commit_stamp, memory_id, Stamp.unpack(content_stamp), content)


_OF_TENANT = memories.c.incarnation == bindparam("incarnation")
_LIMIT: BindParameter[int] = bindparam("limit")
_BARE: Select[Any] = (
    select(
        memories.c.stream,
        memories.c.commit_stamp,
        memories.c.id,
        memories.c.content_stamp,
        memories.c.content,
    )
    .where(_OF_TENANT, ~exists().where(HAS_VECTOR))
    .limit(_LIMIT)
)
_UNEMBEDDED = _BARE.where(
    tuple_(memories.c.stream, memories.c.commit_stamp)
    > tuple_(bindparam("stream", type_=memories.c.stream.type), bindparam("after"))
).order_by(memories.c.stream, memories.c.commit_stamp)
_UNEMBEDDED_OF = _BARE.where(
    memories.c.stream == bindparam("stream"), memories.c.commit_stamp > bindparam("after")
).order_by(memories.c.commit_stamp)
_COUNT = select(func.count()).select_from(memories).where(_OF_TENANT)
_COUNT_EMBEDDED = _COUNT.where(exists().where(HAS_VECTOR))
_FIRST_KEYS = (
    select(vectors.c.stream, vectors.c.memory_id)
    .where(vectors.c.incarnation == bindparam("incarnation"), vectors.c.space == bindparam("space"))
    .order_by(vectors.c.stream, vectors.c.memory_id)
    .limit(_LIMIT)
)
_NEXT_KEYS = _FIRST_KEYS.where(
    tuple_(vectors.c.stream, vectors.c.memory_id)
    > tuple_(
        bindparam("stream", type_=vectors.c.stream.type),
        bindparam("memory_id", type_=vectors.c.memory_id.type),
    )
)


class _Lookups:
    def __init__(self, dialect_name: str) -> None:
        among = AMONG[dialect_name]
        self.vectors = select(vectors.c.memory_id, vectors.c.content_stamp, vectors.c.vector).where(
            vectors.c.incarnation == bindparam("incarnation"),
            vectors.c.stream == bindparam("stream"),
            vectors.c.space == bindparam("space"),
            among(vectors.c.memory_id),
        )
        self.standing = (
            select(memories.c.id, vectors.c.vector)
            .select_from(memories.join(vectors, HAS_VECTOR))
            .where(_OF_TENANT, among(memories.c.id))
        )
        self.content_stamps = select(memories.c.id, memories.c.content_stamp).where(
            _OF_TENANT, among(memories.c.id)
        )


_LOOKUPS = {name: _Lookups(name) for name in AMONG}
