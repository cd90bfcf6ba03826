"""Wake-ups: who waits for a stream hears that its head has moved.

A subscription holds one value, the newest head, however many commits there were: a slow reader costs no
memory and misses nothing, for what changed is in the feed.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from types import TracebackType

from scrubjay.memory import ClientId
from scrubjay.stamp import CommitStamp
from server.slots import streams_at_work
from server.store.memory_store import StreamKey

NOBODY = ClientId("")
"""Wrote what may be anybody's."""
ECHO_SECONDS = 0.05
"""How long a device's own writes may lie before it hears of them: their answers tell it sooner, and meanwhile
the server works for others."""
ANY_HEAD = CommitStamp((1 << 63) - 1)
"""Told where the stream may have moved and nobody knows how far."""


class Subscription:
    """One reader's wait for one stream, until ``close``. One thread waits; others may close it."""

    def __init__(self, hub: WatchHub, key: StreamKey, client_id: ClientId) -> None:
        self.key = key
        self._hub = hub
        self._client_id = client_id
        self._own = CommitStamp(0)
        """The newest head that its client wrote itself."""
        self._others_wrote = False
        self._changed = threading.Condition(threading.Lock())
        self._head: CommitStamp | None = None
        self._closed = False

    def wait(self, timeout_seconds: float, after: CommitStamp) -> CommitStamp | None:
        """The newest head behind ``after`` that was told since the last call, as soon as there is one; where
        its client wrote it, ``ECHO_SECONDS`` later, unless others write meanwhile.

        None once the time is over, and where the subscription is closed, or closes meanwhile.
        """
        with self._changed:
            if self._changed.wait_for(lambda: self._closed or self._is_news(after), timeout_seconds):
                self._changed.wait_for(lambda: self._closed or self._others_wrote, ECHO_SECONDS)
            head, self._head = self._head, None
            self._others_wrote = False
            return None if self._closed or head is None or head <= after else head

    def _is_news(self, after: CommitStamp) -> bool:
        return self._head is not None and self._head > after

    def tell(self, head: CommitStamp, by: ClientId = NOBODY) -> None:
        """Let who waits know of this head, which a device wrote, or anybody."""
        with self._changed:
            if by and by == self._client_id:
                self._own = max(self._own, head)
            elif head > self._own:  # else it is heard once more, from the database
                self._others_wrote = True
            self._head = max(head, self._head or head)
            self._changed.notify()

    def close(self) -> None:
        """Hear no more and end a wait. May be called again."""
        self._hub.forget(self)
        with self._changed:
            self._closed = True
            self._changed.notify()

    def __enter__(self) -> Subscription:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class WatchHub:
    """The subscriptions of one shard's streams. Safe for many threads; never waits."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._subscriptions: dict[StreamKey, set[Subscription]] = {}
        self._readers = streams_at_work()

    def subscribe(self, key: StreamKey, client_id: ClientId = NOBODY) -> Subscription:
        """Hear of the stream's commits from now on; a device of its own ones later."""
        subscription = Subscription(self, key, client_id)
        with self._lock:
            self._subscriptions.setdefault(key, set()).add(subscription)
        return subscription

    def reading(self, key: StreamKey) -> AbstractContextManager[None]:
        """A turn at reading what is new, for the block; where many wait, tenants alternate."""
        return self._readers.held(key.incarnation)

    def close(self) -> None:
        """Let no stream wait for its turn any more: the server stops."""
        self._readers.close()

    def notify(self, key: StreamKey, head: CommitStamp, by: ClientId = NOBODY) -> None:
        """The stream was committed up to ``head``, by a device or by anybody."""
        with self._lock:
            told = list(self._subscriptions.get(key, ()))
        for subscription in told:
            subscription.tell(head, by)

    def notify_all(self) -> None:
        """Any stream may have moved."""
        with self._lock:
            told = [one for group in self._subscriptions.values() for one in group]
        for subscription in told:
            subscription.tell(ANY_HEAD)

    def forget(self, subscription: Subscription) -> None:
        """Tell this subscription no more."""
        with self._lock:
            group = self._subscriptions.get(subscription.key)
            if group is not None:
                group.discard(subscription)
                if not group:
                    del self._subscriptions[subscription.key]
