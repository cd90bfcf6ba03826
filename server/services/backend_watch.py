"""What changes in one subject's memories, told to a backend as it happens, from where it left off."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from scrubjay import v1
from scrubjay.errors import InvalidField, WatchTokenExpired
from scrubjay.memory import MemoryId, Subject, Viewer
from scrubjay.stamp import CommitStamp
from scrubjay.wire import commit_micros, to_etag, to_timestamp
from server.cursor import placed
from server.ending import Ending
from server.feed import BEGINNING, FeedPage, PageChange, Position
from server.router import tenant_of
from server.services.memory_door import MemoryDoor
from server.services.requests import MAX_PAGE_BYTES, reached_scopes
from server.shard import Shard
from server.store.memory_store import StreamKey
from tenants.page_token import opened, seal
from tenants.tenant import Caller
from tenants.validation import sole_subject

IDLE_SECONDS = 30
"""Between signs of life. Proxies cut streams that are quiet for a minute."""


@dataclass(frozen=True, slots=True)
class _Watched:
    """Whose changes are told to whom. ``purpose`` is what a token of it is sealed for."""

    shard: Shard
    key: StreamKey
    subject: Subject
    viewer: Viewer
    purpose: str


class BackendWatch(MemoryDoor):
    """The RPC that tells of changes."""

    def watch(
        self, request: v1.MemoryServiceWatchRequest, caller: Caller, ending: Ending
    ) -> Iterator[v1.MemoryServiceWatchResponse]:
        """What changed behind the token, then what changes, until the stream ends."""
        tenant, subject = tenant_of(caller), sole_subject(request)
        key = StreamKey(tenant.incarnation, subject.key)
        viewer = Viewer(caller.client_id, reached_scopes(tuple(request.scopes), caller))
        purpose = "\0".join(("watch", key.incarnation, key.stream, caller.client_id, *viewer.scopes))
        watched = _Watched(self._router.shard(tenant), key, subject, viewer, purpose)
        with watched.shard.hub.subscribe(key) as subscription:
            ending.on_end(subscription.close)
            position = self._beginning(request, watched)
            due = True
            while not ending.over:
                with watched.shard.hub.reading(key):
                    page = _page(watched, position)
                position = page.position
                if page.changes or due or page.more:
                    yield self._response(watched, page)
                    said = time.monotonic()
                if not page.more:
                    quiet_seconds = max(0.0, said + IDLE_SECONDS - time.monotonic())
                    due = subscription.wait(quiet_seconds, position.stamp) is None

    def _beginning(self, request: v1.MemoryServiceWatchRequest, watched: _Watched) -> Position:
        if request.resume_token:
            if request.include_existing:
                raise InvalidField.of("include_existing", "is set beside a resume_token; give one of them")
            return self._resumed(request.resume_token, watched)
        head = watched.shard.head(watched.key)
        if request.include_existing or head is None:
            return BEGINNING
        return Position(head.head, CommitStamp(0), head.epoch, head.head)

    def _resumed(self, token: str, watched: _Watched) -> Position:
        values = opened(self._secret, watched.purpose, token)
        if values is None:
            raise InvalidField.of(
                "resume_token",
                "is no token of this subject, client and scopes; send it as it came, or nothing",
            )
        stamp, began, epoch = map(int, values)
        return Position(CommitStamp(stamp), CommitStamp(0), epoch, CommitStamp(began))

    def _response(self, watched: _Watched, page: FeedPage) -> v1.MemoryServiceWatchResponse:
        at = page.position
        return v1.MemoryServiceWatchResponse(
            changes=[_change(watched.subject, change) for change in page.changes],
            resume_token=seal(self._secret, watched.purpose, (at.stamp, at.began, at.epoch)),
            more=page.more,
            server_time=to_timestamp(self._clock()),
        )


def _page(watched: _Watched, position: Position) -> FeedPage:
    """A page behind the position. Its reader counts as one who holds nothing, so every memory is whole."""
    standing = placed(position, watched.shard.head(watched.key))
    if not isinstance(standing, Position):
        raise WatchTokenExpired
    page = watched.shard.feed_page(
        watched.key, watched.subject, watched.viewer, standing, max_bytes=MAX_PAGE_BYTES
    )
    at = page.position
    began = at.began if page.more else at.stamp
    return FeedPage(page.changes, Position(at.stamp, CommitStamp(0), at.epoch, began), page.more)


_KINDS = {
    v1.CHANGE_KIND_WHOLE: v1.MEMORY_CHANGE_KIND_STORED,
    v1.CHANGE_KIND_DELETED: v1.MEMORY_CHANGE_KIND_DELETED,
    v1.CHANGE_KIND_RETRACTED: v1.MEMORY_CHANGE_KIND_HIDDEN,
}


def _change(subject: Subject, change: PageChange) -> v1.MemoryChange:
    memory_id, commit_stamp, told = change
    if told.kind != v1.CHANGE_KIND_WHOLE:
        return v1.MemoryChange(memory_id=memory_id, kind=_KINDS[told.kind])
    return v1.MemoryChange(
        memory_id=memory_id,
        kind=v1.MEMORY_CHANGE_KIND_STORED,
        memory=_completed(told.memory, memory_id, subject, commit_stamp),
    )


def _completed(
    memory: v1.Memory, memory_id: MemoryId, subject: Subject, commit_stamp: CommitStamp
) -> v1.Memory:
    """The memory with what a device's page leaves out of it."""
    memory.id, memory.etag = memory_id, to_etag(commit_stamp)
    memory.updated_at.CopyFrom(to_timestamp(commit_micros(commit_stamp)))
    setattr(memory, f"{subject.kind}_id", subject.name)
    return memory
