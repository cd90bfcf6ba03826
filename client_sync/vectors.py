"""The lane of embeddings: fetched apart from the memories, so that nobody waits for them."""

from __future__ import annotations

from client_sync.remote_sync import RemoteSync
from client_sync.replica import Replica
from scrubjay import v1
from scrubjay.stamp import unpack_field_stamps

FETCHED_AT_ONCE = 1000

_MISSING = """
SELECT rows.id, rows.field_stamps FROM rows LEFT JOIN vectors ON vectors.id = rows.id
WHERE rows.commit_stamp > 0 AND rows.id > ? AND vectors.id IS NULL ORDER BY rows.id LIMIT ?
"""


def fetch_vectors(replica: Replica, remote: RemoteSync) -> int:
    """Fetch the embeddings that are missing here; how many came. Some may be missing on the server too."""
    fetched, after = 0, b""
    while True:
        with replica.file.reading() as sql:
            rows = sql.execute(_MISSING, (after, FETCHED_AT_ONCE)).fetchall()
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
        # A memory that was taken back meanwhile gets none.
        sql.executemany(
            "INSERT OR REPLACE INTO vectors SELECT ?1, ?2, ?3, ?4 WHERE EXISTS"
            " (SELECT 1 FROM rows WHERE id = ?1)",
            found,
        )
    return len(found)
