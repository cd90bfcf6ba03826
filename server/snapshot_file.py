"""Everything one viewer may see of a stream, as a SQLite file; and before that, the newest of it.

A device loads such a file many times faster than rows, since nothing in it is decoded on either side:

    rows(id BLOB, commit_stamp INTEGER PRIMARY KEY, created_at INTEGER, message BLOB, field_stamps BLOB)
    PRAGMA user_version = 1

``message`` is the encoded ``v1.Memory``. Ordered by commit stamp the table is smallest, and fastest to
write and to copy from: a quarter faster than by id.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from scrubjay import v1
from scrubjay.feed import MAX_PAGE_BYTES, seal_page, whole
from scrubjay.memory import MemoryId, Micros, Subject, Viewer
from scrubjay.stamp import CommitStamp
from server.store.memory_store import MemoryStore, Reading, StreamHead, StreamKey

VERSION = 1
MOST_LOOKED_AT = 10_000
"""Memories that the newest page looks at: it may be short for a viewer who sees few of them."""

_NEWEST_ROWS = 500
_LOOK_EVERY = 20_000
"""Instructions of SQLite between two looks at whether to go on: some ms."""
_SCHEMA = """
CREATE TABLE rows (
    id BLOB NOT NULL,
    commit_stamp INTEGER PRIMARY KEY,
    created_at INTEGER NOT NULL,
    message BLOB NOT NULL,
    field_stamps BLOB NOT NULL
)
"""
_SETTINGS = (
    "page_size = 16384",
    # It is thrown away where it does not become whole, and nobody else opens it before.
    "journal_mode = OFF",
    "synchronous = OFF",
    f"user_version = {VERSION}",
)


def write_file(
    path: Path, store: MemoryStore, key: StreamKey, viewer: Viewer, over: Callable[[], bool]
) -> tuple[StreamHead | None, int]:
    """Write what the viewer sees to an empty file; the stream's head of that moment, and how many rows.

    sqlite3.Error where the disk does not take it, and soon after ``over`` says so.
    """
    with closing(sqlite3.connect(path, isolation_level=None, uri=True)) as connection:
        for setting in _SETTINGS:
            connection.execute(f"PRAGMA {setting}").close()
        connection.set_progress_handler(over, _LOOK_EVERY)
        connection.execute("BEGIN")
        connection.execute(_SCHEMA)
        copied = store.copy_visible(connection, key, viewer)
        connection.execute("COMMIT")
        return copied


def newest_page(reading: Reading, key: StreamKey, subject: Subject, viewer: Viewer, count: int) -> v1.Page:
    """The ``count`` memories that were created last, of those that the viewer sees; fewer where they are
    more than a page's bytes."""
    found: list[tuple[MemoryId, CommitStamp, v1.Change]] = []
    size = looked_at = 0
    before: tuple[Micros, MemoryId] | None = None
    while looked_at < MOST_LOOKED_AT and (rows := reading.newest(key, before, _NEWEST_ROWS)):
        for row in rows:
            if len(found) == count or size >= MAX_PAGE_BYTES:
                return _sealed(found)
            if viewer.sees(row):
                found.append((row.memory_id, row.commit_stamp, whole(row.message, row.field_stamps, subject)))
                size += len(row.message) + len(row.field_stamps)
        before = (rows[-1].created_at, rows[-1].memory_id)
        looked_at += len(rows)
    return _sealed(found)


def _sealed(found: list[tuple[MemoryId, CommitStamp, v1.Change]]) -> v1.Page:
    return seal_page(sorted(found, key=lambda change: change[1]))
