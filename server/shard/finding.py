"""Searches of a shard: a stream's, a tenant's, and a stream as it was."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from scrubjay.errors import HistoryForgotten, MemoryDeleted, MemoryNotFound
from scrubjay.memory import MemoryId
from scrubjay.stamp import CommitStamp
from scrubjay.wire import last_commit_stamp
from server.index.past_streams import Embed
from server.index.resident import ResidentStream
from server.recall.miss import Miss, explain_miss
from server.recall.search import Hit, Query, search
from server.shard.parts import ShardParts
from server.store.memory_store import (
    Extent,
    Reading,
    StreamKey,
)


@dataclass(frozen=True, slots=True)
class PastQuery:
    """A search of a stream as it was at the view's ``now``, in whose milliseconds all that was committed
    counts.

    ``embed`` makes vectors in the ``space`` that the query's is of; ``revision`` is what must be there.
    """

    key: StreamKey
    space: str
    query: Query
    embed: Embed
    revision: Mapping[StreamKey, CommitStamp]


class ShardFinding(ShardParts):
    """Looks for memories in what is resident."""

    def search(
        self, extent: Extent, space: str, query: Query, revision: Mapping[StreamKey, CommitStamp]
    ) -> Sequence[Hit]:
        """The best hits of the extent, every stream of which is brought up to date first. The query's vector
        is of the ``space``."""
        if revision:
            with self._reading(revision):
                pass
        with self._resident(extent, space, query) as stream:
            return search(stream, query)

    def explain_miss(
        self,
        extent: Extent,
        space: str,
        query: Query,
        memory_id: MemoryId,
        revision: Mapping[StreamKey, CommitStamp],
    ) -> Miss:
        """The gate that keeps a memory out of the query's hits. MemoryNotFound and MemoryDeleted as ``get``,
        and MemoryNotFound for one of another subject; an expired one is found."""
        viewer = query.view.viewer
        incarnation = extent.incarnation if isinstance(extent, StreamKey) else extent
        with self._reading(revision) as reading:
            self._check_part(reading, extent, memory_id)
            stored = reading.get(incarnation, memory_id)
            if stored is None and reading.deleted_for(incarnation, memory_id, viewer):
                raise MemoryDeleted(memory_id)
        if stored is None or not viewer.sees(stored.memory):
            raise MemoryNotFound(memory_id)
        with self._resident(extent, space, query) as stream:
            return explain_miss(stream, query, memory_id)

    @staticmethod
    def _check_part(reading: Reading, extent: Extent, memory_id: MemoryId) -> None:
        if (
            isinstance(extent, StreamKey)
            and reading.stream_of(extent.incarnation, memory_id) != extent.stream
        ):
            raise MemoryNotFound(memory_id)

    def _resident(self, extent: Extent, space: str, query: Query) -> AbstractContextManager[ResidentStream]:
        return self._cache.reading(extent, space, accesses=query.recipe.decay_per_day < 1)

    def search_past(self, asked: PastQuery) -> Sequence[Hit]:
        """The best hits of the stream as it was. Of those days no access is known. HistoryForgotten."""
        with self._past(asked) as stream:
            return search(stream, asked.query)

    def explain_past_miss(self, asked: PastQuery, memory_id: MemoryId) -> Miss:
        """``explain_miss`` of ``search_past``. MemoryNotFound where the client may see no such memory of
        then."""
        with self._past(asked) as stream:
            slot = stream.slot(memory_id)
            if slot is None or not stream.columns.permits(slot, asked.query.view.client_id):
                raise MemoryNotFound(memory_id)
            return explain_miss(stream, asked.query, memory_id)

    @contextmanager
    def _past(self, asked: PastQuery) -> Iterator[ResidentStream]:
        key, end = asked.key, last_commit_stamp(asked.query.view.now)
        with self._reading(asked.revision) as reading:
            head, horizon = reading.head(key), reading.history_horizon(key)
            if end < horizon:
                raise HistoryForgotten
            newest = max(reading.newest_operation(key), horizon)
            until = newest if newest <= end else max(reading.newest_operation(key, end), horizon)
        if head is not None and until == newest and asked.query.recipe.decay_per_day == 1:
            with self._cache.reading(key, asked.space) as stream:
                if stream.applied.get(key.stream, CommitStamp(0)) <= max(head.head, end):
                    yield stream
                    return
        with self._pasts.reading(key, asked.space, until, asked.embed) as stream:
            yield stream
