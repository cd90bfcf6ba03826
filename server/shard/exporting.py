"""What an export reads of a shard: pages of one subject, each of its own moment, or all of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

from scrubjay.memory import MemoryId, Micros
from scrubjay.stamp import CommitStamp
from server.shard.parts import ShardParts
from server.store.entities import MentionRow, RelationRow
from server.store.exporting import RecentMessages, ReplicaAccesses, Unread
from server.store.history import HistoryRow
from server.store.memory_store import Grave, Reading, StoredMemory, StreamHead, StreamKey
from server.store.replicas import WaitingOperation
from tenants.tenant import Incarnation

PAGE = 200
"""Rows that are read at a time: some 100 KiB, and long contents some MiB."""
BIG_PAGE = 5
"""Of rows that may hold a whole request each."""
STREAMS = 1000
"""Streams whose names are read at a time."""


@dataclass(frozen=True, slots=True)
class WholeMemory:
    """A memory with all that belongs to it alone."""

    stored: StoredMemory
    accesses: Sequence[ReplicaAccesses]
    mentions: Sequence[MentionRow]
    relations: Sequence[RelationRow]


class SubjectPages:
    """Reads all of a stream, whoever may see it: only for who may export it."""

    def __init__(self, read: Callable[[], AbstractContextManager[Reading]], key: StreamKey) -> None:
        self._read = read
        self._key = key

    def head(self) -> StreamHead | None:
        """Where the stream stands; None where nothing was ever written to it."""
        with self._read() as reading:
            return reading.head(self._key)

    def history_horizon(self) -> CommitStamp:
        """The newest operation whose history was forgotten; 0 where none was."""
        with self._read() as reading:
            return reading.history_horizon(self._key)

    def memories(self, before: tuple[Micros, MemoryId] | None) -> list[WholeMemory]:
        """The next memories, newest first."""
        key = self._key
        with self._read() as reading:
            page = reading.page(key, before, PAGE)
            ids = [stored.memory.id for stored in page]
            accesses = reading.accesses_of(key, ids)
            mentions = reading.mentions(key.incarnation, ids)
            relations = reading.relations_of(key.incarnation, ids)
        return [
            WholeMemory(
                stored,
                [one for one in accesses if one.memory_id == stored.memory.id],
                [one for one in mentions if one.memory_id == stored.memory.id],
                [one for one in relations if one.memory_id == stored.memory.id],
            )
            for stored in page
        ]

    def history(self, before: CommitStamp | None) -> list[HistoryRow]:
        """The next operations, newest first."""
        with self._read() as reading:
            return reading.history(self._key.incarnation, self._key, before, PAGE)

    def graves(self, after: CommitStamp) -> list[Grave]:
        """The next deletions, oldest first."""
        with self._read() as reading:
            return reading.graves_after(self._key, after, PAGE)

    def recent_messages(self, after: tuple[str, str]) -> list[RecentMessages]:
        """The next scopes in which something was said to a model."""
        with self._read() as reading:
            return reading.recent_messages_after(self._key, after, PAGE)

    def waiting(self, after: tuple[str, str]) -> list[WaitingOperation]:
        """The next edits that wait for their memories."""
        with self._read() as reading:
            return reading.waiting_after(self._key, after, PAGE)

    def unread(self, after: str) -> list[Unread]:
        """The next requests that are acknowledged and not done."""
        with self._read() as reading:
            return reading.unread_after(self._key, after, BIG_PAGE)


class ShardExporting(ShardParts):
    """Gives all of a stream, or of a tenant, to be exported."""

    def subject_pages(self, key: StreamKey) -> SubjectPages:
        """The stream, in pages each of its own moment."""
        return SubjectPages(self._store.read, key)

    @contextmanager
    def subject_at_once(self, key: StreamKey) -> Iterator[SubjectPages]:
        """The stream as it is at one moment, for the block."""
        with self._store.read() as reading:
            yield SubjectPages(lambda: nullcontext(reading), key)

    def held_streams(self, incarnation: Incarnation, after: str) -> list[str]:
        """The next streams of a tenant of which anything is held, in order, behind ``after``."""
        with self._store.read() as reading:
            return reading.held_streams(incarnation, after, STREAMS)

    def is_written(self, incarnation: Incarnation) -> bool:
        """Whether anything was ever written to the tenant, or is about to be."""
        with self._store.read() as reading:
            return reading.is_written(incarnation)

    def living_count(self, incarnation: Incarnation) -> int:
        """How many memories live in the tenant."""
        with self._store.read() as reading:
            return reading.living_count(incarnation)
