"""Reads of one shard, all in one transaction: what they return belongs to one moment."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from heapq import merge as merge_sorted
from itertools import islice
from operator import attrgetter
from typing import Any

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Select,
    Table,
    and_,
    bindparam,
    exists,
    func,
    literal_column,
    or_,
    select,
    tuple_,
)

from scrubjay.memory import MemoryId, Micros
from scrubjay.stamp import CommitStamp
from server.store.entities import SUBJECT_KIND, EntityReading
from server.store.erasing import ErasureReading
from server.store.exporting import ExportReading
from server.store.feed_reading import FeedReading
from server.store.history_reading import HistoryReading
from server.store.jobs import JobReading
from server.store.lookups import AMONG, ids_value
from server.store.mark_reading import MarkReading
from server.store.recent_messages import RecentReading
from server.store.replicas import ReplicaReading
from server.store.rows import (
    HEAD_COLUMNS,
    MEMORY_COLUMNS,
    STORED_COLUMNS,
    Change,
    StoredMemory,
    StreamHead,
    StreamKey,
    to_memory,
    to_stored,
)
from server.store.tables import FORGOTTEN, graveyard, memories, mentions, requests, streams, vectors
from server.store.transaction import Row, Transaction
from server.store.use_reading import UseReading
from server.store.vector_reading import HAS_VECTOR, VectorReading
from tenants.tenant import Incarnation

REQUEST_KEPT_MICROS = 24 * 3600 * 1_000_000
"""How long a request_id is remembered, as the contract promises."""


class Reading(
    FeedReading,
    HistoryReading,
    MarkReading,
    ReplicaReading,
    UseReading,
    JobReading,
    EntityReading,
    RecentReading,
    ErasureReading,
    ExportReading,
    VectorReading,
):
    """What can be read of a shard; valid inside the block or unit that it was given to."""

    def __init__(self, transaction: Transaction) -> None:
        FeedReading.__init__(self, transaction)
        HistoryReading.__init__(self, transaction)
        MarkReading.__init__(self, transaction)
        ReplicaReading.__init__(self, transaction)
        UseReading.__init__(self, transaction)
        JobReading.__init__(self, transaction)
        EntityReading.__init__(self, transaction)
        RecentReading.__init__(self, transaction)
        ErasureReading.__init__(self, transaction)
        ExportReading.__init__(self, transaction)
        VectorReading.__init__(self, transaction)
        self._lookups = _LOOKUPS[transaction.dialect_name]

    def head(self, key: StreamKey) -> StreamHead | None:
        """Where the stream stands; None where nothing was ever written to it."""
        row = self._transaction.first(_HEAD, _in_stream(key))
        return None if row is None else StreamHead(*row)

    def heads(self, incarnation: Incarnation) -> dict[str, CommitStamp]:
        """The head of every stream of a tenant."""
        return dict(self._transaction.all(_HEADS, {"incarnation": incarnation}))

    def heads_together(self, incarnation: Incarnation) -> int:
        """The sum of the heads of a tenant's streams: every commit raises it, and it is one row."""
        return int(self._transaction.all(_HEADS_TOGETHER, {"incarnation": incarnation})[0][0] or 0)

    def highest_head(self) -> CommitStamp:
        """The highest head of all streams of all tenants."""
        return CommitStamp(self._transaction.all(_HIGHEST_HEAD, {})[0][0] or 0)

    def streams(self, after: StreamKey | None, limit: int) -> list[StreamKey]:
        """At most ``limit`` streams of all tenants, in order, behind ``after``."""
        if after is None:
            rows = self._transaction.all(_FIRST_STREAMS, {"limit": limit})
        else:
            rows = self._transaction.all(_NEXT_STREAMS, _in_stream(after) | {"limit": limit})
        return [StreamKey(*row) for row in rows]

    def collectable(self, limit: CommitStamp, incarnation: Incarnation | None = None) -> list[StreamKey]:
        """The streams of all tenants, or of one, that have something to forget behind their horizon, up to
        ``limit``."""
        if incarnation is None:
            rows = self._transaction.all(_COLLECTABLE, {"collected": limit})
        else:
            values = {"collected": limit, "incarnation": incarnation}
            rows = self._transaction.all(_COLLECTABLE_OF_TENANT, values)
        return [StreamKey(*row) for row in rows]

    def get(self, incarnation: Incarnation, memory_id: MemoryId) -> StoredMemory | None:
        """A living memory."""
        row = self._transaction.first(_GET, {"incarnation": incarnation, "memory_id": memory_id})
        return None if row is None else to_stored(row)

    def get_many(self, incarnation: Incarnation, ids: Collection[MemoryId]) -> dict[MemoryId, StoredMemory]:
        """Those of ``ids`` that live."""
        rows = self._transaction.all(self._lookups.get_many, self._among_ids(incarnation, ids))
        return {stored.memory.id: stored for stored in map(to_stored, rows)}

    def buried(self, incarnation: Incarnation, ids: Collection[MemoryId]) -> dict[MemoryId, str]:
        """Those of ``ids`` that were deleted, each with its stream."""
        rows = self._transaction.all(self._lookups.buried, self._among_ids(incarnation, ids))
        return dict(rows)

    def _among_ids(self, incarnation: Incarnation, ids: Collection[MemoryId]) -> dict[str, object]:
        return {"incarnation": incarnation, "ids": ids_value(self._transaction.dialect_name, ids)}

    def stream_of(self, incarnation: Incarnation, memory_id: MemoryId) -> str | None:
        """The stream of a memory, living or deleted: where a write on it must lock."""
        row = self._transaction.first(_STREAM_OF, {"incarnation": incarnation, "memory_id": memory_id})
        return None if row is None else row[0]

    def page(self, key: StreamKey, before: tuple[Micros, MemoryId] | None, limit: int) -> list[StoredMemory]:
        """At most ``limit`` living memories of the stream, newest ``created_at`` first, ties by id.

        ``before`` is (created_at, id) of the last one of the page before.
        """
        values = _in_stream(key) | {"limit": limit}
        if before is None:
            rows = self._transaction.all(_FIRST_PAGE, values)
        else:
            values |= {"created_at": before[0], "memory_id": before[1]}
            rows = self._transaction.all(_NEXT_PAGE, values)
        return [to_stored(row) for row in rows]

    def ids(self, key: StreamKey, limit: int) -> list[MemoryId]:
        """The ids of at most ``limit`` living memories of the stream, in commit-stamp order."""
        return [row[0] for row in self._transaction.all(_IDS, _in_stream(key) | {"limit": limit})]

    def count(self, key: StreamKey) -> int:
        """How many memories live in the stream."""
        return int(self._transaction.all(_COUNT, _in_stream(key))[0][0])

    def changes(self, key: StreamKey, after: CommitStamp, space: str, limit: int) -> list[Change]:
        """At most ``limit`` rows of the feed behind ``after``, in commit-stamp order.

        Fewer than ``limit`` mean that there are no more at this moment. A first load (``after`` 0) gets
        no tombstones, since there is nothing that they could take away.
        """
        values = _in_stream(key) | {"after": after, "limit": limit}
        living = map(_to_change, self._transaction.all(self._lookups.changes, values | {"space": space}))
        if after == 0:
            return list(living)
        tombstones = self._transaction.all(_TOMBSTONES, values)
        dead = (Change(key.stream, memory_id, stamp, None, None, None) for memory_id, stamp in tombstones)
        return list(islice(merge_sorted(living, dead, key=attrgetter("commit_stamp")), limit))

    def living(
        self, incarnation: Incarnation, after: tuple[str, CommitStamp], space: str, limit: int
    ) -> list[Change]:
        """At most ``limit`` living memories of a tenant by stream, and in commit-stamp order within each.

        ``after`` is the stream and the commit stamp of the last one of the page before.
        """
        values = {"incarnation": incarnation, "space": space, "limit": limit}
        values |= {"stream": after[0], "after": after[1]}
        return [_to_change(row) for row in self._transaction.all(self._lookups.living, values)]

    def request(self, incarnation: Incarnation, request_id: str, now: Micros) -> tuple[bytes, bytes] | None:
        """The digest and the response kept under a request id; None once 24 hours have passed."""
        values = {"incarnation": incarnation, "request_id": request_id, "expired": now - REQUEST_KEPT_MICROS}
        row = self._transaction.first(_REQUEST, values)
        return None if row is None else (row[0], row[1])


def _to_change(row: Row) -> Change:
    stream, commit_stamp, message, vector, names = row[len(MEMORY_COLUMNS) :]
    memory = to_memory(row)
    mentioned = tuple(names.split("\n")) if names else ()
    return Change(stream, memory.id, commit_stamp, message, memory, vector, mentioned)


def _in_stream(key: StreamKey) -> dict[str, Any]:
    return {"incarnation": key.incarnation, "stream": key.stream}


# --- the statements, built once -------------------------------------------------------------------


def _of_tenant(table: Table) -> ColumnElement[bool]:
    return table.c.incarnation == bindparam("incarnation")


def _of_stream(table: Table) -> ColumnElement[bool]:
    return and_(_of_tenant(table), table.c.stream == bindparam("stream"))


_LIMIT: BindParameter[int] = bindparam("limit")

_HEAD = select(*HEAD_COLUMNS).where(_of_stream(streams))

_HEADS = select(streams.c.stream, streams.c.head).where(_of_tenant(streams))
_HEADS_TOGETHER = select(func.sum(streams.c.head)).where(_of_tenant(streams))
_HIGHEST_HEAD = select(func.max(streams.c.head))
_FIRST_STREAMS = (
    select(streams.c.incarnation, streams.c.stream)
    .order_by(streams.c.incarnation, streams.c.stream)
    .limit(_LIMIT)
)
_NEXT_STREAMS = _FIRST_STREAMS.where(
    tuple_(streams.c.incarnation, streams.c.stream)
    > tuple_(
        bindparam("incarnation", type_=streams.c.incarnation.type),
        bindparam("stream", type_=streams.c.stream.type),
    )
)
_COLLECTABLE = select(streams.c.incarnation, streams.c.stream).where(
    or_(
        *(
            exists().where(
                table.c.incarnation == streams.c.incarnation,
                table.c.stream == streams.c.stream,
                table.c.commit_stamp > streams.c.horizon,
                table.c.commit_stamp <= bindparam("collected"),
            )
            for table in (graveyard, *FORGOTTEN)
        )
    )
)
_COLLECTABLE_OF_TENANT = _COLLECTABLE.where(_of_tenant(streams))

_GET = select(*STORED_COLUMNS).where(_of_tenant(memories), memories.c.id == bindparam("memory_id"))

_STREAM_OF = (
    select(memories.c.stream)
    .where(_of_tenant(memories), memories.c.id == bindparam("memory_id"))
    .union_all(
        select(graveyard.c.stream).where(
            _of_tenant(graveyard), graveyard.c.memory_id == bindparam("memory_id")
        )
    )
)

_FIRST_PAGE = (
    select(*STORED_COLUMNS)
    .where(_of_stream(memories))
    .order_by(memories.c.created_at.desc(), memories.c.id.desc())
    .limit(_LIMIT)
)
_NEXT_PAGE = _FIRST_PAGE.where(
    tuple_(memories.c.created_at, memories.c.id)
    < tuple_(bindparam("created_at"), bindparam("memory_id", type_=memories.c.id.type))
)

_IDS = select(memories.c.id).where(_of_stream(memories)).order_by(memories.c.commit_stamp).limit(_LIMIT)
_COUNT = select(func.count()).select_from(memories).where(_of_stream(memories))

_TOMBSTONES = (
    select(graveyard.c.memory_id, graveyard.c.commit_stamp)
    .where(_of_stream(graveyard), graveyard.c.commit_stamp > bindparam("after"))
    .order_by(graveyard.c.commit_stamp)
    .limit(_LIMIT)
)

_REQUEST = select(requests.c.digest, requests.c.response).where(
    _of_tenant(requests),
    requests.c.request_id == bindparam("request_id"),
    requests.c.created_at > bindparam("expired"),
)


def _with_vectors(dialect_name: str) -> Select[Any]:
    """Memories with their vectors, and the names of what they mention in one text, which the subject's empty
    one is not part of."""
    newline: ColumnElement[str] = literal_column(_NEWLINE[dialect_name])
    names = (
        select(_JOINED[dialect_name](mentions.c.normal, newline))
        .where(
            mentions.c.incarnation == memories.c.incarnation,
            mentions.c.memory_id == memories.c.id,
            mentions.c.kind != literal_column(str(SUBJECT_KIND)),
        )
        .scalar_subquery()
    )
    return select(
        *MEMORY_COLUMNS,
        memories.c.stream,
        memories.c.commit_stamp,
        memories.c.message,
        vectors.c.vector,
        names,
    ).select_from(memories.outerjoin(vectors, HAS_VECTOR))


_NEWLINE = {"postgresql": "E'\\n'", "sqlite": "char(10)"}
_JOINED: Mapping[str, Callable[..., Any]] = {"postgresql": func.string_agg, "sqlite": func.group_concat}
"""Texts as one."""


class _Lookups:
    def __init__(self, dialect_name: str) -> None:
        with_vectors = _with_vectors(dialect_name)
        self.changes = (
            with_vectors.where(_of_stream(memories), memories.c.commit_stamp > bindparam("after"))
            .order_by(memories.c.commit_stamp)
            .limit(_LIMIT)
        )
        self.living = (
            with_vectors.where(
                _of_tenant(memories),
                tuple_(memories.c.stream, memories.c.commit_stamp)
                > tuple_(bindparam("stream", type_=memories.c.stream.type), bindparam("after")),
            )
            .order_by(memories.c.stream, memories.c.commit_stamp)
            .limit(_LIMIT)
        )
        among = AMONG[dialect_name]
        self.get_many = select(*STORED_COLUMNS).where(_of_tenant(memories), among(memories.c.id))
        self.buried = select(graveyard.c.memory_id, graveyard.c.stream).where(
            _of_tenant(graveyard), among(graveyard.c.memory_id)
        )


_LOOKUPS = {name: _Lookups(name) for name in AMONG}
