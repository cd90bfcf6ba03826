"""Restoring: what an operation changed is written back, or what it deleted comes back under a new id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from scrubjay.errors import EtagMismatch, HistoryForgotten, InvalidField, MemoryDeleted, MemoryNotFound
from scrubjay.memory import ClientId, Memory, MemoryId, Micros, expired, id_bytes, permitted
from scrubjay.merge import KEYED_FIELDS, WriteResult, put
from scrubjay.stamp import COUNTER_BITS, CommitStamp
from server.ingest.adding import Added, Draft, add
from server.ingest.author import Author
from server.ingest.edits import Edit, update
from server.past import taken_away
from server.store.history import HistoryChange, HistoryRow, made, stored
from server.store.memory_store import Reading, StoredMemory, StreamKey, Writing


@dataclass(frozen=True, slots=True)
class Restore:
    """What a Restore asks for: to undo the operation, or of its fields only some; without an operation to
    undo the memory's deletion, under ``new_id``."""

    memory_id: MemoryId
    operation_id: str
    fields: tuple[str, ...]
    etag: str
    new_id: MemoryId


@dataclass(frozen=True, slots=True)
class Revival:
    """A deleted memory that comes back: as it was, but for its id."""

    memory: Memory
    of: MemoryId


def undoing(
    reading: Reading, key: StreamKey, asked: Restore, client_id: ClientId, now: Micros
) -> Edit | Revival:
    """What the client asks for, as far as it may know of it. Its content is not embedded yet.

    Raises MemoryNotFound, MemoryDeleted for an edit of a deleted memory, HistoryForgotten for an operation
    from before what is kept, EtagMismatch and InvalidField.
    """
    living = reading.get(key.incarnation, asked.memory_id)
    if living is None:
        return _revival(reading, key, asked, client_id, now)
    if not permitted(living.memory, client_id):
        raise MemoryNotFound(asked.memory_id)
    if not asked.operation_id:
        raise InvalidField.of(
            "operation_id", "is empty, and the memory lives; name the operation to undo, from History"
        )
    row = _operation(reading, key, asked, client_id)
    if made(row):
        raise InvalidField.of("operation_id", "made the memory; Delete is what undoes that")
    changes = _chosen(stored(row), asked.fields)
    owner = living.memory.owner_client_id
    if client_id != owner and any(change.field == "privacy_level" for change in changes):
        raise InvalidField.of(
            "fields", f"privacy_level is for its owner, the client {owner!r}, to change; name the others"
        )
    values = put(living.memory, {change.field: change.old for change in changes})
    fields = tuple(change.field for change in changes)
    return Edit(asked.memory_id, values, fields, {}, asked.etag, None, restores=row.operation_id)


def _operation(reading: Reading, key: StreamKey, asked: Restore, client_id: ClientId) -> HistoryRow:
    row = reading.operation(key.incarnation, asked.memory_id, asked.operation_id)
    if row is None and _may_be_forgotten(asked.operation_id, reading.history_horizon(key)):
        raise HistoryForgotten
    if row is None or row.private_to not in ("", client_id):
        raise InvalidField.of(
            "operation_id", f"{asked.operation_id!r} is no operation of this memory; take one from History"
        )
    return row


def _may_be_forgotten(operation_id: str, horizon: CommitStamp) -> bool:
    """Whether the history of the operation is not kept any more, by the time in its id."""
    return int.from_bytes(id_bytes(MemoryId(operation_id))[:6], "big") <= horizon >> COUNTER_BITS


def _chosen(changes: Sequence[HistoryChange], fields: Sequence[str]) -> Sequence[HistoryChange]:
    """The changes of these fields; of all where none is named."""
    if not changes:
        raise InvalidField.of("operation_id", "changed nothing, so there is nothing to undo")
    chosen: dict[str, HistoryChange] = {}
    for n, field in enumerate(fields):
        found = [one for one in changes if one.field == field or _key_of(field, one.field)]
        if not found:
            wrote = ", ".join(change.field for change in changes)
            raise InvalidField.of(f"fields[{n}]", f"{field!r} was not changed by it; it changed {wrote}")
        chosen.update((one.field, one) for one in found)
    return list(chosen.values()) if fields else changes


def _key_of(field: str, register: str) -> bool:
    return field in KEYED_FIELDS and register.startswith(f"{field}.")


def _revival(reading: Reading, key: StreamKey, asked: Restore, client_id: ClientId, now: Micros) -> Revival:
    row = reading.deletion(key.incarnation, asked.memory_id)
    if row is None or row.private_to not in ("", client_id):
        raise MemoryNotFound(asked.memory_id)
    if asked.operation_id not in ("", row.operation_id):
        _operation(reading, key, asked, client_id)
        raise MemoryDeleted(asked.memory_id)
    if asked.fields:
        raise InvalidField.of("fields", "are for an edit; a deleted memory comes back whole")
    if asked.etag:
        raise EtagMismatch(asked.memory_id)
    memory = taken_away(reading, key, row)
    if memory is None:
        raise InvalidField.of("memory_id", "was deleted before it came here; there is nothing to bring back")
    if expired(memory, now):
        memory = replace(memory, expires_at=None)  # else it would be gone again at once
    return Revival(replace(memory, id=asked.new_id), asked.memory_id)


def restore(
    writing: Writing,
    key: StreamKey,
    space: str,
    what: Edit | Revival,
    vector: NDArray[np.float32] | None,
    author: Author,
    now: Micros,
) -> tuple[StoredMemory, tuple[WriteResult, ...]]:
    """Write it as a new operation. ``vector`` is that of the content, where that is written."""
    if isinstance(what, Revival):
        assert vector is not None  # a memory has a content
        drafts = [Draft(what.memory, vector, restores=what.of)]
        (added,) = add(writing, key.incarnation, space, drafts, author, now)
        if not isinstance(added, Added):
            raise added
        return added.stored, ()
    edit = what if vector is None else what.embedded(vector)
    try:
        return update(writing, key, space, edit, author, now)
    except InvalidField as error:
        raise InvalidField.of(
            "operation_id", f"what it replaced does not fit what stands now: {error.message}"
        ) from None
