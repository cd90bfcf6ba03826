"""How a tenant's life ends in a shard."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from scrubjay.memory import Micros
from server.shard.parts import ShardParts
from server.store.purging import PURGED_TABLES
from tenants.tenant import Incarnation

PURGED_AT_ONCE = 1000
"""Rows that one transaction deletes: writers of the shard wait for some 20 ms."""


class ShardPurging(ShardParts):
    """Deletes all that is stored of a tenant. Every step may be cut anywhere and done again."""

    def end_life(self, incarnation: Incarnation, now: Micros) -> None:
        """Let nothing be written under the incarnation any more."""
        with self._store.purging() as purging:
            purging.end_life(incarnation, now)

    def count_index_files(self, incarnation: Incarnation) -> int:
        """How many files the index keeps of it."""
        return self._cache.count_of(incarnation)

    def discard_index(self, incarnation: Incarnation) -> None:
        """Let go of what is resident of a life that ended, and delete what the index keeps of it."""
        self._cache.discard_all(incarnation)

    def purge_rows(self, incarnation: Incarnation, over: Callable[[], bool]) -> bool:
        """Delete every row of a life that ended, until ``over``; whether none is left."""
        for table in PURGED_TABLES:
            count = PURGED_AT_ONCE
            while count == PURGED_AT_ONCE:
                if over():
                    return False
                with self._store.purging() as purging:
                    count = purging.purge_rows(incarnation, table, PURGED_AT_ONCE)
        with self._store.reading_purges() as reading:
            return not any(reading.holds(incarnation, table) for table in PURGED_TABLES)

    def note_swept(self, incarnation: Incarnation, counts: Mapping[str, int]) -> None:
        """Note what else is there of a life that ended, before it is deleted."""
        with self._store.purging() as purging:
            purging.note_swept(incarnation, counts)

    def swept(self, incarnation: Incarnation) -> dict[str, int]:
        """What was deleted of a life that ended, by place."""
        with self._store.reading_purges() as reading:
            return reading.swept(incarnation)

    def ended_since(self, began_at: Micros) -> dict[Incarnation, Micros]:
        """The lives that ended later than ``began_at``, and when."""
        with self._store.reading_purges() as reading:
            return reading.ended_since(began_at)

    def compact(self) -> None:
        """Leave no byte of what was deleted in the database's file, where it is one."""
        self._store.compact()
