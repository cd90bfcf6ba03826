"""Many readers or one writer, and neither starves the other.

A waiting writer holds back new readers; a writer that leaves lets every reader who waited go first, and
writers go in the order they came. So a writer that comes back at once, as one that fills an index does,
delays anyone else by one of its turns at most.
"""

from __future__ import annotations

import threading
from collections import deque
from types import TracebackType


class SharedLock:
    """``with lock.shared`` for readers, ``with lock.exclusive`` for a writer. Not reentrant."""

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._readers = 0
        self._readers_waiting = 0
        self._readers_going_first = 0
        self._writing = False
        self._writers_waiting: deque[object] = deque()
        self.shared = _Shared(self)
        self.exclusive = _Exclusive(self)

    def acquire_shared(self) -> None:
        """Wait until no writer is in, or before, us."""
        with self._changed:
            if self._writing or self._writers_waiting:
                self._readers_waiting += 1
                while self._writing or (self._writers_waiting and not self._readers_going_first):
                    self._changed.wait()
                self._readers_waiting -= 1
                self._readers_going_first = max(self._readers_going_first - 1, 0)
            self._readers += 1

    def release_shared(self) -> None:
        """Leave; the last reader lets a writer in."""
        with self._changed:
            self._readers -= 1
            if self._writers_waiting and not self._readers:
                self._changed.notify_all()

    def acquire_exclusive(self) -> None:
        """Wait until nobody is in and nobody goes first."""
        with self._changed:
            ticket = object()
            self._writers_waiting.append(ticket)
            while (
                self._writing
                or self._readers
                or self._readers_going_first
                or self._writers_waiting[0] is not ticket
            ):
                self._changed.wait()
            self._writers_waiting.popleft()
            self._writing = True

    def release_exclusive(self) -> None:
        """Leave; the readers who waited meanwhile go before the next writer."""
        with self._changed:
            self._writing = False
            self._readers_going_first = self._readers_waiting
            self._changed.notify_all()


class _Shared:
    def __init__(self, lock: SharedLock) -> None:
        self._lock = lock

    def __enter__(self) -> None:
        self._lock.acquire_shared()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release_shared()


class _Exclusive:
    def __init__(self, lock: SharedLock) -> None:
        self._lock = lock

    def __enter__(self) -> None:
        self._lock.acquire_exclusive()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release_exclusive()
