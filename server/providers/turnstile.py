"""A lock that lets threads through in the order they came."""

from __future__ import annotations

import threading
from collections import deque
from types import TracebackType


class Turnstile:
    """Like threading.Lock in a ``with`` statement, but first come, first served.

    A plain lock lets the thread that gives it back take it again at once, so one that works through a long
    list would keep all others out.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._taken = False
        self._gates: deque[threading.Lock] = deque()

    def __enter__(self) -> None:
        with self._mutex:
            if not self._taken:
                self._taken = True
                return
            gate = threading.Lock()
            gate.acquire()
            self._gates.append(gate)
        gate.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._mutex:
            if self._gates:
                self._gates.popleft().release()
            else:
                self._taken = False
