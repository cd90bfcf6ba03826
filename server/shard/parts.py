"""What every part of a shard is built on: reading as of a revision, and writing once per request.

A write's answer is made inside its transaction and kept with it under the caller's request_id, so that a
repeat gets the same answer and an answer never lies.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from google.protobuf.message import Message

from scrubjay.errors import RequestIdReused, RevisionNotReached
from scrubjay.memory import ClientId, Micros
from scrubjay.stamp import CommitStamp
from server.counting import AccessCounter
from server.index.cache import StreamCache
from server.index.past_streams import PastStreams
from server.shard.elsewhere import Elsewhere
from server.store.memory_store import (
    MemoryStore,
    Reading,
    StreamHead,
    StreamKey,
    Writing,
)
from server.store.stocks import Stock
from server.watch import NOBODY, WatchHub
from tenants.tenant import Incarnation

Answer = TypeVar("Answer", bound=Message)
T = TypeVar("T")
CountMade = Callable[[Incarnation, str, int], object]
"""Told of memories that were made: of which tenant, for which key, how many."""


@dataclass(frozen=True, slots=True)
class Request:
    """A mutation's identity: the same ``request_id`` and body get the first answer for 24 hours."""

    incarnation: Incarnation
    request_id: str
    digest: bytes
    now: Micros

    @classmethod
    def of(cls, incarnation: Incarnation, message: Message, request_id: str, now: Micros) -> Request:
        """The identity of a request message."""
        body = f"{message.DESCRIPTOR.full_name}\0".encode() + message.SerializeToString(deterministic=True)
        return cls(incarnation, request_id, hashlib.sha256(body).digest(), now)

    def answered(self, reading: Reading, kind: type[Answer]) -> Answer | None:
        """The answer that it got before, if any. RequestIdReused where its body was another."""
        if not self.request_id:
            return None
        found = reading.request(self.incarnation, self.request_id, self.now)
        if found is None:
            return None
        digest, response = found
        if digest != self.digest:
            raise RequestIdReused(self.request_id)
        return kind.FromString(response)

    def keep(self, writing: Writing, answer: Message, keys: Sequence[StreamKey]) -> None:
        """Remember its answer, which is about these streams, in the unit that made it."""
        if self.request_id:
            body = answer.SerializeToString()
            stream = keys[0].stream if len(keys) == 1 else None
            writing.save_request(self.incarnation, self.request_id, self.digest, body, self.now, stream)


class ShardParts:
    """One shard's store, what it keeps in memory, and who waits for it."""

    def __init__(
        self,
        name: str,
        store: MemoryStore,
        cache: StreamCache,
        count_made: CountMade = lambda *_: None,
    ) -> None:
        self.name = name
        self._count_made = count_made
        self.highest = CommitStamp(0)
        self._store = store
        self._cache = cache
        self._pasts = PastStreams(store, cache)
        self.hub = WatchHub()
        self.accesses = AccessCounter(store)
        self._elsewhere = Elsewhere(store)

    @contextmanager
    def _reading(self, revision: Mapping[StreamKey, CommitStamp]) -> Iterator[Reading]:
        with self._store.read() as reading:
            for key, stamp in revision.items():
                head = reading.head(key)
                if head is None or head.head < stamp:
                    raise RevisionNotReached
            yield reading

    def head(self, key: StreamKey) -> StreamHead | None:
        """Where the stream stands; None where nothing was ever written to it."""
        with self._store.read() as reading:
            return reading.head(key)

    def highest_head(self) -> CommitStamp:
        """The highest head of all streams in the database, those that were purged or moved away too."""
        with self._store.read() as reading:
            living = reading.highest_head()
        with self._store.reading_moves() as moves:
            moved = moves.highest()
        with self._store.reading_purges() as purges:
            self.highest = max(self.highest, living, moved, purges.highest())
        return self.highest

    def stock(self, incarnation: Incarnation) -> Stock:
        """What a tenant has here."""
        return self._store.stock(incarnation)

    # --- writes -----------------------------------------------------------------------------------

    def answered(self, request: Request, kind: type[Answer]) -> Answer | None:
        """The answer that the request got before, if any. RequestIdReused where its body was another."""
        if not request.request_id:
            return None
        with self._store.read() as reading:
            return request.answered(reading, kind)

    def write(
        self,
        request: Request,
        keys: Iterable[StreamKey],
        kind: type[Answer],
        unit: Callable[[Writing], Answer],
    ) -> Answer:
        """Run ``unit`` once for the request, under the heads of the streams ``keys``; its answer."""
        locked = sorted(set(keys))

        def once(writing: Writing) -> Answer:
            if (first := request.answered(writing, kind)) is not None:
                return first
            answer = unit(writing)
            request.keep(writing, answer, locked)
            heads = {key: head.head for key in locked if (head := writing.head(key)) is not None}
            writing.on_commit(lambda: self._note(heads))
            writing.on_commit(lambda: self._count(writing))
            return answer

        return self._store.write(locked, once, tenant=request.incarnation)

    def write_stream(self, key: StreamKey, unit: Callable[[Writing], T], by: ClientId = NOBODY) -> T:
        """Run ``unit`` under the head of one stream; what it returned, once it is committed. ``by`` is the
        device that writes, if it is one: it need not hurry to hear of it."""

        def noted(writing: Writing) -> T:
            result = unit(writing)
            head = writing.advanced.get(key)
            if head is not None:
                writing.on_commit(lambda: self._note({key: head.head}, by))
                writing.on_commit(lambda: self._count(writing))
            return result

        return self._store.write([key], noted)

    def _count(self, writing: Writing) -> None:
        for (incarnation, key_id), memories in writing.made.items():
            self._count_made(incarnation, key_id, memories)

    def _note(self, heads: Mapping[StreamKey, CommitStamp], by: ClientId = NOBODY) -> None:
        for key, head in heads.items():
            self.highest = max(self.highest, head)
            self._cache.note(key, head)
            self.hub.notify(key, head, by)
