"""Whom and what memories mention, and what they say of these."""

from __future__ import annotations

from collections.abc import Iterator

from scrubjay import v1
from scrubjay.errors import InvalidField
from scrubjay.memory import MAX_MICROS, MIN_MICROS, MemoryId, Micros
from scrubjay.wire import from_timestamp, to_timestamp
from server.ingest.entities.entity import EntityKind
from server.router import tenant_of
from server.services.memory_door import MemoryDoor, token_purpose
from server.services.requests import (
    DEFAULT_PAGE,
    MAX_PAGE,
    bounded,
    check_memory_id,
    check_unscoped,
)
from server.shard.entities import NEWEST, Entities, Names, Related, Relations
from server.store.entities import Asking, Links, RelationRow
from server.store.memory_store import StreamKey
from tenants.page_token import seal, unseal
from tenants.tenant import Caller
from tenants.validation import sole_subject


class EntityReads(MemoryDoor):
    """The RPCs that list entities and relations."""

    def list_entities(self, request: v1.ListEntitiesRequest, caller: Caller) -> v1.ListEntitiesResponse:
        """A page of whom and what the subject's memories mention."""
        tenant = tenant_of(caller)
        check_unscoped(caller, "what all of a subject's memories mention")
        key = StreamKey(tenant.incarnation, sole_subject(request).key)
        purpose = token_purpose(request, tenant.incarnation)
        after = ("", "00000000-0000-0000-0000-000000000000")
        if request.page_token:
            after = unseal(self._secret, purpose, request.page_token, (str, str))
        asked = Entities(
            key,
            Asking(caller.client_id, self._clock()),
            _kind(request.kind),
            after,
            bounded("page_size", request.page_size, DEFAULT_PAGE, MAX_PAGE),
        )
        revision = self._revisions.heads(tenant.incarnation, request.min_revision)
        rows, names, following = self._router.shard(tenant).list_entities(asked, revision)
        return v1.ListEntitiesResponse(
            entities=[
                v1.Entity(
                    id=row.entity_id,
                    name=names[row.entity_id][0],
                    kind=v1.EntityKind.ValueType(row.kind),
                    memory_count=row.memory_count,
                    last_mentioned_at=to_timestamp(row.last_mentioned_at),
                )
                for row in rows
            ],
            next_page_token=seal(self._secret, purpose, following) if following else "",
        )

    def list_relations(self, request: v1.ListRelationsRequest, caller: Caller) -> v1.ListRelationsResponse:
        """A page of what the subject's memories say of what they mention."""
        tenant = tenant_of(caller)
        check_unscoped(caller, "what all of a subject's memories mention")
        key = StreamKey(tenant.incarnation, sole_subject(request).key)
        if request.entity_id:
            check_memory_id("entity_id", request.entity_id)
        purpose = token_purpose(request, tenant.incarnation)
        before = NEWEST
        if request.page_token:
            memory_id, number = unseal(self._secret, purpose, request.page_token, (str, int))
            before = MemoryId(memory_id), number
        asked = Relations(
            key,
            Asking(caller.client_id, self._clock()),
            request.entity_id or None,
            _valid_at(request),
            before,
            bounded("page_size", request.page_size, DEFAULT_PAGE, MAX_PAGE),
        )
        revision = self._revisions.heads(tenant.incarnation, request.min_revision)
        page, names, following = self._router.shard(tenant).list_relations(asked, revision)
        return v1.ListRelationsResponse(
            relations=[relation(one, names) for one in page],
            next_page_token=seal(self._secret, purpose, following) if following else "",
        )


def _kind(number: v1.EntityKind.ValueType) -> int:
    if number and int(number) not in map(int, EntityKind):
        known = ", ".join(f"{kind.name} ({kind})" for kind in EntityKind)
        raise InvalidField.of("kind", f"{number} is no kind; give one of {known}, or nothing")
    return int(number)


def _valid_at(request: v1.ListRelationsRequest) -> Micros | None:
    if not request.HasField("valid_at"):
        return None
    time = from_timestamp(request.valid_at)
    if not MIN_MICROS <= time <= MAX_MICROS:
        raise InvalidField.of("valid_at", "lies outside the years 1 to 9999")
    return time


def relation(related: Related, names: Names) -> v1.Relation:
    """A relation as the contract has it."""
    row = related.row
    message = v1.Relation(
        subject=_named(row.subject_id, names),
        relation=row.relation,
        object=_named(row.object_id, names),
        memory_id=row.memory_id,
    )
    if row.valid_from is not None:
        message.valid_from.CopyFrom(to_timestamp(row.valid_from))
    if related.end is not None:
        message.valid_to.CopyFrom(to_timestamp(related.end))
    return message


def _named(entity_id: str, names: Names) -> v1.NamedEntity:
    name, kind = names[entity_id]
    return v1.NamedEntity(id=entity_id, name=name, kind=v1.EntityKind.ValueType(kind))


def linked(links: Links) -> tuple[list[v1.NamedEntity], list[v1.Relation]]:
    """What an Add stored of what a memory mentions and says."""
    names = {row.entity_id: (row.name, row.kind) for row in links.mentions}
    return list(_entities(names)), [relation(_as_said(row), names) for row in links.relations]


def _entities(names: Names) -> Iterator[v1.NamedEntity]:
    return (_named(entity_id, names) for entity_id in names)


def _as_said(row: RelationRow) -> Related:
    return Related(row, row.valid_to)
