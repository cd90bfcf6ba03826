"""The answers that most operations get: taken as they were made, and nobody else at their memory.

What is shown of such a memory, the server's copy with the operation on top, is what the server has now. So
the row becomes the copy as it is: neither is read, joined and shown anew, as ``Copies`` does for all others,
with the same result at four times the cost.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence

from client_sync.outbox import Outbox, Sent
from client_sync.replica_file import rows_among
from scrubjay import v1
from scrubjay.operation import OperationKind

Answered = tuple[Sent, v1.OperationResult]

# A create (1) of what the server did not have, or an edit of what it had, with no other operation there.
_ALONE = """
SELECT mine.memory_id FROM outbox AS mine
JOIN beneath ON beneath.id = mine.memory_id
JOIN rows ON rows.id = mine.memory_id
WHERE (mine.kind = 1) = (beneath.message IS NULL)
AND NOT EXISTS (SELECT 1 FROM graves WHERE graves.id = mine.memory_id)
AND NOT EXISTS (
    SELECT 1 FROM outbox AS other WHERE other.memory_id = mine.memory_id AND other.position <> mine.position
)
AND mine.memory_id IN
"""


def confirm(
    sql: sqlite3.Connection,
    outbox: Outbox,
    answered: Sequence[Answered],
    reached: int,
    told: Collection[bytes],
) -> list[Answered]:
    """End the operations that were taken as they were made, up to ``reached`` in the feed; all others.

    ``told`` are the memories, as 16 bytes, that the answer's own page tells of. Its caller's transaction
    shows everything that was done before.
    """
    plain = [
        pair
        for pair in answered
        if _is_plain(*pair) and pair[1].commit_stamp <= reached and pair[0].key not in told
    ]
    alone = rows_among(sql, _ALONE, [each.key for each, _ in plain])
    ended = [pair for pair in plain if pair[0].key in alone]
    sql.executemany(
        "UPDATE rows SET commit_stamp = max(commit_stamp, ?) WHERE id = ?",
        [(result.commit_stamp, each.key) for each, result in ended],
    )
    sql.executemany("DELETE FROM beneath WHERE id = ?", [(each.key,) for each, _ in ended])
    outbox.drop(each for each, _ in ended)
    positions = {each.position for each, _ in ended}
    return [pair for pair in answered if pair[0].position not in positions]


def _is_plain(sent: Sent, result: v1.OperationResult) -> bool:
    return (
        result.status == v1.OPERATION_STATUS_APPLIED
        and not result.first_status
        and not result.registers
        and sent.kind in (OperationKind.CREATE, OperationKind.SET)
    )
