"""The lives of tenants over SQL: suspended, resumed, deleted, undeleted, purged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from sqlalchemy import Connection, Engine, delete, or_, select, update

from scrubjay.errors import TenantNotFound
from scrubjay.memory import Micros
from tenants import states
from tenants.audit import Act
from tenants.credential_cache import CredentialCache
from tenants.database import compact
from tenants.registry import rows
from tenants.registry.audit import AuditLog
from tenants.registry.once import Answer, Asked, RequestKey, once
from tenants.registry.operations import check_alone
from tenants.registry.tables import api_keys, devices, enrolments, operations, requests, tenants, usage
from tenants.retention import DEFAULT_RETENTION
from tenants.tenant import Tenant, TenantState
from tenants.write_settings import DEFAULT_SETTINGS


class Lives:
    """The states of a catalogue's tenants, as its Registry opens them.

    A move is known to this process when its method returns, to others within the cache's seconds. Every
    move raises TenantNotFound, TenantNotActive where ``tenants.states`` has no such move, RequestIdReused.
    """

    def __init__(self, engine: Engine, *, cache: CredentialCache, audit: AuditLog) -> None:
        self._engine = engine
        self._cache = cache
        self._audit = audit

    def suspend_tenant(
        self, tenant_id: str, reason: str, *, now: Micros, request: RequestKey | None = None
    ) -> Tenant:
        """Let nobody read or write its memories until it is resumed."""
        asked = Asked("suspend_tenant", tenant_id, [reason], now, request)
        return self._move(tenant_id, asked, lambda tenant: states.suspended(tenant, reason, now))

    def resume_tenant(self, tenant_id: str, *, now: Micros, request: RequestKey | None = None) -> Tenant:
        """Let it be used again."""
        return self._move(tenant_id, Asked("resume_tenant", tenant_id, [], now, request), states.resumed)

    def delete_tenant(
        self, tenant_id: str, grace_days: int, *, now: Micros, request: RequestKey | None = None
    ) -> Tenant:
        """Let nobody use it, and purge it once the days of grace have passed. Raises OperationUnderWay."""
        asked = Asked("delete_tenant", tenant_id, [grace_days], now, request, f"grace of {grace_days} days")
        return self._move(
            tenant_id, asked, lambda tenant: states.deleted(tenant, grace_days, now), alone=True
        )

    def undelete_tenant(self, tenant_id: str, *, now: Micros, request: RequestKey | None = None) -> Tenant:
        """Take a deletion back, before its purge has begun."""
        return self._move(tenant_id, Asked("undelete_tenant", tenant_id, [], now, request), states.undeleted)

    # --- purging ----------------------------------------------------------------------------------

    def to_purge(self, until: Micros) -> list[Tenant]:
        """The tenants whose grace ended no later than ``until`` and of which something may be left."""
        due = tenants.c.state == TenantState.DELETING, tenants.c.purge_at <= until
        with self._engine.begin() as connection:
            found = connection.execute(select(tenants).where(*due).order_by(tenants.c.purge_at)).mappings()
            return [rows.tenant(row) for row in found]

    def begin_purge(self, tenant: Tenant, *, now: Micros) -> Tenant:
        """Begin what can't be taken back; again, nothing changes."""
        with self._engine.begin() as connection:
            return self._change_life(connection, tenant, lambda found: states.purging(found, now))

    def finish_purge(self, tenant: Tenant, swept: Mapping[str, int], *, now: Micros) -> Tenant:
        """Delete what the catalogue knows of a tenant but itself, and close the receipt of its purge.

        ``swept`` counts what was deleted elsewhere, by place. May be killed anywhere and done again.
        """
        with self._engine.begin() as connection:
            counts = _delete_all_of(connection, tenant)
            self._change_life(connection, tenant, lambda found: _counted(found, counts))
        compact(self._engine)
        with self._engine.begin() as connection:
            purged = self._change_life(connection, tenant, lambda found: states.purged(found, swept, now))
            self._audit.append(connection, _purged(purged, now))
        self._cache.forget_tenant(tenant.incarnation)
        return purged

    # --- parts ------------------------------------------------------------------------------------

    def _move(
        self, tenant_id: str, asked: Asked, change: Callable[[Tenant], Tenant], *, alone: bool = False
    ) -> Tenant:
        def move(connection: Connection) -> Answer:
            moved = self._change(connection, tenant_id, change)
            if alone:
                check_alone(connection, moved.incarnation)
            return rows.kept_tenant(moved)

        with self._engine.begin() as connection:
            moved = rows.tenant(once(connection, self._audit, asked, move))
        self._cache.forget_tenant(moved.incarnation)
        return moved

    @staticmethod
    def _change(connection: Connection, tenant_id: str, change: Callable[[Tenant], Tenant]) -> Tenant:
        """Write what a tenant becomes; nobody else moves it before the transaction ends."""
        changed = change(rows.read_tenant(connection, tenant_id, locked=True))
        ours = tenants.c.incarnation == changed.incarnation
        connection.execute(update(tenants).where(ours).values(rows.kept_tenant(changed)))
        return changed

    @classmethod
    def _change_life(
        cls, connection: Connection, tenant: Tenant, change: Callable[[Tenant], Tenant]
    ) -> Tenant:
        """The same, where the id was not given to a new tenant meanwhile."""

        def checked(found: Tenant) -> Tenant:
            if found.incarnation != tenant.incarnation:
                raise TenantNotFound(tenant.tenant_id)
            return change(found)

        return cls._change(connection, tenant.tenant_id, checked)


_PLACES = {
    "enrolments": enrolments,
    "devices": devices,
    "API keys": api_keys,
    "operations": operations,
    "usage": usage,
}
"""What the catalogue holds of a tenant, by the name that the receipt has for it."""


def _delete_all_of(connection: Connection, tenant: Tenant) -> dict[str, int]:
    deletions = {
        place: delete(table).where(table.c.incarnation == tenant.incarnation)
        for place, table in _PLACES.items()
    }
    about = or_(requests.c.scope == tenant.incarnation, requests.c.tenant_id == tenant.tenant_id)
    deletions["admin requests"] = delete(requests).where(about)
    return {place: connection.execute(deletion).rowcount for place, deletion in deletions.items()}


def _purged(tenant: Tenant, now: Micros) -> Act:
    """The receipt goes when the id is given again; what it sums up to stays."""
    swept = sum(tenant.purge.swept.values()) if tenant.purge else 0
    return Act.of_server(now, "PurgeTenant", tenant, detail=f"{swept} rows and files")


def _counted(tenant: Tenant, counts: Mapping[str, int]) -> Tenant:
    """The tenant without what it said of itself, and with more counted in its receipt."""
    begun = states.begun_purge(tenant)
    swept = {**begun.swept, **{place: begun.swept.get(place, 0) + n for place, n in counts.items()}}
    return replace(
        tenant,
        forget_policy=None,
        write_settings=DEFAULT_SETTINGS,
        retention=DEFAULT_RETENTION,
        suspension_reason="",
        purge=replace(begun, swept=swept),
    )
