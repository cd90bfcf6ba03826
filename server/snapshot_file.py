"""Everything one viewer may see of a stream, as a SQLite file; and before that, the newest of it.

A device loads such a file many times faster than rows, since nothing in it is decoded on either side:

    rows(id BLOB, commit_stamp INTEGER PRIMARY KEY, created_at INTEGER, message BLOB, field_stamps BLOB)
    PRAGMA user_version = 1

``message`` is the encoded ``v1.Memory``. Ordered by commit stamp the table is smallest, and fastest to
write and to copy from: a quarter faster than by id.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

from scrubjay import v1
from scrubjay.feed import MAX_PAGE_BYTES, seal_page, whole
from scrubjay.memory import MemoryId, Micros, Subject, Viewer, id_bytes
from scrubjay.stamp import CommitStamp
from server.store.memory_store import Reading, StreamKey

VERSION = 1
MOST_LOOKED_AT = 10_000
"""Memories that the newest page looks at: it may be short for a viewer who sees few of them."""

FileRow = tuple[bytes, CommitStamp, Micros, bytes, bytes]
"""A row of the file."""

_ROWS = 2000
"""Read and written at a time."""
_NEWEST_ROWS = 500
_SCHEMA = """
CREATE TABLE rows (
    id BLOB NOT NULL,
    commit_stamp INTEGER PRIMARY KEY,
    created_at INTEGER NOT NULL,
    message BLOB NOT NULL,
    field_stamps BLOB NOT NULL
)
"""
_INSERT = "INSERT INTO rows VALUES (?, ?, ?, ?, ?)"
_SETTINGS = (
    "page_size = 16384",
    # It is thrown away where it does not become whole, and nobody else opens it before.
    "journal_mode = OFF",
    "synchronous = OFF",
    "locking_mode = EXCLUSIVE",
    f"user_version = {VERSION}",
)


def visible_rows(reading: Reading, key: StreamKey, viewer: Viewer) -> Iterator[list[FileRow]]:
    """What the viewer sees, in commit-stamp order, some rows at a time."""
    after = CommitStamp(0)
    while rows := reading.snapshot_after(key, after, _ROWS):
        yield [
            (id_bytes(row.memory_id), row.commit_stamp, row.created_at, row.message, row.field_stamps)
            for row in rows
            if viewer.sees(row)
        ]
        if len(rows) < _ROWS:
            return
        after = rows[-1].commit_stamp


def write_file(path: Path, chunks: Iterable[list[FileRow]]) -> int:
    """Write the rows to an empty file; how many there were."""
    count = 0
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for setting in _SETTINGS:
            connection.execute(f"PRAGMA {setting}").close()
        connection.execute("BEGIN")
        connection.execute(_SCHEMA)
        for rows in chunks:
            connection.executemany(_INSERT, rows)
            count += len(rows)
        connection.execute("COMMIT")
    return count


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
