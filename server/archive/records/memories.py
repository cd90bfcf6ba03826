"""The lines of memories, with all that belongs to each alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from scrubjay import v1
from scrubjay.errors import InvalidField
from scrubjay.memory import Memory, MemoryId
from scrubjay.merge import State, registers
from scrubjay.stamp import CommitStamp, Stamp
from scrubjay.validity import local_violation, name_violation, violations
from scrubjay.wire import from_stored, to_message
from server.archive import values
from server.archive.lines import CREATE
from server.archive.records.frame import Stream
from server.archive.values import Fault, Line
from server.ingest.entities.entity import EntityKind, named_id
from server.ingest.entities.extraction import MOST_CLAIMS, MOST_MENTIONS
from server.ingest.entities.linking import NONE_KNOWN, links_in
from server.store.entities import Links, MentionRow, RelationRow
from server.store.exporting import ReplicaAccesses
from server.store.memory_store import StoredMemory, StreamKey
from server.store.rows import CREATED

MOST_REPLICAS = 100_000
MOST_REGISTERS = 60_000
"""Of one memory, those that were emptied too."""
MAX_NAME = 1024
"""Bytes of an entity's name; 60 characters are what is read of a text."""


@dataclass(frozen=True, slots=True)
class ImportedMemory:
    """A memory with all that belongs to it alone."""

    stored: StoredMemory
    accesses: tuple[ReplicaAccesses, ...]
    links: Links


def read_memory(line: Line, stream: Stream) -> ImportedMemory:
    """A memory, its accesses and what it names."""
    told = {name: one for name, one in values.mapping(line, "memory").items() if name != "updated_at"}
    message = values.message_of({"memory": told}, "memory", v1.Memory)  # which its etag tells
    memory = memory_of(message, stream)
    commit = values.commit_stamp(message.etag, "memory.etag", stream.head)
    stored = StoredMemory(
        State(memory, _field_stamps(line, memory, stream)),
        commit,
        to_message(memory, commit).SerializeToString(deterministic=True),
        _field_commits(line, commit),
    )
    return ImportedMemory(stored, _accesses(line, memory.id), _links(line, memory, stream.key))


def memory_of(message: v1.Memory, stream: Stream) -> Memory:
    """What a message holds. Fault where that can be no memory of the stream's subject."""
    try:
        memory = from_stored(message)
    except InvalidField as error:
        raise Fault(error.message) from None
    values.check_fields(
        *violations(memory),
        local_violation("privacy_level", memory.privacy_level),
        name_violation("owner_client_id", memory.owner_client_id),
        name_violation("source.client_id", memory.source.client_id),
    )
    if memory.subject != stream.subject:
        raise Fault(f"is of another subject, {memory.subject.key!r}, than the lines it is among")
    return memory


def _field_stamps(line: Line, memory: Memory, stream: Stream) -> dict[str, Stamp]:
    given = values.mapping(line, "field_stamps")
    if len(given) > MOST_REGISTERS:
        raise Fault(f"field_stamps has more than {MOST_REGISTERS} registers")
    stamps = {
        values.register_name(name): values.stamp(one, f"field_stamps.{name}", stream.latest)
        for name, one in given.items()
    }
    if missing := sorted({name for name, _ in registers(memory)} - stamps.keys()):
        raise Fault(f"field_stamps has none of {missing[0]!r}, which has a value")
    return stamps


def _field_commits(line: Line, commit: CommitStamp) -> dict[str, CommitStamp]:
    found = {}
    for name, one in values.mapping(line, "field_commits").items():
        register = CREATED if name == CREATE else values.register_name(name)
        found[register] = values.commit_stamp(one, f"field_commits.{name}", commit)
    if CREATED not in found:
        raise Fault(f"field_commits has no {CREATE!r}")
    return found


def _accesses(line: Line, memory_id: MemoryId) -> tuple[ReplicaAccesses, ...]:
    if "accesses" not in line:
        return ()
    found = values.listed(values.mapping(line, "accesses"), "by_replica", MOST_REPLICAS)
    accesses = tuple(_replica_accesses(values.item(one, "by_replica"), memory_id) for one in found)
    if len({one.replica_id for one in accesses}) < len(accesses):
        raise Fault("accesses.by_replica names a replica twice")
    return accesses


def _replica_accesses(line: Line, memory_id: MemoryId) -> ReplicaAccesses:
    replica_id, total = values.replica(line, "replica_id"), values.whole(line, "count")
    return ReplicaAccesses(memory_id, replica_id, total, values.time(line, "last_access_at"))


def _links(line: Line, memory: Memory, key: StreamKey) -> Links:
    """What the memory names, under the ids that it has in this stream."""
    if "entities" not in line:
        return links_in(key, memory, NONE_KNOWN)
    ids: dict[str, str] = {}
    mentions = []
    for one in values.listed(line, "entities", MOST_MENTIONS):
        given = values.item(one, "entities")
        normal, name = values.text(given, "normal", MAX_NAME), values.text(given, "name", MAX_NAME)
        kind = values.member(given.get("kind"), "kind", EntityKind)
        new_id = named_id(key, normal)
        if new_id in ids.values():
            raise Fault(f"entities names {normal!r} twice")
        ids[values.uuid(given, "entity_id")] = new_id
        mentions.append(MentionRow(memory.id, new_id, normal, name, int(kind)))
    given_relations = values.listed(line, "relations", MOST_CLAIMS)
    relations = [
        _relation(values.item(one, "relations"), memory.id, number, ids)
        for number, one in enumerate(given_relations)
    ]
    return Links(tuple(mentions), tuple(relations))


def _relation(line: Line, memory_id: MemoryId, number: int, ids: Mapping[str, str]) -> RelationRow:
    subject_id, object_id = values.uuid(line, "subject_id"), values.uuid(line, "object_id")
    if not {subject_id, object_id} <= ids.keys():
        raise Fault("relations names what entities does not")
    return RelationRow(
        memory_id,
        number,
        ids[subject_id],
        values.named(line, "relation"),
        ids[object_id],
        values.time_or_none(line, "valid_from"),
        values.time_or_none(line, "valid_to"),
    )
