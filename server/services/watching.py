"""What a Watch stream says: changes as they come, and signs of life where none do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from scrubjay import v1
from scrubjay.feed import seal_page
from scrubjay.memory import Micros
from scrubjay.wire import to_timestamp
from server.cursor import Cursors
from server.ending import Ending
from server.feed import BEGINNING, FeedPage, Position, at_head
from server.pull import Pull, Pulled
from server.shard import Shard

MAX_INLINE_BYTES = 32 * 1024
"""Of changes that are told at once; more of them come through Sync, which resumes where it was cut."""
IDLE_SECONDS = 30
"""Between signs of life. Proxies cut streams that are quiet for a minute."""


def watch(
    shard: Shard, pull: Pull, told: str, cursors: Cursors, clock: Callable[[], Micros], ending: Ending
) -> Iterator[v1.WatchResponse]:
    """Responses from ``pull.cursor``, which ``told`` is the text of, until the stream ends.

    Whoever must do something first, such as to load anew, hears ``more`` once: Sync says what. So does
    who is behind by more than a page, or in the middle of a pull; then it goes on from the stream's head.
    Raises CursorAhead.
    """
    due = True
    with shard.hub.subscribe(pull.key, pull.viewer.client_id) as subscription:
        ending.on_end(subscription.close)
        while not ending.over:
            with shard.hub.reading(pull.key):
                pulled = shard.pull(pull)
            if not isinstance(pulled, Pulled):
                yield _response(told, FeedPage([], BEGINNING, more=True), told, clock)
                return
            page = pulled.page
            if page.more or _under_way(pull):
                here = pull.cursor if isinstance(pull.cursor, Position) else BEGINNING
                # Before it is said: what is written behind this, whoever pulls at once may not get.
                page = FeedPage([], at_head(shard.head(pull.key)), more=False)
                yield _response(told, FeedPage([], here, more=True), told, clock)
                told = cursors.text(pull.key, pull.viewer.client_id, page.position)
                said = time.monotonic()
            elif page.changes or due:
                until = cursors.text(pull.key, pull.viewer.client_id, page.position)
                yield _response(told, page, until, clock)
                told = until
                said = time.monotonic()
            pull = replace(pull, cursor=page.position)
            quiet_seconds = max(0.0, said + IDLE_SECONDS - time.monotonic())
            due = subscription.wait(quiet_seconds, page.position.stamp) is None


def _under_way(pull: Pull) -> bool:
    return isinstance(pull.cursor, Position) and pull.cursor.under_way


def _response(told: str, page: FeedPage, until: str, clock: Callable[[], Micros]) -> v1.WatchResponse:
    return v1.WatchResponse(
        from_sync_at=told,
        page=seal_page(page.changes),
        last_sync_at=until,
        commit_stamp=page.position.stamp,
        more=page.more,
        server_time=to_timestamp(clock()),
    )
