"""Forgetting what sync keeps of the past: who may hear of old deletions, retractions, old operations.

The ids of deleted memories stay for ever, so that nothing deleted comes back.
"""

from __future__ import annotations

from scrubjay.stamp import CommitStamp
from server.store.rows import StreamKey
from server.store.writing import Writing


def collect(writing: Writing, key: StreamKey, limit: CommitStamp) -> bool:
    """Forget up to the newest deletion that is not later than ``limit``; whether there was any.

    That becomes the stream's horizon: a replica that has not heard of it must load anew.
    """
    newest, head = writing.newest_grave(key, limit), writing.head(key)
    if newest is None or head is None or newest <= head.horizon:
        return False
    writing.raise_horizon(key, newest)
    writing.forget_before(key, newest)
    return True
