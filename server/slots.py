"""Two bounded counts of calls that share one pool of threads.

A unary call takes a handler slot, and waits for one where all are taken. A stream takes a stream slot for
as long as it lives, which is hours, and is refused where all are taken: so streams never keep unary calls
from a thread, whatever their number. A unary call that waits for long work does so in a stream slot, too.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from types import TracebackType

from scrubjay.errors import ServerBusy, Unavailable
from server.ending import Ending

STREAMS_PER_KEY = 8
"""One device needs a Watch and a Snapshot; the rest is what a lost network left behind."""


class HandlerSlots:
    """A handler slot for the block, waited for. ServerBusy where too many wait.

    Free places are tokens in queues: on the way of every call, those cost a tenth of semaphores.
    """

    def __init__(self, count: int, queued: int) -> None:
        self._places = _tokens(count + queued)
        self._slots = _tokens(count)

    def __enter__(self) -> None:
        try:
            self._places.get_nowait()
        except Empty:
            raise ServerBusy("more calls at once than the server takes; retry shortly") from None
        self._slots.get()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._slots.put(None)
        self._places.put(None)

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Give the caller's slot to others for the block; afterwards it is waited for."""
        self.__exit__(None, None, None)
        try:
            yield
        finally:
            self._places.get()
            self._slots.get()


def _tokens(count: int) -> SimpleQueue[None]:
    tokens: SimpleQueue[None] = SimpleQueue()
    for _ in range(count):
        tokens.put(None)
    return tokens


class Slots:
    """Counts the calls of one server.

    ``handlers`` unary calls run at once and ``queued`` more wait; ``streams`` streams live at once.
    """

    def __init__(self, *, handlers: int, queued: int, streams: int) -> None:
        self.threads = handlers + streams
        self.calls = handlers + queued + streams
        self.handler = HandlerSlots(handlers, queued)
        self._streams = threading.Semaphore(streams)
        self._lock = threading.Lock()
        self._living: dict[str, list[Ending]] = {}
        self._waiting: set[Ending] = set()
        self._stopped = False

    @contextmanager
    def stream(self) -> Iterator[None]:
        """A stream slot for the block. ServerBusy where none is free."""
        if not self._streams.acquire(blocking=False):
            raise ServerBusy("more streams at once than the server takes; retry later")
        try:
            yield
        finally:
            self._streams.release()

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

    @contextmanager
    def aside(self, ending: Ending) -> Iterator[None]:
        """A stream slot instead of the call's handler slot for the block, in which a unary call waits until
        ``ending``. ServerBusy where none is free, Unavailable once ``stop`` was called."""
        with self.stream(), self.handler.lent():
            with self._lock:
                if self._stopped:
                    raise _stopping()
                self._waiting.add(ending)
            try:
                yield
            finally:
                with self._lock:
                    self._waiting.discard(ending)

    def stop(self) -> None:
        """End every stream and every wait and take no more: the server stops. Other calls go on."""
        with self._lock:
            self._stopped = True
            living = [ending for mine in self._living.values() for ending in mine] + list(self._waiting)
        for ending in living:
            ending.end(_stopping())


def _stopping() -> Unavailable:
    return Unavailable("this server is shutting down; retry elsewhere")
