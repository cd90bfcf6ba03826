"""Collecting tombstones: what sync needs no longer is forgotten, stream by stream."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from scrubjay.memory import DAY_MICROS, Micros
from scrubjay.stamp import COUNTER_BITS, CommitStamp
from server.shard import Shard

INTERVAL_SECONDS = 3600
"""So that a server that is restarted every day collects too; mostly there is nothing."""


class Collector:
    """Forgets what is older than ``keep_days``. ``clock`` gives microseconds since 1970."""

    def __init__(self, shards: Iterable[Shard], keep_days: int, clock: Callable[[], Micros]) -> None:
        self._shards = list(shards)
        self._keep_micros = keep_days * DAY_MICROS
        self._clock = clock

    def run(self, ending: threading.Event) -> int:
        """Collect every stream that has something old, until ``ending`` is set; how many there were."""
        limit = CommitStamp((self._clock() - self._keep_micros) // 1000 << COUNTER_BITS)
        return sum(shard.collect(limit, ending.is_set) for shard in self._shards)
