"""The lane of embeddings: fetched apart from the memories, so that nobody waits for them."""

from __future__ import annotations

import sqlite3

from client_sync.remote_sync import RemoteSync
from client_sync.replica import Replica
from scrubjay import v1
from scrubjay.stamp import unpack_field_stamps

FETCHED_AT_ONCE = 1000

_WANTED = """
SELECT rows.id, rows.field_stamps FROM rows LEFT JOIN vectors ON vectors.id = rows.id AND vectors.space = ?
WHERE rows.commit_stamp > 0 AND rows.id > ? AND vectors.id IS NULL ORDER BY rows.id LIMIT ?
"""


def fetch_vectors(replica: Replica, remote: RemoteSync) -> int:
    """Fetch the embeddings that are missing here; how many came. Some may be missing on the server too.

    The server says in which space they are now: those of another one are missing, and stay until the new ones
    have come.
    """
    space = remote.vectors(v1.VectorsRequest()).space
    fetched, after = 0, b""
    while True:
        with replica.file.reading() as sql:
            rows = sql.execute(_WANTED, (space, after, FETCHED_AT_ONCE)).fetchall()
        if rows:
            fetched += _fetch(replica, remote, rows)
        if len(rows) < FETCHED_AT_ONCE:
            return fetched
        after = rows[-1][0]


def _fetch(replica: Replica, remote: RemoteSync, rows: list[tuple[bytes, bytes]]) -> int:
    keys = [
        v1.VectorKey(memory_id=key, content_stamp=unpack_field_stamps(stamps)["content"].pack())
        for key, stamps in rows
    ]
    answer = remote.vectors(v1.VectorsRequest(keys=keys))
    found = [(v.key.memory_id, v.key.content_stamp, answer.space, v.code) for v in answer.vectors]
    with replica.file.transaction(durable=False) as sql:
        # None for a memory that was taken back, or got another content, meanwhile.
        fresh = [each for each in found if _is_of(sql, each[0], each[1])]
        sql.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?, ?)", fresh)
    return len(fresh)


def _is_of(sql: sqlite3.Connection, key: bytes, content_stamp: bytes) -> bool:
    row = sql.execute("SELECT field_stamps FROM rows WHERE id = ?", (key,)).fetchone()
    return row is not None and unpack_field_stamps(row[0])["content"].pack() == content_stamp
