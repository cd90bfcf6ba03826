"""Turns at the processor: few of the calls at work compute at a time, and tenants alternate.

Python runs one thread at a time, and whoever is ready to run waits for all who are: the thread that takes
calls in, too, which has four things to do for each. Where 64 handlers compute at once, a call waits before
anybody knows whose it is for as long as 64 calls take. Where one does, it waits here, in its tenant's turn,
and no fewer calls are answered.

A call that waits for something else, a commit or a model, leaves its turn to others meanwhile. One that
computes, or waits for a database, for long loses it: it goes on, but another begins.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from server.fair_queue import FairQueue

AT_ONCE = 4
OF_A_TENANT = 1
"""Beside one flooding tenant, the p50 of another's Search: with 1 turn 9 ms, with 2 58 ms, with 64 130 ms."""
TURNS_BESIDE_A_DATABASE = (16, 4)
"""The same where a call waits for another server's answers during its turn."""
LONG_SECONDS = 0.05
"""Most calls compute for 1 to 3 ms; what computes longer would keep out the short calls of its own tenant."""
WATCHED_SECONDS = 1.0
"""How long nobody has to wait before the thread that looks for long turns ends."""

NOBODY = ""


class _Turn:
    """A call's turn, or its wait for one."""

    __slots__ = ("began", "gate", "is_long", "tenant")

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.gate = threading.Lock()
        self.began = 0.0
        self.is_long = False


class _Mine(threading.local):
    """The turn of the thread that asks."""

    turn: _Turn | None = None


class Turns:
    """``at_once`` turns of all tenants together, ``of_a_tenant`` of one; safe for many threads.

    A turn belongs to the thread that began it.
    """

    def __init__(self, at_once: int = AT_ONCE, of_a_tenant: int = OF_A_TENANT) -> None:
        self._at_once, self._of_a_tenant = at_once, of_a_tenant
        self._lock = threading.Lock()
        self._short: list[_Turn] = []
        self._waiting: FairQueue[_Turn] = FairQueue(sys.maxsize)
        self._is_watched = False
        self._mine = _Mine()

    @property
    def tenant(self) -> str:
        """Whose turn this thread has; NOBODY where it does a server's own work, or long work."""
        return self._mine.turn.tenant if self._mine.turn else NOBODY

    def begin(self, tenant: str) -> None:
        """Have a turn of the tenant in this thread until ``end``, waited for."""
        turn = _Turn(tenant)
        with self._lock:
            waits = not self._is_free(tenant)
            if waits:
                turn.gate.acquire()
                self._waiting.put(tenant, turn)
                self._watch()
            else:
                self._start(turn)
        if waits:
            turn.gate.acquire()
        self._mine.turn = turn

    def end(self) -> None:
        """Leave this thread's turn to others."""
        turn, self._mine.turn = self._mine.turn, None
        if turn is None:
            raise ValueError("this thread has no turn")
        with self._lock:
            if not turn.is_long:
                self._short.remove(turn)
                self._admit()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """The block waits for something else than the processor: this thread's turn, if it has one, is left
        to others, and another is waited for behind the block."""
        if self._mine.turn is None:
            yield
            return
        tenant = self._mine.turn.tenant
        self.end()
        try:
            yield
        finally:
            self.begin(tenant)

    # --- with the lock held -----------------------------------------------------------------------

    def _is_free(self, tenant: str) -> bool:
        mine = sum(turn.tenant == tenant for turn in self._short)
        return len(self._short) < self._at_once and mine < self._of_a_tenant

    def _start(self, turn: _Turn) -> None:
        turn.began = time.monotonic()
        self._short.append(turn)

    def _admit(self) -> None:
        while len(self._waiting) and (turn := self._waiting.take(self._is_free)) is not None:
            self._start(turn)
            turn.gate.release()

    def _watch(self) -> None:
        if not self._is_watched:
            self._is_watched = True
            threading.Thread(target=self._end_long_ones, name="scrubjay-turns", daemon=True).start()

    # --- the thread -------------------------------------------------------------------------------

    def _end_long_ones(self) -> None:
        """As long as somebody waits, take from the count who has had a turn for long."""
        needed = time.monotonic()
        while True:
            time.sleep(LONG_SECONDS / 2)
            with self._lock:
                now = time.monotonic()
                if len(self._waiting):
                    needed = now
                    self._short, long = _parted(self._short, now - LONG_SECONDS)
                    for turn in long:
                        turn.is_long = True
                    self._admit()
                elif now - needed > WATCHED_SECONDS:
                    self._is_watched = False
                    return


def _parted(turns: list[_Turn], before: float) -> tuple[list[_Turn], list[_Turn]]:
    """The turns that began since, and those that began before."""
    return [one for one in turns if one.began >= before], [one for one in turns if one.began < before]
