"""A circuit breaker: who fails again and again is left alone for a while.

Closed, every request passes. After ``FAILURES`` failures in a row it opens: nothing passes for a pause that
doubles each time. Then it is half open: one request passes, and its end closes or opens it again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

FAILURES = 5
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0


class Open(Exception):
    """Nothing passes now; ``seconds`` says when that may change."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


class Breaker:
    """One provider's breaker. ``clock`` counts seconds and never goes back. Safe for many threads."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._failures = 0
        self._pause_seconds = 0.0
        self._opens_at = 0.0
        self._probing = False

    def check(self) -> None:
        """Raises Open where a request that came now would have to wait."""
        with self._lock:
            self._check()

    def enter(self) -> None:
        """Let one request through, whose end ``leave`` must be told. Raises Open."""
        with self._lock:
            self._check()
            self._probing = self._pause_seconds > 0

    def leave(self, *, failed: bool) -> None:
        """Note how a request that passed has ended."""
        with self._lock:
            self._probing = False
            if not failed:
                self._failures, self._pause_seconds = 0, 0.0
                return
            self._failures += 1
            if self._failures >= FAILURES and self._clock() >= self._opens_at:
                self._pause_seconds = min(
                    2 * self._pause_seconds or FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS
                )
                self._opens_at = self._clock() + self._pause_seconds

    def _check(self) -> None:
        remaining = self._opens_at - self._clock() if self._pause_seconds else 0.0
        if remaining > 0:
            raise Open(remaining)
        if self._probing:
            raise Open(FIRST_PAUSE_SECONDS)
