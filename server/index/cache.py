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
from server.index.shelf import Shelf
from server.store.memory_store import MemoryStore, StreamKey

_PAGE = 1000
_NOTHING = CommitStamp(0)


@dataclass(slots=True, eq=False)
class _Entry:
    """A resident stream. ``head`` is the latest commit heard of; ``shelved`` the stamp of its snapshot."""

    stream: ResidentStream
    head: CommitStamp = _NOTHING
    shelved: CommitStamp = _NOTHING
    loaded: bool = False
    left: bool = False
    nbytes: int = 0


class StreamCache:
    """The resident streams of one shard and one embedding space, within a budget of bytes."""

    def __init__(
        self, store: MemoryStore, shelf: Shelf, *, space: str, dimension: int, budget_bytes: int
    ) -> None:
        self._store = store
        self._shelf = shelf
        self._space = space
        self._dimension = dimension
        self._budget_bytes = budget_bytes
        self._lock = threading.Lock()
        self._entries: OrderedDict[StreamKey, _Entry] = OrderedDict()
        self._nbytes = 0

    @contextmanager
    def reading(self, key: StreamKey) -> Iterator[ResidentStream]:
        """The stream, up to date and locked for the block."""
        entry = self._locked(key)
        try:
            fresh = self._store.exclusive and entry.loaded and entry.head <= entry.stream.applied
            if not fresh:
                self._catch_up(key, entry)
            yield entry.stream
        finally:
            entry.stream.lock.release()
        if not fresh:
            self._trim(key, entry)

    def note(self, key: StreamKey, head: CommitStamp) -> None:
        """Hear that this process committed up to ``head``."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                entry.head = max(entry.head, head)

    def _locked(self, key: StreamKey) -> _Entry:
        """The stream's entry, its lock held. One that left meanwhile hears of no commit any more."""
        while True:
            with self._lock:
                entry = self._entries.get(key)
                if entry is None:
                    entry = self._entries[key] = _Entry(ResidentStream(self._dimension))
                self._entries.move_to_end(key)
            entry.stream.lock.acquire()
            if not entry.left:
                return entry
            entry.stream.lock.release()

    def _catch_up(self, key: StreamKey, entry: _Entry) -> None:
        """Apply what was committed since. A commit heard of meanwhile raises the entry's head, so the
        next call looks for it."""
        stream = entry.stream
        if not entry.loaded and not stream.rows and (shelved := self._shelf.take(key)) is not None:
            stream.restore(shelved)
            entry.shelved = shelved.commit_stamp
        with self._store.read() as reading:
            found = reading.head(key)
            head = found.head if found else _NOTHING
            while stream.applied < head:
                changes = reading.changes(key, stream.applied, self._space, _PAGE)
                stream.apply(changes)
                if len(changes) < _PAGE:
                    stream.applied = max(stream.applied, head)
        if not entry.loaded:
            stream.settle()
            entry.loaded = True

    def _trim(self, key: StreamKey, entry: _Entry) -> None:
        """Let go of the stream if it is worn, and of others while all together are too large.

        No stream's lock is held here, so that two calls never wait for each other's stream.
        """
        if entry.stream.worn:
            self._shelf.discard(key)
            self._drop(key, entry)
            return
        leaving = []
        with self._lock:
            if not entry.left:
                self._nbytes += entry.stream.nbytes - entry.nbytes
                entry.nbytes = entry.stream.nbytes
            while self._nbytes > self._budget_bytes and len(self._entries) > 1:
                oldest, least_recent = next(iter(self._entries.items()))
                if least_recent is entry:
                    break
                self._forget(oldest, least_recent)
                leaving.append((oldest, least_recent))
        for oldest, least_recent in leaving:
            self._put_away(oldest, least_recent)

    def _drop(self, key: StreamKey, entry: _Entry) -> None:
        with self._lock:
            if not entry.left:
                self._forget(key, entry)
        entry.stream.close()

    def _forget(self, key: StreamKey, entry: _Entry) -> None:
        del self._entries[key]
        entry.left = True
        self._nbytes -= entry.nbytes

    def _put_away(self, key: StreamKey, entry: _Entry) -> None:
        with entry.stream.lock:
            entry.stream.close()
            if entry.loaded and entry.stream.applied != entry.shelved:
                shelved = entry.stream.to_shelve()
                if shelved is not None:
                    self._shelf.put(key, shelved)

    @property
    def nbytes(self) -> int:
        """An estimate of the resident bytes."""
        return self._nbytes

    def close(self) -> None:
        """Let every stream go; the graphs of large ones are kept on the shelf."""
        with self._lock:
            leaving = list(self._entries.items())
            for key, entry in leaving:
                self._forget(key, entry)
        for key, entry in leaving:
            self._put_away(key, entry)
