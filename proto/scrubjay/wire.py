"""Values <-> messages. Protobuf messages stop here: what lies behind a door works with values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from google.protobuf import struct_pb2, timestamp_pb2

from scrubjay import v1
from scrubjay.errors import InvalidField
from scrubjay.memory import (
    DEFAULT_CATEGORY,
    DEFAULT_SCOPE,
    SUBJECT_FIELDS,
    ClientId,
    JsonValue,
    Memory,
    MemoryId,
    Micros,
    PrivacyLevel,
    Source,
    normal_json,
)
from scrubjay.merge import put, registers
from scrubjay.stamp import COUNTER_BITS, CommitStamp, time_text
from scrubjay.validity import MAX_JSON_DEPTH

_MICROS_PER_SECOND = 1_000_000


def to_timestamp(time: Micros) -> timestamp_pb2.Timestamp:
    """Microseconds since 1970 as a Timestamp."""
    message = timestamp_pb2.Timestamp()
    _set_time(message, time)
    return message


def _set_time(message: timestamp_pb2.Timestamp, time: Micros) -> None:
    seconds, micros = divmod(time, _MICROS_PER_SECOND)
    message.seconds, message.nanos = seconds, micros * 1000


def from_timestamp(message: timestamp_pb2.Timestamp) -> Micros:
    """A Timestamp as microseconds since 1970; finer parts are cut off. May lie outside years 1 to 9999."""
    return Micros(message.seconds * _MICROS_PER_SECOND + message.nanos // 1000)


def to_struct(values: Mapping[str, JsonValue]) -> struct_pb2.Struct:
    """A JSON object as a Struct. Numbers become doubles, as the contract has it; null members are kept."""
    struct = struct_pb2.Struct()
    for key, value in values.items():
        _fill(struct.fields[key], value)
    return struct


def to_value(value: JsonValue) -> struct_pb2.Value:
    """A JSON value as a Value."""
    message = struct_pb2.Value()
    _fill(message, value)
    return message


def _fill(message: struct_pb2.Value, value: JsonValue) -> None:
    if value is None:
        message.null_value = struct_pb2.NULL_VALUE
    elif isinstance(value, bool):
        message.bool_value = value
    elif isinstance(value, int | float):
        message.number_value = value
    elif isinstance(value, str):
        message.string_value = value
    elif isinstance(value, Mapping):
        message.struct_value.CopyFrom(to_struct(value))
    else:
        message.list_value.SetInParent()
        for element in value:
            _fill(message.list_value.values.add(), element)


def from_struct(struct: struct_pb2.Struct, path: str = "metadata") -> dict[str, JsonValue]:
    """A Struct as a JSON object. A null member counts as absent, as in a JSON merge patch.

    InvalidField names the member that is nested deeper than ``MAX_JSON_DEPTH``.
    """
    found = {key: from_value(value, f"{path}.{key}") for key, value in struct.fields.items()}
    return {key: value for key, value in found.items() if value is not None}


def from_value(message: struct_pb2.Value, path: str = "value") -> JsonValue:
    """A Value as JSON in the form of ``normal_json``.

    InvalidField about ``path`` where it is nested deeper than ``MAX_JSON_DEPTH``.
    """
    return _from_value(message, path, MAX_JSON_DEPTH)


def _from_value(message: struct_pb2.Value, path: str, depth: int) -> JsonValue:
    kind = message.WhichOneof("kind")
    if kind in ("struct_value", "list_value") and depth == 0:
        raise InvalidField.of(path, f"is nested deeper than {MAX_JSON_DEPTH}; flatten it")
    match kind:
        case "bool_value":
            return message.bool_value
        case "number_value":
            return normal_json(message.number_value)
        case "string_value":
            return message.string_value
        case "struct_value":
            members = message.struct_value.fields.items()
            return {key: _from_value(value, path, depth - 1) for key, value in members}
        case "list_value":
            return [_from_value(value, path, depth - 1) for value in message.list_value.values]
    return None


def to_message(memory: Memory, commit_stamp: CommitStamp) -> v1.Memory:
    """A stored memory as its message. ``etag`` and ``updated_at`` come from its commit stamp."""
    message = v1.Memory()  # by attributes: by keywords it takes twice as long
    message.id = memory.id
    message.user_id = memory.user_id
    message.agent_id = memory.agent_id
    message.run_id = memory.run_id
    message.scope = memory.scope
    message.category = memory.category
    message.content = memory.content
    message.confidence = memory.confidence
    message.privacy_level = v1.PrivacyLevel.ValueType(memory.privacy_level)
    message.pinned = memory.pinned
    message.owner_client_id = memory.owner_client_id
    message.etag = to_etag(commit_stamp)
    _set_time(message.created_at, memory.created_at)
    _set_time(message.updated_at, commit_micros(commit_stamp))
    _set_source(message.source, memory.source)
    if memory.tags:
        message.tags.extend(sorted(memory.tags))
    if memory.metadata:
        message.metadata.CopyFrom(to_struct(memory.metadata))
    if memory.valid_from is not None:
        _set_time(message.valid_from, memory.valid_from)
    if memory.valid_to is not None:
        _set_time(message.valid_to, memory.valid_to)
    if memory.expires_at is not None:
        _set_time(message.expires_at, memory.expires_at)
    if memory.superseded_by is not None:
        message.superseded_by = memory.superseded_by
    return message


def _set_source(message: v1.Source, source: Source) -> None:
    """Set what is known; where that is nothing, the message that holds the source has none."""
    if source.client_id:
        message.client_id = source.client_id
    if source.conversation_id:
        message.conversation_id = source.conversation_id
    if source.message_ids:
        message.message_ids.extend(source.message_ids)
    if source.role:
        message.role = source.role
    if source.trust_class:
        message.trust_class = source.trust_class


def to_draft(memory: Memory) -> v1.Memory:
    """A memory as its writer sends it: without id and output-only fields, and without defaults."""
    message = to_values(dict(registers(memory)))
    message.created_at.CopyFrom(to_timestamp(memory.created_at))
    for name in SUBJECT_FIELDS:
        setattr(message, name, getattr(memory, name))
    return message


def to_values(values: Mapping[str, JsonValue]) -> v1.Memory:
    """Values by register as a message that holds them alone; a default or absent one is left out."""
    memory = put(_BLANK, values)
    message = to_message(memory, CommitStamp(0))
    for name in ("etag", "updated_at", "created_at"):
        message.ClearField(name)
    for name, default in _DEFAULTS.items():
        if getattr(message, name) == default:
            message.ClearField(name)  # type: ignore[arg-type]  # by name
    return message


_BLANK = Memory(id=MemoryId(""), content="", created_at=Micros(0))
_DEFAULTS = {
    "scope": DEFAULT_SCOPE,
    "category": DEFAULT_CATEGORY,
    "confidence": 1.0,
    "privacy_level": v1.PRIVACY_LEVEL_SHARED,
}


def from_stored(message: v1.Memory) -> Memory:
    """The inverse of ``to_message``. InvalidField as ``from_message``."""
    memory = from_message(
        message,
        memory_id=MemoryId(message.id),
        owner=ClientId(message.owner_client_id),
        now=Micros(0),
    )
    return replace(memory, source=replace(memory.source, client_id=message.source.client_id))


def from_message(message: v1.Memory, *, memory_id: MemoryId, owner: ClientId, now: Micros) -> Memory:
    """What a writer sent as a memory, with the contract's defaults; output-only fields are not read.

    ``memory_id`` and ``now`` stand in where the writer gave no id and no created_at. InvalidField where
    the message has what no value can hold: an unknown privacy level, or metadata that is nested too
    deep. Nothing else is validated here: see ``scrubjay.validity.violations``.
    """
    return Memory(
        id=MemoryId(message.id or memory_id),
        user_id=message.user_id,
        agent_id=message.agent_id,
        run_id=message.run_id,
        owner_client_id=owner,
        scope=message.scope or DEFAULT_SCOPE,
        category=message.category or DEFAULT_CATEGORY,
        content=message.content,
        tags=frozenset(message.tags),
        metadata=from_struct(message.metadata) if message.HasField("metadata") else {},
        source=_source(message.source, owner) if message.HasField("source") else Source(owner),
        confidence=message.confidence if message.HasField("confidence") else 1.0,
        privacy_level=_privacy_level(message.privacy_level),
        pinned=message.pinned,
        created_at=from_timestamp(message.created_at) if message.HasField("created_at") else now,
        valid_from=from_timestamp(message.valid_from) if message.HasField("valid_from") else None,
        valid_to=from_timestamp(message.valid_to) if message.HasField("valid_to") else None,
        expires_at=from_timestamp(message.expires_at) if message.HasField("expires_at") else None,
        superseded_by=MemoryId(message.superseded_by) if message.superseded_by else None,
    )


def keyed_value(message: v1.Memory, field: str) -> JsonValue:
    """The value of one tag or key of the metadata in what a writer sent, as ``merge.get`` gives it of the
    whole. InvalidField as ``from_message``; KeyError for a register that is none of the two."""
    kind, _, key = field.partition(".")
    if key and kind == "tags":
        return True if key in message.tags else None
    if key and kind == "metadata":
        members = message.metadata.fields
        return from_value(members[key], field) if key in members else None
    raise KeyError(field)


def _source(message: v1.Source, client_id: ClientId) -> Source:
    return Source(
        client_id=client_id,
        conversation_id=message.conversation_id,
        message_ids=tuple(message.message_ids),
        role=message.role,
        trust_class=message.trust_class,
    )


def _privacy_level(number: int) -> PrivacyLevel:
    try:
        return PrivacyLevel(number or PrivacyLevel.SHARED)
    except ValueError:
        known = ", ".join(f"{level.name} ({level})" for level in PrivacyLevel)
        raise InvalidField.of("privacy_level", f"{number} is no privacy level; give one of {known}") from None


def commit_micros(commit_stamp: CommitStamp) -> Micros:
    """When a commit stamp was given."""
    return Micros((commit_stamp >> COUNTER_BITS) * 1000)


def last_commit_stamp(time: Micros) -> CommitStamp:
    """The last one that may have been given in the millisecond of ``time``; 0 before 1970."""
    return CommitStamp(max(0, (time // 1000 + 1 << COUNTER_BITS) - 1))


def to_etag(commit_stamp: CommitStamp) -> str:
    """A memory's etag: its commit stamp in text form."""
    return time_text(commit_stamp)
