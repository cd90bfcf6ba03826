"""What a Sync, a Reconcile and a Vectors send up, as values."""

from __future__ import annotations

from scrubjay import v1
from scrubjay.errors import InvalidField
from scrubjay.feed import BUCKETS, MAX_BATCH_BYTES, MAX_CHANGES, MAX_OPERATIONS, unpack
from scrubjay.memory import MAX_MICROS, MIN_MICROS, MemoryId, Micros, id_text
from scrubjay.operation import NO_CHAIN, OperationId
from scrubjay.stamp import CommitStamp, ReplicaId
from scrubjay.wire import from_timestamp
from server.ingest.uploads import Upload
from server.store.replicas import AccessTotal

MAX_TOUCHES = 1000
MAX_TOTAL = 2**40
"""So that the sum over all replicas fits the database's integers."""
_MAX_NUMBER = 2**62
"""Which the database's integers hold; commit stamps and numbers of operations stay below."""


def read_upload(request: v1.SyncRequest, now: Micros) -> Upload | None:
    """What a replica sends up; None for a client without one. InvalidField names what is wrong."""
    encoded = _encoded(request)
    if not request.replica_id:
        if encoded or request.touches:
            raise InvalidField.of("replica_id", "is empty; operations and touches need the replica's")
        return None
    if len(request.replica_id) != 16:
        raise InvalidField.of("replica_id", f"has {len(request.replica_id)} bytes; it must have 16")
    if not 1 <= request.first_number <= _MAX_NUMBER:
        raise InvalidField.of("first_number", f"is {request.first_number}; numbers begin with 1")
    if len(request.chain) != (16 if request.first_number > 1 else len(NO_CHAIN)):
        raise InvalidField.of(
            "chain", f"has {len(request.chain)} bytes; it must have 16, and none before number 1"
        )
    return Upload(
        ReplicaId(request.replica_id), request.first_number, request.chain, encoded, _touches(request, now)
    )


def _encoded(request: v1.SyncRequest) -> tuple[bytes, ...]:
    field, batch = "batch", request.batch
    if request.packed_batch:
        if request.HasField("batch"):
            raise InvalidField.of("packed_batch", "is set beside batch; send one of them")
        field, batch = "packed_batch", unpack(v1.Batch, "packed_batch", request.packed_batch)
    encoded = tuple(batch.operations)
    if len(encoded) > MAX_OPERATIONS:
        raise InvalidField.of(field, f"has {len(encoded)} operations; at most {MAX_OPERATIONS} are allowed")
    size = sum(map(len, encoded))
    if size > MAX_BATCH_BYTES:
        raise InvalidField.of(field, f"has {size} bytes of operations; at most {MAX_BATCH_BYTES} are allowed")
    return encoded


def _touches(request: v1.SyncRequest, now: Micros) -> tuple[AccessTotal, ...]:
    if len(request.touches) > MAX_TOUCHES:
        raise InvalidField.of("touches", f"has {len(request.touches)}; at most {MAX_TOUCHES} are allowed")
    return tuple(_touch(f"touches[{n}]", touch, now) for n, touch in enumerate(request.touches))


def _touch(field: str, touch: v1.Touch, now: Micros) -> AccessTotal:
    memory_id = MemoryId(_id(f"{field}.memory_id", touch.memory_id))
    if touch.total > MAX_TOTAL:
        raise InvalidField.of(f"{field}.total", f"is {touch.total}; at most {MAX_TOTAL} is allowed")
    at = from_timestamp(touch.last_access_at)
    if not MIN_MICROS <= at <= MAX_MICROS:
        raise InvalidField.of(f"{field}.last_access_at", "lies outside the years 1 to 9999")
    # The maximum stands for ever, so that a clock that runs ahead must not set it.
    return AccessTotal(memory_id, touch.total, min(at, now))


def read_counts_after(request: v1.SyncRequest) -> CommitStamp | None:
    """Where access counts are to go on; None where none are asked for."""
    if not request.include_counts:
        return None
    if request.counts_after > _MAX_NUMBER:
        raise InvalidField.of("counts_after", "is from no answer; send it as it came, or 0")
    return CommitStamp(request.counts_after)


def read_operation_ids(request: v1.ReconcileRequest) -> list[OperationId]:
    """The operations that a Reconcile asks for."""
    if len(request.operation_ids) > MAX_OPERATIONS:
        raise InvalidField.of(
            "operation_ids", f"has {len(request.operation_ids)}; at most {MAX_OPERATIONS} are allowed"
        )
    return [OperationId(_id(f"operation_ids[{n}]", packed)) for n, packed in enumerate(request.operation_ids)]


def read_digests(request: v1.ReconcileRequest) -> list[int]:
    """The digests of a replica's buckets, if it sent them."""
    count = len(request.bucket_digests)
    if count not in (0, BUCKETS):
        raise InvalidField.of("bucket_digests", f"has {count}; give {BUCKETS}, or none")
    if any(len(packed) != 8 for packed in request.bucket_digests):
        raise InvalidField.of("bucket_digests", "holds one that has not 8 bytes")
    return [int.from_bytes(packed, "big") for packed in request.bucket_digests]


def read_vector_keys(request: v1.VectorsRequest) -> list[tuple[MemoryId, bytes]]:
    """What the vectors are asked for by: memories and packed stamps of contents."""
    if len(request.keys) > MAX_CHANGES:
        raise InvalidField.of("keys", f"has {len(request.keys)}; at most {MAX_CHANGES} are allowed")
    return [
        (MemoryId(_id(f"keys[{n}].memory_id", key.memory_id)), key.content_stamp)
        for n, key in enumerate(request.keys)
    ]


def _id(field: str, packed: bytes) -> str:
    if len(packed) != 16:
        raise InvalidField.of(field, f"has {len(packed)} bytes; it must have 16")
    return id_text(packed)
