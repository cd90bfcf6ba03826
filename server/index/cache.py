"""Which streams are resident: loaded by the call that needs one, dropped least recently used.

A resident stream names the commit stamp it has applied. Before it is read it is brought up to the
stream's head, so any server may serve any tenant: what another server committed is in the rows between.
Where this process is the database's only writer it hears of every commit itself and asks SQL nothing.

What is searched across subjects is resident beside the streams that it is made of, under the same budget: all
streams of a tenant, each brought up to its own head.

While a tenant goes over to another embedding space, some callers search it in the old one and some in the new
one: what is resident is of one space, and both are there under the one budget.
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
_Name = tuple[Extent, str]
"""What is resident: an extent in a space."""


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
    """What is resident of one shard, within a budget of bytes. ``dimensions`` are those of the spaces."""

    def __init__(
        self, store: MemoryStore, shelf: Shelf, dimensions: Mapping[str, int], *, budget_bytes: int
    ) -> None:
        self.dimensions = dimensions
        self.budget_bytes = budget_bytes
        self._store = store
        self._shelf = shelf
        self._lock = threading.Lock()
        self._entries: OrderedDict[_Name, _Entry] = OrderedDict()
        self._bare: set[tuple[StreamKey, str]] = set()
        self._nbytes = 0

    @contextmanager
    def reading(self, extent: Extent, space: str, *, accesses: bool = False) -> Iterator[ResidentStream]:
        """The stream, or all of the tenant's as one, in a space, up to date and locked for the block; with
        ``accesses`` it knows when each memory was looked at last, too."""
        name = extent, space
        entry = self._locked(name)
        try:
            fresh = self._store.exclusive and entry.loaded and not entry.heard and not entry.stream.bare
            if not fresh:
                self._catch_up(name, entry)
            if accesses:
                self._follow_accesses(extent, entry.stream)
            yield entry.stream
        finally:
            entry.stream.lock.release()
        if not fresh:
            self._trim(name, entry)

    def note(self, key: StreamKey, head: CommitStamp) -> None:
        """Hear that this process committed up to ``head``."""
        with self._lock:
            for _, entry in self._of(key, key.incarnation):
                if head > entry.stream.applied.get(key.stream, _NOTHING):
                    entry.heard[key.stream] = max(entry.heard.get(key.stream, _NOTHING), head)

    def reload(self, key: StreamKey) -> None:
        """Let the stream go: something of it was written that has no commit stamp."""
        with self._lock:
            leaving = self._of(key, key.incarnation)
            for name, entry in leaving:
                self._forget(name, entry)
        for name, entry in leaving:
            self._put_away(name, entry)

    def _of(self, *extents: Extent) -> list[tuple[_Name, _Entry]]:
        """What is resident of the extents, in every space."""
        names = [(extent, space) for extent in extents for space in self.dimensions]
        return [(name, entry) for name in names if (entry := self._entries.get(name)) is not None]

    def _locked(self, name: _Name) -> _Entry:
        """The extent's entry, its lock held. One that left meanwhile hears of no commit any more."""
        while True:
            with self._lock:
                entry = self._entries.get(name)
                if entry is None:
                    entry = self._entries[name] = _Entry(ResidentStream(self.dimensions[name[1]]))
                self._entries.move_to_end(name)
            entry.stream.lock.acquire()
            if not entry.left:
                return entry
            entry.stream.lock.release()

    def _catch_up(self, name: _Name, entry: _Entry) -> None:
        """Apply what was committed since. What is heard of meanwhile stays heard, so the next call looks
        for it."""
        if entry.loaded:
            self._follow(name, entry)
        else:
            try:
                self._load(name, entry)
            except BaseException:
                self._drop(name, entry)
                raise
        applied = entry.stream.applied
        with self._lock:
            entry.heard = {s: head for s, head in entry.heard.items() if head > applied.get(s, _NOTHING)}
            self._bare |= {(StreamKey(_incarnation(name[0]), s), name[1]) for s in entry.stream.bare_streams}

    def _load(self, name: _Name, entry: _Entry) -> None:
        extent, space = name
        stream = entry.stream
        if (shelved := self._shelf.take(extent, space, self.dimensions[space])) is not None:
            stream.restore(shelved)
            entry.shelved = shelved.applied
        with self._store.read() as reading:
            heads = _heads(reading, extent)
            for page in self._living(reading, extent, space):
                stream.apply(page)
        stream.applied.update(heads)
        stream.settle()
        entry.loaded = True

    @staticmethod
    def _living(reading: Reading, extent: Extent, space: str) -> Iterator[Sequence[Change]]:
        """All that lives in it, in commit-stamp order in each stream."""
        name, stamp = "", _NOTHING
        while True:
            if isinstance(extent, StreamKey):
                page = reading.changes(extent, stamp, space, _PAGE)
            else:
                page = reading.living(extent, (name, stamp), space, _PAGE)
            yield page
            if len(page) < _PAGE:
                return
            name, stamp = page[-1].stream, page[-1].commit_stamp

    def _follow(self, name: _Name, entry: _Entry) -> None:
        extent, space = name
        with self._lock:
            heard = list(entry.heard)
        with self._store.read() as reading:
            if self._store.exclusive or not _is_level(reading, extent, entry.stream.applied):
                heads = _heads(reading, extent, heard if self._store.exclusive else None)
                self._apply(reading, name, entry.stream, heads)
            if bare := entry.stream.bare:
                entry.stream.dress(reading.standing_vectors(_incarnation(extent), space, bare))

    @staticmethod
    def _apply(
        reading: Reading, name: _Name, stream: ResidentStream, heads: Mapping[str, CommitStamp]
    ) -> None:
        extent, space = name
        applied = stream.applied
        for one, head in heads.items():
            key = StreamKey(_incarnation(extent), one)
            while applied.get(one, _NOTHING) < head:
                changes = reading.changes(key, applied.get(one, _NOTHING), space, _PAGE)
                stream.apply(changes)
                if len(changes) < _PAGE:
                    applied[one] = head

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

    def _trim(self, name: _Name, entry: _Entry) -> None:
        """Let go of the stream if it is worn, and of others while all together are too large.

        No stream's lock is held here, so that two calls never wait for each other's stream.
        """
        if entry.stream.worn:
            self._shelf.discard(name[0])
            self._drop(name, entry)
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

    def _drop(self, name: _Name, entry: _Entry) -> None:
        with self._lock:
            if not entry.left:
                self._forget(name, entry)
        entry.stream.close()

    def _forget(self, name: _Name, entry: _Entry) -> None:
        del self._entries[name]
        entry.left = True
        self._nbytes -= entry.nbytes

    def _put_away(self, name: _Name, entry: _Entry) -> None:
        extent, space = name
        with entry.stream.lock:
            entry.stream.close()
            if entry.loaded and entry.stream.applied != entry.shelved and not self._is_elsewhere(name):
                shelved = entry.stream.to_shelve()
                if shelved is not None:
                    self._shelf.put(extent, space, shelved)

    def _is_elsewhere(self, name: _Name) -> bool:
        """Whether the extent is resident in another space, which was asked for later."""
        with self._lock:
            return any(other != name for other, _ in self._of(name[0]))

    def note_bare(self, key: StreamKey, space: str) -> None:
        """Hear that memories of a stream have no vectors of the space that its callers ask for."""
        with self._lock:
            self._bare.add((key, space))

    def take_bare(self) -> set[tuple[StreamKey, str]]:
        """In which streams memories without vectors of a space were met since this was asked last."""
        with self._lock:
            bare, self._bare = self._bare, set()
            return bare

    def discard_other(self, incarnation: Incarnation, space: str) -> None:
        """Let go of what is resident of a tenant in other spaces than this one, and of what is kept of it."""
        with self._lock:
            leaving = [
                (name, entry)
                for name, entry in self._entries.items()
                if _incarnation(name[0]) == incarnation and name[1] != space
            ]
            for name, entry in leaving:
                self._forget(name, entry)
        for _, entry in leaving:
            with entry.stream.lock:
                entry.stream.close()
        self._shelf.discard_other(incarnation, space)

    def count_of(self, incarnation: Incarnation) -> int:
        """How many files are kept of a tenant whose streams are not resident."""
        return self._shelf.count_of(incarnation)

    def discard_all(self, incarnation: Incarnation) -> None:
        """Let a tenant's streams go, and what was kept of them."""
        with self._lock:
            leaving = [
                (name, entry) for name, entry in self._entries.items() if _incarnation(name[0]) == incarnation
            ]
            for name, entry in leaving:
                self._forget(name, entry)
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
            leaving = self._of(*extents)
            for name, entry in leaving:
                self._forget(name, entry)
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
            for name, entry in leaving:
                self._forget(name, entry)
        for name, entry in leaving:
            self._put_away(name, entry)


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
