"""What devices exchange with a shard."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import BinaryIO

from scrubjay import v1
from scrubjay.memory import MemoryId, Micros, Subject, Viewer
from scrubjay.operation import OperationId
from scrubjay.stamp import CommitStamp, Stamp
from server.ending import Ending
from server.feed import NOTHING_OWN, FeedPage, Own, Position, digests, read_page
from server.ingest.batch import Sender
from server.ingest.offers import Offered, take_offered
from server.ingest.operations import Merged
from server.ingest.taking import take_upload
from server.ingest.uploads import Arrived, Upload
from server.pull import Pull, Pulled, read_pull, standing
from server.shard.parts import ShardParts
from server.snapshot_file import newest_page
from server.snapshots import Snapshot, Snapshots
from server.store.collection import collect
from server.store.fence import TenantMoving
from server.store.memory_store import (
    StreamHead,
    StreamKey,
    Writing,
)
from tenants.tenant import Incarnation

OPERATIONS_AT_ONCE = 500
"""What one transaction deletes of History: other writers wait some milliseconds for it."""


class ShardSync(ShardParts):
    """Takes what devices send and gives what changed."""

    def feed_page(
        self, key: StreamKey, subject: Subject, viewer: Viewer, position: Position, *, max_bytes: int
    ) -> FeedPage:
        """What changed for the viewer behind the position."""
        with self._store.read() as reading:
            return read_page(reading, key, subject, viewer, position, max_bytes=max_bytes)

    def known_operations(
        self, pull: Pull, upload: Upload, ids: Sequence[OperationId]
    ) -> set[OperationId] | v1.Directive.ValueType:
        """Those of the operations that have a result, or what the pull's replica must do before anything of
        its upload is taken."""
        with self._store.read() as reading:
            position = standing(reading, pull, upload)
            if not isinstance(position, Position):
                return position
            return set(reading.operation_results(pull.key.incarnation, ids))

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
            key,
            lambda writing: take_upload(writing, key, space, sender, upload, arrived, now),
            by=sender.viewer.client_id,
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
            found = reading.vectors(key, space, seen)
        if len(found) < len(seen):
            self._cache.note_bare(key, space)
        return found

    def collect(
        self, limit: CommitStamp, ending: Callable[[], bool], but: Container[Incarnation] = ()
    ) -> int:
        """Forget what sync keeps of deletions up to ``limit``, stream by stream; in how many. Of the tenants
        ``but``, nothing."""
        with self._store.read() as reading:
            keys = [key for key in reading.collectable(limit) if key.incarnation not in but]
        return self._collect(keys, limit, ending)

    def collect_of(self, incarnation: Incarnation, limit: CommitStamp, ending: Callable[[], bool]) -> int:
        """The same of one tenant."""
        with self._store.read() as reading:
            keys = reading.collectable(limit, incarnation)
        return self._collect(keys, limit, ending)

    def _collect(self, keys: Sequence[StreamKey], limit: CommitStamp, ending: Callable[[], bool]) -> int:
        count = 0
        for key in keys:
            if ending():
                break
            with suppress(TenantMoving):  # it is collected where it goes
                count += self.write_stream(key, partial(collect, key=key, limit=limit))
        return count

    def forget_history(self, incarnation: Incarnation, limit: CommitStamp, ending: Callable[[], bool]) -> int:
        """Delete a tenant's History up to ``limit``, in small transactions; how many operations."""
        with self._store.read() as reading:
            keys = reading.with_history_until(incarnation, limit)
        count = 0
        for key in keys:
            gone = OPERATIONS_AT_ONCE
            while gone == OPERATIONS_AT_ONCE and not ending():
                gone = self.write_stream(key, partial(_forget_history, key=key, limit=limit))
                count += gone
        return count

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


def _forget_history(writing: Writing, key: StreamKey, limit: CommitStamp) -> int:
    return writing.forget_history(key, limit, OPERATIONS_AT_ONCE)
