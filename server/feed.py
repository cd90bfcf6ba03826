"""The feed as one viewer has it: what changed in a stream behind a position, through the one gate.

A position says how far pages were read, and what the reader surely holds: the *base*, the head at the end
of the last pull that came to its end. A memory that is wholly newer than the base is sent whole, another
one as the registers written since, so that a reader in the middle of a pull never gets a part of what it
never had. A first pull also remembers the head when it began: what died before is nothing to it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge as merge_sorted
from operator import attrgetter
from types import MappingProxyType
from typing import Protocol, TypeVar

from scrubjay import v1
from scrubjay.feed import MAX_CHANGES, bucket_digests, part, read_state, whole
from scrubjay.memory import MemoryId, Subject, Viewer, id_bytes
from scrubjay.stamp import CommitStamp
from server.store.memory_store import FeedRow, Grave, Reading, Retraction, StreamHead, StreamKey
from server.store.rows import CREATED, may_hear, to_field_commits

MOST_LOOKED_AT = 20_000
"""Rows that one page looks at: a page may be short, or empty, before the end."""
_CHUNK = 500
"""Rows that are read from SQL at a time."""
_DIGEST_CHUNK = 5000
_FRAME_BYTES = 26
"""Beside a change's own: its id, the distance to the one before, and its place in the page."""
_NOTHING = CommitStamp(0)
_WHO_SEES_IT = ("privacy_level", "scope")

PageChange = tuple[MemoryId, CommitStamp, v1.Change]


@dataclass(frozen=True, slots=True)
class OwnWrite:
    """What a call wrote itself of a memory: where it left it in the feed, and where the newest register
    that it did not write stands; 0 where it wrote them all."""

    commit_stamp: CommitStamp
    others: CommitStamp


Own = Mapping[MemoryId, OwnWrite]
NOTHING_OWN: Own = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Position:
    """How far pages were read, and ``base``, what the reader surely holds; base <= stamp.

    ``began`` is the head when a first pull that is under way began, else 0.
    """

    stamp: CommitStamp
    base: CommitStamp
    epoch: int
    began: CommitStamp = _NOTHING

    @property
    def under_way(self) -> bool:
        """Whether a pull has begun and not come to its end."""
        return self.base != self.stamp

    @property
    def remembered(self) -> CommitStamp:
        """From where on the reader must hear of deletions; 0 for one that holds nothing."""
        return max(self.stamp, self.began) if self.base == 0 else self.stamp

    def forgotten(self, horizon: CommitStamp) -> bool:
        """Whether the server forgot deletions that the reader has not heard of."""
        return 0 < self.remembered < horizon


BEGINNING = Position(_NOTHING, _NOTHING, 0)


def at_head(head: StreamHead | None) -> Position:
    """Where who pulled until there was no more stands, of a stream that stands at ``head``."""
    return BEGINNING if head is None else Position(head.head, head.head, head.epoch)


@dataclass(frozen=True, slots=True)
class FeedPage:
    """Changes in commit-stamp order, where they end, and whether there are more."""

    changes: list[PageChange]
    position: Position
    more: bool


def read_page(
    reading: Reading,
    key: StreamKey,
    subject: Subject,
    viewer: Viewer,
    position: Position,
    *,
    max_bytes: int,
    own: Own = NOTHING_OWN,
) -> FeedPage:
    """What changed for the viewer behind ``position``, up to the head of this moment.

    At most ``MAX_CHANGES`` changes; the page ends behind the first that takes it to ``max_bytes``. A
    memory whose every change since the base is ``own``, and stands, is left out.
    """
    head = reading.head(key)
    if head is None:
        return FeedPage([], BEGINNING, more=False)
    began = _NOTHING if position.base else position.began or head.head
    changes: list[PageChange] = []
    size, at = 0, position.stamp
    for looked_at, item in enumerate(_items(reading, key, viewer, position)):
        if len(changes) == MAX_CHANGES or size >= max_bytes or looked_at == MOST_LOOKED_AT:
            return FeedPage(changes, Position(at, position.base, head.epoch, began), more=True)
        at = item.commit_stamp
        change = _change(item, subject, viewer, position.base, own.get(item.memory_id))
        if change is not None:
            changes.append((item.memory_id, at, change))
            size += change.ByteSize() + _FRAME_BYTES
    return FeedPage(changes, at_head(head), more=False)


class _Item(Protocol):
    @property
    def memory_id(self) -> MemoryId: ...
    @property
    def commit_stamp(self) -> CommitStamp: ...


def _items(reading: Reading, key: StreamKey, viewer: Viewer, position: Position) -> Iterator[_Item]:
    """Everything that happened behind the position, hidden or not, in commit-stamp order."""
    living = _chunks(lambda at: reading.living_after(key, at, _CHUNK), position.stamp)
    if position.stamp == 0:
        return iter(living)
    graves = _chunks(lambda at: reading.graves_after(key, at, _CHUNK), position.remembered)
    retracted = _retracted(reading, key, viewer, position.remembered)
    return merge_sorted(living, graves, retracted, key=attrgetter("commit_stamp"))


T = TypeVar("T", bound=_Item)


def _chunks(
    read: Callable[[CommitStamp], Sequence[T]], after: CommitStamp, size: int = _CHUNK
) -> Iterator[T]:
    while chunk := read(after):
        yield from chunk
        if len(chunk) < size:
            return
        after = chunk[-1].commit_stamp


def _retracted(reading: Reading, key: StreamKey, viewer: Viewer, after: CommitStamp) -> Iterator[Retraction]:
    """What was taken back from the viewer and it does not see now, each memory once."""
    told: set[MemoryId] = set()
    while chunk := reading.retractions_after(key, after, _CHUNK):
        ours = [one for one in chunk if may_hear(viewer, one.private_to, one.scope)]
        gone = hidden(reading, key, viewer, {one.memory_id for one in ours}) if ours else set()
        for one in ours:
            if one.memory_id in gone - told:
                told.add(one.memory_id)
                yield one
        if len(chunk) < _CHUNK:
            return
        after = chunk[-1].commit_stamp


def hidden(reading: Reading, key: StreamKey, viewer: Viewer, ids: Collection[MemoryId]) -> set[MemoryId]:
    """Those of ``ids`` that the viewer neither sees nor may hear the deletion of."""
    living = reading.guarded(key, ids)
    graves = reading.graves(key.incarnation, ids)
    seen = {i for i, row in living.items() if viewer.sees(row)}
    heard = {i for i, (_, grave) in graves.items() if may_hear(viewer, grave.private_to, grave.scope)}
    return set(ids) - seen - heard


def _change(
    item: _Item, subject: Subject, viewer: Viewer, base: CommitStamp, own: OwnWrite | None
) -> v1.Change | None:
    """What the viewer is told of it; None where that is nothing."""
    if isinstance(item, FeedRow):
        return _living_change(item, subject, base, own) if viewer.sees(item) else None
    if isinstance(item, Grave):
        told = may_hear(viewer, item.private_to, item.scope)
        return v1.Change(kind=v1.CHANGE_KIND_DELETED) if told else None
    return v1.Change(kind=v1.CHANGE_KIND_RETRACTED)


def _living_change(
    row: FeedRow, subject: Subject, base: CommitStamp, own: OwnWrite | None
) -> v1.Change | None:
    if own is not None and own.commit_stamp == row.commit_stamp and own.others <= base:
        return None
    if base == 0:
        return whole(row.message, row.field_stamps, subject)
    commits = to_field_commits(row.field_commits, row.commit_stamp)
    written = {field for field, commit in commits.items() if commit > base}
    if CREATED in written or not written.isdisjoint(_WHO_SEES_IT):
        return whole(row.message, row.field_stamps, subject)
    return part(read_state(row.message, row.field_stamps), sorted(written))


def digests(reading: Reading, key: StreamKey, viewer: Viewer) -> list[int]:
    """``bucket_digests`` of everything that the viewer sees."""
    rows = _chunks(lambda at: reading.guarded_after(key, at, _DIGEST_CHUNK), _NOTHING, _DIGEST_CHUNK)
    return bucket_digests((id_bytes(row.memory_id), row.commit_stamp) for row in rows if viewer.sees(row))
