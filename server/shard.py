"""One shard: its store, its resident streams, and what can be done with the memories in it.

Functions keep their RPC's verb. A write's answer is made inside its transaction and kept with it under
the caller's request_id, so that a repeat gets the same answer and an answer never lies.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO, TypeVar

from google.protobuf.message import Message

from scrubjay import v1
from scrubjay.errors import MemoryDeleted, MemoryNotFound, RequestIdReused, RevisionNotReached
from scrubjay.filters import Matcher
from scrubjay.memory import ClientId, Memory, MemoryId, Micros, Subject, Viewer, permitted, visible, within
from scrubjay.operation import OperationId
from scrubjay.stamp import CommitStamp, Stamp
from scrubjay.wire import commit_micros, last_commit_stamp
from server.counting import AccessCounter
from server.ending import Ending
from server.feed import NOTHING_OWN, FeedPage, Own, Position, digests, read_page
from server.index.cache import StreamCache
from server.index.past_streams import Embed, PastStreams
from server.index.resident import ResidentStream, View
from server.ingest.author import Author
from server.ingest.batch import Sender
from server.ingest.edits import Edit, delete_chosen
from server.ingest.forgetting import Forgotten, Sweep, find, forget
from server.ingest.offers import Offered, take_offered
from server.ingest.operations import Merged
from server.ingest.restoring import Restore, Revival, undoing
from server.ingest.taking import take_upload
from server.ingest.uploads import Arrived, Upload
from server.pull import Pull, Pulled, read_pull, standing
from server.recall.miss import Miss, explain_miss
from server.recall.search import Hit, Query, search
from server.snapshot_file import newest_page
from server.snapshots import Snapshot, Snapshots
from server.store.collection import collect
from server.store.history import HistoryRow
from server.store.memory_store import (
    Extent,
    MemoryStore,
    Reading,
    StoredMemory,
    StreamHead,
    StreamKey,
    Writing,
)
from server.store.replicas import AccessTotal
from server.store.use_reading import Place
from server.watch import WatchHub
from tenants.tenant import Incarnation

Answer = TypeVar("Answer", bound=Message)
T = TypeVar("T")
_Memories = list[StoredMemory]
_Operations = list[HistoryRow]

CHUNK = 500
"""Rows that a filtered list reads from SQL at a time."""
MOST_LOOKED_AT = 10_000
"""Rows that one page of a filtered list looks at: a page may be short, or empty, before the end."""


@dataclass(frozen=True, slots=True)
class Request:
    """A mutation's identity: the same ``request_id`` and body get the first answer for 24 hours."""

    incarnation: Incarnation
    request_id: str
    digest: bytes
    now: Micros

    @classmethod
    def of(cls, incarnation: Incarnation, message: Message, request_id: str, now: Micros) -> Request:
        """The identity of a request message."""
        body = f"{message.DESCRIPTOR.full_name}\0".encode() + message.SerializeToString(deterministic=True)
        return cls(incarnation, request_id, hashlib.sha256(body).digest(), now)


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


class Shard:
    """One shard's memories. Every argument that names a row begins with the tenant's incarnation."""

    def __init__(self, name: str, store: MemoryStore, cache: StreamCache) -> None:
        self.name = name
        self.highest = CommitStamp(0)
        self._store = store
        self._cache = cache
        self._pasts = PastStreams(store, cache)
        self.hub = WatchHub()
        self.accesses = AccessCounter(store)

    # --- reads ------------------------------------------------------------------------------------

    @contextmanager
    def _reading(self, revision: Mapping[StreamKey, CommitStamp]) -> Iterator[Reading]:
        with self._store.read() as reading:
            for key, stamp in revision.items():
                head = reading.head(key)
                if head is None or head.head < stamp:
                    raise RevisionNotReached
            yield reading

    def get(
        self,
        incarnation: Incarnation,
        memory_id: MemoryId,
        client_id: ClientId,
        now: Micros,
        revision: Mapping[StreamKey, CommitStamp],
    ) -> Got:
        """A memory. MemoryDeleted where it was deleted, MemoryNotFound where the client may not see one."""
        with self._reading(revision) as reading:
            stored = reading.get(incarnation, memory_id)
            if stored is None and reading.deleted_for(incarnation, memory_id, client_id):
                raise MemoryDeleted(memory_id)
            if stored is None or not visible(stored.memory, client_id, now):
                raise MemoryNotFound(memory_id)
            accesses = reading.accesses(StreamKey(incarnation, stored.memory.subject.key), [memory_id])
        return Got(stored, accesses.get(memory_id))

    def batch_get(
        self,
        incarnation: Incarnation,
        ids: Sequence[MemoryId],
        client_id: ClientId,
        now: Micros,
        revision: Mapping[StreamKey, CommitStamp],
    ) -> dict[MemoryId, StoredMemory]:
        """Those of the memories that the client may see."""
        with self._reading(revision) as reading:
            found = reading.get_many(incarnation, ids)
        return {i: stored for i, stored in found.items() if visible(stored.memory, client_id, now)}

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

    def search(
        self, key: StreamKey, query: Query, revision: Mapping[StreamKey, CommitStamp]
    ) -> Sequence[Hit]:
        """The best hits of the stream, which is brought up to date first."""
        return self._search(key, query, revision)

    def search_tenant(
        self, incarnation: Incarnation, query: Query, revision: Mapping[StreamKey, CommitStamp]
    ) -> Sequence[Hit]:
        """The best hits of all streams of the tenant, each of which is brought up to date first."""
        return self._search(incarnation, query, revision)

    def _search(
        self, extent: Extent, query: Query, revision: Mapping[StreamKey, CommitStamp]
    ) -> Sequence[Hit]:
        if revision:
            with self._reading(revision):
                pass
        with self._resident(extent, query) as stream:
            return search(stream, query)

    def explain_miss(
        self,
        extent: Extent,
        query: Query,
        memory_id: MemoryId,
        revision: Mapping[StreamKey, CommitStamp],
    ) -> Miss:
        """The gate that keeps a memory out of the query's hits. MemoryNotFound and MemoryDeleted as ``get``,
        and MemoryNotFound for one of another subject; an expired one is found."""
        client_id = query.view.client_id
        incarnation = extent.incarnation if isinstance(extent, StreamKey) else extent
        with self._reading(revision) as reading:
            self._check_part(reading, extent, memory_id)
            stored = reading.get(incarnation, memory_id)
            if stored is None and reading.deleted_for(incarnation, memory_id, client_id):
                raise MemoryDeleted(memory_id)
        if stored is None or not permitted(stored.memory, client_id):
            raise MemoryNotFound(memory_id)
        with self._resident(extent, query) as stream:
            return explain_miss(stream, query, memory_id)

    @staticmethod
    def _check_part(reading: Reading, extent: Extent, memory_id: MemoryId) -> None:
        if (
            isinstance(extent, StreamKey)
            and reading.stream_of(extent.incarnation, memory_id) != extent.stream
        ):
            raise MemoryNotFound(memory_id)

    def _resident(self, extent: Extent, query: Query) -> AbstractContextManager[ResidentStream]:
        return self._cache.reading(extent, accesses=query.recipe.decay_per_day < 1)

    def search_past(
        self, key: StreamKey, query: Query, embed: Embed, revision: Mapping[StreamKey, CommitStamp]
    ) -> Sequence[Hit]:
        """The best hits of the stream as it was at the view's ``now``, in whose milliseconds all that was
        committed counts. Of those days no access is known."""
        with self._past(key, query, embed, revision) as stream:
            return search(stream, query)

    def explain_past_miss(
        self,
        key: StreamKey,
        query: Query,
        memory_id: MemoryId,
        embed: Embed,
        revision: Mapping[StreamKey, CommitStamp],
    ) -> Miss:
        """``explain_miss`` of ``search_past``. MemoryNotFound where the client may see no such memory of
        then."""
        with self._past(key, query, embed, revision) as stream:
            slot = stream.slot(memory_id)
            if slot is None or not stream.columns.permits(slot, query.view.client_id):
                raise MemoryNotFound(memory_id)
            return explain_miss(stream, query, memory_id)

    @contextmanager
    def _past(
        self, key: StreamKey, query: Query, embed: Embed, revision: Mapping[StreamKey, CommitStamp]
    ) -> Iterator[ResidentStream]:
        end = last_commit_stamp(query.view.now)
        with self._reading(revision) as reading:
            head, newest = reading.head(key), reading.newest_operation(key)
            until = newest if newest <= end else reading.newest_operation(key, end)
        if head is not None and until == newest and query.recipe.decay_per_day == 1:
            with self._cache.reading(key) as stream:
                if stream.applied.get(key.stream, CommitStamp(0)) <= max(head.head, end):
                    yield stream
                    return
        with self._pasts.reading(key, until, embed) as stream:
            yield stream

    def history(
        self,
        incarnation: Incarnation,
        of: MemoryId | StreamKey,
        before: CommitStamp | None,
        size: int,
        client_id: ClientId,
        revision: Mapping[StreamKey, CommitStamp],
    ) -> tuple[Sequence[HistoryRow], CommitStamp | None]:
        """A page of operations, newest first, and before which stamp the next page begins.

        Operations on a memory while it was private are its owner's alone.
        """
        page: _Operations = []
        with self._reading(revision) as reading:
            if not isinstance(of, StreamKey):
                self._check_known(reading, incarnation, of, client_id)
            while True:
                rows = reading.history(incarnation, of, before, size + 1)
                for row in rows:
                    if len(page) == size:
                        return page, before
                    before = row.commit_stamp
                    if row.private_to in ("", client_id):
                        page.append(row)
                if len(rows) <= size:
                    return page, None

    @staticmethod
    def _check_known(
        reading: Reading, incarnation: Incarnation, memory_id: MemoryId, client_id: ClientId
    ) -> None:
        stored = reading.get(incarnation, memory_id)
        if stored is None:
            known = reading.deleted_for(incarnation, memory_id, client_id)
        else:
            known = permitted(stored.memory, client_id)
        if not known:
            raise MemoryNotFound(memory_id)

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

    # --- writes -----------------------------------------------------------------------------------

    def answered(self, request: Request, kind: type[Answer]) -> Answer | None:
        """The answer that the request got before, if any. RequestIdReused where its body was another."""
        if not request.request_id:
            return None
        with self._store.read() as reading:
            return _answered(reading, request, kind)

    def write(
        self,
        request: Request,
        keys: Iterable[StreamKey],
        kind: type[Answer],
        unit: Callable[[Writing], Answer],
    ) -> Answer:
        """Run ``unit`` once for the request, under the heads of the streams ``keys``; its answer."""
        locked = sorted(set(keys))

        def once(writing: Writing) -> Answer:
            if request.request_id and (first := _answered(writing, request, kind)) is not None:
                return first
            answer = unit(writing)
            if request.request_id:
                writing.save_request(
                    request.incarnation,
                    request.request_id,
                    request.digest,
                    answer.SerializeToString(),
                    request.now,
                )
            heads = {key: head.head for key in locked if (head := writing.head(key)) is not None}
            writing.on_commit(lambda: self._note(heads))
            return answer

        return self._store.write(locked, once)

    # --- sync -------------------------------------------------------------------------------------

    def head(self, key: StreamKey) -> StreamHead | None:
        """Where the stream stands; None where nothing was ever written to it."""
        with self._store.read() as reading:
            return reading.head(key)

    def feed_page(
        self, key: StreamKey, subject: Subject, viewer: Viewer, position: Position, *, max_bytes: int
    ) -> FeedPage:
        """What changed for the viewer behind the position."""
        with self._store.read() as reading:
            return read_page(reading, key, subject, viewer, position, max_bytes=max_bytes)

    def standing(self, pull: Pull, upload: Upload) -> Position | v1.Directive.ValueType:
        """Where a pull begins, or what its replica must do before anything of it is taken."""
        with self._store.read() as reading:
            return standing(reading, pull, upload)

    def known_operations(self, incarnation: Incarnation, ids: Sequence[OperationId]) -> set[OperationId]:
        """Those of the operations that have a result."""
        with self._store.read() as reading:
            return set(reading.operation_results(incarnation, ids))

    def take(
        self,
        key: StreamKey,
        space: str,
        sender: Sender,
        upload: Upload,
        arrived: Sequence[Arrived],
        now: Micros,
    ) -> Merged | None:
        """Take an upload; None, and nothing taken, for a fork."""
        return self.write_stream(
            key, lambda writing: take_upload(writing, key, space, sender, upload, arrived, now)
        )

    def pull(
        self, pull: Pull, upload: Upload | None = None, own: Own = NOTHING_OWN
    ) -> Pulled | v1.Directive.ValueType:
        """What a pull brings, or what its replica must do first."""
        with self._store.read() as reading:
            return read_pull(reading, pull, upload, own)

    def reconcile(
        self, key: StreamKey, viewer: Viewer, ids: Sequence[OperationId], *, include_digests: bool
    ) -> tuple[dict[OperationId, bytes], StreamHead | None, Sequence[int]]:
        """The encoded results of those operations that the stream knows, its head, and what it holds."""
        with self._store.read() as reading:
            known = reading.operation_results(key.incarnation, ids)
            results = {i: result for i, (stream, result) in known.items() if stream == key.stream}
            held = digests(reading, key, viewer) if include_digests else []
            return results, reading.head(key), held

    def content_stamps(self, incarnation: Incarnation, ids: Sequence[MemoryId]) -> dict[MemoryId, Stamp]:
        """The stamps of the contents of those memories that live."""
        with self._store.read() as reading:
            found = reading.get_many(incarnation, ids)
        return {memory_id: stored.state.stamps["content"] for memory_id, stored in found.items()}

    def reoffer(
        self, key: StreamKey, space: str, sender: Sender, offered: Sequence[Offered], now: Micros
    ) -> int:
        """Join what a replica gives back; how much of it was news."""
        return self.write_stream(
            key, lambda writing: take_offered(writing, key, space, sender, offered, now // 1000)
        )

    def vectors(
        self, key: StreamKey, space: str, viewer: Viewer, ids: Sequence[MemoryId]
    ) -> dict[MemoryId, tuple[Stamp, bytes]]:
        """The vectors of those memories that the viewer sees, each with the stamp of its content."""
        with self._store.read() as reading:
            living = reading.guarded(key, ids)
            seen = [memory_id for memory_id, row in living.items() if viewer.sees(row)]
            return reading.vectors(key, space, seen)

    def collect(self, limit: CommitStamp, ending: Callable[[], bool]) -> int:
        """Forget what sync keeps of deletions up to ``limit``, stream by stream; in how many."""
        count = 0
        with self._store.read() as reading:
            keys = reading.collectable(limit)
        for key in keys:
            if ending():
                break
            count += self.write_stream(key, partial(collect, key=key, limit=limit))
        return count

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

    def highest_head(self) -> CommitStamp:
        """The highest head of all streams in the database."""
        with self._store.read() as reading:
            self.highest = max(self.highest, reading.highest_head())
        return self.highest

    def newest(self, key: StreamKey, subject: Subject, viewer: Viewer, count: int) -> v1.Page:
        """The memories created last of those that the viewer sees, at most ``count``."""
        with self._store.read() as reading:
            return newest_page(reading, key, subject, viewer, count)

    def snapshot(
        self, snapshots: Snapshots, key: StreamKey, viewer: Viewer, ending: Ending
    ) -> AbstractContextManager[tuple[Snapshot, BinaryIO]]:
        """A file of everything that the viewer sees now, for the block."""
        return snapshots.opened(self._store, key, viewer, ending)

    def kept_snapshot(
        self, snapshots: Snapshots, name: str, key: StreamKey, viewer: Viewer
    ) -> AbstractContextManager[tuple[Snapshot, BinaryIO]]:
        """The file of this name for the block. SnapshotGone where it is not to be had any more."""
        return snapshots.reopened(self._store, name, key, viewer)

    def check_snapshot(self, snapshots: Snapshots, snapshot: Snapshot) -> None:
        """Raise SnapshotGone where something that may be in the file was taken back since."""
        snapshots.check(self._store, snapshot)

    def write_stream(self, key: StreamKey, unit: Callable[[Writing], T]) -> T:
        """Run ``unit`` under the head of one stream; what it returned, once it is committed."""

        def noted(writing: Writing) -> T:
            result = unit(writing)
            head = writing.advanced.get(key)
            if head is not None:
                writing.on_commit(lambda: self._note({key: head.head}))
            return result

        return self._store.write([key], noted)

    def _note(self, heads: Mapping[StreamKey, CommitStamp]) -> None:
        for key, head in heads.items():
            self.highest = max(self.highest, head)
            self._cache.note(key, head)
            self.hub.notify(key, head)


def _answered(reading: Reading, request: Request, kind: type[Answer]) -> Answer | None:
    found = reading.request(request.incarnation, request.request_id, request.now)
    if found is None:
        return None
    digest, response = found
    if digest != request.digest:
        raise RequestIdReused(request.request_id)
    return kind.FromString(response)


def _listed(stored: StoredMemory, listing: Listing) -> bool:
    memory, view = stored.memory, listing.view
    return (
        visible(memory, view.client_id, view.now)
        and (not view.agent_id or memory.agent_id == view.agent_id)
        and (not view.run_id or memory.run_id == view.run_id)
        and (not view.scopes or any(within(memory.scope, scope) for scope in view.scopes))
        and (listing.matches is None or listing.matches(memory, commit_micros(stored.commit_stamp)))
    )
