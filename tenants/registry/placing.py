"""Where tenants lie, over SQL: moved from shard to shard, and which shards take no more of them."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection, Engine, delete, func, select, update

from scrubjay.memory import Micros
from tenants.credential_cache import CredentialCache
from tenants.placement import place
from tenants.registry import rows
from tenants.registry.audit import AuditLog
from tenants.registry.once import Answer, Asked, RequestKey, once
from tenants.registry.operations import check_alone
from tenants.registry.tables import draining_shards, insert_new, operations, tenants
from tenants.tenant import Incarnation, Tenant, TenantState


class Placing:
    """The places of a catalogue's tenants, as its Registry opens it. ``names`` are the shards' names.

    What is changed is known to this process when its method returns, to others within the cache's seconds.
    """

    def __init__(
        self, engine: Engine, *, names: Iterable[str], cache: CredentialCache, audit: AuditLog
    ) -> None:
        self._engine = engine
        self.names = frozenset(names)
        self._cache = cache
        self._audit = audit

    def open_among(self, connection: Connection) -> frozenset[str]:
        """The shards that tenants may be placed on."""
        draining = frozenset(connection.execute(select(draining_shards.c.name)).scalars())
        return self.names - draining

    def target(self, incarnation: Incarnation, without: Iterable[str] = ()) -> str | None:
        """Where a tenant would be placed that may not be on some shards; None where there is no place."""
        with self._engine.begin() as connection:
            names = self.open_among(connection) - frozenset(without)
        return place(incarnation, names) if names else None

    def takes_tenants(self, *, without: str) -> bool:
        """Whether tenants may be placed on any other shard."""
        with self._engine.begin() as connection:
            return bool(self.open_among(connection) - {without})

    def draining(self) -> frozenset[str]:
        """The shards that take no tenants."""
        with self._engine.begin() as connection:
            return frozenset(connection.execute(select(draining_shards.c.name)).scalars())

    def drain(self, shard: str) -> None:
        """Place no tenant on the shard any more; again, nothing changes."""
        with self._engine.begin() as connection:
            insert_new(connection, draining_shards, {"name": shard})

    def undrain(self, shard: str) -> None:
        """Place tenants on the shard again."""
        with self._engine.begin() as connection:
            connection.execute(delete(draining_shards).where(draining_shards.c.name == shard))

    def undo_drain(self, shard: str, *, now: Micros, request: RequestKey) -> None:
        """The same, asked for after it was drained. Raises OperationUnderWay, RequestIdReused."""

        def undone(connection: Connection) -> Answer:
            check_alone(connection, f"shard/{shard}")
            connection.execute(delete(draining_shards).where(draining_shards.c.name == shard))
            return {}

        asked = Asked("drain_shard", None, [{"shard": shard, "undo": True}], now, request, f"{shard}, undone")
        with self._engine.begin() as connection:
            once(connection, self._audit, asked, undone)

    def counts(self) -> dict[str, int]:
        """How many tenants lie on each shard, those that were deleted and not purged among them."""
        by_shard = select(tenants.c.shard, func.count()).group_by(tenants.c.shard)
        with self._engine.begin() as connection:
            found = connection.execute(by_shard.where(tenants.c.state != TenantState.PURGED))
            return {row[0]: row[1] for row in found}

    def next_on(self, shard: str, after: str) -> Tenant | None:
        """The next tenant on the shard by id, behind the id ``after``."""
        one = (
            select(tenants)
            .where(
                tenants.c.shard == shard, tenants.c.state != TenantState.PURGED, tenants.c.tenant_id > after
            )
            .order_by(tenants.c.tenant_id)
            .limit(1)
        )
        with self._engine.begin() as connection:
            row = connection.execute(one).mappings().first()
        return None if row is None else rows.tenant(row)

    def note_moving(self, incarnation: Incarnation, *, moving: bool) -> None:
        """Let servers know that the tenant may leave its shard soon, or that it stays where it is."""
        self._write(incarnation, moving=moving)

    def note_all_moving(self, shard: str, *, moving: bool) -> None:
        """The same of all tenants on a shard but those on which an operation is under way."""
        busy = select(operations.c.target).where(operations.c.lease_until.is_not(None))
        these = tenants.c.shard == shard, tenants.c.incarnation.not_in(busy)
        with self._engine.begin() as connection:
            connection.execute(update(tenants).where(*these).values(moving=moving))
            incarnations = connection.execute(select(tenants.c.incarnation).where(*these)).scalars().all()
        for incarnation in incarnations:
            self._cache.forget_tenant(incarnation)

    def assign(self, incarnation: Incarnation, shard: str) -> None:
        """Let the tenant lie on the shard from now on."""
        self._write(incarnation, shard=shard)

    def _write(self, incarnation: Incarnation, **values: object) -> None:
        with self._engine.begin() as connection:
            connection.execute(update(tenants).where(tenants.c.incarnation == incarnation).values(values))
        self._cache.forget_tenant(incarnation)
