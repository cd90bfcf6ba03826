"""Whose tenant an admin may act on, and whose request an RPC is."""

from __future__ import annotations

from scrubjay.errors import RoleNotAllowed, TenantNotFound
from tenants.registry import RequestKey
from tenants.tenant import Caller, Incarnation


def check_own(caller: Caller, tenant_id: str) -> None:
    """A tenant's admin acts on its own tenant; any other is answered as one that does not exist.

    An empty ``tenant_id`` stands for the platform, whose keys are its own admins' matter.
    """
    if caller.tenant is None:
        return
    if not tenant_id:
        raise RoleNotAllowed("only a platform admin may make, see or end a platform admin's key")
    if tenant_id != caller.tenant.tenant_id:
        raise TenantNotFound(tenant_id)


def life_of(caller: Caller) -> Incarnation | None:
    """The life of a tenant that the caller sees; a platform admin sees all, None."""
    return None if caller.tenant is None else caller.tenant.incarnation


def request_key(request_id: str, caller: Caller) -> RequestKey:
    """The request, as one of the caller's."""
    return RequestKey(request_id, life_of(caller) or "", caller.key_id, caller.role)
