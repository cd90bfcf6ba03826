"""Resident streams for the tests of search, filled as the feed of a store fills them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from scrubjay.memory import ClientId, Memory, MemoryId, Micros
from scrubjay.stamp import CommitStamp
from scrubjay.wire import to_message
from server.index.resident import ResidentStream, View
from server.providers.embedder import TextKind
from server.providers.hashed import HashEmbedder
from server.recall.query import Hit, Query, query_vector
from server.recall.recipes import RECIPES
from server.recall.search import search
from server.store.memory_store import Change
from server.store.vector_codec import encode_vectors
from tests.stored import NOW, NOW_MILLIS

DAY = 86_400_000_000
HOUR = DAY // 24
EMBEDDER = HashEmbedder()


def ago(micros: int) -> Micros:
    """A time before now."""
    return Micros(NOW - micros)


class Feed:
    """A resident stream, and the commits that it hears of."""

    def __init__(self, stream: ResidentStream) -> None:
        self.stream = stream
        self._stamp = NOW_MILLIS << 16

    def put(self, *memories: Memory) -> None:
        """Commit memories, new ones or next states."""
        vectors = encode_vectors(EMBEDDER.embed([m.content for m in memories], TextKind.DOCUMENT))
        self.stream.apply([self._change(one, vector) for one, vector in zip(memories, vectors, strict=True)])

    def delete(self, *ids: MemoryId) -> None:
        """Commit deletions."""
        self.stream.apply([Change("user:alice", i, self._next(), None, None, None) for i in ids])

    def _change(self, memory: Memory, vector: bytes) -> Change:
        stamp = self._next()
        message = to_message(memory, stamp).SerializeToString()
        return Change("user:alice", memory.id, stamp, message, memory, vector)

    def _next(self) -> CommitStamp:
        self._stamp += 1
        return CommitStamp(self._stamp)

    def hits(self, text: str, recipe: str = "default", **asked: Any) -> list[Hit]:
        """What a search of alice's stream finds."""
        return search(self.stream, query(text, recipe, **asked))

    def found(self, text: str, recipe: str = "default", **asked: Any) -> list[str]:
        """The contents of the hits, best first."""
        return [hit.row.memory.content for hit in self.hits(text, recipe, **asked)]


def query(
    text: str, recipe: str = "default", top_k: int = 10, client: str = "web", now: Micros = NOW, **asked: Any
) -> Query:
    """A query; ``asked`` are fields of the query or of its view."""
    beside = {name: asked.pop(name) for name in ("matches", "neighbours") if name in asked}
    vector = query_vector(text, RECIPES[recipe], lambda line: EMBEDDER.embed([line], TextKind.QUERY)[0])
    view = replace(View(ClientId(client), now), **asked)
    return Query(text, vector, RECIPES[recipe], view, top_k, **beside)


@contextmanager
def feeding(memories: Sequence[Memory] = ()) -> Iterator[Feed]:
    """A stream that holds ``memories``."""
    feed = Feed(ResidentStream(EMBEDDER.space.dimension))
    try:
        if memories:
            feed.put(*memories)
        yield feed
    finally:
        feed.stream.close()
