"""Copies of what a viewer sees of a stream, as rows of another SQLite file.

Where the shard lies in a SQLite file too, SQLite copies from file to file, three times as fast as rows
that pass through Python.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from scrubjay.memory import ClientId, PrivacyLevel, Viewer, id_bytes
from scrubjay.stamp import CommitStamp
from server.store.reading import Reading
from server.store.rows import PRIVACY_LEVELS, StreamKey

_ROWS = 2000
"""Read and written at a time."""
_VIEWS = 1000
"""Answers about who sees what that are kept while copying; most streams need a few."""
_ASKED_BEFORE = 200
"""The newest memories, of whose like it is asked before copying who sees them: mostly all are such."""
_INSERT = "INSERT INTO rows VALUES (?, ?, ?, ?, ?)"
_GUARDS = """
SELECT DISTINCT privacy_level, owner_client_id, scope FROM (
    SELECT * FROM shard.memories WHERE incarnation = ? AND stream = ? ORDER BY commit_stamp DESC LIMIT ?
)
"""
# A call of Python a row, for its id; a second one, ``sees``, where nobody asked of such a memory before.
_COPY = """
INSERT INTO rows
SELECT from_hex(replace(id, '-', ' ')), commit_stamp, created_at, message, field_stamps FROM shard.memories
WHERE incarnation = ? AND stream = ?
AND ((privacy_level, owner_client_id, scope) IN (SELECT * FROM temp.seen)
     OR sees(privacy_level, owner_client_id, scope))
ORDER BY commit_stamp
"""


class _Guarded(NamedTuple):
    privacy_level: PrivacyLevel
    owner_client_id: ClientId
    scope: str


def attach(file: sqlite3.Connection, shard: Path) -> None:
    """Let the connection, which takes URIs, read a shard's tables beside its own."""
    file.execute("ATTACH DATABASE ? AS shard", (f"{shard.absolute().as_uri()}?mode=ro",))


def copy_attached(file: sqlite3.Connection, key: StreamKey, viewer: Viewer) -> int:
    """Insert what the viewer sees, in commit-stamp order, from the shard that is attached; how many rows."""
    stream, sees = (key.incarnation, key.stream), _sees(viewer)
    file.create_function("from_hex", 1, bytes.fromhex, deterministic=True)  # spaces between bytes are allowed
    file.create_function("sees", 3, sees, deterministic=True)
    guards = file.execute(_GUARDS, (*stream, _ASKED_BEFORE)).fetchall()
    file.execute("CREATE TEMP TABLE seen (privacy_level, owner_client_id, scope)")
    file.executemany("INSERT INTO temp.seen VALUES (?, ?, ?)", [each for each in guards if sees(*each)])
    return file.execute(_COPY, stream).rowcount


def _sees(viewer: Viewer) -> Callable[[int, ClientId, str], bool]:
    @lru_cache(_VIEWS)
    def sees(privacy_level: int, owner_client_id: ClientId, scope: str) -> bool:
        return viewer.sees(_Guarded(PRIVACY_LEVELS[privacy_level], owner_client_id, scope))

    return sees


def copy_read(file: sqlite3.Connection, reading: Reading, key: StreamKey, viewer: Viewer) -> int:
    """The same from any database."""
    count, after = 0, CommitStamp(0)
    while rows := reading.snapshot_after(key, after, _ROWS):
        visible = [
            (id_bytes(row.memory_id), row.commit_stamp, row.created_at, row.message, row.field_stamps)
            for row in rows
            if viewer.sees(row)
        ]
        file.executemany(_INSERT, visible)
        count, after = count + len(visible), rows[-1].commit_stamp
    return count
