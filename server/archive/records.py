"""The lines of a tenant's archive as the values that the store takes: see ``server.archive``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from scrubjay import v1
from scrubjay.errors import InvalidField
from scrubjay.memory import (
    SUBJECT_FIELDS,
    JsonValue,
    Memory,
    MemoryId,
    Micros,
    Subject,
    local_violation,
    name_violation,
    subject_of,
    violations,
)
from scrubjay.merge import Outcome, State, registers
from scrubjay.operation import OperationId, OperationKind, decode
from scrubjay.stamp import CommitStamp, Stamp
from scrubjay.wire import from_stored, from_timestamp, to_message
from server.archive import values
from server.archive.lines import CREATE, TENANT_FORMAT, VERSION
from server.archive.values import Fault, Line
from server.ingest.entities.entity import EntityKind, named_id
from server.ingest.entities.extraction import MOST_CLAIMS, MOST_MENTIONS
from server.ingest.entities.linking import NONE_KNOWN, links_in
from server.services.learning import MAX_MESSAGE_BYTES
from server.services.operations import ADD
from server.services.requests import MAX_SCOPES
from server.store.entities import Links, MentionRow, RelationRow
from server.store.exporting import RecentMessages, ReplicaAccesses, Unread
from server.store.history import HistoryChange, HistoryRow
from server.store.memory_store import Grave, StoredMemory, StreamKey
from server.store.recent_messages import KEPT, RecentMessage
from server.store.replicas import WaitingOperation
from server.store.rows import CREATED
from tenants import forget_policy, quotas, retention, write_settings
from tenants.forget_policy import ForgetPolicy
from tenants.quotas import Quotas
from tenants.retention import Retention
from tenants.tenant import Incarnation, Role
from tenants.write_settings import WriteSettings

MOST_REPLICAS = 100_000
MOST_REGISTERS = 60_000
"""Of one memory, those that were emptied too."""


@dataclass(frozen=True, slots=True)
class Head:
    """Of which tenant an archive is."""

    tenant_id: str
    exported_at: Micros


@dataclass(frozen=True, slots=True)
class TenantSettings:
    """What a tenant forgets, if it ever said so, how it writes, what it keeps, and its quotas."""

    forget_policy: ForgetPolicy | None
    write_settings: WriteSettings
    retention: Retention
    quotas: Quotas


@dataclass(frozen=True, slots=True)
class Stream:
    """Of whom the lines behind it are, and where the subject's stream stood; 0 where it never began. Its
    operations up to ``history_horizon`` are forgotten.

    Edits in it were made by ``latest``, a stamp's time.
    """

    subject: Subject
    key: StreamKey
    head: CommitStamp
    horizon: CommitStamp
    history_horizon: CommitStamp
    latest: int


@dataclass(frozen=True, slots=True)
class ImportedMemory:
    """A memory with all that belongs to it alone."""

    stored: StoredMemory
    accesses: tuple[ReplicaAccesses, ...]
    links: Links


@dataclass(frozen=True, slots=True)
class Manifest:
    """What an archive says that it holds."""

    counts: Mapping[str, int] = field(default_factory=dict)
    sha256: str = ""


def read_head(line: Line) -> Head:
    """The first line. Fault where it is of no archive of a tenant that this version reads."""
    if line.get("format") != TENANT_FORMAT:
        raise Fault(f"is no first line of an export of a tenant: its format is no {TENANT_FORMAT!r}")
    if line.get("version") != VERSION:
        raise Fault(f"is of the version {line.get('version')!r}; this server reads {VERSION}")
    return Head(values.named(line, "tenant_id"), values.time(line, "exported_at"))


def read_manifest(line: Line) -> Manifest:
    """The last line."""
    counts = values.mapping(line, "counts")
    return Manifest({kind: values.whole(counts, kind) for kind in counts}, values.text(line, "sha256"))


def read_settings(line: Line) -> TenantSettings:
    """What a tenant had settled."""
    policy = None
    if "forget_policy" in line:
        policy = forget_policy.from_message(values.message_of(line, "forget_policy", v1.ForgetPolicy))
        values.check_fields(*forget_policy.violations("forget_policy", policy))
    settings = write_settings.from_message(values.message_of(line, "write_settings", v1.WriteSettings))
    kept = retention.from_message(values.message_of(line, "retention", v1.Retention))
    limits = quotas.from_message(values.message_of(line, "quotas", v1.Quotas))
    values.check_fields(
        *write_settings.violations("write_settings", settings),
        *retention.violations("retention", kept),
        *quotas.violations("quotas", limits),
    )
    return TenantSettings(policy, settings, kept, limits)


def read_stream(line: Line, incarnation: Incarnation, latest: int) -> Stream:
    """A subject, whose stream and edits must not lie behind ``latest``."""
    names = [name for name in SUBJECT_FIELDS if line.get(name)]
    if len(names) != 1:
        raise Fault("names no subject; it needs one of user_id, agent_id and run_id")
    name = values.text(line, names[0])
    values.check_fields(name_violation(names[0], name))
    subject = Subject(names[0].removesuffix("_id"), name)
    head = _standing(line, "head", CommitStamp(latest))
    return Stream(
        subject,
        StreamKey(incarnation, subject.key),
        head,
        horizon=_standing(line, "horizon", head),
        history_horizon=_standing(line, "history_horizon", head),
        latest=latest,
    )


def _standing(line: Line, name: str, most: CommitStamp) -> CommitStamp:
    """A commit stamp, or 0."""
    value = line.get(name)
    return CommitStamp(0) if value in (None, NO_TIME) else values.commit_stamp(value, name, most)


NO_TIME = "1970-01-01T00:00:00.000Z.0000"
"""Of a stream that never forgot anything."""


# --- what a subject's lines hold -------------------------------------------------------------------


def read_memory(line: Line, stream: Stream) -> ImportedMemory:
    """A memory, its accesses and what it names."""
    told = {name: one for name, one in values.mapping(line, "memory").items() if name != "updated_at"}
    message = values.message_of({"memory": told}, "memory", v1.Memory)  # which its etag tells
    memory = _memory(message, stream)
    commit = values.commit_stamp(message.etag, "memory.etag", stream.head)
    stored = StoredMemory(
        State(memory, _field_stamps(line, memory, stream)),
        commit,
        to_message(memory, commit).SerializeToString(deterministic=True),
        _field_commits(line, commit),
    )
    return ImportedMemory(stored, _accesses(line, memory.id), _links(line, memory, stream.key))


def _memory(message: v1.Memory, stream: Stream) -> Memory:
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
    accesses = tuple(_replica_accesses(_object(one, "by_replica"), memory_id) for one in found)
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
        given = _object(one, "entities")
        normal, name = values.text(given, "normal", MAX_NAME), values.text(given, "name", MAX_NAME)
        kind = values.member(given.get("kind"), "kind", EntityKind)
        new_id = named_id(key, normal)
        if new_id in ids.values():
            raise Fault(f"entities names {normal!r} twice")
        ids[values.uuid(given, "entity_id")] = new_id
        mentions.append(MentionRow(memory.id, new_id, normal, name, int(kind)))
    given_relations = values.listed(line, "relations", MOST_CLAIMS)
    relations = [
        _relation(_object(one, "relations"), memory.id, number, ids)
        for number, one in enumerate(given_relations)
    ]
    return Links(tuple(mentions), tuple(relations))


MAX_NAME = 1024
"""Bytes of an entity's name; 60 characters are what is read of a text."""


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


def read_operation(line: Line, stream: Stream) -> HistoryRow:
    """One operation of the history."""
    told = {name: one for name, one in values.mapping(line, "entry").items() if name not in _FOR_READERS}
    entry = values.message_of({"entry": told}, "entry", v1.HistoryEntry)
    given = {name: getattr(entry, name) for name in _ENTRY_TEXTS}
    if not entry.HasField("claimed_time"):
        raise Fault("entry.claimed_time is not there")
    deleted = b""
    if "deleted" in line:
        message = values.message_of(line, "deleted", v1.Memory)
        _memory(message, stream)
        deleted = message.SerializeToString(deterministic=True)
    return HistoryRow(
        operation_id=values.uuid(given, "operation_id"),
        memory_id=values.uuid(given, "memory_id"),
        commit_stamp=values.commit_stamp(entry.commit_stamp, "entry.commit_stamp", stream.head),
        kind=values.member(entry.kind, "entry.kind", OperationKind),
        changes=_changes(line, stream),
        client_id=values.client(given, "client_id"),
        replica_id=values.replica(given, "replica_id"),
        actor=values.text(given, "actor"),
        role=values.text(given, "role"),
        outcome=values.member(entry.outcome, "entry.outcome", Outcome),
        claimed_at=from_timestamp(entry.claimed_time),
        private_to=values.client(line, "private_to"),
        spell=values.text(given, "spell_id"),
        deleted=deleted,
        restores=values.uuid(given, "restores") if entry.restores else "",
        reason=values.text(given, "reason"),
    )


_FOR_READERS = ("changes", "sentence", "commit_time")
"""Of a HistoryEntry what follows from the rest; reading it would take most of the time."""
_ENTRY_TEXTS = (
    *("operation_id", "memory_id", "client_id", "replica_id"),
    *("actor", "role", "spell_id", "restores", "reason"),
)


def _changes(line: Line, stream: Stream) -> tuple[HistoryChange, ...]:
    changes: list[HistoryChange] = []
    for group in values.listed(line, "registers", MOST_REGISTERS):
        if not isinstance(group, list) or len(group) != 4 or not isinstance(group[3], list):
            raise Fault("registers holds what is no group of writes")
        stamp = values.packed_stamp(group[0], "registers", stream.latest)
        base = values.packed_stamp(group[1], "registers", stream.latest) if group[1] else None
        outcome = values.member(group[2], "registers", Outcome)
        changes += [_change(one, stamp, base, outcome) for one in group[3]]
    return tuple(changes)


def _change(write: object, stamp: Stamp, base: Stamp | None, outcome: Outcome) -> HistoryChange:
    if not isinstance(write, list) or len(write) != 3:
        raise Fault("registers holds what is no write")
    name = values.register_name(write[0])
    old: JsonValue = values.register_value(name, write[1])
    return HistoryChange(name, old, values.register_value(name, write[2]), stamp, base, outcome)


def read_grave(line: Line, stream: Stream) -> Grave:
    """A deletion."""
    return Grave(
        values.uuid(line, "memory_id"),
        values.commit_stamp(line.get("commit_stamp"), "commit_stamp", stream.head),
        values.stamp(line.get("stamp"), "stamp", stream.latest),
        values.client(line, "private_to"),
        values.named(line, "scope"),
    )


def read_waiting(line: Line, stream: Stream) -> WaitingOperation:
    """An edit that waits for its memory, without the vector of its content."""
    encoded = values.message_of(line, "operation", v1.Operation).SerializeToString(deterministic=True)
    replica_id, client_id = values.replica(line, "replica_id"), values.client(line, "client_id")
    try:
        operation = decode(encoded, replica_id, 0, client_id, stream.subject)
    except (InvalidField, ValueError) as error:
        raise Fault(f"operation: {error}"[:300]) from None
    named = values.uuid(line, "memory_id"), OperationId(values.uuid(line, "operation_id"))
    if operation.kind is not OperationKind.SET or (operation.memory_id, operation.operation_id) != named:
        raise Fault("operation is no edit of memory_id under operation_id")
    if operation.stamp.time > stream.latest:
        raise Fault(f"operation: {operation.stamp} lies in the future")
    scopes = values.listed(line, "scopes", MAX_SCOPES)
    return WaitingOperation(
        *named,
        values.commit_stamp(line.get("commit_stamp"), "commit_stamp", stream.head),
        client_id,
        tuple(values.named({"scopes": one}, "scopes") for one in scopes),
        values.text(line, "actor"),
        values.text(line, "role"),
        replica_id,
        values.text(line, "spell_id"),
        encoded,
        None,
    )


def content_of(waiting: WaitingOperation, subject: Subject) -> str | None:
    """The content that a waiting edit writes, if any."""
    operation = decode(waiting.operation, waiting.replica_id, 0, waiting.client_id, subject)
    return next((str(write.value) for write in operation.writes if write.field == "content"), None)


def read_recent_messages(line: Line) -> RecentMessages:
    """The last messages of a scope."""
    messages = [_recent(_object(one, "messages")) for one in values.listed(line, "messages", KEPT)]
    return RecentMessages(values.named(line, "scope"), values.client(line, "client_id"), tuple(messages))


def _recent(line: Line) -> RecentMessage:
    text = values.text(line, "text", MAX_MESSAGE_BYTES)
    role, private = values.named(line, "role"), values.flag(line, "private")
    return RecentMessage(role, text, values.time(line, "at"), private)


def read_request(line: Line, stream: Stream) -> Unread:
    """A request that is acknowledged and not done."""
    request = values.message_of(line, "request", v1.AddRequest)
    template = request.template
    if subject_of(template.user_id, template.agent_id, template.run_id) != stream.subject:
        raise Fault("request is of another subject than the lines it is among")
    if values.text(line, "rpc") != ADD or not request.messages:
        raise Fault(f"request is no {ADD} of messages, which alone is done later")
    role = values.text(line, "role")
    if role not in Role.__members__:
        raise Fault(f"role {role[:64]!r} is no role")
    return Unread(
        job_id=values.uuid(line, "operation_id"),
        kind=ADD,
        client_id=values.client(line, "client_id"),
        actor=values.text(line, "actor"),
        role=role,
        request_id=values.named(line, "request_id"),
        private_to=values.client(line, "private_to"),
        created_at=values.time(line, "created_at"),
        request=request.SerializeToString(deterministic=True),
    )


def _object(value: object, name: str) -> Line:
    return value if isinstance(value, dict) else values.fault(name, "holds what is no object")
