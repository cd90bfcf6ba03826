"""Tenant -> shard, as the catalogue's row says."""

from __future__ import annotations

from collections.abc import Mapping

from server.shard import Shard
from tenants.tenant import Caller, Tenant


class Router:
    """The shards of this server by name."""

    def __init__(self, shards: Mapping[str, Shard]) -> None:
        self._shards = dict(shards)

    def shard(self, tenant: Tenant) -> Shard:
        """The shard that holds the tenant's memories. TenantMoving where it is on the way to another one."""
        shard = self._shards[tenant.shard]
        shard.check_here(tenant)
        return shard


def tenant_of(caller: Caller) -> Tenant:
    """The tenant of a caller that the door let through to a memory RPC."""
    if caller.tenant is None:
        raise ValueError("a platform admin reached a memory RPC")
    return caller.tenant
