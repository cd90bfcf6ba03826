"""What a Snapshot stream sends: the newest memories where asked for, then the file in chunks."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import BinaryIO

from scrubjay import v1
from scrubjay.errors import InvalidField, SnapshotGone
from scrubjay.feed import MAX_CHANGES, pack
from scrubjay.memory import Subject, Viewer
from server.cursor import Cursors
from server.ending import Ending
from server.feed import at_head
from server.shard import Shard
from server.snapshots import BLOCK_BYTES, Snapshot, Snapshots
from server.store.memory_store import StreamKey
from tenants.page_token import opened, seal

CHUNK_BYTES = 256 * 1024
"""Of a part for a slow line: what is cut in the middle comes again."""
QUICK_SECONDS = 0.1
"""Who takes a part within this gets the rest of a block as the next, in three quarters of the time."""


class Downloads:
    """Sends snapshots, with tokens to go on after a cut that hold for one client of one stream."""

    def __init__(self, snapshots: Snapshots, secret: bytes) -> None:
        self._snapshots = snapshots
        self._secret = secret
        self._cursors = Cursors(secret)

    def responses(
        self,
        shard: Shard,
        key: StreamKey,
        subject: Subject,
        viewer: Viewer,
        request: v1.SnapshotRequest,
        ending: Ending,
    ) -> Iterator[v1.SnapshotResponse]:
        """The responses to a request. SnapshotGone where the file of its token is not to be had any more."""
        if request.newest > MAX_CHANGES:
            raise InvalidField.of("newest", f"is {request.newest}; give at most {MAX_CHANGES}")
        if request.newest and not request.resume_token:
            yield self._newest(shard, key, subject, viewer, request.newest)
        with (
            shard.hub.subscribe(key) as written,
            self._file(shard, key, viewer, request, ending) as (snapshot, file),
        ):
            if request.offset > snapshot.total_bytes:
                raise InvalidField.of("offset", f"lies behind the file's {snapshot.total_bytes} bytes")
            common = v1.SnapshotResponse(
                resume_token=seal(self._secret, _purpose(key, viewer), [snapshot.name]),
                total_bytes=snapshot.total_bytes,
                row_count=snapshot.row_count,
                last_sync_at=self._cursors.text(key, viewer.client_id, snapshot.position),
                commit_stamp=snapshot.position.stamp,
            )
            for response in self._chunks(snapshot, file, request.offset, common):
                if written.wait(0, snapshot.position.stamp) is not None:
                    shard.check_snapshot(self._snapshots, snapshot)
                yield response

    def _chunks(
        self, snapshot: Snapshot, file: BinaryIO, offset: int, common: v1.SnapshotResponse
    ) -> Iterator[v1.SnapshotResponse]:
        """The file from ``offset`` on, at least one response; all say what is ``common``. SnapshotGone where
        its bytes changed."""
        most = CHUNK_BYTES
        while True:
            chunk, digest = self._part(snapshot, file, offset, most)
            response = v1.SnapshotResponse(offset=offset, chunk=chunk, chunk_digest=digest)
            response.MergeFrom(common)
            offset += len(chunk)
            sent_at = time.monotonic()
            yield response
            most = BLOCK_BYTES if time.monotonic() - sent_at < QUICK_SECONDS else CHUNK_BYTES
            if offset >= snapshot.total_bytes:
                return

    def _part(self, snapshot: Snapshot, file: BinaryIO, offset: int, most: int) -> tuple[bytes, bytes]:
        """At most so many bytes from ``offset`` on, of one block, which is checked whole; their digest."""
        number, at = divmod(offset, BLOCK_BYTES)
        file.seek(offset - at)
        block = file.read(BLOCK_BYTES)
        if offset < snapshot.total_bytes and hashlib.sha256(block).digest() != snapshot.digests[number]:
            self._snapshots.give_up(snapshot)
            raise SnapshotGone
        chunk = block[at : at + most]
        whole = chunk and chunk == block
        return chunk, snapshot.digests[number] if whole else hashlib.sha256(chunk).digest()

    def _newest(
        self, shard: Shard, key: StreamKey, subject: Subject, viewer: Viewer, count: int
    ) -> v1.SnapshotResponse:
        """The newest memories, and where the stream stood before they were read."""
        stood = at_head(shard.head(key))
        page = shard.newest(key, subject, viewer, count)
        cursor = self._cursors.text(key, viewer.client_id, stood)
        return v1.SnapshotResponse(newest_page=pack(page), last_sync_at=cursor)

    def _file(
        self, shard: Shard, key: StreamKey, viewer: Viewer, request: v1.SnapshotRequest, ending: Ending
    ) -> AbstractContextManager[tuple[Snapshot, BinaryIO]]:
        if not request.resume_token:
            if request.offset:
                raise InvalidField.of("offset", "goes with a resume_token; send 0 to begin")
            return shard.snapshot(self._snapshots, key, viewer, ending)
        values = opened(self._secret, _purpose(key, viewer), request.resume_token)
        if values is None:
            raise InvalidField.of(
                "resume_token", "is no token of this client; send it as it came, or nothing"
            )
        return shard.kept_snapshot(self._snapshots, str(values[0]), key, viewer)


def _purpose(key: StreamKey, viewer: Viewer) -> str:
    return "\0".join(("snapshot", key.incarnation, key.stream, viewer.client_id))
