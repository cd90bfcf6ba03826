"""Forgetting what sync keeps of the past: who may hear of old deletions, retractions, old operations.

The ids of deleted memories stay for ever, so that nothing deleted comes back.
"""

from __future__ import annotations

from scrubjay.stamp import CommitStamp
from server.store.rows import StreamKey
from server.store.writing import Writing


def collect(writing: Writing, key: StreamKey, limit: CommitStamp) -> bool:
    """Forget what is not later than ``limit``; whether there was anything.

    The newest of it becomes the stream's horizon: a replica that has not come past it must load anew.
    """
    newest, head = writing.newest_forgettable(key, limit), writing.head(key)
    if head is None or newest <= head.horizon:
        return False
    writing.raise_horizon(key, newest)
    writing.forget_before(key, newest)
    return True
