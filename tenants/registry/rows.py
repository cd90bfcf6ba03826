"""Rows and kept answers as values: columns and fields have the same names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scrubjay.memory import ClientId, Micros
from tenants.credential_cache import Credential
from tenants.tenant import ApiKey, Caller, Incarnation, Role, Tenant, TenantState


def tenant(row: Mapping[Any, Any]) -> Tenant:
    """A row of the tenants table, or the JSON object of a Tenant."""
    return Tenant(
        tenant_id=row["tenant_id"],
        display_name=row["display_name"],
        incarnation=Incarnation(row["incarnation"]),
        state=TenantState(row["state"]),
        shard=row["shard"],
        space=row["space"],
        created_at=Micros(row["created_at"]),
    )


def api_key(row: Mapping[Any, Any]) -> ApiKey:
    """A row of the keys table with its tenant's id, or the JSON object of an ApiKey."""
    return ApiKey(
        key_id=row["key_id"],
        tenant_id=row["tenant_id"],
        display_name=row["display_name"],
        role=Role(row["role"]),
        client_id=ClientId(row["client_id"]),
        created_at=Micros(row["created_at"]),
        expires_at=row["expires_at"],
        revoked_at=row["revoked_at"],
    )


def credential(key: Mapping[Any, Any], its_tenant: Mapping[Any, Any] | None) -> Credential:
    """A row of the keys table, and of its tenant unless it is the platform's."""
    caller = Caller(
        role=Role(key["role"]),
        key_id=key["key_id"],
        client_id=ClientId(key["client_id"]),
        tenant=None if its_tenant is None else tenant(its_tenant),
    )
    return Credential(caller, key["expires_at"])
