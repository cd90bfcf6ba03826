"""How a shard is imported into. Every step may be cut anywhere and done again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from scrubjay.memory import MemoryId
from scrubjay.stamp import CommitStamp, Stamp
from server.shard.parts import ShardParts
from server.store.entities import Links, MentionRow, RelationRow
from server.store.exporting import RecentMessages, ReplicaAccesses
from server.store.history import HistoryRow
from server.store.importing import IMPORTED_TABLES, OpenedStream
from server.store.memory_store import Grave, StoredMemory, StreamKey
from server.store.replicas import WaitingOperation
from tenants.tenant import Incarnation

TAKEN_BACK_AT_ONCE = 1000
"""Rows that one transaction deletes: other writers of a SQLite shard wait for some 20 ms."""


@dataclass(slots=True)
class ImportedRows:
    """Rows of one stream that are stored together."""

    memories: list[StoredMemory] = field(default_factory=list)
    mentions: list[MentionRow] = field(default_factory=list)
    relations: list[RelationRow] = field(default_factory=list)
    accesses: list[tuple[ReplicaAccesses, CommitStamp]] = field(default_factory=list)
    history: list[HistoryRow] = field(default_factory=list)
    graves: list[Grave] = field(default_factory=list)
    waiting: list[WaitingOperation] = field(default_factory=list)
    recent: list[RecentMessages] = field(default_factory=list)


class ShardImporting(ShardParts):
    """Takes the rows of an import, opens the streams at its end, or takes all back."""

    def begin_import(self, incarnation: Incarnation, operation_id: str) -> bool:
        """Keep everyone else from writing to a tenant; whether nothing was ever written to it. Where
        something was, nothing is begun."""
        with self._store.importing() as importing:
            return importing.begin(incarnation, operation_id)

    def import_place(self, incarnation: Incarnation, operation_id: str) -> int | None:
        """How many lines are stored; None where the import is over."""
        with self._store.reading_imports() as importing:
            return importing.place(incarnation, operation_id)

    def import_rows(
        self, key: StreamKey, operation_id: str, lines: tuple[int, int], rows: ImportedRows
    ) -> None:
        """Store rows, and that the lines between these two are stored with them.

        Unavailable where another server did; QuotaExceeded.
        """
        with self._store.importing() as importing:
            importing.move(key.incarnation, operation_id, *lines)
            with importing.writing(key) as writing:
                writing.insert(key, rows.memories)
                writing.link(key, Links(tuple(rows.mentions), tuple(rows.relations)))
                writing.add_history(key, rows.history)
                writing.wait(key, rows.waiting)
                for one in rows.recent:
                    writing.keep_recent(key, one.scope, one.client_id, one.messages)
            importing.plant(key, rows.graves)
            importing.put_accesses(key, rows.accesses)

    def texts_without_vector(
        self, incarnation: Incarnation, space: str, after: MemoryId, limit: int
    ) -> list[tuple[StreamKey, MemoryId, Stamp, str]]:
        """The next memories without a vector, by id, behind ``after``: each content and its stamp."""
        with self._store.reading_imports() as importing:
            return importing.texts_without_vector(incarnation, space, after, limit)

    def import_vectors(
        self,
        incarnation: Incarnation,
        operation_id: str,
        place: int,
        space: str,
        made: Sequence[tuple[StreamKey, MemoryId, Stamp, bytes]],
    ) -> None:
        """Store encoded vectors. Unavailable where the import is another server's, or taken back."""
        of_stream = defaultdict[StreamKey, list[tuple[MemoryId, Stamp, bytes]]](list)
        for key, memory_id, stamp, vector in made:
            of_stream[key].append((memory_id, stamp, vector))
        with self._store.importing() as importing:
            importing.move(incarnation, operation_id, place, place)
            for key, vectors in of_stream.items():
                with importing.writing(key) as writing:
                    writing.put_vectors(key, space, vectors)

    def open_streams(self, opened: Sequence[OpenedStream], epoch: int) -> None:
        """Let everyone read and write these streams, and do what was asked in them."""
        with self._store.importing() as importing:
            importing.open_streams(opened, epoch)
        self._note({one.key: one.head for one in opened if one.head})

    def end_import(self, incarnation: Incarnation, operation_id: str) -> None:
        """Let everyone write to the tenant."""
        with self._store.importing() as importing:
            importing.end(incarnation, operation_id)

    def take_back_import(
        self, incarnation: Incarnation, operation_id: str, step: Callable[[], object]
    ) -> None:
        """Delete all that was stored of an import, if it is under way, then let everyone write; ``step`` is
        called between transactions."""
        with self._store.importing() as importing:
            if not importing.begin_taking_back(incarnation, operation_id):
                return
        for table in IMPORTED_TABLES:
            count = TAKEN_BACK_AT_ONCE
            while count == TAKEN_BACK_AT_ONCE:
                step()
                with self._store.importing() as importing:
                    count = importing.take_back(incarnation, table, TAKEN_BACK_AT_ONCE)
        self.end_import(incarnation, operation_id)
