"""The states of a tenant, and which move leads from one to another.

    move       from                 to
    suspend    ACTIVE               SUSPENDED
    resume     SUSPENDED            ACTIVE
    delete     ACTIVE, SUSPENDED    DELETING, until its grace has passed
    undelete   DELETING             what it was before, until the purge has begun
    purge      DELETING             PURGED, when everything is gone

Every other move is illegal. Functions take a tenant and return it as it is after the move; they raise
TenantNotActive, which names the state, where the move is illegal.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from scrubjay.errors import TenantNotActive
from scrubjay.memory import DAY_MICROS, Micros
from tenants.receipt import PurgeReceipt
from tenants.tenant import Tenant, TenantState

DEFAULT_GRACE_DAYS = 30
"""Long enough to notice that the wrong tenant was deleted, once a bill or a month's report is missing."""
MAX_GRACE_DAYS = 365

_USABLE = (TenantState.ACTIVE, TenantState.SUSPENDED)


def suspended(tenant: Tenant, reason: str, now: Micros) -> Tenant:
    """The tenant, whose memories nobody reads or writes until it is resumed."""
    _check(tenant, "suspended", (TenantState.ACTIVE,))
    return replace(tenant, state=TenantState.SUSPENDED, suspended_at=now, suspension_reason=reason)


def resumed(tenant: Tenant) -> Tenant:
    """The tenant in use again."""
    _check(tenant, "resumed", (TenantState.SUSPENDED,))
    return replace(tenant, state=TenantState.ACTIVE, suspended_at=None, suspension_reason="")


def deleted(tenant: Tenant, grace_days: int, now: Micros) -> Tenant:
    """The tenant, which is purged once its grace has passed."""
    _check(tenant, "deleted", _USABLE)
    purge_at = Micros(now + grace_days * DAY_MICROS)
    return replace(tenant, state=TenantState.DELETING, deleted_at=now, purge_at=purge_at)


def undeleted(tenant: Tenant) -> Tenant:
    """The tenant as it was before it was deleted."""
    _check(tenant, "undeleted", (TenantState.DELETING,))
    if tenant.purge is not None:
        raise TenantNotActive(f"the tenant {tenant.tenant_id!r} can't be undeleted: its purge has begun")
    state = TenantState.ACTIVE if tenant.suspended_at is None else TenantState.SUSPENDED
    return replace(tenant, state=state, deleted_at=None, purge_at=None)


def purging(tenant: Tenant, now: Micros) -> Tenant:
    """The tenant with its purge begun, which nothing stops any more."""
    _check(tenant, "purged", (TenantState.DELETING,))
    if tenant.purge_at is None or now < tenant.purge_at:
        raise TenantNotActive(f"the grace of the tenant {tenant.tenant_id!r} has not passed")
    return tenant if tenant.purge else replace(tenant, purge=PurgeReceipt(now))


def begun_purge(tenant: Tenant) -> PurgeReceipt:
    """The receipt of a purge that goes on."""
    _check(tenant, "purged", (TenantState.DELETING,))
    if tenant.purge is None:
        raise TenantNotActive(f"the purge of the tenant {tenant.tenant_id!r} has not begun")
    return tenant.purge


def purged(tenant: Tenant, swept: Mapping[str, int], now: Micros) -> Tenant:
    """What is left of a tenant: its id, free to be given again, and the receipt with ``swept`` added."""
    begun = begun_purge(tenant)
    receipt = replace(begun, finished_at=now, swept={**begun.swept, **swept})
    return replace(tenant, state=TenantState.PURGED, purge=receipt)


def check_usable(tenant: Tenant) -> None:
    """Raise TenantNotActive where nobody may be let in any more."""
    _check(tenant, "given keys or devices", _USABLE)


def _check(tenant: Tenant, moved: str, states: Collection[TenantState]) -> None:
    if tenant.state not in states:
        allowed = " or ".join(state.name for state in states)
        raise TenantNotActive(
            f"the tenant {tenant.tenant_id!r} is {tenant.state.name} and can't be {moved}; only one that is "
            f"{allowed} can",
            metadata={"tenant_id": tenant.tenant_id, "state": tenant.state.name},
        )
