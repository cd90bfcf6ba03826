"""Purging: of a tenant that was deleted, nothing is left once its grace has passed.

    catalogue   the purge begins: it can't be taken back any more
    shard       the life ends: nothing is written under its incarnation any more
    files       what the index and devices' snapshots keep is deleted, and exports and uploads
    shard       every row goes, in small transactions, each counted in the one that deletes it
    shard       a SQLite file is rewritten, so that no byte of them stays in it
    catalogue   keys, devices and enrolments go, and the receipt is closed

A server may be killed anywhere: the tenant is DELETING until the last step, and each step may be done again,
by another server too.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial

from scrubjay.errors import ScrubjayError
from scrubjay.memory import Micros
from server.archive.folder import Archives
from server.shard import Shard
from server.snapshots import Snapshots
from tenants.registry.lives import Lives
from tenants.tenant import Incarnation, Tenant

INTERVAL_SECONDS = 60
SETTLED_MICROS = 120 * 1_000_000
"""After its grace: by then every server has heard that the tenant was deleted, and the calls and streams that
had begun before are over."""
CLOCKS_MICROS = 3600 * 1_000_000
"""How far apart the clocks of two servers may be."""

log = logging.getLogger(__name__)


class Purger:
    """Purges the tenants whose grace has passed, and lets go of what others purged."""

    def __init__(
        self,
        shards: Mapping[str, Shard],
        lives: Lives,
        snapshots: Snapshots,
        archives: Archives,
        clock: Callable[[], Micros],
    ) -> None:
        self._shards = dict(shards)
        self._lives = lives
        self._snapshots = snapshots
        self._archives = archives
        self._clock = clock
        self._heard = dict.fromkeys(self._shards, Micros(0))

    def run(self, ending: threading.Event) -> int:
        """Purge what is due, until ``ending`` is set; how many tenants are gone."""
        emptied = defaultdict[str, list[Tenant]](list)
        for tenant in self._lives.to_purge(Micros(self._clock() - SETTLED_MICROS)):
            if self._tried(tenant.tenant_id, partial(self._empty, tenant, ending)):
                emptied[tenant.shard].append(tenant)
        count = sum(self._close(self._shards[name], tenants) for name, tenants in emptied.items())
        for shard in self._shards.values():
            self._follow(shard)
        return count

    def _follow(self, shard: Shard) -> None:
        """Let go of what this server keeps of lives that another one ended."""
        heard = self._heard[shard.name]
        for incarnation, began_at in shard.ended_since(Micros(heard - CLOCKS_MICROS)).items():
            self._discard_files(shard, incarnation)
            self._heard[shard.name] = max(self._heard[shard.name], began_at)

    def _empty(self, tenant: Tenant, ending: threading.Event) -> bool:
        """Begin, and delete what the tenant's shard has; whether nothing is left there."""
        begun = self._lives.begin_purge(tenant, now=self._clock())
        shard = self._shards[begun.shard]
        shard.end_life(begun.incarnation, self._clock())
        counts = {
            "index files": shard.count_index_files(begun.incarnation),
            "device snapshots": self._snapshots.count_of(begun.incarnation),
            "exports and uploads": self._archives.count_of(begun.incarnation),
        }
        shard.note_swept(begun.incarnation, counts)
        self._discard_files(shard, begun.incarnation)
        return shard.purge_rows(begun.incarnation, ending.is_set)

    def _discard_files(self, shard: Shard, incarnation: Incarnation) -> None:
        shard.discard_index(incarnation)
        self._snapshots.discard_all(incarnation)
        self._archives.discard_all(incarnation)

    def _close(self, shard: Shard, tenants: list[Tenant]) -> int:
        """Rewrite the shard's file once for all that left it, then close their receipts."""
        if not self._tried(shard.name, partial(self._compact, shard)):
            return 0
        return sum(self._tried(one.tenant_id, partial(self._finish, shard, one)) for one in tenants)

    @staticmethod
    def _compact(shard: Shard) -> bool:
        shard.compact()
        return True

    def _finish(self, shard: Shard, tenant: Tenant) -> bool:
        self._lives.finish_purge(tenant, shard.swept(tenant.incarnation), now=self._clock())
        log.info("%s is purged", tenant.tenant_id)
        return True

    @staticmethod
    def _tried(what: str, step: Callable[[], bool]) -> bool:
        try:
            return step()
        except ScrubjayError as error:
            log.warning("the purge of %s goes on later: %s", what, error.message)
            return False
