"""Waiting for what other threads and processes do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

LOOK_SECONDS = 0.002


def patiently(seconds: float) -> Callable[[Callable[[], object]], None]:
    """What returns once something holds, and fails where that does not come within so many seconds."""

    def wait(holds: Callable[[], object]) -> None:
        ends_at = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < ends_at, "it never came to hold"
            threading.Event().wait(LOOK_SECONDS)

    return wait
