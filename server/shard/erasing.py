"""How a subject is erased from a shard."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from scrubjay.errors import ServerBusy
from scrubjay.memory import Micros, Subject
from server.ingest.erasing import MEMORIES_AT_ONCE, ROWS_AT_ONCE, erase_memories, erase_rest
from server.shard.parts import ShardParts
from server.store.erasing import ERASED_FIRST, ERASED_TABLES
from server.store.memory_store import StreamKey, Writing
from server.watch import ANY_HEAD
from tenants.receipt import PurgeReceipt
from tenants.tenant import Incarnation

MOST_ROUNDS = 20
"""A stream that is never found empty is written to faster than it is erased."""


class ShardErasing(ShardParts):
    """Deletes all that is stored of a subject. Every step may be cut anywhere and done again."""

    def begin_erasure(self, key: StreamKey, seen: Mapping[str, int], now: Micros) -> None:
        """Begin, or go on with what was begun. ``seen`` counts what lies outside of the database."""

        def unit(writing: Writing) -> None:
            writing.begin_erasure(key, now)
            writing.note_seen(key, seen)

        self._store.write([key], unit)

    def erase_rows(self, incarnation: Incarnation, subject: Subject, now: Micros) -> None:
        """Delete every row of the subject's stream, in small transactions; the last one finds nothing left.

        ServerBusy where others write faster.
        """
        key = StreamKey(incarnation, subject.key)
        for _ in range(MOST_ROUNDS):
            self._erase_most(key, now)
            if self.write_stream(key, partial(erase_rest, key=key, name=subject.name, now=now)):
                self.hub.notify(key, ANY_HEAD)
                return
        raise ServerBusy("the subject is written to faster than it is erased; stop that, then call again")

    def _erase_most(self, key: StreamKey, now: Micros) -> None:
        for table in ERASED_FIRST:
            self._erase_table(key, table)
        while self.write_stream(key, partial(erase_memories, key=key, now=now)) == MEMORIES_AT_ONCE:
            pass
        for table in ERASED_TABLES[len(ERASED_FIRST) :]:
            self._erase_table(key, table)

    def _erase_table(self, key: StreamKey, table: str) -> None:
        def unit(writing: Writing) -> int:
            return writing.erase_rows(key, table, ROWS_AT_ONCE)

        while self.write_stream(key, unit) == ROWS_AT_ONCE:
            pass

    def erasure(self, key: StreamKey) -> PurgeReceipt | None:
        """The receipt of the stream's last erasure, if any."""
        with self._store.read() as reading:
            return reading.erasure(key)

    def finish_erasure(self, key: StreamKey, now: Micros) -> PurgeReceipt:
        """Note that nothing is left; what was deleted."""

        def unit(writing: Writing) -> PurgeReceipt:
            writing.finish_erasure(key, now)
            return writing.erasure(key) or PurgeReceipt(now, now)

        return self._store.write([key], unit)

    def erased_since(self, since: Micros) -> dict[StreamKey, Micros]:
        """The streams whose erasure was finished later than ``since``, and when."""
        with self._store.read() as reading:
            return reading.erased_since(since)

    def count_index_files_of(self, key: StreamKey) -> int:
        """How many files the index keeps in which vectors of a stream are."""
        return self._cache.count_of_stream(key)

    def discard_stream(self, key: StreamKey, until: Micros | None) -> None:
        """Let go of what is resident of a stream, and delete what the index keeps of it, if a time is given
        what it kept by then."""
        self._cache.discard_stream(key, until)
        self._pasts.discard(key)
