"""The memories of a shard by id and in pages, with their history, and deletions of many at once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from scrubjay.errors import MemoryDeleted, MemoryNotFound
from scrubjay.filters import Matcher
from scrubjay.memory import ClientId, Memory, MemoryId, Micros, Viewer, visible, within
from scrubjay.stamp import CommitStamp
from scrubjay.wire import commit_micros
from server.index.resident import View
from server.ingest.author import Author
from server.ingest.edits import Edit, delete_chosen
from server.ingest.forgetting import Forgotten, Sweep, find, forget
from server.ingest.restoring import Restore, Revival, undoing
from server.shard.parts import ShardParts
from server.store.history import HistoryRow
from server.store.memory_store import (
    Reading,
    StoredMemory,
    StreamKey,
    Writing,
)
from server.store.recent_messages import RecentMessage
from server.store.replicas import AccessTotal
from server.store.use_reading import Place
from tenants.tenant import Incarnation

_Memories = list[StoredMemory]
_Operations = list[HistoryRow]

CHUNK = 500
"""Rows that a filtered list reads from SQL at a time."""
MOST_LOOKED_AT = 10_000
"""Rows that one page of a filtered list looks at: a page may be short, or empty, before the end."""


@dataclass(frozen=True, slots=True)
class Listing:
    """A page of a list: what to look for, and behind which memory."""

    key: StreamKey
    view: View
    matches: Matcher | None
    before: tuple[Micros, MemoryId] | None
    size: int

    @property
    def selective(self) -> bool:
        """Whether it asks for less than the whole stream."""
        view = self.view
        return bool(self.matches or view.scopes or view.agent_id or view.run_id)


@dataclass(frozen=True, slots=True)
class Got:
    """A memory as it is stored, and how often it was looked at, if ever."""

    stored: StoredMemory
    accesses: AccessTotal | None

    @property
    def memory(self) -> Memory:
        """Its value."""
        return self.stored.memory


class ShardMemories(ShardParts):
    """Reads memories as they are stored, and deletes those that a rule or a list names."""

    def get(
        self,
        incarnation: Incarnation,
        memory_id: MemoryId,
        viewer: Viewer,
        now: Micros,
        revision: Mapping[StreamKey, CommitStamp],
    ) -> Got:
        """A memory. MemoryDeleted where it was deleted, MemoryNotFound where the viewer may not see one."""
        with self._reading(revision) as reading:
            stored = reading.get(incarnation, memory_id)
            if stored is None and reading.deleted_for(incarnation, memory_id, viewer):
                raise MemoryDeleted(memory_id)
            if stored is None or not visible(stored.memory, viewer, now):
                raise MemoryNotFound(memory_id)
            accesses = reading.accesses(StreamKey(incarnation, stored.memory.subject.key), [memory_id])
        return Got(stored, accesses.get(memory_id))

    def batch_get(
        self,
        incarnation: Incarnation,
        ids: Sequence[MemoryId],
        viewer: Viewer,
        now: Micros,
        revision: Mapping[StreamKey, CommitStamp],
    ) -> dict[MemoryId, StoredMemory]:
        """Those of the memories that the viewer may see."""
        with self._reading(revision) as reading:
            found = reading.get_many(incarnation, ids)
        return {i: stored for i, stored in found.items() if visible(stored.memory, viewer, now)}

    def list(
        self, listing: Listing, revision: Mapping[StreamKey, CommitStamp]
    ) -> tuple[Sequence[StoredMemory], tuple[Micros, MemoryId] | None]:
        """A page of memories, newest created_at first, and behind which one the next page begins."""
        page: _Memories = []
        before, looked_at = listing.before, 0
        chunk = max(CHUNK, listing.size + 1) if listing.selective else listing.size + 1
        with self._reading(revision) as reading:
            while looked_at < MOST_LOOKED_AT:
                rows = reading.page(listing.key, before, chunk)
                for stored in rows:
                    if len(page) == listing.size:
                        return page, before
                    before = (stored.memory.created_at, stored.memory.id)
                    if _listed(stored, listing):
                        page.append(stored)
                if len(rows) < chunk:
                    return page, None
                looked_at += len(rows)
        return page, before

    def history(
        self,
        incarnation: Incarnation,
        of: MemoryId | StreamKey,
        before: CommitStamp | None,
        size: int,
        viewer: Viewer,
        revision: Mapping[StreamKey, CommitStamp],
    ) -> tuple[Sequence[HistoryRow], CommitStamp | None]:
        """A page of operations, newest first, and before which stamp the next page begins.

        Operations on a memory while it was private are its owner's alone.
        """
        page: _Operations = []
        with self._reading(revision) as reading:
            if not isinstance(of, StreamKey):
                self._check_known(reading, incarnation, of, viewer)
            while True:
                rows = reading.history(incarnation, of, before, size + 1)
                for row in rows:
                    if len(page) == size:
                        return page, before
                    before = row.commit_stamp
                    if row.private_to in ("", viewer.client_id):
                        page.append(row)
                if len(rows) <= size:
                    return page, None

    @staticmethod
    def _check_known(reading: Reading, incarnation: Incarnation, memory_id: MemoryId, viewer: Viewer) -> None:
        stored = reading.get(incarnation, memory_id)
        if stored is None:
            known = reading.deleted_for(incarnation, memory_id, viewer)
        else:
            known = viewer.sees(stored.memory)
        if not known:
            raise MemoryNotFound(memory_id)

    def recent_messages(self, key: StreamKey, scope: str, client_id: ClientId) -> Sequence[RecentMessage]:
        """What the client told a model of last in a scope of the stream, oldest first."""
        with self._store.read() as reading:
            return reading.recent_messages(key, scope, client_id)

    def stream_of(self, incarnation: Incarnation, memory_id: MemoryId) -> StreamKey:
        """Where a write on the memory, living or deleted, must lock. MemoryNotFound where there is none."""
        with self._store.read() as reading:
            stream = reading.stream_of(incarnation, memory_id)
        if stream is None:
            raise MemoryNotFound(memory_id)
        return StreamKey(incarnation, stream)

    def undoing(self, key: StreamKey, asked: Restore, client_id: ClientId, now: Micros) -> Edit | Revival:
        """What a Restore asks for; see ``server.ingest.restoring``."""
        with self._store.read() as reading:
            return undoing(reading, key, asked, client_id, now)

    def to_forget(
        self, sweep: Sweep, after: Place, size: int, client_id: ClientId | None = None
    ) -> Sequence[Forgotten]:
        """The next memories that go, of those that the client may see if one is named."""
        with self._store.read() as reading:
            return find(reading, sweep, after, size, client_id)

    def forget(
        self, key: StreamKey, ids: Collection[MemoryId], sweep: Sweep, author: Author
    ) -> Sequence[Forgotten]:
        """Delete those of the memories that still go; which they were."""
        return self.write_stream(key, lambda writing: forget(writing, key, ids, sweep, author))

    def delete_page(self, listing: Listing, author: Author) -> tuple[int, tuple[Micros, MemoryId] | None]:
        """Delete a page of a list in one transaction; how many memories, and behind which one the next
        page begins."""
        page, following = self.list(listing, {})
        ids, now = [stored.memory.id for stored in page], listing.view.now

        def unit(writing: Writing) -> int:
            chosen = partial(_listed, listing=listing)
            return delete_chosen(writing, listing.key, ids, chosen, author, now)

        return (self.write_stream(listing.key, unit) if ids else 0), following


def _listed(stored: StoredMemory, listing: Listing) -> bool:
    memory, view = stored.memory, listing.view
    return (
        visible(memory, view.viewer, view.now)
        and (not view.agent_id or memory.agent_id == view.agent_id)
        and (not view.run_id or memory.run_id == view.run_id)
        and (not view.scopes or any(within(memory.scope, scope) for scope in view.scopes))
        and (listing.matches is None or listing.matches(memory, commit_micros(stored.commit_stamp)))
    )
