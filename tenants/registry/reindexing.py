"""The spaces of tenants' vectors: which there are, and how a tenant goes over to another one."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Engine, update

from scrubjay.errors import InvalidField
from tenants.credential_cache import CredentialCache
from tenants.operation import TenantOperation
from tenants.registry.operations import LeaseLost
from tenants.registry.tables import operations, tenants
from tenants.tenant import Tenant


class Reindexing:
    """The part of a Registry that changes spaces. ``offered`` are those of this server, by embedder."""

    def __init__(self, engine: Engine, *, cache: CredentialCache, offered: Mapping[str, str]) -> None:
        self._engine = engine
        self._cache = cache
        self._offered = offered

    def space_of(self, embedder: str) -> str:
        """The space of an embedder, by its name or the id itself. InvalidField where none is offered."""
        if embedder in self._offered.values():
            return embedder
        if embedder not in self._offered:
            known = ", ".join(f"{name} ({space})" for name, space in self._offered.items())
            raise InvalidField.of("embedder", f"{embedder[:64]!r} is not offered; this server has {known}")
        return self._offered[embedder]

    @staticmethod
    def check(tenant: Tenant, space: str) -> None:
        """Raise InvalidField where the tenant's vectors are of the space already."""
        if tenant.space == space:
            raise InvalidField.of("embedder", f"makes {space}, which the tenant's vectors are of already")

    def switch(self, held: TenantOperation, space: str) -> None:
        """Let the operation's tenant be searched and written in the space. LeaseLost where the operation is
        not held any more.

        Calls go by it when this returns, on other servers within the cache's seconds.
        """
        mine = operations.c.operation_id == held.operation_id, operations.c.fence == held.fence
        is_open = operations.c.lease_until.is_not(None)
        with self._engine.begin() as connection:
            # Writing what is there holds the lease until the end of the transaction.
            hold = update(operations).where(*mine, is_open).values(fence=operations.c.fence)
            if not connection.execute(hold).rowcount:
                raise LeaseLost(held.operation_id)
            life = tenants.c.incarnation == held.incarnation
            connection.execute(update(tenants).where(life).values(space=space))
        self._cache.forget_tenant(held.incarnation)
