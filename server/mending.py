"""Mending: memories that were met without a vector of their tenant's space get one, beside the calls.

They come from writes that began while the tenant had another space: of a call that asks a model minutes ago,
of an edit that waited for its memory months ago. Until then they are found by their words.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable

from scrubjay.errors import ScrubjayError
from server.operations.filling import Filling, making
from server.providers.embedders import Embedders
from server.shard import Shard
from server.store.memory_store import StreamKey
from tenants.tenant import Incarnation, Tenant

INTERVAL_SECONDS = 5

log = logging.getLogger(__name__)


class Mender:
    """Mends the streams of these shards. ``living`` gives the tenant of an incarnation."""

    def __init__(
        self,
        shards: Iterable[Shard],
        living: Callable[[Incarnation], Tenant | None],
        embedders: Embedders,
    ) -> None:
        self._shards = list(shards)
        self._living = living
        self._embedders = embedders

    def run(self, ending: threading.Event) -> int:
        """Mend what was met since the last time, or until ``ending`` is set; how many memories."""
        count = 0
        for shard in self._shards:
            for space, keys in shard.take_bare().items():
                for place, key in enumerate(keys):
                    if ending.is_set():
                        return count
                    try:
                        count += self._mend(shard, key, space)
                    except ScrubjayError as error:
                        log.warning("vectors of %s are made later: %s", shard.name, error.message)
                        for left in keys[place:]:
                            shard.note_bare(left, space)
                        break
        if count:
            log.info("made vectors of %d memories that had none", count)
        return count

    def _mend(self, shard: Shard, key: StreamKey, space: str) -> int:
        tenant = self._living(key.incarnation)
        if tenant is None or (tenant.space, tenant.shard) != (space, shard.name):
            return 0
        make = making(self._embedders.in_space(space))
        return Filling(shard, key.incarnation, space, make).stream(key)
