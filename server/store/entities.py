"""Entities as they are stored: which memory mentions which, and what it says of two of them.

Everything belongs to a memory, and goes with it: an entity is there while a memory mentions it. What is shown
of one, its name and kind and how many mention it, comes from the memories that the asking client may see, so
nothing is learnt of others'.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import Select, and_, bindparam, delete, func, literal_column, or_, select, tuple_

from scrubjay.memory import ClientId, MemoryId, Micros, PrivacyLevel
from server.store.lookups import AMONG, ids_value
from server.store.rows import StreamKey
from server.store.tables import memories, mentions, relations, unlinked
from server.store.transaction import Transaction
from tenants.tenant import Incarnation

SUBJECT_KIND = 1
"""The kind of the subject whose memories they are: the one entity without a normal name."""


@dataclass(frozen=True, slots=True)
class MentionRow:
    """That a memory names an entity: by which ``name``, and as what ``kind``. ``normal`` is what all names of
    the entity share; empty for the subject itself."""

    memory_id: MemoryId
    entity_id: str
    normal: str
    name: str
    kind: int


@dataclass(frozen=True, slots=True)
class RelationRow:
    """What a memory says of two entities that it mentions; ``number`` counts what it says, from 0.

    ``valid_from`` is when it began to be so, as far as the memory knows; None for what is only told to be
    over. ``valid_to`` is when it ended, as the memory says.
    """

    memory_id: MemoryId
    number: int
    subject_id: str
    relation: str
    object_id: str
    valid_from: Micros | None
    valid_to: Micros | None


@dataclass(frozen=True, slots=True)
class Links:
    """All that memories link to."""

    mentions: tuple[MentionRow, ...] = ()
    relations: tuple[RelationRow, ...] = ()


NO_LINKS = Links()


class EntityRow(NamedTuple):
    """An entity as a client sees it: its surest kind, and how many memories mention it, the last one when."""

    normal: str
    entity_id: str
    kind: int
    memory_count: int
    last_mentioned_at: Micros


class ToldRow(NamedTuple):
    """A relation as a client sees it, and since when its memory is replaced, if the caller sees by what."""

    relation: RelationRow
    replaced_at: Micros | None


@dataclass(frozen=True, slots=True)
class Asking:
    """Who asks, and when: of a memory that this client may not see, or that has expired, nothing is said."""

    client_id: ClientId
    now: Micros


class EntityReading:
    """What can be read of entities; a part of ``Reading``."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._entity_lookups = _LOOKUPS[transaction.dialect_name]

    def mentions(self, incarnation: Incarnation, ids: Collection[MemoryId]) -> list[MentionRow]:
        """What these memories mention."""
        rows = self._transaction.all(self._entity_lookups.mentions, self._of_ids(incarnation, ids))
        return [MentionRow(*row) for row in rows]

    def said_by(self, incarnation: Incarnation, ids: Collection[MemoryId]) -> list[RelationRow]:
        """What these memories say of what they mention."""
        rows = self._transaction.all(self._entity_lookups.said_by, self._of_ids(incarnation, ids))
        return [RelationRow(*row) for row in rows]

    def entities(
        self, key: StreamKey, asking: Asking, kind: int, after: tuple[str, str], limit: int
    ) -> list[EntityRow]:
        """At most ``limit`` entities of the stream by normal name, behind the (normal name, id) ``after``; of
        one kind, unless that is 0."""
        values = {**_seen(key, asking), "after": after[0], "after_id": after[1], "limit": limit, "kind": kind}
        return [EntityRow(*row) for row in self._transaction.all(_ENTITIES, values)]

    def names(self, key: StreamKey, asking: Asking, ids: Collection[str]) -> dict[str, tuple[str, int]]:
        """The name, as it was last written, and the kind of those entities."""
        values = {**_seen(key, asking), "ids": ids_value(self._transaction.dialect_name, ids)}
        rows = self._transaction.all(self._entity_lookups.names, values)
        kinds: dict[str, int] = {}
        for entity_id, _, kind, _ in rows:
            kinds[entity_id] = min(kind, kinds.get(entity_id, kind))
        latest = {row[0]: row[1] for row in sorted(rows, key=lambda row: (row[3], row[1]))}
        return {entity_id: (name, kinds[entity_id]) for entity_id, name in latest.items()}

    def relations(
        self, key: StreamKey, asking: Asking, entity_id: str | None, before: tuple[MemoryId, int], limit: int
    ) -> list[RelationRow]:
        """At most ``limit`` relations of the stream, or of one entity, newest memory first by id."""
        values = {**_seen(key, asking), "before": before[0], "before_number": before[1], "limit": limit}
        if entity_id is None:
            rows = self._transaction.all(_RELATIONS, values)
        else:
            rows = self._transaction.all(_RELATIONS_OF, values | {"entity_id": entity_id})
        return [RelationRow(*row) for row in rows]

    def told_of(self, key: StreamKey, asking: Asking, ids: Collection[str]) -> list[ToldRow]:
        """All relations whose subject is one of these entities."""
        values = {**_seen(key, asking), "ids": ids_value(self._transaction.dialect_name, ids)}
        rows = self._transaction.all(self._entity_lookups.told_of, values)
        return [ToldRow(RelationRow(*row[:-1]), row[-1]) for row in rows]

    def unlinked(self, limit: int) -> list[StreamKey]:
        """At most ``limit`` streams with memories from before there were entities."""
        return [StreamKey(*row) for row in self._transaction.all(_UNLINKED, {"limit": limit})]

    def _of_ids(self, incarnation: Incarnation, ids: Collection[str]) -> dict[str, object]:
        return {"incarnation": incarnation, "ids": ids_value(self._transaction.dialect_name, ids)}


class EntityWriting:
    """What a unit may write about the entities of a stream that it named; a part of ``Writing``."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def link(self, key: StreamKey, links: Links) -> None:
        """Store what memories that have no links yet say."""
        stream = {"incarnation": key.incarnation, "stream": key.stream}
        if links.mentions:
            self._transaction.run_many(
                _INSERT_MENTIONS, [{**stream, **_values(row)} for row in links.mentions]
            )
        if links.relations:
            self._transaction.run_many(
                _INSERT_RELATIONS, [{**stream, **_values(row)} for row in links.relations]
            )

    def unlink(self, key: StreamKey, ids: Sequence[MemoryId]) -> None:
        """Forget what these memories mention and say."""
        if ids:
            dead = [{"of_incarnation": key.incarnation, "of_memory": memory_id} for memory_id in ids]
            self._transaction.run_many(_DELETE_MENTIONS, dead)
            self._transaction.run_many(_DELETE_RELATIONS, dead)

    def end_unlinked(self, key: StreamKey) -> None:
        """Note that every memory of the stream has its links."""
        self._transaction.run(_END_UNLINKED, {"of_incarnation": key.incarnation, "of_stream": key.stream})


def _values(row: MentionRow | RelationRow) -> Mapping[str, Any]:
    return {name: getattr(row, name) for name in row.__slots__}


def _seen(key: StreamKey, asking: Asking) -> dict[str, Any]:
    return {
        "incarnation": key.incarnation,
        "stream": key.stream,
        "shared": int(PrivacyLevel.SHARED),
        "client_id": asking.client_id,
        "now": asking.now,
    }


# --- the statements, built once -------------------------------------------------------------------


def _is_seen(table: Any) -> Any:
    return and_(
        or_(
            table.c.privacy_level == bindparam("shared"),
            table.c.owner_client_id == bindparam("client_id"),
        ),
        or_(table.c.expires_at.is_(None), table.c.expires_at > bindparam("now")),
    )


def _told_by_seen(table: Any) -> Any:
    """The rows of a stream that a memory which is seen has."""
    return and_(
        table.c.incarnation == bindparam("incarnation"),
        table.c.stream == bindparam("stream"),
        memories.c.incarnation == table.c.incarnation,
        memories.c.id == table.c.memory_id,
        _is_seen(memories),
    )


_RELATION_COLUMNS = (
    relations.c.memory_id,
    relations.c.number,
    relations.c.subject_id,
    relations.c.relation,
    relations.c.object_id,
    relations.c.valid_from,
    relations.c.valid_to,
)
_MENTIONED = (mentions.c.normal, mentions.c.entity_id)
_ENTITIES = (
    select(*_MENTIONED, func.min(mentions.c.kind), func.count(), func.max(memories.c.created_at))
    .where(
        _told_by_seen(mentions),
        tuple_(*_MENTIONED)
        > tuple_(bindparam("after"), bindparam("after_id", type_=mentions.c.entity_id.type)),
    )
    .group_by(*_MENTIONED)
    .having(or_(bindparam("kind") == literal_column("0"), func.min(mentions.c.kind) == bindparam("kind")))
    .order_by(*_MENTIONED)
    .limit(bindparam("limit"))
)
_RELATIONS = (
    select(*_RELATION_COLUMNS)
    .where(
        _told_by_seen(relations),
        tuple_(relations.c.memory_id, relations.c.number)
        < tuple_(bindparam("before", type_=relations.c.memory_id.type), bindparam("before_number")),
    )
    .order_by(relations.c.memory_id.desc(), relations.c.number.desc())
    .limit(bindparam("limit"))
)
_RELATIONS_OF = _RELATIONS.where(
    or_(
        relations.c.subject_id == bindparam("entity_id"),
        relations.c.object_id == bindparam("entity_id"),
    )
)
_UNLINKED = (
    select(unlinked.c.incarnation, unlinked.c.stream)
    .order_by(unlinked.c.incarnation, unlinked.c.stream)
    .limit(bindparam("limit"))
)
_INSERT_MENTIONS = mentions.insert()
_INSERT_RELATIONS = relations.insert()
_DELETE_MENTIONS, _DELETE_RELATIONS = (
    delete(table).where(
        table.c.incarnation == bindparam("of_incarnation"), table.c.memory_id == bindparam("of_memory")
    )
    for table in (mentions, relations)
)
_END_UNLINKED = delete(unlinked).where(
    unlinked.c.incarnation == bindparam("of_incarnation"), unlinked.c.stream == bindparam("of_stream")
)
_successors = memories.alias("successors")


class _Lookups:
    def __init__(self, dialect_name: str) -> None:
        among = AMONG[dialect_name]
        self.mentions: Select[Any] = select(
            mentions.c.memory_id, mentions.c.entity_id, mentions.c.normal, mentions.c.name, mentions.c.kind
        ).where(mentions.c.incarnation == bindparam("incarnation"), among(mentions.c.memory_id))
        self.said_by: Select[Any] = (
            select(*_RELATION_COLUMNS)
            .where(relations.c.incarnation == bindparam("incarnation"), among(relations.c.memory_id))
            .order_by(relations.c.memory_id, relations.c.number)
        )
        self.names: Select[Any] = (
            select(
                mentions.c.entity_id,
                mentions.c.name,
                func.min(mentions.c.kind),
                func.max(memories.c.created_at),
            )
            .where(_told_by_seen(mentions), among(mentions.c.entity_id))
            .group_by(mentions.c.entity_id, mentions.c.name)
        )
        self.told_of: Select[Any] = (
            select(*_RELATION_COLUMNS, _successors.c.created_at)
            .select_from(
                relations.join(
                    memories,
                    and_(
                        memories.c.incarnation == relations.c.incarnation,
                        memories.c.id == relations.c.memory_id,
                    ),
                ).outerjoin(
                    _successors,
                    and_(
                        _successors.c.incarnation == memories.c.incarnation,
                        _successors.c.id == memories.c.superseded_by,
                        _is_seen(_successors),
                    ),
                )
            )
            .where(_told_by_seen(relations), among(relations.c.subject_id))
        )


_LOOKUPS = {name: _Lookups(name) for name in AMONG}
