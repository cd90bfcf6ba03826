"""Accesses that are counted in memory until they are written, so that no read waits for a write."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from scrubjay.memory import Memory, MemoryId, Micros
from server.store.rows import StreamKey
from tenants.tenant import Incarnation

MOST_PENDING = 20_000
"""Memories with accesses that wait; some 4 MB. More are looked at in no second that the database answers."""


@dataclass(frozen=True, slots=True)
class Accesses:
    """How often a memory was looked at, and when last."""

    count: int
    last_access_at: Micros

    def joined(self, other: Accesses | None) -> Accesses:
        """Both together."""
        if other is None:
            return self
        return Accesses(self.count + other.count, max(self.last_access_at, other.last_access_at))


Counted = dict[StreamKey, dict[MemoryId, Accesses]]


class PendingAccesses:
    """What was counted and not written yet; safe for many threads.

    It holds ``most`` memories. What comes on top of them is not counted: the write of what waits has failed
    for long then.
    """

    def __init__(self, most: int = MOST_PENDING) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._counted: Counted = {}
        self._size = 0

    def add(self, incarnation: Incarnation, memories: Iterable[Memory], now: Micros) -> None:
        """Count one access to each of the memories."""
        counted: Counted = {}
        for memory in memories:
            stream = counted.setdefault(StreamKey(incarnation, memory.subject.key), {})
            stream[memory.id] = Accesses(1, now)
        self.give_back(counted)

    def take(self) -> Counted:
        """All that waits, which then waits no more."""
        with self._lock:
            counted, self._counted, self._size = self._counted, {}, 0
        return counted

    def give_back(self, counted: Mapping[StreamKey, Mapping[MemoryId, Accesses]]) -> None:
        """Let these wait, beside what waits already."""
        with self._lock:
            for key, memories in counted.items():
                stream = self._counted.setdefault(key, {})
                for memory_id, accesses in memories.items():
                    waiting = stream.get(memory_id)
                    if waiting is None and self._size >= self._most:
                        continue
                    self._size += waiting is None
                    stream[memory_id] = accesses.joined(waiting)
