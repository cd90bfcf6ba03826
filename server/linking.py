"""Linking what was stored before there were entities: stream by stream, once, beside the server's calls.

It may be stopped anywhere and done again by anyone: a memory's links are written under its stream's lock, in
place of those that it has.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable

from scrubjay.errors import ScrubjayError
from scrubjay.memory import MemoryId, Micros
from server.shard import Shard
from server.store.memory_store import StreamKey

INTERVAL_SECONDS = 30
"""How long after a start it begins; from then on it only looks whether something is left."""

log = logging.getLogger(__name__)


class Linker:
    """Links the memories of shards that have no links yet."""

    def __init__(self, shards: Iterable[Shard]) -> None:
        self._shards = list(shards)

    def run(self, ending: threading.Event) -> int:
        """Link until nothing is left or ``ending`` is set; how many streams were done."""
        count = 0
        for shard in self._shards:
            try:
                while not ending.is_set() and (key := shard.unlinked()) is not None:
                    count += _link(shard, key, ending)
            except ScrubjayError as error:
                log.warning("%s is linked later: %s", shard.name, error.message)
        if count:
            log.info("linked the memories of %d streams to what they name", count)
        return count


def _link(shard: Shard, key: StreamKey, ending: threading.Event) -> bool:
    """Link a stream's memories; whether all were."""
    before: tuple[Micros, MemoryId] | None = None
    while not ending.is_set():
        before = shard.link_page(key, before)
        if before is None:
            return True
    return False
