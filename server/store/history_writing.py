"""Forgetting History: the oldest operations of a stream go, and the stream says up to where.

What lives needs none of it: a memory's row has its own stamps and etag, and a grave its id.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import and_, bindparam, delete, select, update

from scrubjay.stamp import CommitStamp
from server.store.rows import StreamKey
from server.store.tables import history, streams
from server.store.transaction import Transaction


class HistoryWriting:
    """What a unit may forget of a stream that it named; a part of ``Writing``."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def forget_history(self, key: StreamKey, limit: CommitStamp, most: int) -> int:
        """Delete at most ``most`` operations of the stream, its oldest, none later than ``limit``; how many.

        The newest of them becomes the horizon of its history: no moment before that can be told any more.
        """
        values = {**_of_row(key), "of_limit": limit}
        oldest = self._transaction.all(_OLDEST, {**values, "most": most})
        if not oldest:
            return 0
        newest = CommitStamp(oldest[-1][0])
        self._transaction.run(_RAISE_HORIZON, {**_of_row(key), "new_horizon": newest})
        return self._transaction.run(_FORGET, {**values, "of_limit": newest})


def _of_row(key: StreamKey) -> dict[str, Any]:
    return {"of_incarnation": key.incarnation, "of_stream": key.stream}


_IS_OLD = and_(
    history.c.incarnation == bindparam("of_incarnation"),
    history.c.stream == bindparam("of_stream"),
    history.c.commit_stamp <= bindparam("of_limit"),
)
_OLDEST = (
    select(history.c.commit_stamp).where(_IS_OLD).order_by(history.c.commit_stamp).limit(bindparam("most"))
)
_FORGET = delete(history).where(_IS_OLD)
_RAISE_HORIZON = (
    update(streams)
    .where(streams.c.incarnation == bindparam("of_incarnation"), streams.c.stream == bindparam("of_stream"))
    .values(history_horizon=bindparam("new_horizon"))
)
