"""What an export reads of a shard: pages, each of its own moment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scrubjay.memory import MemoryId, Micros
from scrubjay.stamp import CommitStamp
from server.shard.parts import ShardParts
from server.store.entities import MentionRow, RelationRow
from server.store.exporting import RecentMessages, Unread, WaitingEdit
from server.store.history import HistoryRow
from server.store.memory_store import Grave, StoredMemory, StreamKey
from server.store.replicas import AccessTotal

PAGE = 200
"""Rows that are read at a time: some 100 KiB, and long contents some MiB."""
BIG_PAGE = 5
"""Of rows that may hold a whole request each."""


@dataclass(frozen=True, slots=True)
class WholeMemory:
    """A memory with all that belongs to it alone."""

    stored: StoredMemory
    accesses: AccessTotal | None
    mentions: Sequence[MentionRow]
    relations: Sequence[RelationRow]


class ShardExporting(ShardParts):
    """Reads all of a stream, whoever may see it: only for who may export it."""

    def whole_memories(self, key: StreamKey, before: tuple[Micros, MemoryId] | None) -> list[WholeMemory]:
        """The next memories, newest first."""
        with self._store.read() as reading:
            page = reading.page(key, before, PAGE)
            ids = [stored.memory.id for stored in page]
            accesses = reading.accesses(key, ids)
            mentions = reading.mentions(key.incarnation, ids)
            relations = reading.relations_of(key.incarnation, ids)
        return [
            WholeMemory(
                stored,
                accesses.get(stored.memory.id),
                [one for one in mentions if one.memory_id == stored.memory.id],
                [one for one in relations if one.memory_id == stored.memory.id],
            )
            for stored in page
        ]

    def whole_history(self, key: StreamKey, before: CommitStamp | None) -> list[HistoryRow]:
        """The next operations, newest first."""
        with self._store.read() as reading:
            return reading.history(key.incarnation, key, before, PAGE)

    def graves(self, key: StreamKey, after: CommitStamp) -> list[Grave]:
        """The next deletions, oldest first."""
        with self._store.read() as reading:
            return reading.graves_after(key, after, PAGE)

    def recent_messages_after(self, key: StreamKey, after: tuple[str, str]) -> list[RecentMessages]:
        """The next scopes in which something was said to a model."""
        with self._store.read() as reading:
            return reading.recent_messages_after(key, after, PAGE)

    def waiting_after(self, key: StreamKey, after: tuple[str, str]) -> list[WaitingEdit]:
        """The next edits that wait for their memories."""
        with self._store.read() as reading:
            return reading.waiting_after(key, after, PAGE)

    def unread_after(self, key: StreamKey, after: str) -> list[Unread]:
        """The next requests that are acknowledged and not done."""
        with self._store.read() as reading:
            return reading.unread_after(key, after, BIG_PAGE)
