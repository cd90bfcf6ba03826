"""Which streams are resident: loaded by the call that needs one, dropped least recently used.

A resident stream names the commit stamp it has applied. Before it is read it is brought up to the
stream's head, so any server may serve any tenant: what another server committed is in the rows between.
Where this process is the database's only writer it hears of every commit itself and asks SQL nothing.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from scrubjay.stamp import CommitStamp
from server.index.resident import ResidentStream
from server.store.memory_store import MemoryStore, StreamKey

_PAGE = 1000
_NOTHING = CommitStamp(0)


@dataclass(slots=True)
class _Entry:
    stream: ResidentStream
    head: CommitStamp = _NOTHING
    loaded: bool = False
    nbytes: int = 0


class StreamCache:
    """The resident streams of one shard and one embedding space, within a budget of bytes."""

    def __init__(self, store: MemoryStore, *, space: str, dimension: int, budget_bytes: int) -> None:
        self._store = store
        self._space = space
        self._dimension = dimension
        self._budget_bytes = budget_bytes
        self._lock = threading.Lock()
        self._entries: OrderedDict[StreamKey, _Entry] = OrderedDict()
        self._nbytes = 0

    @contextmanager
    def reading(self, key: StreamKey) -> Iterator[ResidentStream]:
        """The stream, up to date and locked for the block."""
        entry = self._entry(key)
        with entry.stream.lock:
            if not (self._store.exclusive and entry.loaded and entry.head <= entry.stream.applied):
                self._catch_up(key, entry)
            yield entry.stream

    def note(self, key: StreamKey, head: CommitStamp) -> None:
        """Hear that this process committed up to ``head``."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                entry.head = max(entry.head, head)

    def _entry(self, key: StreamKey) -> _Entry:
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                entry = self._entries[key] = _Entry(ResidentStream(self._dimension))
            self._entries.move_to_end(key)
            return entry

    def _catch_up(self, key: StreamKey, entry: _Entry) -> None:
        """Apply what was committed since. A commit heard of meanwhile raises the entry's head, so the
        next call looks for it."""
        stream = entry.stream
        with self._store.read() as reading:
            found = reading.head(key)
            head = found.head if found else _NOTHING
            while stream.applied < head:
                changes = reading.changes(key, stream.applied, self._space, _PAGE)
                stream.apply(changes)
                if len(changes) < _PAGE:
                    stream.applied = max(stream.applied, head)
        entry.loaded = True
        if stream.worn:
            self.drop(key)
        else:
            self._account(key, entry)

    def _account(self, key: StreamKey, entry: _Entry) -> None:
        evicted = []
        with self._lock:
            if self._entries.get(key) is entry:
                self._nbytes += entry.stream.nbytes - entry.nbytes
                entry.nbytes = entry.stream.nbytes
            while self._nbytes > self._budget_bytes and len(self._entries) > 1:
                oldest, _ = next(iter(self._entries.items()))
                if oldest == key:
                    break
                evicted.append(self._forget(oldest))
        for stream in evicted:
            stream.close()

    def drop(self, key: StreamKey) -> None:
        """Let a stream go; the next read loads it again."""
        with self._lock:
            stream = self._forget(key) if key in self._entries else None
        if stream is not None:
            stream.close()

    def _forget(self, key: StreamKey) -> ResidentStream:
        entry = self._entries.pop(key)
        self._nbytes -= entry.nbytes
        return entry.stream

    @property
    def nbytes(self) -> int:
        """An estimate of the resident bytes."""
        return self._nbytes

    def close(self) -> None:
        """Drop every stream."""
        for key in list(self._entries):
            self.drop(key)
