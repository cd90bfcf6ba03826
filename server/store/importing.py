"""An import into a tenant to which nothing was ever written.

Its rows are written past the streams' heads: a stream that is not there can't be begun by anyone else while
the import is under way, so nobody writes between them, and search and devices see nothing of them. At the end
the streams are opened, each at the commit stamp where it stood when it was exported.

``imports.place`` says how many lines of the file are stored. It moves on in the transaction that stores them,
from where the writer believes it stands: so whoever lost its lease, or was taken back, stores nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Insert, Table, bindparam, null, select, update
from sqlalchemy.dialects import postgresql, sqlite

from scrubjay.errors import Unavailable
from scrubjay.memory import MemoryId
from scrubjay.stamp import CommitStamp, Stamp
from server.store.exporting import ExportReading, ReplicaAccesses
from server.store.jobs import Job, JobWriting
from server.store.listener import tell
from server.store.lookups import AMONG, ids_value
from server.store.purging import DELETIONS
from server.store.rows import Grave, StreamHead, StreamKey
from server.store.stocks import Limits, StockKeeping
from server.store.tables import (
    access_counts,
    graveyard,
    history,
    imports,
    jobs,
    memories,
    mentions,
    recent_messages,
    relations,
    stocks,
    streams,
    vectors,
    waiting,
)
from server.store.transaction import Transaction
from server.store.writing import LOCK_TIMEOUT_SECONDS, Writing
from tenants.tenant import Incarnation

TAKEN_BACK = -1
"""The place of an import that is being taken back."""
NO_HEAD = StreamHead(CommitStamp(0), 0, CommitStamp(0), CommitStamp(0))
IMPORTED_TABLES = tuple(
    table.name
    for table in (
        *(memories, graveyard, history, vectors, waiting, access_counts),
        *(recent_messages, mentions, relations, stocks),
    )
)
"""What an import may have written to before it opened a stream."""


@dataclass(frozen=True, slots=True)
class OpenedStream:
    """Where a stream stands that an import opens, and what was asked in it and is not done."""

    key: StreamKey
    head: CommitStamp
    horizon: CommitStamp
    history_horizon: CommitStamp
    jobs: tuple[Job, ...] = ()


class ImportReading:
    """What an import reads in one transaction."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def place(self, incarnation: Incarnation, operation_id: str) -> int | None:
        """How many lines are stored; None where the import is over."""
        row = self._transaction.first(_PLACE, {"incarnation": incarnation, "operation_id": operation_id})
        return None if row is None else row[0]

    def texts_without_vector(
        self, incarnation: Incarnation, space: str, after: MemoryId, limit: int
    ) -> list[tuple[StreamKey, MemoryId, Stamp, str]]:
        """At most ``limit`` memories by id, behind ``after``, that have no vector in the space: each with the
        stamp of its content, and that."""
        values = {"incarnation": incarnation, "space": space, "after": after, "limit": limit}
        return [
            (StreamKey(incarnation, row[0]), row[1], Stamp.unpack(bytes(row[2])), row[3])
            for row in self._transaction.all(_TEXTS, values)
        ]


class ImportWriting:
    """What an import writes in one transaction."""

    def __init__(self, transaction: Transaction, limits: Limits) -> None:
        self._transaction = transaction
        self._limits = limits
        self._statements = _STATEMENTS[transaction.dialect_name]

    def begin(self, incarnation: Incarnation, operation_id: str) -> bool:
        """Let nobody else write to the tenant, unless this import began before; whether nothing was ever
        written to it. Where something was, nothing is begun."""
        if self._transaction.dialect_name == "postgresql":
            # Writers that are under way end first, and those behind see the row.
            self._transaction.command(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_SECONDS}s'")
            self._transaction.command("LOCK TABLE streams, jobs IN SHARE ROW EXCLUSIVE MODE")
        row = {"incarnation": incarnation, "operation_id": operation_id, "place": 0}
        if self._transaction.run(self._statements.begin, row) == 0:
            return True
        if not ExportReading(self._transaction).is_written(incarnation):
            return True
        self.end(incarnation, operation_id)
        return False

    def move(self, incarnation: Incarnation, operation_id: str, place: int, to: int) -> None:
        """Note that lines up to ``to`` are stored. Unavailable where it does not stand at ``place``."""
        values = {"of": incarnation, "of_operation": operation_id, "from": place, "new_place": to}
        if self._transaction.run(_MOVE, values) != 1:
            raise Unavailable("the import is another server's now")

    def begin_taking_back(self, incarnation: Incarnation, operation_id: str) -> bool:
        """Store nothing more of it, and still let nobody else write; whether it was under way."""
        values = {"of": incarnation, "of_operation": operation_id, "new_place": TAKEN_BACK}
        return self._transaction.run(_TAKE_BACK, values) == 1

    def end(self, incarnation: Incarnation, operation_id: str) -> None:
        """Store nothing of it any more, and let everyone write."""
        self._transaction.run(_END, {"of": incarnation, "of_operation": operation_id})

    def take_back(self, incarnation: Incarnation, table: str, limit: int) -> int:
        """Delete at most ``limit`` rows that it wrote; how many there were."""
        statement = DELETIONS[self._transaction.dialect_name][table]
        return self._transaction.run(statement, {"incarnation": incarnation, "limit": limit})

    @contextmanager
    def writing(self, key: StreamKey) -> Iterator[Writing]:
        """What writes rows of a stream past its head, for the block. QuotaExceeded where that is too much."""
        keeping = StockKeeping(self._transaction, self._limits, [key.incarnation])
        writing = Writing(self._transaction, {key: NO_HEAD})
        yield writing
        keeping.check(writing.stock)
        keeping.add(writing.stock)
        keeping.save()

    def plant(self, key: StreamKey, graves: Sequence[Grave]) -> None:
        """Store graves of memories that never lived here."""
        rows = [
            {
                **_columns(key),
                "memory_id": grave.memory_id,
                "commit_stamp": grave.commit_stamp,
                "stamp": grave.stamp.pack(),
                "private_to": grave.private_to,
                "scope": grave.scope,
            }
            for grave in graves
        ]
        if rows:
            self._transaction.run_many(_PLANT, rows)

    def put_accesses(self, key: StreamKey, accesses: Sequence[tuple[ReplicaAccesses, CommitStamp]]) -> None:
        """Store how often replicas looked at memories, each with its place in the lane of counts."""
        rows = [
            {
                **_columns(key),
                "memory_id": one.memory_id,
                "replica_id": one.replica_id,
                "total": one.total,
                "last_access_at": one.last_access_at,
                "lane_stamp": lane_stamp,
            }
            for one, lane_stamp in accesses
        ]
        if rows:
            self._transaction.run_many(_PUT_ACCESSES, rows)

    def open_streams(self, opened: Sequence[OpenedStream], epoch: int) -> None:
        """Let everyone read and write these streams, and do what was asked in them; again, nothing changes.

        Where a stream stands in its lane of counts is read from what lies there.
        """
        for one in opened:
            row = self._transaction.first(_LANE, _columns(one.key))
            values = {
                **_columns(one.key),
                "head": one.head,
                "epoch": epoch,
                "horizon": one.horizon,
                "counts_head": (row and row[0]) or 0,
                "history_horizon": one.history_horizon,
            }
            if one.head and self._transaction.run(self._statements.open_stream, values) == 0:
                continue
            self._add_jobs(one)
        if self._transaction.dialect_name == "postgresql":
            tell(self._transaction, {one.key: replace(NO_HEAD, head=one.head) for one in opened if one.head})

    def _add_jobs(self, opened: OpenedStream) -> None:
        ids = [job.id for job in opened.jobs]
        values = {
            "incarnation": opened.key.incarnation,
            "ids": ids_value(self._transaction.dialect_name, ids),
        }
        known = {row[0] for row in self._transaction.all(self._statements.known_jobs, values)}
        for job in opened.jobs:
            if job.id not in known:
                JobWriting(self._transaction).add_job(job)


def importing_among(
    transaction: Transaction, incarnations: Collection[Incarnation]
) -> dict[Incarnation, str]:
    """Those of the tenants into which an import is under way, and its operation."""
    if not incarnations:
        return {}
    dialect = transaction.dialect_name
    return dict(transaction.all(_UNDER_WAY[dialect], {"ids": ids_value(dialect, sorted(incarnations))}))


def _columns(key: StreamKey) -> dict[str, Any]:
    return {"incarnation": key.incarnation, "stream": key.stream}


_IS_IMPORT = imports.c.incarnation == bindparam("of"), imports.c.operation_id == bindparam("of_operation")
_PLACE = select(imports.c.place).where(
    imports.c.incarnation == bindparam("incarnation"), imports.c.operation_id == bindparam("operation_id")
)
_MOVE = (
    update(imports)
    .where(*_IS_IMPORT, imports.c.place == bindparam("from"))
    .values(place=bindparam("new_place"))
)
_TAKE_BACK = (
    update(imports).where(*_IS_IMPORT, imports.c.place.is_not(None)).values(place=bindparam("new_place"))
)
_END = update(imports).where(*_IS_IMPORT).values(place=null())
_PLANT = graveyard.insert()
_PUT_ACCESSES = access_counts.insert()
_UNDER_WAY = {
    dialect: select(imports.c.incarnation, imports.c.operation_id).where(
        among(imports.c.incarnation), imports.c.place.is_not(None)
    )
    for dialect, among in AMONG.items()
}
_LANE = (
    select(access_counts.c.lane_stamp)
    .where(
        access_counts.c.incarnation == bindparam("incarnation"),
        access_counts.c.stream == bindparam("stream"),
    )
    .order_by(access_counts.c.lane_stamp.desc())
)
_TEXTS = (
    select(memories.c.stream, memories.c.id, memories.c.content_stamp, memories.c.content)
    .where(
        memories.c.incarnation == bindparam("incarnation"),
        memories.c.id > bindparam("after", type_=memories.c.id.type),
        ~select(vectors.c.memory_id)
        .where(
            vectors.c.incarnation == memories.c.incarnation,
            vectors.c.stream == memories.c.stream,
            vectors.c.memory_id == memories.c.id,
            vectors.c.space == bindparam("space"),
            vectors.c.content_stamp == memories.c.content_stamp,
        )
        .exists(),
    )
    .order_by(memories.c.id)
    .limit(bindparam("limit"))
)


class _Statements:
    def __init__(self, dialect_name: str, insert: Callable[[Table], Any]) -> None:
        self.begin: Insert = insert(imports).on_conflict_do_nothing()
        self.open_stream: Insert = insert(streams).on_conflict_do_nothing()
        self.known_jobs = select(jobs.c.id).where(
            jobs.c.incarnation == bindparam("incarnation"), AMONG[dialect_name](jobs.c.id)
        )


_STATEMENTS: Mapping[str, _Statements] = {
    "postgresql": _Statements("postgresql", postgresql.insert),
    "sqlite": _Statements("sqlite", sqlite.insert),
}
