"""Work that a server does again and again beside its calls."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

_logger = logging.getLogger(__name__)


class Periodic:
    """Runs ``work`` in a thread of its own, every ``interval_seconds`` from construction to ``close``.

    ``work`` gets an event that is set when it should end at once. What it raises is logged, and it is run
    again when its time comes.
    """

    def __init__(self, name: str, interval_seconds: float, work: Callable[[threading.Event], object]) -> None:
        self._name = name
        self._interval_seconds = interval_seconds
        self._work = work
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"scrubjay-{name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._closing.wait(self._interval_seconds):
            try:
                self._work(self._closing)
            except Exception:
                _logger.exception("%s failed; it is tried again in %s s", self._name, self._interval_seconds)

    def close(self) -> None:
        """End the work and the thread. May be called again."""
        self._closing.set()
        self._thread.join()
