"""What a tenant has in the catalogue, counted against its quotas."""

from __future__ import annotations

from sqlalchemy import Connection, func, or_, select

from scrubjay.errors import QuotaExceeded
from scrubjay.memory import Micros
from tenants.registry.tables import api_keys, devices, tenants
from tenants.tenant import Incarnation, Tenant


def check_room(connection: Connection, tenant: Tenant | None, stock: str, now: Micros) -> None:
    """Raise QuotaExceeded where a tenant may have no more ``devices`` or ``api_keys``.

    Who adds to a limited stock holds the tenant's row to the end of the transaction, so that two at once
    are counted one after the other.
    """
    limit = 0 if tenant is None else getattr(tenant.quotas, stock)
    if tenant is None or not limit:
        return
    held = select(tenants.c.state).where(tenants.c.incarnation == tenant.incarnation).with_for_update()
    connection.execute(held)
    if stock_of(connection, tenant.incarnation, now)[stock] >= limit:
        raise QuotaExceeded(stock, limit, tenant.tenant_id)


def stock_of(connection: Connection, incarnation: Incarnation, now: Micros) -> dict[str, int]:
    """How many devices were not revoked, and how many keys have not ended."""
    living = select(func.count()).where(devices.c.incarnation == incarnation, devices.c.revoked_at.is_(None))
    good = select(func.count()).where(
        api_keys.c.incarnation == incarnation,
        api_keys.c.revoked_at.is_(None),
        or_(api_keys.c.expires_at.is_(None), api_keys.c.expires_at > now),
    )
    return {
        "devices": connection.execute(living).scalar_one(),
        "api_keys": connection.execute(good).scalar_one(),
    }
