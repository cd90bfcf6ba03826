"""Changing and deleting what is stored: every edit goes through the merge law."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from scrubjay.errors import EtagMismatch, InvalidField, MemoryDeleted, MemoryNotFound
from scrubjay.memory import JsonValue, Memory, MemoryId, Micros, canonical_json, visible
from scrubjay.merge import KEYED_FIELDS, State, Write, WriteResult, apply, get
from scrubjay.operation import OperationKind
from scrubjay.stamp import CommitStamp, Stamp
from scrubjay.validity import violations
from scrubjay.wire import to_etag
from server.ingest.author import Author, last_text, outside_violation, written
from server.ingest.entities.linking import Known, named_in, relink, says_other, text_of
from server.store.rows import Grave, StoredMemory, StreamKey, private_to
from server.store.vector_codec import encode_vector
from server.store.writing import Writing

DELETED_AT_ONCE = 1000
"""Rows that DeleteAll takes at a time from SQL, so that its memory is bounded."""


@dataclass(frozen=True, slots=True)
class Edit:
    """What an Update asks for.

    ``values`` has the new memory; ``fields`` the mask's paths; ``vector`` the new content's, if any.
    ``bases`` are the stamps its author was looking at, by register. ``reason`` is for History, and so is
    ``restores``, the operation that it undoes. ``named`` is what the new content names.
    """

    memory_id: MemoryId
    values: Memory
    fields: tuple[str, ...]
    bases: Mapping[str, Stamp]
    etag: str
    vector: NDArray[np.float32] | None
    reason: str = ""
    restores: str = ""
    named: Known = field(default_factory=dict)

    def embedded(self, vector: NDArray[np.float32]) -> Edit:
        """The same edit with the vector of its new content, and what that names."""
        return replace(self, vector=vector, named={text_of(self.values): named_in(self.values)})


def update(
    writing: Writing, key: StreamKey, space: str, edit: Edit, author: Author, now: Micros
) -> tuple[StoredMemory, tuple[WriteResult, ...]]:
    """Apply the edit to the memory; nothing is written where it changes nothing."""
    old = living(writing, key, edit.memory_id, author, now)
    _check_etag(old, edit.etag)
    changed = _changed_registers(old.memory, edit)
    if not changed:
        return old, ()
    (commit_stamp,) = writing.stamps(key, 1, now // 1000)
    stamp = stamp_after(old, commit_stamp, author)
    state, results = apply(old.state, _writes(changed, old.state, edit, stamp), author.client_id)
    _check(old, state, edit, author)
    stored = old.edited(state, commit_stamp)
    writing.replace(key, old, stored)
    if says_other(old.memory, stored.memory):
        relink(writing, key, [stored], edit.named)
    if edit.vector is not None and state.stamps["content"] == stamp:
        writing.put_vectors(key, space, [(old.memory.id, stamp, encode_vector(edit.vector))])
    guarded = old.memory if private_to(old.memory) else state.memory  # the old values were for its owner
    row = author.history_row(guarded, OperationKind.SET, written(results), stamp, commit_stamp)
    writing.add_history(key, [row._replace(reason=edit.reason, restores=edit.restores)])
    return stored, results


def living(
    writing: Writing, key: StreamKey, memory_id: MemoryId, author: Author, now: Micros
) -> StoredMemory:
    """The memory as its author may edit it. MemoryDeleted, MemoryNotFound as in a read."""
    stored = writing.get(key.incarnation, memory_id)
    if stored is None and writing.deleted_for(key.incarnation, memory_id, author.viewer):
        raise MemoryDeleted(memory_id)
    if stored is None or not visible(stored.memory, author.viewer, now):
        raise MemoryNotFound(memory_id)
    return stored


def _check_etag(stored: StoredMemory, etag: str) -> None:
    if etag and etag != to_etag(stored.commit_stamp):
        raise EtagMismatch(stored.memory.id)


def _changed_registers(memory: Memory, edit: Edit) -> dict[str, JsonValue]:
    """The registers that the edit writes with another value than the one that stands.

    A register with a base stamp is written even so: its author says that the value was chosen.
    """
    found: dict[str, JsonValue] = {}
    for name in edit.fields:
        for register in _registers_of(name, memory, edit.values):
            value = get(edit.values, register)
            old = get(memory, register)
            if not _same(value, old) or register in edit.bases:
                found[register] = value
    return found


def _same(new: JsonValue, old: JsonValue) -> bool:
    """Whether they are the same JSON: in Python True equals 1. What is none is another value, and refused
    with the memory it would make."""
    try:
        return canonical_json(new) == canonical_json(old)
    except ValueError:
        return False


def _registers_of(field: str, old: Memory, new: Memory) -> list[str]:
    if field not in KEYED_FIELDS:
        return [field]
    keys = old.tags | new.tags if field == "tags" else {*old.metadata, *new.metadata}
    return [f"{field}.{key}" for key in sorted(keys)]


def _writes(changed: Mapping[str, JsonValue], state: State, edit: Edit, stamp: Stamp) -> list[Write]:
    writes = []
    for register, value in changed.items():
        base = edit.bases.get(register, state.stamps.get(register))
        if base is not None and base >= stamp:
            raise InvalidField.of("base_stamps", f"{register}: {base} lies in the future; take it from Get")
        writes.append(Write(register, value, stamp, base))
    return writes


def _check(old: StoredMemory, state: State, edit: Edit, author: Author) -> None:
    if "privacy_level" in edit.fields and author.client_id != old.memory.owner_client_id:
        raise InvalidField.of(
            "memory.privacy_level",
            f"only its owner, the client {old.memory.owner_client_id!r}, may change it",
        )
    wrong = violations(state.memory)
    if (outside := outside_violation("scope", state.memory.scope, author.viewer)) is not None:
        wrong.append(outside)
    if wrong:
        raise InvalidField(violation.under("memory") for violation in wrong)


def delete(
    writing: Writing, key: StreamKey, memory_id: MemoryId, etag: str, author: Author, now: Micros
) -> None:
    """Delete the memory for ever; nothing happens where it was deleted before."""
    if writing.deleted_for(key.incarnation, memory_id, author.viewer):
        return
    stored = writing.get(key.incarnation, memory_id)
    if stored is None or not author.viewer.sees(stored.memory):
        raise MemoryNotFound(memory_id)
    _check_etag(stored, etag)
    bury(writing, key, [stored], author, now)


def delete_all(writing: Writing, key: StreamKey, author: Author, now: Micros) -> int:
    """Delete every memory of the stream that the author may see, and cancel the work that would make more;
    how many memories there were."""
    writing.forget_jobs(key, author.client_id, now)
    count = 0
    before: tuple[Micros, MemoryId] | None = None
    while page := writing.page(key, before, DELETED_AT_ONCE):
        before = (page[-1].memory.created_at, page[-1].memory.id)
        dead = [stored for stored in page if author.viewer.sees(stored.memory)]
        bury(writing, key, dead, author, now)
        count += len(dead)
    writing.forget_recent(key)
    return count


def delete_chosen(
    writing: Writing,
    key: StreamKey,
    ids: Collection[MemoryId],
    chosen: Callable[[StoredMemory], bool],
    author: Author,
    now: Micros,
) -> int:
    """Delete those of the memories that are still chosen; how many there were."""
    dead = [stored for stored in writing.get_many(key.incarnation, ids).values() if chosen(stored)]
    bury(writing, key, dead, author, now)
    return len(dead)


def bury(
    writing: Writing,
    key: StreamKey,
    dead: Sequence[StoredMemory],
    author: Author,
    now: Micros,
    reasons: Mapping[MemoryId, str] = MappingProxyType({}),
) -> None:
    """Delete living memories of the stream for ever; History says why, where ``reasons`` does."""
    commit_stamps = writing.stamps(key, len(dead), now // 1000)
    stamps = [
        stamp_after(stored, commit_stamp, author)
        for stored, commit_stamp in zip(dead, commit_stamps, strict=True)
    ]
    writing.bury(
        key,
        [
            Grave.of(stored.memory, commit_stamp, stamp)
            for stored, stamp, commit_stamp in zip(dead, stamps, commit_stamps, strict=True)
        ],
    )
    writing.add_history(
        key,
        [
            author.history_row(
                stored.memory, OperationKind.DELETE, last_text(stored.state, stamp), stamp, commit_stamp
            )._replace(
                deleted=stored.message,
                reason=reasons.get(stored.memory.id, ""),
            )
            for stored, stamp, commit_stamp in zip(dead, stamps, commit_stamps, strict=True)
        ],
    )


def stamp_after(stored: StoredMemory, commit_stamp: CommitStamp, author: Author) -> Stamp:
    """A stamp of this commit that is later than every edit of the memory."""
    latest = stored.state.latest()
    return Stamp(max(commit_stamp, latest.time + 1 if latest else 0), author.replica)
