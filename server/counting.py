"""Counting accesses: gathered in memory, written together in the lane of counts.

So counting costs a read nothing that it waits for, and no memory is sent to any device again. What was
counted in the last second is lost where the process is killed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from scrubjay.errors import ScrubjayError, TenantDeleting
from scrubjay.memory import Memory, Micros
from server.ingest.accesses import Counted, PendingAccesses
from server.ingest.author import server_replica
from server.ingest.counts import add_accesses
from server.store.fence import TenantMoving
from server.store.memory_store import MemoryStore, Writing
from tenants.tenant import Incarnation

INTERVAL_SECONDS = 1.0
"""What a killed process loses, against a write for each stream that was searched meanwhile."""
STREAMS_AT_ONCE = 64
"""Streams that one transaction locks."""

log = logging.getLogger(__name__)


class AccessCounter:
    """The access counts of one shard; safe for many threads."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._pending = PendingAccesses()

    def add(self, incarnation: Incarnation, memories: Iterable[Memory], now: Micros) -> None:
        """Count an access to each of the memories, to be written soon."""
        self._pending.add(incarnation, memories, now)

    def write(self, _ending: threading.Event | None = None) -> None:
        """Write what was counted. What the database does not take is kept for the next time."""
        for part in _parts(self._pending.take()):
            self._write(part)

    def _write(self, part: Counted) -> None:
        try:
            self._store.write(sorted(part), _unit(part))
        except TenantDeleting:
            log.warning("access counts of a purged tenant are dropped, and of those counted with it")
        except TenantMoving as error:
            theirs, others = _divided(part, error.incarnation)
            self._pending.give_back(theirs)
            if others:
                self._write(others)
        except ScrubjayError as error:
            log.warning("access counts of %d streams wait: %s", len(part), error.message)
            self._pending.give_back(part)

    def hand_over(self, incarnation: Incarnation, other: AccessCounter) -> None:
        """Let another shard's counter write what waits of a tenant that moved there."""
        theirs, others = _divided(self._pending.take(), incarnation)
        self._pending.give_back(others)
        other._pending.give_back(theirs)


def _divided(counted: Counted, incarnation: Incarnation) -> tuple[Counted, Counted]:
    """What is a tenant's, and what is not."""
    theirs = {key: memories for key, memories in counted.items() if key.incarnation == incarnation}
    return theirs, {key: memories for key, memories in counted.items() if key not in theirs}


def _parts(counted: Counted) -> Iterator[Counted]:
    streams = iter(counted.items())
    while part := dict(islice(streams, STREAMS_AT_ONCE)):
        yield part


def _unit(part: Counted) -> Callable[[Writing], None]:
    def unit(writing: Writing) -> None:
        for key, memories in part.items():
            millis = max(accesses.last_access_at for accesses in memories.values()) // 1000
            add_accesses(writing, key, server_replica(key.incarnation), memories, millis)

    return unit
