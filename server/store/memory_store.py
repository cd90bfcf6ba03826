"""One shard's database: consistent reads, and writes that share commits."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from scrubjay.memory import Viewer
from server.store.committer import MAX_BATCH, MAX_QUEUE, Aside, Committer
from server.store.copying import attach, copy_attached, copy_read
from server.store.feed_reading import FeedRow, GuardedRow, Retraction
from server.store.importing import ImportReading, ImportWriting
from server.store.moving import MoveReading, MoveWriting
from server.store.purging import PurgeReading, PurgeWriting
from server.store.reading import Reading
from server.store.rows import Change, Extent, Grave, StoredMemory, StreamHead, StreamKey
from server.store.stocks import Limits, Stock, stock_of
from server.store.transaction import Transactions
from server.store.writing import Writing
from tenants import database
from tenants.quotas import Allowance
from tenants.tenant import Incarnation

__all__ = [
    "Change",
    "Extent",
    "FeedRow",
    "Grave",
    "GuardedRow",
    "MemoryStore",
    "Reading",
    "Retraction",
    "StoredMemory",
    "StreamHead",
    "StreamKey",
    "Writing",
]

MIGRATIONS = Path(__file__).parent / "migrations"
VERSION_TABLE = "shard_version"
READERS = 4
"""Connections for reads; a read holds one for a millisecond or so."""

EPOCHS_AT_ONCE = 500
"""Streams that one transaction begins anew."""

T = TypeVar("T")


class MemoryStore:
    """A shard's database, from construction to ``close``; safe for many threads.

    ``url`` is ``sqlite:///<path>`` or ``postgresql://…``; ``limits`` says how much a tenant may have, and
    ``aside`` is around each wait for a commit.
    ``migrate`` comes before anything else. Every
    method raises StorageUnavailable where the database does not answer.
    """

    def __init__(
        self,
        url: str,
        *,
        limits: Limits = lambda _: Allowance(),
        readers: int = READERS,
        max_batch: int = MAX_BATCH,
        max_queue: int = MAX_QUEUE,
        aside: Aside = nullcontext,
    ) -> None:
        self._limits = limits
        self._engine = database.open_engine(url, connections=1)
        reader = database.open_engine(url, read_only=True, connections=readers)
        self._writes = Transactions(self._engine, read_only=False)
        self._moves = self._writes
        if not self.exclusive:  # with a connection of its own, beside the committer's
            self._moves = Transactions(database.open_engine(url, connections=1), read_only=False)
        self._reads = Transactions(reader, read_only=True)
        self._committer = Committer(
            self._writes, limits=limits, max_batch=max_batch, max_queue=max_queue, aside=aside
        )

    @property
    def exclusive(self) -> bool:
        """Whether this process is the only one that writes here, so that it hears of every commit."""
        return self._writes.dialect_name == "sqlite"

    def migrate(self) -> None:
        """Bring the tables to this version's; SchemaTooNew where a newer version did already."""
        database.migrate(self._engine, MIGRATIONS, VERSION_TABLE)

    def pending(self) -> bool:
        """Whether ``migrate`` has anything to do."""
        return database.pending(self._engine, MIGRATIONS, VERSION_TABLE)

    @contextmanager
    def read(self) -> Iterator[Reading]:
        """Reads of one moment, for the block."""
        with self._reads.begin() as transaction:
            yield Reading(transaction)

    def copy_visible(
        self, file: sqlite3.Connection, key: StreamKey, viewer: Viewer
    ) -> tuple[StreamHead | None, int]:
        """Insert what the viewer sees of a stream into the table ``rows`` of another SQLite file, in
        commit-stamp order; the stream's head of that moment, and how many rows.

        The connection takes URIs and is in a transaction, which its owner commits; ``rows`` has id,
        commit_stamp, created_at, message and field_stamps. Raises what the connection raises, too.
        """
        if not self.exclusive:
            with self.read() as reading:
                return reading.head(key), copy_read(file, reading, key, viewer)
        attach(file, Path(str(self._engine.url.database)))
        reading = Reading(self._reads.joined(file))
        return reading.head(key), copy_attached(file, key, viewer)

    def write(
        self,
        keys: Sequence[StreamKey],
        unit: Callable[[Writing], T],
        timeout_seconds: float | None = None,
        tenant: Incarnation | None = None,
    ) -> T:
        """Run ``unit`` under the heads of the streams ``keys``; what it returned, once committed durably.

        ``unit`` runs in the committer's thread, again where another process wrote first, and is undone
        where it raises; it computes nothing long. It waits in the turns of ``tenant``, by default that of the
        first key. Raises what it raised, or ServerBusy, Unavailable once closed, DeadlineExceeded after
        ``timeout_seconds``.
        """
        return self._committer.write(keys, unit, timeout_seconds, tenant)

    def stock(self, incarnation: Incarnation) -> Stock:
        """What a tenant has here."""
        with self._reads.begin() as transaction:
            return stock_of(transaction, incarnation)

    @contextmanager
    def reading_purges(self) -> Iterator[PurgeReading]:
        """What is known of lives that ended, for the block."""
        with self._reads.begin() as transaction:
            yield PurgeReading(transaction)

    @contextmanager
    def purging(self) -> Iterator[PurgeWriting]:
        """A transaction that ends lives, committed with the block; other writers wait for it."""
        with self._writes.begin() as transaction:
            yield PurgeWriting(transaction)

    @contextmanager
    def reading_imports(self) -> Iterator[ImportReading]:
        """How imports stand, for the block."""
        with self._reads.begin() as transaction:
            yield ImportReading(transaction)

    @contextmanager
    def importing(self) -> Iterator[ImportWriting]:
        """A transaction of an import, committed with the block; in SQLite other writers wait for it."""
        with self._writes.begin() as transaction:
            yield ImportWriting(transaction, self._limits)

    @contextmanager
    def reading_moves(self) -> Iterator[MoveReading]:
        """Whole rows of one moment, and how tenants stand that move, for the block."""
        with self._reads.begin() as transaction:
            yield MoveReading(transaction)

    @contextmanager
    def moving(self) -> Iterator[MoveWriting]:
        """A transaction of a move, committed with the block; in SQLite other writers wait for it."""
        with self._moves.begin() as transaction:
            yield MoveWriting(transaction)

    def compact(self) -> None:
        """Leave no byte of what was deleted in a SQLite file: see ``tenants.database.compact``."""
        database.compact(self._engine)

    def begin_epochs(self, now_millis: int) -> int:
        """Begin another life of every stream, for a database that was restored; how many there are."""
        count, last = 0, None
        while True:
            with self.read() as reading:
                keys = reading.streams(last, EPOCHS_AT_ONCE)
            if not keys:
                return count
            self.write(keys, _begin_epochs(keys, now_millis))
            count, last = count + len(keys), keys[-1]

    def close(self) -> None:
        """Finish the writes that wait, then disconnect. May be called again."""
        self._committer.close()
        # The writer last: the last connection to a SQLite file folds its log back.
        self._reads.close()
        self._moves.close()
        self._writes.close()

    def __enter__(self) -> MemoryStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _begin_epochs(keys: Sequence[StreamKey], now_millis: int) -> Callable[[Writing], None]:
    def unit(writing: Writing) -> None:
        for key in keys:
            writing.begin_epoch(key, now_millis)

    return unit
