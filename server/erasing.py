"""Erasing a subject: of a person who asks for it, nothing is left.

    catalogue   the subject's devices are revoked and told to wipe: see ``tenants.registry.subjects``
    shard       memories are buried, so that everyone who follows the stream hears of it; then all else goes
    files       what the index and devices' snapshots keep is deleted, and exports and uploads of the tenant
    shard       a SQLite file is rewritten, so that no byte stays in it
    shard       the receipt is closed

A server may be killed anywhere: called again, it goes on where it was. Other servers on the same database
delete the files that they keep within a minute.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from scrubjay.errors import ScrubjayError
from scrubjay.memory import Micros, Subject
from server.archive.folder import Archives
from server.shard import Shard
from server.snapshots import Snapshots
from server.store.memory_store import StreamKey
from tenants.receipt import PurgeReceipt
from tenants.tenant import Tenant

INTERVAL_SECONDS = 60
CLOCKS_MICROS = 3600 * 1_000_000
"""How far apart the clocks of two servers may be."""

log = logging.getLogger(__name__)


class Eraser:
    """Erases subjects, and lets go of those that others erased."""

    def __init__(
        self,
        shards: Mapping[str, Shard],
        snapshots: Snapshots,
        archives: Archives,
        clock: Callable[[], Micros],
    ) -> None:
        self._shards = dict(shards)
        self._snapshots = snapshots
        self._archives = archives
        self._clock = clock
        self._followed: dict[str, dict[StreamKey, Micros]] = {name: {} for name in self._shards}
        self._heard = dict.fromkeys(self._shards, Micros(0))

    def erase(self, tenant: Tenant, subject: Subject, asked_at: Micros) -> PurgeReceipt:
        """Delete all that is stored of a subject, unless that was begun and done since ``asked_at``; what
        there was, by place.

        Raises ServerBusy, StorageUnavailable: then some of it may be left, and another call goes on.
        """
        shard, key = self._shards[tenant.shard], StreamKey(tenant.incarnation, subject.key)
        done = shard.erasure(key)
        if done is not None and done.finished_at is not None and done.started_at >= asked_at:
            return done
        seen = {
            "index files": shard.count_index_files_of(key),
            "device snapshots": self._snapshots.count_of(key),
            "exports and uploads": self._archives.count_of(key),
        }
        shard.begin_erasure(key, seen, self._clock())
        shard.erase_rows(tenant.incarnation, subject, self._clock())
        self._discard(shard, key)
        shard.compact()
        return shard.finish_erasure(key, self._clock())

    def run(self, ending: threading.Event) -> None:
        """Let go of what this server still keeps of subjects that were erased since, until ``ending``."""
        for shard in self._shards.values():
            if ending.is_set():
                return
            try:
                self._follow(shard)
            except ScrubjayError as error:
                log.warning("what was erased elsewhere is let go of later: %s", error.message)

    def _follow(self, shard: Shard) -> None:
        erased = shard.erased_since(Micros(self._heard[shard.name] - CLOCKS_MICROS))
        before = self._followed[shard.name]
        for key, finished_at in erased.items():
            if before.get(key) != finished_at:
                self._discard(shard, key, Micros(finished_at + CLOCKS_MICROS))
        self._followed[shard.name] = erased
        self._heard[shard.name] = max([self._heard[shard.name], *erased.values()])

    def _discard(self, shard: Shard, key: StreamKey, until: Micros | None = None) -> None:
        shard.discard_stream(key, until)
        self._snapshots.discard_all(key)
        self._archives.discard_all(key)
