"""Work that one thread does in small steps, off the way of the calls that cause it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable

_logger = logging.getLogger(__name__)


class Background:
    """Runs ``work`` once after each ``wake``; wakes that come while it runs make one more run.

    ``work`` yields between its steps, and a step ends soon, for ``close`` waits for it. The thread starts
    with the first wake. Work that raises is logged and never run again: ``failed`` says so.
    """

    def __init__(self, name: str, work: Callable[[], Iterable[None]]) -> None:
        self._name = name
        self._work = work
        self._changed = threading.Condition(threading.Lock())
        self._thread: threading.Thread | None = None
        self._wanted = False
        self._busy = False
        self._stopped = False
        self.failed = False

    def wake(self) -> None:
        """See that the work runs from its beginning after this moment. Nothing, once stopped."""
        with self._changed:
            if self._stopped:
                return
            self._wanted = True
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def wait_idle(self, timeout_seconds: float) -> bool:
        """Wait until nothing is to be done, or until it stopped; whether that came in time."""
        deadline = time.monotonic() + timeout_seconds
        with self._changed:
            while (self._wanted or self._busy) and not self._stopped:
                if not self._changed.wait(deadline - time.monotonic()):
                    return False
        return True

    def close(self) -> None:
        """Stop after the step under way and wait for the thread's end."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while self._next():
            try:
                for _ in self._work():
                    if self._stopped:
                        break
            except Exception:
                _logger.exception("%s failed; what it was to do is left undone", self._name)
                self._stop_failed()

    def _next(self) -> bool:
        with self._changed:
            self._busy = False
            self._changed.notify_all()
            while not self._wanted and not self._stopped:
                self._changed.wait()
            self._wanted, self._busy = False, True
            return not self._stopped

    def _stop_failed(self) -> None:
        with self._changed:
            self.failed = True
            self._stopped = True
            self._changed.notify_all()
