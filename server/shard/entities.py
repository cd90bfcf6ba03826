"""Whom and what a stream's memories mention, and what they say of these."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from scrubjay.memory import MemoryId, Micros
from scrubjay.stamp import CommitStamp
from server.ingest.entities.linking import named_in, relink, text_of
from server.ingest.entities.validity import Told, held_at
from server.shard.parts import ShardParts
from server.store.entities import Asking, EntityRow, Links, RelationRow
from server.store.memory_store import Reading, StreamKey, Writing
from tenants.tenant import Incarnation

CHUNK = 200
"""Relations that are read at a time, and memories that are linked at a time."""
MOST_LOOKED_AT = 10_000
"""Relations that one page looks at: a page of those of one time may be short, or empty, before the end."""
NEWEST = (MemoryId("ffffffff-ffff-ffff-ffff-ffffffffffff"), 1 << 15)
"""Behind every relation."""
Names = Mapping[str, tuple[str, int]]


@dataclass(frozen=True, slots=True)
class Entities:
    """A page of entities: of which stream and kind (0: any), behind which (normal name, id)."""

    key: StreamKey
    asking: Asking
    kind: int
    after: tuple[str, str]
    size: int


@dataclass(frozen=True, slots=True)
class Relations:
    """A page of relations: of which stream, and of which entity and time if only of one, behind which."""

    key: StreamKey
    asking: Asking
    entity_id: str | None
    valid_at: Micros | None
    before: tuple[MemoryId, int]
    size: int


@dataclass(frozen=True, slots=True)
class Related:
    """A relation, and when it ended as far as the asking client's memories tell."""

    row: RelationRow
    end: Micros | None


class ShardEntities(ShardParts):
    """Reads entities and relations, and links memories from before there were any."""

    def links(self, incarnation: Incarnation, ids: Collection[MemoryId]) -> dict[MemoryId, Links]:
        """What each of these memories mentions and says."""
        with self._store.read() as reading:
            mentions, said = reading.mentions(incarnation, ids), reading.said_by(incarnation, ids)
        return {
            memory_id: Links(
                tuple(row for row in mentions if row.memory_id == memory_id),
                tuple(row for row in said if row.memory_id == memory_id),
            )
            for memory_id in ids
        }

    def list_entities(
        self, asked: Entities, revision: Mapping[StreamKey, CommitStamp]
    ) -> tuple[Sequence[EntityRow], Names, tuple[str, str] | None]:
        """A page of entities by normal name, their names, and behind which the next page begins."""
        with self._reading(revision) as reading:
            rows = reading.entities(asked.key, asked.asking, asked.kind, asked.after, asked.size + 1)
            page = rows[: asked.size]
            names = reading.names(asked.key, asked.asking, [row.entity_id for row in page])
        following = (page[-1].normal, page[-1].entity_id) if len(rows) > asked.size else None
        return page, names, following

    def list_relations(
        self, asked: Relations, revision: Mapping[StreamKey, CommitStamp]
    ) -> tuple[Sequence[Related], Names, tuple[MemoryId, int] | None]:
        """A page of relations, newest memory first, the names in it, and behind which the next begins."""
        with self._reading(revision) as reading:
            page, following = _page(reading, asked)
            ids = {i for one in page for i in (one.row.subject_id, one.row.object_id)}
            return page, reading.names(asked.key, asked.asking, sorted(ids)), following

    def unlinked(self) -> StreamKey | None:
        """A stream with memories from before there were entities."""
        with self._store.read() as reading:
            return next(iter(reading.unlinked(1)), None)

    def link_page(
        self, key: StreamKey, before: tuple[Micros, MemoryId] | None
    ) -> tuple[Micros, MemoryId] | None:
        """Link the next memories of such a stream, newest first; behind which to go on, None at its end."""
        with self._store.read() as reading:
            page = reading.page(key, before, CHUNK)
        known = {text_of(stored.memory): named_in(stored.memory) for stored in page}

        def unit(writing: Writing) -> None:
            living = writing.get_many(key.incarnation, [stored.memory.id for stored in page])
            relink(writing, key, living.values(), known)
            if len(page) < CHUNK:
                writing.end_unlinked(key)

        self._store.write([key], unit)
        if len(page) == CHUNK:
            return page[-1].memory.created_at, page[-1].memory.id
        self._cache.reload(key)
        return None


def _page(reading: Reading, asked: Relations) -> tuple[list[Related], tuple[MemoryId, int] | None]:
    page: list[Related] = []
    before, looked_at = asked.before, 0
    told, known = Told(), set[str]()
    while looked_at < MOST_LOOKED_AT:
        rows = reading.relations(asked.key, asked.asking, asked.entity_id, before, CHUNK)
        if strange := {row.subject_id for row in rows} - known:
            told.add(reading.told_of(asked.key, asked.asking, sorted(strange)))
            known |= strange
        for row in rows:
            if len(page) == asked.size:
                return page, before
            before = row.memory_id, row.number
            end = told.until(row)
            if asked.valid_at is None or held_at(row, end, asked.valid_at):
                page.append(Related(row, end))
        if len(rows) < CHUNK:
            return page, None
        looked_at += len(rows)
    return page, before
