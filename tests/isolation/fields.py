"""What each text and each bytes field of a request takes: the one table, by a field's name.

A name with its message before it, as in ``GetOperationRequest.id``, wins over the bare one. A field that is
in neither form makes ``test_every_field_is_classified`` fail: say here what it takes. Whatever names
something that is stored is an id; only what a person wrote, or a word of the contract, is TEXT.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto

from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor


class Kind(Enum):
    """What a field takes."""

    TEXT = auto()
    """No id: prose, or a word of the contract."""
    MEMORY = auto()
    MEMORY_BYTES = auto()
    OPERATION = auto()
    """Of a memory's history."""
    OPERATION_BYTES = auto()
    """Of a device's operation."""
    JOB = auto()
    """Work that goes on after its call, on memories."""
    TENANT_JOB = auto()
    """The same, on a tenant."""
    REQUEST = auto()
    PAGE_TOKEN = auto()
    REVISION = auto()
    CURSOR = auto()
    WATCH_TOKEN = auto()
    SNAPSHOT_TOKEN = auto()
    ETAG = auto()
    STAMP = auto()
    CONTENT_STAMP = auto()
    ENTITY = auto()
    DEVICE = auto()
    KEY = auto()
    TENANT = auto()
    LIFE = auto()
    """A tenant's incarnation."""
    REPLICA = auto()
    PRINCIPAL = auto()
    CHAIN = auto()
    INSTALLATION = auto()
    DIGEST = auto()
    OPERATIONS = auto()
    """An encoded operation of a device, on a memory."""
    PACKED_BATCH = auto()
    PACKED_PAGE = auto()
    USER = auto()
    AGENT = auto()
    RUN = auto()
    CLIENT = auto()
    NAME = auto()
    """A name that a tenant's callers made up: a scope, a conversation."""
    FILTER_VALUE = auto()
    """What a filter compares with."""


TAKES: dict[str, Kind] = {
    # ids of what is stored
    "GetRequest.id": Kind.MEMORY,
    "BatchGetRequest.ids": Kind.MEMORY,
    "Memory.id": Kind.MEMORY,
    "DeleteRequest.id": Kind.MEMORY,
    "memory_id": Kind.MEMORY,
    "superseded_by": Kind.MEMORY,
    "Touch.memory_id": Kind.MEMORY_BYTES,
    "VectorKey.memory_id": Kind.MEMORY_BYTES,
    "VectorKey.content_stamp": Kind.CONTENT_STAMP,
    "RestoreRequest.operation_id": Kind.OPERATION,
    "ReconcileRequest.operation_ids": Kind.OPERATION_BYTES,
    "GetOperationRequest.id": Kind.JOB,
    "CancelOperationRequest.id": Kind.JOB,
    "WaitOperationRequest.id": Kind.JOB,
    "operation_id": Kind.TENANT_JOB,
    "entity_id": Kind.ENTITY,
    "ConversationMessage.id": Kind.NAME,
    "conversation_id": Kind.NAME,
    "message_ids": Kind.NAME,
    "upload_id": Kind.NAME,
    "scope": Kind.NAME,
    "scopes": Kind.NAME,
    # who
    "tenant_id": Kind.TENANT,
    "incarnation": Kind.LIFE,
    "user_id": Kind.USER,
    "agent_id": Kind.AGENT,
    "run_id": Kind.RUN,
    "client_id": Kind.CLIENT,
    "owner_client_id": Kind.CLIENT,
    "key_id": Kind.KEY,
    "device_id": Kind.DEVICE,
    "replica_id": Kind.REPLICA,
    "principal": Kind.PRINCIPAL,
    "installation_id": Kind.INSTALLATION,
    # what a caller only carries
    "request_id": Kind.REQUEST,
    "page_token": Kind.PAGE_TOKEN,
    "min_revision": Kind.REVISION,
    "last_sync_at": Kind.CURSOR,
    "MemoryServiceWatchRequest.resume_token": Kind.WATCH_TOKEN,
    "SnapshotRequest.resume_token": Kind.SNAPSHOT_TOKEN,
    "etag": Kind.ETAG,
    "FieldStamp.stamp": Kind.STAMP,
    "chain": Kind.CHAIN,
    "bucket_digests": Kind.DIGEST,
    # bodies that hold ids
    "Batch.operations": Kind.OPERATIONS,
    "packed_batch": Kind.PACKED_BATCH,
    "packed_page": Kind.PACKED_PAGE,
    "google.protobuf.Value": Kind.FILTER_VALUE,
    # no ids
    "content": Kind.TEXT,
    "category": Kind.TEXT,
    "tags": Kind.TEXT,
    "role": Kind.TEXT,
    "trust_class": Kind.TEXT,
    "field": Kind.TEXT,
    "fields": Kind.TEXT,
    "query": Kind.TEXT,
    "recipe": Kind.TEXT,
    "display_name": Kind.TEXT,
    "reason": Kind.TEXT,
    "suspension_reason": Kind.TEXT,
    "custom_instructions": Kind.TEXT,
    "custom_reconcile_prompt": Kind.TEXT,
    "shard": Kind.TEXT,
    "space": Kind.TEXT,
    "place": Kind.TEXT,
    "from_day": Kind.TEXT,
    "chunk": Kind.TEXT,
    "sha256": Kind.TEXT,
    "embedder": Kind.TEXT,
    "to_day": Kind.TEXT,
}

_SKIPPED = {
    "google.protobuf.Struct",  # a memory's metadata: what a person wrote
    "google.protobuf.FieldMask",
    "google.protobuf.Timestamp",
    "google.protobuf.Duration",
}

Path = tuple[FieldDescriptor, ...]


def text_of(path: Path) -> str:
    """``filter.condition.value``."""
    return ".".join(step.name for step in path)


def leaves(rpc: MethodDescriptor) -> Iterator[Path]:
    """Every field of an RPC's request that holds text or bytes, with the way to it."""
    yield from _leaves(rpc.input_type, (), frozenset({rpc.input_type.full_name}))


def _leaves(message: Descriptor, before: Path, seen: frozenset[str]) -> Iterator[Path]:
    for field in message.fields:
        path = (*before, field)
        if field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
            yield path
        elif (inner := field.message_type) is None or inner.full_name in _SKIPPED | seen:
            continue
        elif inner.full_name in TAKES:
            yield path
        else:
            yield from _leaves(inner, path, seen | {inner.full_name})


def kind_of(path: Path) -> Kind | None:
    """What the field takes; None where the table does not say."""
    field = path[-1]
    if field.message_type is not None:
        return TAKES[field.message_type.full_name]
    return TAKES.get(f"{field.containing_type.name}.{field.name}", TAKES.get(field.name))
