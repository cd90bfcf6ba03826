"""The feed: a subject's memories in commit-stamp order, as they travel to a replica and lie in it.

A replica keeps of each memory its encoded ``v1.Memory`` and its packed field stamps, as the server does.
In a page the message travels without what the reader knows; pages are compressed whole.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Collection, Iterable, Sequence
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from scrubjay import v1
from scrubjay.errors import InvalidField
from scrubjay.memory import MemoryId, Subject, id_bytes, id_text
from scrubjay.merge import State, get, join
from scrubjay.stamp import CommitStamp, pack_field_stamps, unpack_field_stamps
from scrubjay.wire import from_stored, to_values

MAX_CHANGES = 1000
MAX_PAGE_BYTES = 512 * 1024
"""Before it is compressed; a page ends behind the first change that reaches this."""
MAX_OPERATIONS = 1000
"""Half as many would double the round trips after a long time offline; a full batch holds a shard's writer
for some 200 ms."""
MAX_BATCH_BYTES = 256 * 1024
PACKED_FROM_BYTES = 1024
"""Smaller bodies gain nothing from being compressed."""
BUCKETS = 256
_MOST_UNPACKED = 4 * 1024 * 1024
_QUICKLY, _TIGHTLY = 1, 5
_DIGEST_MODULUS = 1 << 64

M = TypeVar("M", bound=Message)


def whole(message: bytes, field_stamps: bytes, subject: Subject) -> v1.Change:
    """A memory's change as WHOLE, from what is stored of it; its ids and commit stamp are left to set."""
    memory = v1.Memory.FromString(message)
    for field in ("id", "etag", "updated_at", f"{subject.kind}_id"):
        memory.ClearField(field)  # type: ignore[arg-type]  # by name
    return v1.Change(kind=v1.CHANGE_KIND_WHOLE, memory=memory, field_stamps=field_stamps)


def part(state: State, fields: Collection[str]) -> v1.Change:
    """The change of some registers as PART; its ids and commit stamp are left to set."""
    stamps = {field: state.stamps[field] for field in fields}
    values = {field: get(state.memory, field) for field in fields}
    return v1.Change(
        kind=v1.CHANGE_KIND_PART, memory=to_values(values), field_stamps=pack_field_stamps(stamps)
    )


def stored_message(memory: v1.Memory, memory_id: MemoryId, subject: Subject) -> bytes:
    """The encoded message of a WHOLE change as a replica stores it: with its ids, and without what follows
    from its commit stamp."""
    memory.id = memory_id
    setattr(memory, f"{subject.kind}_id", subject.name)
    return memory.SerializeToString()


def read_state(message: bytes, field_stamps: bytes) -> State:
    """A memory as a value, from what is stored of it. ValueError or DecodeError where it is damaged."""
    return State(from_stored(v1.Memory.FromString(message)), unpack_field_stamps(field_stamps))


def joined(state: State, change: v1.Change) -> State:
    """The state with a PART change joined into it."""
    return join(state, State(from_stored(change.memory), unpack_field_stamps(change.field_stamps)))


# --- pages and batches as they travel --------------------------------------------------------------


def seal_page(changes: Sequence[tuple[MemoryId, CommitStamp, v1.Change]]) -> v1.Page:
    """A page of changes in commit-stamp order."""
    page, before = v1.Page(), 0
    for memory_id, commit_stamp, change in changes:
        change.memory_id, change.commit_stamp = id_bytes(memory_id), commit_stamp - before
        page.changes.append(change)
        before = commit_stamp
    return page


def open_page(page: v1.Page) -> list[tuple[MemoryId, CommitStamp, v1.Change]]:
    """The inverse of ``seal_page``. ValueError where an id has not 16 bytes."""
    found, stamp = [], 0
    for change in page.changes:
        stamp += change.commit_stamp
        found.append((MemoryId(id_text(change.memory_id)), CommitStamp(stamp), change))
    return found


def pack(message: Message, *, tightly: bool = False) -> bytes:
    """A page or batch as a zlib stream. ``tightly`` makes a batch 6 % smaller, and takes twice the time."""
    return zlib.compress(message.SerializeToString(), _TIGHTLY if tightly else _QUICKLY)


def unpack(kind: type[M], field: str, packed: bytes) -> M:
    """The inverse of ``pack``. InvalidField about ``field`` where it is damaged, or opens to too much."""
    stream = zlib.decompressobj()
    try:
        body = stream.decompress(packed, _MOST_UNPACKED)
        if not stream.eof:
            raise InvalidField.of(field, f"opens to more than {_MOST_UNPACKED} bytes, or is cut short")
        return kind.FromString(body)
    except (zlib.error, DecodeError):
        raise InvalidField.of(field, f"is no zlib stream of a {kind.DESCRIPTOR.full_name}") from None


# --- digests ---------------------------------------------------------------------------------------


def bucket_digests(rows: Iterable[tuple[bytes, CommitStamp]]) -> list[int]:
    """256 digests of memories as (16 bytes of id, commit stamp), in any order: a sum of hashes for each
    first byte of an id, so that adding and removing one memory needs no other."""
    buckets = [0] * BUCKETS
    for memory_id, commit_stamp in rows:
        row = hashlib.blake2b(memory_id + commit_stamp.to_bytes(8, "big"), digest_size=8).digest()
        bucket = memory_id[0]
        buckets[bucket] = (buckets[bucket] + int.from_bytes(row, "big")) % _DIGEST_MODULUS
    return buckets


def digest(buckets: Iterable[int]) -> bytes:
    """The digest of all buckets, 8 bytes."""
    return (sum(buckets) % _DIGEST_MODULUS).to_bytes(8, "big")
