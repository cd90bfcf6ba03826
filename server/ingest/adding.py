"""Adding: new memories with all that belongs to them, in one unit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from server.ingest.duplicates import Repeat
from server.ingest.entities.entity import NOTHING, Named
from server.ingest.entities.linking import link, links_in, named_in, text_of
from server.ingest.operations import end_waits
from server.ingest.repeating import repeats, say_again
from server.ingest.words import mark
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
    its subject that it says are true no more. ``told`` is what a model said that it names; ``mentions`` is
    all that it names, and what it says of that; ``mark`` is that of its text.
    """

    memory: Memory
    vector: NDArray[np.float32]
    named: bool = False
    restores: str = ""
    reason: str = ""
    supersedes: tuple[MemoryId, ...] = ()
    told: Named = NOTHING
    mentions: Named = field(init=False, compare=False)
    mark: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        """Read its text, which is done before any lock."""
        object.__setattr__(self, "mentions", named_in(self.memory, self.told))
        object.__setattr__(self, "mark", mark(self.memory.content))


class AddStatus(IntEnum):
    """What became of a memory that was not refused; the numbers are the contract's."""

    ADDED = 1
    DUPLICATE = 2
    MERGED_INTO = 3


@dataclass(frozen=True, slots=True)
class Added:
    """What stands for a draft now, how it came to, which memories it has put under itself, and what was
    stored of what it names and says."""

    stored: StoredMemory
    status: AddStatus
    superseded: tuple[MemoryId, ...] = ()
    links: Links = NO_LINKS

    @property
    def is_repeat(self) -> bool:
        """Whether the draft was said before."""
        return self.status is not AddStatus.ADDED


def add(
    writing: Writing,
    incarnation: Incarnation,
    space: str,
    drafts: Sequence[Draft],
    author: Author,
    now: Micros,
    *,
    deduplicate: bool = False,
) -> list[Added | MemoryExists]:
    """Store the drafts whose ids are free; one result for each, in order. With ``deduplicate`` what is stored
    already is not stored again."""
    ids = [draft.memory.id for draft in drafts]
    taken = {*writing.get_many(incarnation, ids), *writing.buried(incarnation, ids)}
    by_stream: dict[StreamKey, list[Draft]] = {}
    accepted: list[bool] = []
    for draft in drafts:
        accepted.append(draft.memory.id not in taken)
        if accepted[-1]:
            taken.add(draft.memory.id)
            by_stream.setdefault(StreamKey(incarnation, draft.memory.subject.key), []).append(draft)
    added: dict[MemoryId, Added] = {}
    for key, group in by_stream.items():
        add_group = _add_or_repeat if deduplicate else _add_to_stream
        became = add_group(writing, key, space, group, author, now)
        added.update(zip((draft.memory.id for draft in group), became, strict=True))
    return [
        added[memory_id] if fresh else MemoryExists(memory_id)
        for memory_id, fresh in zip(ids, accepted, strict=True)
    ]


def _add_or_repeat(
    writing: Writing, key: StreamKey, space: str, drafts: Sequence[Draft], author: Author, now: Micros
) -> list[Added]:
    """Store what the stream does not say yet. What a draft replaces, it replaces said again too."""
    new = [(draft.memory, draft.mark) for draft in drafts]
    found = repeats(writing, key, new, author.client_id, now)
    found = _but_waited_for(writing, key, drafts, found)
    stands = {
        draft.memory.id: repeat.of for draft, repeat in zip(drafts, found, strict=True) if repeat is not None
    }
    fresh = [_redirected(draft, stands) for draft in drafts if draft.memory.id not in stands]
    added = iter(_add_to_stream(writing, key, space, fresh, author, now) if fresh else ())
    became = [
        next(added)
        if repeat is None
        else _repeated(writing, key, space, _redirected(draft, stands), repeat, author, now)
        for draft, repeat in zip(drafts, found, strict=True)
    ]
    if not stands:
        return became
    last = writing.get_many(key.incarnation, {one.stored.memory.id for one in became})
    return [replace(one, stored=last[one.stored.memory.id]) for one in became]


def _but_waited_for(
    writing: Writing, key: StreamKey, drafts: Sequence[Draft], found: Sequence[Repeat | None]
) -> list[Repeat | None]:
    """The repeats without those whose id a device has edits for already."""
    named = [
        draft.memory.id
        for draft, repeat in zip(drafts, found, strict=True)
        if repeat is not None and draft.named
    ]
    waited_for = {one.memory_id for one in writing.waiting(key, named)} if named else set()
    return [
        None if draft.memory.id in waited_for else repeat for draft, repeat in zip(drafts, found, strict=True)
    ]


def _redirected(draft: Draft, stands: Mapping[MemoryId, MemoryId]) -> Draft:
    """The draft with the memory that stands where it names one that is not stored."""
    successor = draft.memory.superseded_by
    if successor is None or successor not in stands:
        return draft
    return replace(draft, memory=replace(draft.memory, superseded_by=stands[successor]))


def _repeated(
    writing: Writing,
    key: StreamKey,
    space: str,
    draft: Draft,
    repeat: Repeat,
    author: Author,
    now: Micros,
) -> Added:
    """What stands for the draft, and what became of it."""
    stored, got_more = say_again(writing, key, repeat, draft.memory, author, now)
    older = [memory_id for memory_id in draft.supersedes if memory_id != repeat.of]
    superseded = supersede(writing, key, space, older, repeat.of, author, now)
    successor = draft.memory.superseded_by
    if successor is not None and successor != repeat.of:
        supersede(writing, key, space, [repeat.of], successor, author, now)
    return Added(stored, AddStatus.MERGED_INTO if got_more else AddStatus.DUPLICATE, tuple(superseded))


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
            author.history_row(
                one.memory, OperationKind.CREATE, first_values(one.memory, stamp), stamp, one.commit_stamp
            )._replace(
                restores=draft.restores,
                reason=draft.reason,
            )
            for draft, one, stamp in zip(drafts, stored, stamps, strict=True)
        ],
    )
    known = {text_of(draft.memory): draft.mentions for draft in drafts}
    links = link(writing, key, stored, known)
    edited = _edited(writing, key, space, drafts, author, stored, now)
    return [
        Added(
            after,
            AddStatus.ADDED,
            tuple(supersede(writing, key, space, draft.supersedes, after.memory.id, author, now)),
            linked if after is before else links_in(key, after.memory, known),
        )
        for draft, before, after, linked in zip(drafts, stored, edited, links, strict=True)
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
