"""Two bounded counts of calls that share one pool of threads.

A unary call takes a handler slot, and waits for one where all are taken. A stream takes a stream slot for
as long as it lives, which is hours, and is refused where all are taken: so streams never keep unary calls
from a thread, whatever their number.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from scrubjay.errors import ServerBusy, Unavailable
from server.ending import Ending

STREAMS_PER_KEY = 8
"""One device needs a Watch and a Snapshot; the rest is what a lost network left behind."""


class Slots:
    """Counts the calls of one server.

    ``handlers`` unary calls run at once and ``queued`` more wait; ``streams`` streams live at once.
    """

    def __init__(self, *, handlers: int, queued: int, streams: int) -> None:
        self.threads = handlers + streams
        self.calls = handlers + queued + streams
        self._handlers = threading.Semaphore(handlers)
        self._unary = threading.Semaphore(handlers + queued)
        self._streams = threading.Semaphore(streams)
        self._lock = threading.Lock()
        self._living: dict[str, list[Ending]] = {}
        self._stopped = False

    @contextmanager
    def handler(self) -> Iterator[None]:
        """A handler slot for the block, waited for. ServerBusy where too many wait."""
        with _place(self._unary, "more calls at once than the server takes; retry shortly"), self._handlers:
            yield

    @contextmanager
    def stream(self) -> Iterator[None]:
        """A stream slot for the block. ServerBusy where none is free."""
        with _place(self._streams, "more streams at once than the server takes; retry later"):
            yield

    @contextmanager
    def living(self, key_id: str, ending: Ending) -> Iterator[None]:
        """Hold the stream of a credential for the block, so that it can be ended.

        Beyond STREAMS_PER_KEY the credential's oldest one ends. Unavailable once ``stop`` was called.
        """
        with self._lock:
            if self._stopped:
                raise _stopping()
            mine = self._living.setdefault(key_id, [])
            mine.append(ending)
            oldest = mine.pop(0) if len(mine) > STREAMS_PER_KEY else None
        if oldest is not None:
            oldest.end(ServerBusy(f"this credential opened {STREAMS_PER_KEY} newer streams"))
        try:
            yield
        finally:
            with self._lock:
                if ending in mine:
                    mine.remove(ending)
                if not mine and self._living.get(key_id) is mine:
                    del self._living[key_id]

    def stop(self) -> None:
        """End every stream and take no more: the server stops. Unary calls go on."""
        with self._lock:
            self._stopped = True
            living = [ending for mine in self._living.values() for ending in mine]
        for ending in living:
            ending.end(_stopping())


@contextmanager
def _place(free: threading.Semaphore, refusal: str) -> Iterator[None]:
    if not free.acquire(blocking=False):
        raise ServerBusy(refusal)
    try:
        yield
    finally:
        free.release()


def _stopping() -> Unavailable:
    return Unavailable("this server is shutting down; retry elsewhere")
