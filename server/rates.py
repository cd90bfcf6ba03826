"""How often somebody may call: token buckets, filled with so many tokens a second."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

BURST_SECONDS = 2.0
"""What a bucket holds: who was quiet may call so many seconds' calls at once."""
MAX_BUCKETS = 20_000
"""Some 4 MB. The least recently used one is forgotten, and is full when it comes again."""


@dataclass(slots=True)
class _Bucket:
    tokens: float
    filled_at: float


class Rates:
    """The buckets of one server; safe for many threads. ``clock`` gives seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def wait_seconds(self, wanted: Iterable[tuple[str, float]]) -> float:
        """Take a token from every bucket, each named with its tokens a second, and return 0; or take none,
        and return in how many seconds all will have one."""
        with self._lock:
            now = self._clock()
            buckets = [(self._filled(name, rate, now), rate) for name, rate in wanted]
            wait = max(((1 - bucket.tokens) / rate for bucket, rate in buckets), default=0.0)
            if wait > 0:
                return wait
            for bucket, _ in buckets:
                bucket.tokens -= 1
            return 0.0

    def _filled(self, name: str, rate: float, now: float) -> _Bucket:
        most = max(1.0, rate * BURST_SECONDS)
        bucket = self._buckets.setdefault(name, _Bucket(most, now))
        self._buckets.move_to_end(name)
        if len(self._buckets) > MAX_BUCKETS:
            self._buckets.popitem(last=False)
        bucket.tokens = min(most, bucket.tokens + (now - bucket.filled_at) * rate)
        bucket.filled_at = now
        return bucket
