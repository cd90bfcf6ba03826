"""Adding: new memories with all that belongs to them, in one unit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from scrubjay.errors import MemoryExists
from scrubjay.memory import Memory, MemoryId, Micros
from scrubjay.merge import create
from scrubjay.operation import OperationKind
from scrubjay.stamp import Stamp
from server.ingest.author import Author, first_values
from server.ingest.correcting import supersede
from server.ingest.entities.entity import Named
from server.ingest.entities.linking import link, links_in, named_in, text_of
from server.ingest.operations import end_waits
from server.store.entities import NO_LINKS, Links
from server.store.rows import StoredMemory, StreamKey
from server.store.vector_codec import encode_vectors
from server.store.writing import Writing
from tenants.tenant import Incarnation


@dataclass(frozen=True, slots=True)
class Draft:
    """A valid memory that is not stored yet, and the vector of its content.

    ``named`` says that its writer chose its id, so that a device's edits may wait for it. ``restores`` is the
    deleted memory that it brings back, if it does. ``reason`` is for History. ``supersedes`` are memories of
    its subject that it says are true no more. ``mentions`` is what it names, and what it says of that.
    """

    memory: Memory
    vector: NDArray[np.float32]
    named: bool = False
    restores: str = ""
    reason: str = ""
    supersedes: tuple[MemoryId, ...] = ()
    mentions: Named = field(init=False, compare=False)

    def __post_init__(self) -> None:
        """Read its text, which is done before any lock."""
        object.__setattr__(self, "mentions", named_in(self.memory))


class AddStatus(IntEnum):
    """What became of a memory that was not refused; the numbers are the contract's."""

    ADDED = 1


@dataclass(frozen=True, slots=True)
class Added:
    """What stands for a draft now, how it came to, which memories it has put under itself, and what was
    stored of what it names and says."""

    stored: StoredMemory
    status: AddStatus
    superseded: tuple[MemoryId, ...] = ()
    links: Links = NO_LINKS


def add(
    writing: Writing,
    incarnation: Incarnation,
    space: str,
    drafts: Sequence[Draft],
    author: Author,
    now: Micros,
) -> list[Added | MemoryExists]:
    """Store the drafts whose ids are free; one result for each, in order."""
    ids = [draft.memory.id for draft in drafts]
    taken = {*writing.get_many(incarnation, ids), *writing.buried(incarnation, ids)}
    by_stream: dict[StreamKey, list[Draft]] = {}
    accepted: list[bool] = []
    for draft in drafts:
        accepted.append(draft.memory.id not in taken)
        if accepted[-1]:
            taken.add(draft.memory.id)
            by_stream.setdefault(StreamKey(incarnation, draft.memory.subject.key), []).append(draft)
    added = {
        one.stored.memory.id: one
        for key, group in by_stream.items()
        for one in _add_to_stream(writing, key, space, group, author, now)
    }
    return [
        added[memory_id] if fresh else MemoryExists(memory_id)
        for memory_id, fresh in zip(ids, accepted, strict=True)
    ]


def _add_to_stream(
    writing: Writing, key: StreamKey, space: str, drafts: Sequence[Draft], author: Author, now: Micros
) -> list[Added]:
    commit_stamps = writing.stamps(key, len(drafts), now // 1000)
    stamps = [Stamp(commit_stamp, author.replica) for commit_stamp in commit_stamps]
    stored = [
        StoredMemory.of(create(draft.memory, stamp), commit_stamp)
        for draft, stamp, commit_stamp in zip(drafts, stamps, commit_stamps, strict=True)
    ]
    vectors = encode_vectors(np.stack([draft.vector for draft in drafts]))
    writing.insert(key, stored)
    writing.put_vectors(
        key,
        space,
        [(one.memory.id, stamp, vector) for one, stamp, vector in zip(stored, stamps, vectors, strict=True)],
    )
    writing.add_history(
        key,
        [
            replace(
                author.history_row(
                    one.memory, OperationKind.CREATE, first_values(one.memory, stamp), stamp, one.commit_stamp
                ),
                restores=draft.restores,
                reason=draft.reason,
            )
            for draft, one, stamp in zip(drafts, stored, stamps, strict=True)
        ],
    )
    known = {text_of(draft.memory): draft.mentions for draft in drafts}
    link(writing, key, stored, known)
    stored = _edited(writing, key, space, drafts, author, stored, now)
    return [
        Added(
            one,
            AddStatus.ADDED,
            tuple(supersede(writing, key, space, draft.supersedes, one.memory.id, author, now)),
            links_in(key, one.memory, known),
        )
        for draft, one in zip(drafts, stored, strict=True)
    ]


def _edited(
    writing: Writing,
    key: StreamKey,
    space: str,
    drafts: Sequence[Draft],
    author: Author,
    stored: list[StoredMemory],
    now: Micros,
) -> list[StoredMemory]:
    """The memories with the edits that had waited for them."""
    named = [draft.memory for draft in drafts if draft.named]
    ids = [memory.id for memory in named]
    if not named or not end_waits(writing, key, space, author, named[0].subject, ids, now // 1000):
        return stored
    edited = writing.get_many(key.incarnation, ids)
    return [edited.get(one.memory.id, one) for one in stored]
