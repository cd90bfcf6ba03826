"""Two bounded counts of calls that share one pool of threads.

A unary call takes a handler slot, and waits for one where all are taken, or all that its tenant may have. A
stream takes a stream slot for as long as it lives, which is hours, and is refused where all are taken, or all
that its tenant may have: so streams never keep unary calls from a thread, whatever their number. A unary call
that waits for long work does so in a stream slot, too.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from scrubjay.errors import ScrubjayError, ServerBusy, Unavailable
from server.ending import Ending
from server.fair_queue import FairQueue
from server.turns import Turns

STREAMS_AT_WORK = 4
"""Streams that ask a database at once. Where thousands begin or wake up together, most connections are left
to other calls, and no stream gives up waiting for one."""
STREAMS_PER_KEY = 8
"""One device needs a Watch and a Snapshot; the rest is what a lost network left behind."""
REFUSED_AT_ONCE = 16
"""Threads that tell calls that they are refused, which takes less than a millisecond."""


class HandlerSlots:
    """Handler slots of tenants: ``each`` for one tenant, ``count`` for all, and ``queued`` calls that wait.

    Tenants take turns at what becomes free, and where too many wait, it is the one with most that is refused.
    So whoever floods has no more than its own slots, and its own calls are refused for it.
    """

    def __init__(self, count: int, each: int, queued: int) -> None:
        self._count, self._each = count, each
        self._lock = threading.Lock()
        self._taken = 0
        self._of_tenant: dict[str, int] = {}
        self._waiting: FairQueue[_Wait] = FairQueue(queued)
        self._closed = False

    def take(self, tenant: str) -> None:
        """Have a slot of the tenant until ``give_back``, waited for. ServerBusy where too many wait,
        Unavailable once ``close`` was called."""
        with self._lock:
            if self._closed:
                raise _stopping()
            if self._is_free(tenant):
                self._count_in(tenant)
                return
            wait = _Wait(tenant)
            turned_away = self._waiting.put(tenant, wait)
        if turned_away is not None:
            turned_away.end(ServerBusy("more calls at once than the server takes; retry shortly"))
        wait.over()

    def give_back(self, tenant: str) -> None:
        """Let others have a slot that the tenant had."""
        with self._lock:
            self._taken -= 1
            self._of_tenant[tenant] -= 1
            if not self._of_tenant[tenant]:
                del self._of_tenant[tenant]
            wait = self._waiting.take(self._is_free) if len(self._waiting) else None
            if wait is None:
                return
            self._count_in(wait.tenant)
        wait.end()

    def close(self) -> None:
        """Turn away who waits, and who comes: the server stops."""
        with self._lock:
            self._closed = True
            waits = [wait for _ in range(len(self._waiting)) if (wait := self._waiting.take()) is not None]
        for wait in waits:
            wait.end(_stopping())

    @contextmanager
    def held(self, tenant: str) -> Iterator[None]:
        """A slot of the tenant for the block, as with ``take``."""
        self.take(tenant)
        try:
            yield
        finally:
            self.give_back(tenant)

    @contextmanager
    def lent(self, tenant: str) -> Iterator[None]:
        """Give the tenant's slot back for the block, and have it again behind it at once: what was waited for
        is not turned away, and there is little left to do."""
        self.give_back(tenant)
        try:
            yield
        finally:
            with self._lock:
                self._count_in(tenant)

    def _is_free(self, tenant: str) -> bool:
        return self._taken < self._count and self._of_tenant.get(tenant, 0) < self._each

    def _count_in(self, tenant: str) -> None:
        self._taken += 1
        self._of_tenant[tenant] = self._of_tenant.get(tenant, 0) + 1


class _Wait:
    """A call that waits for a slot."""

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self._refusal: ScrubjayError | None = None
        self._gate = threading.Lock()
        self._gate.acquire()

    def end(self, refusal: ScrubjayError | None = None) -> None:
        """Let the call go on, or turn it away."""
        self._refusal = refusal
        self._gate.release()

    def over(self) -> None:
        """Wait for the end. Raises the refusal of a call that is turned away."""
        self._gate.acquire()
        if self._refusal is not None:
            raise self._refusal


class Handlers:
    """The handler slots of one server, and the turns at the processor of who has one."""

    def __init__(self, slots: HandlerSlots, turns: Turns) -> None:
        self._slots, self._turns = slots, turns

    def take(self, tenant: str) -> None:
        """Have a slot of the tenant and a turn until ``give_back``, which this thread calls, both waited for.
        ServerBusy where too many wait."""
        self._slots.take(tenant)
        self._turns.begin(tenant)

    def give_back(self, tenant: str) -> None:
        """Let others have both."""
        self._turns.end()
        self._slots.give_back(tenant)

    def aside(self) -> AbstractContextManager[None]:
        """Let others have the turn for the block, in which the call waits, and wait for another behind it."""
        return self._turns.aside()

    @contextmanager
    def lent(self, tenant: str) -> Iterator[None]:
        """Let others have both for the block, and wait behind it for a turn alone."""
        with self._turns.aside(), self._slots.lent(tenant):
            yield


class StreamSlots:
    """``count`` slots of all tenants together, ``each`` of one."""

    def __init__(self, count: int, each: int) -> None:
        self._count, self._each = count, each
        self._lock = threading.Lock()
        self._of_tenant: Counter[str] = Counter()

    @contextmanager
    def taken(self, tenant: str) -> Iterator[None]:
        """A slot of the tenant for the block. ServerBusy where it may have none."""
        with self._lock:
            if self._of_tenant[tenant] >= self._each:
                raise ServerBusy(
                    f"{self._each} streams are open already, and no tenant may have more; retry later"
                )
            if self._of_tenant.total() >= self._count:
                raise ServerBusy("more streams at once than the server takes; retry later")
            self._of_tenant[tenant] += 1
        try:
            yield
        finally:
            with self._lock:
                self._of_tenant[tenant] -= 1
                if not self._of_tenant[tenant]:
                    del self._of_tenant[tenant]


class Slots:
    """Counts the calls of one server.

    ``handlers`` unary calls of one tenant are at work at once, a quarter more of all tenants together, and
    ``queued`` more wait; ``streams`` streams of one tenant live at once, a quarter more of all. Who waits has
    a thread too, and so has who is refused: a call that gRPC itself lets wait, or refuses, is nobody's yet.
    Of the calls at work those compute that have one of ``turns``.
    """

    def __init__(self, *, handlers: int, queued: int, streams: int, turns: Turns | None = None) -> None:
        count = _with_others(handlers)
        self.threads = count + queued + _with_others(streams) + REFUSED_AT_ONCE
        self.calls = self.threads + queued
        self.handler = Handlers(HandlerSlots(count, handlers, queued), turns or Turns())
        self._streams = StreamSlots(_with_others(streams), streams)
        self._looking = streams_at_work()
        self._lock = threading.Lock()
        self._living: dict[str, list[Ending]] = {}
        self._waiting: set[Ending] = set()
        self._stopped = False

    def stream(self, tenant: str) -> AbstractContextManager[None]:
        """A stream slot of the tenant for the block. ServerBusy where it may have none."""
        return self._streams.taken(tenant)

    def looking(self, tenant: str) -> AbstractContextManager[None]:
        """A turn of a stream of the tenant at looking up its credential, for the block."""
        return self._looking.held(tenant)

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
    def aside(self, tenant: str, ending: Ending) -> Iterator[None]:
        """A stream slot instead of the call's handler slot for the block, in which a unary call of the tenant
        waits until ``ending``. ServerBusy where none is free, Unavailable once ``stop`` was called."""
        with self.stream(tenant), self.handler.lent(tenant):
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
        self._looking.close()
        for ending in living:
            ending.end(_stopping())


def streams_at_work() -> HandlerSlots:
    """Slots for what ``STREAMS_AT_WORK`` streams may do at once, and however many wait for."""
    return HandlerSlots(STREAMS_AT_WORK, STREAMS_AT_WORK, queued=sys.maxsize)


def _with_others(each: int) -> int:
    """How many all tenants have together where one may have so many."""
    return each + max(1, each // 4)


def _stopping() -> Unavailable:
    return Unavailable("this server is shutting down; retry elsewhere")
