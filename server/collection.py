"""Collecting what is not kept for ever: tombstones that sync needs no longer, and History that a tenant does
not keep. Stream by stream in small transactions: it may be stopped anywhere and done again by anyone."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable

from scrubjay.errors import ScrubjayError
from scrubjay.memory import DAY_MICROS, Micros
from scrubjay.stamp import COUNTER_BITS, CommitStamp
from server.shard import Shard
from tenants.tenant import Tenant

INTERVAL_SECONDS = 3600
"""So that a server that is restarted every day collects too; mostly there is nothing."""

log = logging.getLogger(__name__)


class Collector:
    """Forgets tombstones that are older than ``keep_days``, and what tenants keep for days of their own.

    ``retaining`` gives those, as they are in the catalogue now; ``clock`` microseconds since 1970.
    """

    def __init__(
        self,
        shards: Iterable[Shard],
        keep_days: int,
        clock: Callable[[], Micros],
        retaining: Callable[[], Iterable[Tenant]] = lambda: (),
    ) -> None:
        self._shards = {shard.name: shard for shard in shards}
        self._keep_days = keep_days
        self._clock = clock
        self._retaining = retaining

    def run(self, ending: threading.Event) -> int:
        """Collect every stream that has something old, until ``ending`` is set; how many had tombstones."""
        tenants = list(self._retaining())
        own = {one.incarnation for one in tenants if one.retention.tombstone_days}
        limit = self._before(self._keep_days)
        count = sum(shard.collect(limit, ending.is_set, own) for shard in self._shards.values())
        for tenant in tenants:
            try:
                count += self._collect(tenant, ending)
            except ScrubjayError as error:
                log.warning("%s is collected in an hour again: %s", tenant.tenant_id, error.message)
        return count

    def _collect(self, tenant: Tenant, ending: threading.Event) -> int:
        shard, kept, count = self._shards[tenant.shard], tenant.retention, 0
        if kept.tombstone_days:
            limit = self._before(kept.tombstone_days)
            count = shard.collect_of(tenant.incarnation, limit, ending.is_set)
        if kept.history_days:
            shard.forget_history(tenant.incarnation, self._before(kept.history_days), ending.is_set)
        return count

    def _before(self, days: int) -> CommitStamp:
        """The last commit stamp that is older than so many days."""
        return CommitStamp((self._clock() - days * DAY_MICROS) // 1000 << COUNTER_BITS)
