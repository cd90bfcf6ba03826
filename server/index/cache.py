"""Which streams are resident: loaded by the call that needs one, dropped least recently used.

A resident stream names the commit stamp it has applied. Before it is read it is brought up to the
stream's head, so any server may serve any tenant: what another server committed is in the rows between.
Where this process is the database's only writer it hears of every commit itself and asks SQL nothing.

What is searched across subjects is resident beside the streams that it is made of, under the same budget: all
streams of a tenant, each brought up to its own head.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from scrubjay.memory import Micros
from scrubjay.stamp import CommitStamp
from server.index.resident import ResidentStream
from server.index.shelf import Shelf
from server.store.memory_store import Change, Extent, MemoryStore, Reading, StreamKey
from tenants.tenant import Incarnation

_PAGE = 1000
_NOTHING = CommitStamp(0)


@dataclass(slots=True, eq=False)
class _Entry:
    """A resident stream, or a tenant's all.

    ``heard`` has the latest commit heard of, by stream, where that may not be applied yet; ``shelved`` the
    stamps of its snapshot.
    """

    stream: ResidentStream
    heard: dict[str, CommitStamp] = field(default_factory=dict)
    shelved: Mapping[str, CommitStamp] = field(default_factory=dict)
    loaded: bool = False
    left: bool = False
    nbytes: int = 0


class StreamCache:
    """What is resident of one shard and one embedding space, within a budget of bytes."""

    def __init__(
        self, store: MemoryStore, shelf: Shelf, *, space: str, dimension: int, budget_bytes: int
    ) -> None:
        self.space = space
        self.dimension = dimension
        self.budget_bytes = budget_bytes
        self._store = store
        self._shelf = shelf
        self._lock = threading.Lock()
        self._entries: OrderedDict[Extent, _Entry] = OrderedDict()
        self._nbytes = 0

    @contextmanager
    def reading(self, extent: Extent, *, accesses: bool = False) -> Iterator[ResidentStream]:
        """The stream, or all of the tenant's as one, up to date and locked for the block; with ``accesses``
        it knows when each memory was looked at last, too."""
        entry = self._locked(extent)
        try:
            fresh = self._store.exclusive and entry.loaded and not entry.heard
            if not fresh:
                self._catch_up(extent, entry)
            if accesses:
                self._follow_accesses(extent, entry.stream)
            yield entry.stream
        finally:
            entry.stream.lock.release()
        if not fresh:
            self._trim(extent, entry)

    def note(self, key: StreamKey, head: CommitStamp) -> None:
        """Hear that this process committed up to ``head``."""
        with self._lock:
            for entry in (self._entries.get(key), self._entries.get(key.incarnation)):
                if entry is not None and head > entry.stream.applied.get(key.stream, _NOTHING):
                    entry.heard[key.stream] = max(entry.heard.get(key.stream, _NOTHING), head)

    def reload(self, key: StreamKey) -> None:
        """Let the stream go: something of it was written that has no commit stamp."""
        with self._lock:
            leaving = [(e, entry) for e in (key, key.incarnation) if (entry := self._entries.get(e))]
            for extent, entry in leaving:
                self._forget(extent, entry)
        for extent, entry in leaving:
            self._put_away(extent, entry)

    def _locked(self, extent: Extent) -> _Entry:
        """The extent's entry, its lock held. One that left meanwhile hears of no commit any more."""
        while True:
            with self._lock:
                entry = self._entries.get(extent)
                if entry is None:
                    entry = self._entries[extent] = _Entry(ResidentStream(self.dimension))
                self._entries.move_to_end(extent)
            entry.stream.lock.acquire()
            if not entry.left:
                return entry
            entry.stream.lock.release()

    def _catch_up(self, extent: Extent, entry: _Entry) -> None:
        """Apply what was committed since. What is heard of meanwhile stays heard, so the next call looks
        for it."""
        if entry.loaded:
            self._follow(extent, entry)
        else:
            try:
                self._load(extent, entry)
            except BaseException:
                self._drop(extent, entry)
                raise
        applied = entry.stream.applied
        with self._lock:
            entry.heard = {s: head for s, head in entry.heard.items() if head > applied.get(s, _NOTHING)}

    def _load(self, extent: Extent, entry: _Entry) -> None:
        stream = entry.stream
        if (shelved := self._shelf.take(extent)) is not None:
            stream.restore(shelved)
            entry.shelved = shelved.applied
        with self._store.read() as reading:
            heads = _heads(reading, extent)
            for page in self._living(reading, extent):
                stream.apply(page)
        stream.applied.update(heads)
        stream.settle()
        entry.loaded = True

    def _living(self, reading: Reading, extent: Extent) -> Iterator[Sequence[Change]]:
        """All that lives in it, in commit-stamp order in each stream."""
        name, stamp = "", _NOTHING
        while True:
            if isinstance(extent, StreamKey):
                page = reading.changes(extent, stamp, self.space, _PAGE)
            else:
                page = reading.living(extent, (name, stamp), self.space, _PAGE)
            yield page
            if len(page) < _PAGE:
                return
            name, stamp = page[-1].stream, page[-1].commit_stamp

    def _follow(self, extent: Extent, entry: _Entry) -> None:
        applied = entry.stream.applied
        with self._lock:
            heard = list(entry.heard)
        with self._store.read() as reading:
            if not self._store.exclusive and _is_level(reading, extent, applied):
                return
            heads = _heads(reading, extent, heard if self._store.exclusive else None)
            for name, head in heads.items():
                key = StreamKey(_incarnation(extent), name)
                while applied.get(name, _NOTHING) < head:
                    changes = reading.changes(key, applied.get(name, _NOTHING), self.space, _PAGE)
                    entry.stream.apply(changes)
                    if len(changes) < _PAGE:
                        applied[name] = head

    def _follow_accesses(self, extent: Extent, stream: ResidentStream) -> None:
        counted, incarnation = stream.counted, _incarnation(extent)
        with self._store.read() as reading:
            heads = reading.counts_heads(
                incarnation, extent.stream if isinstance(extent, StreamKey) else None
            )
            for name, head in heads.items():
                key = StreamKey(incarnation, name)
                while counted.get(name, _NOTHING) < head:
                    counts = reading.access_counts(key, counted.get(name, _NOTHING), _PAGE)
                    for one in counts:
                        stream.note_access(one.memory_id, one.last_access_at)
                    counted[name] = counts[-1].lane_stamp if len(counts) == _PAGE else head

    def _trim(self, extent: Extent, entry: _Entry) -> None:
        """Let go of the stream if it is worn, and of others while all together are too large.

        No stream's lock is held here, so that two calls never wait for each other's stream.
        """
        if entry.stream.worn:
            self._shelf.discard(extent)
            self._drop(extent, entry)
            return
        leaving = []
        with self._lock:
            if not entry.left:
                self._nbytes += entry.stream.nbytes - entry.nbytes
                entry.nbytes = entry.stream.nbytes
            while self._nbytes > self.budget_bytes and len(self._entries) > 1:
                oldest, least_recent = next(iter(self._entries.items()))
                if least_recent is entry:
                    break
                self._forget(oldest, least_recent)
                leaving.append((oldest, least_recent))
        for oldest, least_recent in leaving:
            self._put_away(oldest, least_recent)

    def _drop(self, extent: Extent, entry: _Entry) -> None:
        with self._lock:
            if not entry.left:
                self._forget(extent, entry)
        entry.stream.close()

    def _forget(self, extent: Extent, entry: _Entry) -> None:
        del self._entries[extent]
        entry.left = True
        self._nbytes -= entry.nbytes

    def _put_away(self, extent: Extent, entry: _Entry) -> None:
        with entry.stream.lock:
            entry.stream.close()
            if entry.loaded and entry.stream.applied != entry.shelved:
                shelved = entry.stream.to_shelve()
                if shelved is not None:
                    self._shelf.put(extent, shelved)

    def count_of(self, incarnation: Incarnation) -> int:
        """How many files are kept of a tenant whose streams are not resident."""
        return self._shelf.count_of(incarnation)

    def discard_all(self, incarnation: Incarnation) -> None:
        """Let a tenant's streams go, and what was kept of them."""
        with self._lock:
            leaving = [(e, entry) for e, entry in self._entries.items() if _incarnation(e) == incarnation]
            for extent, entry in leaving:
                self._forget(extent, entry)
        for _, entry in leaving:
            with entry.stream.lock:
                entry.stream.close()
        self._shelf.discard_all(incarnation)

    def count_of_stream(self, key: StreamKey) -> int:
        """How many files are kept that hold vectors of a stream, alone or with others of its tenant."""
        return sum(len(self._shelf.files_of(extent)) for extent in (key, key.incarnation))

    def discard_stream(self, key: StreamKey, until: Micros | None) -> None:
        """Let a stream go and what is searched of its tenant with it, and what is kept of them, if a time is
        given what was kept by then."""
        extents = (key, key.incarnation)
        with self._lock:
            leaving = [(e, entry) for e in extents if (entry := self._entries.get(e))]
            for extent, entry in leaving:
                self._forget(extent, entry)
        for _, entry in leaving:
            with entry.stream.lock:
                entry.stream.close()
        for extent in extents:
            self._shelf.discard(extent, until)

    @property
    def nbytes(self) -> int:
        """An estimate of the resident bytes."""
        return self._nbytes

    def close(self) -> None:
        """Let every stream go; the graphs of large ones are kept on the shelf."""
        with self._lock:
            leaving = list(self._entries.items())
            for extent, entry in leaving:
                self._forget(extent, entry)
        for extent, entry in leaving:
            self._put_away(extent, entry)


def _incarnation(extent: Extent) -> Incarnation:
    return extent.incarnation if isinstance(extent, StreamKey) else extent


def _is_level(reading: Reading, extent: Extent, applied: Mapping[str, CommitStamp]) -> bool:
    """Whether no stream of a tenant moved; asked without reading the heads of thousands."""
    return not isinstance(extent, StreamKey) and reading.heads_together(extent) == sum(applied.values())


def _heads(reading: Reading, extent: Extent, heard: Sequence[str] | None = None) -> dict[str, CommitStamp]:
    """How far its streams go; only those of the names ``heard``, where given."""
    if heard is None and not isinstance(extent, StreamKey):
        return reading.heads(extent)
    incarnation = _incarnation(extent)
    names = [extent.stream] if isinstance(extent, StreamKey) else heard or ()
    found = {name: reading.head(StreamKey(incarnation, name)) for name in names}
    return {name: head.head for name, head in found.items() if head is not None}
