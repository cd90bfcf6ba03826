"""The vectors of a tenant in one space: which memories have none, and how they get one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from scrubjay.memory import MemoryId
from scrubjay.stamp import CommitStamp
from server.shard.parts import ShardParts
from server.store.memory_store import StreamKey, Writing
from server.store.vector_reading import Unembedded
from tenants.tenant import Incarnation

DROPPED_AT_ONCE = 1000
"""Vectors that one transaction deletes: writers of the shard wait for some milliseconds."""


class ShardReindexing(ShardParts):
    """Reads what has no vectors of a space, and writes and deletes such. Every step may be done again."""

    @property
    def alone(self) -> bool:
        """Whether no other server serves the shard's tenants."""
        return self._store.exclusive

    def heads_together(self, incarnation: Incarnation) -> int:
        """What every commit to a stream of the tenant raises."""
        with self._store.read() as reading:
            return reading.heads_together(incarnation)

    def heads(self, incarnation: Incarnation) -> Mapping[str, CommitStamp]:
        """How far each stream of the tenant goes."""
        with self._store.read() as reading:
            return reading.heads(incarnation)

    def count_embedded(self, incarnation: Incarnation, space: str) -> tuple[int, int]:
        """How many of the tenant's memories have a vector of the space, and how many there are."""
        with self._store.read() as reading:
            return reading.count_embedded(incarnation, space)

    def unembedded(
        self, incarnation: Incarnation, space: str, after: tuple[str, CommitStamp], limit: int
    ) -> Sequence[Unembedded]:
        """See ``VectorReading.unembedded``."""
        with self._store.read() as reading:
            return reading.unembedded(incarnation, space, after, limit)

    def unembedded_of(
        self, key: StreamKey, space: str, after: CommitStamp, limit: int
    ) -> Sequence[Unembedded]:
        """See ``VectorReading.unembedded_of``."""
        with self._store.read() as reading:
            return reading.unembedded_of(key, space, after, limit)

    def put_vectors(
        self, incarnation: Incarnation, space: str, made: Sequence[tuple[Unembedded, bytes]]
    ) -> None:
        """Store encoded vectors of memories, which are in the order of their streams; of those alone whose
        content is still the one."""
        streams = {
            StreamKey(incarnation, stream): list(group)
            for stream, group in groupby(made, key=lambda one: one[0].stream)
        }
        ids = [one.memory_id for one, _ in made]

        def unit(writing: Writing) -> None:
            standing = writing.content_stamps(incarnation, ids)
            for key, group in streams.items():
                fitting = [
                    (one.memory_id, one.content_stamp, vector)
                    for one, vector in group
                    if standing.get(one.memory_id) == one.content_stamp
                ]
                writing.put_vectors(key, space, fitting)

        self._store.write(list(streams), unit)

    def drop_vectors(
        self, incarnation: Incarnation, space: str, after: tuple[str, MemoryId] | None
    ) -> tuple[int, tuple[str, MemoryId] | None]:
        """Delete the next of the tenant's vectors in a space; how many, and behind which to go on: None at
        the end."""
        with self._store.read() as reading:
            keys = reading.vector_keys(incarnation, space, after, DROPPED_AT_ONCE)
        if keys:
            self._store.write(
                [], lambda writing: writing.drop_vectors(incarnation, space, keys), tenant=incarnation
            )
        return len(keys), keys[-1] if len(keys) == DROPPED_AT_ONCE else None

    def discard_other(self, incarnation: Incarnation, space: str) -> None:
        """Let go of what is resident of the tenant in other spaces, and of the graphs that are kept of it."""
        self._cache.discard_other(incarnation, space)

    def take_bare(self) -> Mapping[str, list[StreamKey]]:
        """The streams in which memories without a vector were met since this was asked last, by space."""
        found = sorted(self._cache.take_bare(), key=lambda one: (one[1], one[0]))
        return {space: [key for key, _ in group] for space, group in groupby(found, key=lambda one: one[1])}

    def note_bare(self, key: StreamKey, space: str) -> None:
        """Hear that memories of a stream have no vectors of the space that its callers ask for."""
        self._cache.note_bare(key, space)
