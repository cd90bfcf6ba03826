"""Erasing a stream inside a unit: its memories are buried, so that everyone who follows it hears of it."""

from __future__ import annotations

from scrubjay.memory import Micros
from scrubjay.stamp import Stamp
from server.ingest.author import server_replica
from server.store.erasing import ERASED_TABLES
from server.store.memory_store import Grave, StreamKey, Writing

MEMORIES_AT_ONCE = 250
"""As many as any deletion of many: their stream is locked for some 100 ms."""
ROWS_AT_ONCE = 1000
"""Rows that one transaction deletes: writers of the shard wait for some 20 ms."""


def erase_memories(writing: Writing, key: StreamKey, now: Micros) -> int:
    """Bury the next memories of the stream, whoever may see them; how many there were."""
    ids = writing.ids(key, MEMORIES_AT_ONCE)
    if not ids:
        return 0
    dead = list(writing.get_many(key.incarnation, ids).values())
    stamps = writing.stamps(key, len(dead), now // 1000)
    replica = server_replica(key.incarnation)
    graves = []
    for stored, commit_stamp in zip(dead, stamps, strict=True):
        latest = stored.state.latest()
        stamp = Stamp(max(commit_stamp, latest.time + 1 if latest else 0), replica)
        graves.append(Grave.of(stored.memory, commit_stamp, stamp))
    writing.erase_memories(key, ids)
    writing.bury(key, graves)
    return len(dead)


def erase_rest(writing: Writing, key: StreamKey, name: str, now: Micros) -> bool:
    """Delete what else there is of the stream, whose subject is called ``name``; whether nothing is left.

    Then who pulls from before this unit loads anew, and of the graves nothing stays but the ids.
    """
    counts = [writing.erase_rows(key, table, ROWS_AT_ONCE) for table in ERASED_TABLES]
    counts.append(writing.erase_answers(key, name, ROWS_AT_ONCE))
    if max(counts) >= ROWS_AT_ONCE or erase_memories(writing, key, now) == MEMORIES_AT_ONCE:
        return False
    head = writing.head(key)
    if head is not None:
        writing.raise_horizon(key, head.head)
        writing.forget_before(key, head.head)
    return True
