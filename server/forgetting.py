"""The sweep: once a day every active tenant forgets what its policy lets go.

It goes stream by stream in small transactions, each of which looks again under the stream's lock. So it may
be stopped anywhere and done again by anyone: two servers that sweep at once delete nothing twice.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby

from scrubjay.errors import ScrubjayError
from scrubjay.memory import DAY_MICROS, ClientId, Micros
from server.ingest.author import Author, server_replica
from server.ingest.forgetting import CHUNK, SWEEP_ROLE, Forgotten, Sweep
from server.router import Router
from server.shard import Shard
from server.store.use_reading import FIRST
from tenants.forget_policy import DEFAULT_POLICY
from tenants.tenant import Incarnation, Tenant, TenantState

INTERVAL_SECONDS = 3600
"""A server sweeps an hour after its start, so that one that is restarted every day does too; then daily."""

log = logging.getLogger(__name__)


class Sweeper:
    """Sweeps every active tenant, once a day. ``tenants`` gives all as they are in the catalogue now."""

    def __init__(
        self, router: Router, tenants: Callable[[], Iterable[Tenant]], clock: Callable[[], Micros]
    ) -> None:
        self._router = router
        self._tenants = tenants
        self._clock = clock
        self._due = Micros(0)

    def run(self, ending: threading.Event) -> int:
        """Sweep, if a day has passed since the last time, until ``ending`` is set; how many memories went."""
        now, count, whole = self._clock(), 0, True
        if now < self._due:
            return 0
        for tenant in self._tenants():
            if tenant.state is not TenantState.ACTIVE:  # who may not use its memories may not keep them alive
                continue
            try:
                count += self._sweep(tenant, ending)
            except ScrubjayError as error:
                log.warning("%s is swept in an hour again: %s", tenant.tenant_id, error.message)
                whole = False
        if whole and not ending.is_set():
            self._due = Micros(now + DAY_MICROS)
        log.info("the sweep forgot %d memories", count)
        return count

    def _sweep(self, tenant: Tenant, ending: threading.Event) -> int:
        shard, sweep = self._router.shard(tenant), sweep_of(tenant, None, self._clock())
        author = sweep_author(tenant.incarnation)
        return sum(len(gone) for gone in swept(shard, sweep, author, ending.is_set))


def sweep_of(tenant: Tenant, stream: str | None, now: Micros) -> Sweep:
    """The sweep of a tenant, or of one stream of it, by the tenant's policy."""
    return Sweep(tenant.incarnation, stream, tenant.forget_policy or DEFAULT_POLICY, now)


def sweep_author(incarnation: Incarnation) -> Author:
    """Who deletes in the daily sweep: no client, and no key."""
    return Author(ClientId(""), server_replica(incarnation), actor="", role=SWEEP_ROLE)


def swept(
    shard: Shard, sweep: Sweep, author: Author, over: Callable[[], bool]
) -> Iterator[Sequence[Forgotten]]:
    """Delete what goes, until ``over``; what went in each transaction."""
    after = FIRST
    while not over() and (found := shard.to_forget(sweep, after, CHUNK)):
        for key, group in groupby(found, key=lambda one: one.key):
            if over():
                return
            yield shard.forget(key, [one.memory.id for one in group], sweep, author)
        after = found[-1].place
