"""How a stream of responses learns from another thread that it is over."""

from __future__ import annotations

import threading
from collections.abc import Callable

from scrubjay.errors import ScrubjayError


class Ending:
    """One stream's end, which comes once: its peer has gone, or the server ends it. Safe for many threads.

    ``error`` is what the peer is to hear, where the server ends it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._hooks: list[Callable[[], object]] = []
        self.over = False
        self.error: ScrubjayError | None = None

    def end(self, error: ScrubjayError | None = None) -> None:
        """Say that the stream is over; the first one who says so gives the error."""
        with self._lock:
            if self.over:
                return
            self.over, self.error = True, error
            hooks, self._hooks = self._hooks, []
        for hook in hooks:
            hook()

    def on_end(self, hook: Callable[[], object]) -> None:
        """Call ``hook``, which does not wait, at the end; now where that has come."""
        with self._lock:
            if not self.over:
                self._hooks.append(hook)
                return
        hook()
