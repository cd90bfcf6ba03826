"""Streams of earlier moments, made when one is asked for and kept while there is room.

What is kept of a moment never changes but for who may see it: what became private or was deleted since. That
is looked up again whenever something was committed meanwhile.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from scrubjay.memory import MemoryId
from scrubjay.stamp import CommitStamp
from server.index.cache import StreamCache
from server.index.resident import ResidentStream
from server.past import confined_since, read_past
from server.store.memory_store import Change, MemoryStore, StreamHead, StreamKey
from server.store.vector_codec import encode_vectors

SHARE = 8
"""What part of the resident budget moments have besides: some questions about one moment come in a row."""
EMBEDDED_AT_ONCE = 100
"""Texts, as in an Add."""
VECTORS_KEPT = 10_000
"""Vectors made anew, some 6 MiB: the same deleted memories belong to every moment before."""
_ENTRY_BYTES = 1 << 16
"""What an empty stream counts as, so that the number of moments is bounded too."""

Embed = Callable[[Sequence[str]], NDArray[np.float32]]
"""Vectors of one space for texts of memories."""


_Name = tuple[StreamKey, str, CommitStamp]
"""A moment: of which stream, in which space, up to which commit stamp."""


@dataclass(slots=True, eq=False)
class _Moment:
    """``seen`` is the head of the stream up to which its privacy is known."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    stream: ResidentStream | None = None
    ids: frozenset[MemoryId] = frozenset()
    seen: StreamHead | None = None
    nbytes: int = 0


class PastStreams:
    """The moments of one shard, beside the budget of its resident streams."""

    def __init__(self, store: MemoryStore, cache: StreamCache) -> None:
        self._store = store
        self._cache = cache
        self._lock = threading.Lock()
        self._moments: OrderedDict[_Name, _Moment] = OrderedDict()
        self._nbytes = 0
        self._vectors = _MadeAnew()

    @contextmanager
    def reading(
        self, key: StreamKey, space: str, until: CommitStamp, embed: Embed
    ) -> Iterator[ResidentStream]:
        """The stream in a space as its operations up to ``until`` left it, locked for the block; ``embed``
        makes vectors that are stored no longer."""
        name = key, space, until
        moment = self._moment(name)
        with moment.lock:
            try:
                stream = self._known(key, moment)
                if stream is None:
                    stream = self._made(name, moment, embed)
            except BaseException:
                self._forget(name, moment)
                raise
            self._trim(moment)
            yield stream

    def discard(self, key: StreamKey) -> None:
        """Let the moments of a stream go."""
        with self._lock:
            for name in [name for name in self._moments if name[0] == key]:
                self._nbytes -= self._moments.pop(name).nbytes

    def _moment(self, name: _Name) -> _Moment:
        with self._lock:
            moment = self._moments.setdefault(name, _Moment())
            self._moments.move_to_end(name)
            return moment

    def _forget(self, name: _Name, moment: _Moment) -> None:
        with self._lock:
            if self._moments.get(name) is moment:
                self._nbytes -= self._moments.pop(name).nbytes

    def _known(self, key: StreamKey, moment: _Moment) -> ResidentStream | None:
        """What was made before, up to date as to who may see it; None in another life of the stream."""
        if moment.stream is None or moment.seen is None:
            return None
        with self._store.read() as reading:
            head = reading.head(key)
            if head is None or head.epoch != moment.seen.epoch:
                return None
            if head.head != moment.seen.head:
                moment.stream.confine(confined_since(reading, key, moment.seen.head, moment.ids))
                moment.seen = head
        return moment.stream

    def _made(self, name: _Name, moment: _Moment, embed: Embed) -> ResidentStream:
        key, space, until = name
        with self._store.read() as reading:
            head = reading.head(key)
            past = read_past(reading, key, until, space)
        stream = ResidentStream(self._cache.dimensions[space])
        stream.apply(self._vectors.filled(past.changes, space, embed))
        stream.confine(past.confined)
        stream.close()  # it is scanned: a graph would be built for a few questions
        moment.stream, moment.seen = stream, head
        moment.ids = frozenset(change.memory_id for change in past.changes)
        return stream

    def _trim(self, moment: _Moment) -> None:
        """Let go of the moments that were asked for least recently, while all together are too large."""
        stream = moment.stream
        size = _ENTRY_BYTES + (stream.nbytes if stream is not None else 0)
        with self._lock:
            if moment in self._moments.values():
                self._nbytes += size - moment.nbytes
                moment.nbytes = size
            while self._nbytes > self._cache.budget_bytes // SHARE and len(self._moments) > 1:
                oldest = next(iter(self._moments))
                if self._moments[oldest] is moment:
                    break
                self._nbytes -= self._moments.pop(oldest).nbytes

    @property
    def nbytes(self) -> int:
        """An estimate of the bytes of all moments."""
        return self._nbytes


class _MadeAnew:
    """Vectors of texts that are stored no longer, the least recently wanted dropped first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[bytes, bytes] = OrderedDict()

    def filled(self, changes: Sequence[Change], space: str, embed: Embed) -> list[Change]:
        """The changes, each with a vector of the space."""
        texts = {change.memory.content for change in changes if change.vector is None and change.memory}
        made = self._of(list(texts), space, embed)
        return [
            replace(change, vector=made[change.memory.content])
            if change.vector is None and change.memory
            else change
            for change in changes
        ]

    def _of(self, texts: Sequence[str], space: str, embed: Embed) -> dict[str, bytes]:
        digests = {text: hashlib.sha256(f"{space}\0{text}".encode()).digest()[:16] for text in texts}
        with self._lock:
            found = {text: self._kept[one] for text, one in digests.items() if one in self._kept}
        missing = sorted(digests.keys() - found.keys())
        for start in range(0, len(missing), EMBEDDED_AT_ONCE):
            some = missing[start : start + EMBEDDED_AT_ONCE]
            found.update(zip(some, encode_vectors(embed(some)), strict=True))
        with self._lock:
            for text, one in digests.items():
                self._kept[one] = found[text]
                self._kept.move_to_end(one)
            while len(self._kept) > VECTORS_KEPT:
                self._kept.popitem(last=False)
        return found
