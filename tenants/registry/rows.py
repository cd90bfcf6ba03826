"""Rows and kept answers as values: columns and fields have the same names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, select

from scrubjay.errors import TenantNotFound
from scrubjay.memory import ClientId, Micros, Subject
from tenants import forget_policy, quotas, receipt, retention, write_settings
from tenants.credential_cache import Credential
from tenants.registry.tables import tenants
from tenants.states import check_usable
from tenants.tenant import ApiKey, Caller, Device, Incarnation, Role, Tenant, TenantState


def tenant(row: Mapping[Any, Any]) -> Tenant:
    """A row of the tenants table, or the JSON object that ``kept_tenant`` made."""
    return Tenant(
        tenant_id=row["tenant_id"],
        display_name=row["display_name"],
        incarnation=Incarnation(row["incarnation"]),
        state=TenantState(row["state"]),
        shard=row["shard"],
        space=row["space"],
        created_at=Micros(row["created_at"]),
        # Answers that an older version kept have none of these.
        forget_policy=forget_policy.from_text(row.get("forget_policy")),
        write_settings=write_settings.from_text(row.get("write_settings")),
        suspended_at=row.get("suspended_at"),
        suspension_reason=row.get("suspension_reason", ""),
        deleted_at=row.get("deleted_at"),
        purge_at=row.get("purge_at"),
        purge=receipt.from_text(row.get("purge")),
        quotas=quotas.from_text(row.get("quotas")),
        retention=retention.from_text(row.get("retention")),
        moving=bool(row.get("moving", False)),
    )


def kept_tenant(tenant: Tenant) -> dict[str, Any]:
    """A tenant as a row of its table, and as an answer keeps it."""
    named = ("tenant_id", "display_name", "incarnation", "state", "shard", "space", "created_at")
    times = ("suspended_at", "deleted_at", "purge_at")
    return {name: getattr(tenant, name) for name in (*named, *times)} | {
        "forget_policy": forget_policy.to_text(tenant.forget_policy),
        "write_settings": write_settings.to_text(tenant.write_settings),
        "suspension_reason": tenant.suspension_reason,
        "purge": receipt.to_text(tenant.purge),
        "quotas": quotas.to_text(tenant.quotas),
        "retention": retention.to_text(tenant.retention),
    }


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
        # An answer kept by an older version does not have it.
        across_subjects=row.get("across_subjects", False),
        scopes=scopes(row) if "scopes" in row else (),
    )


def credential(key: Mapping[Any, Any], its_tenant: Tenant | None) -> Credential:
    """A row of the keys table, and its tenant unless it is the platform's."""
    caller = Caller(
        role=Role(key["role"]),
        key_id=key["key_id"],
        client_id=ClientId(key["client_id"]),
        tenant=its_tenant,
        across_subjects=key["across_subjects"],
        scopes=scopes(key),
    )
    return Credential(caller, key["expires_at"])


def device(row: Mapping[Any, Any]) -> Device:
    """A row of the devices table with its tenant's id, or the JSON object that ``kept_device`` made of it."""
    return Device(
        device_id=row["device_id"],
        tenant_id=row["tenant_id"],
        client_id=ClientId(row["client_id"]),
        subject=subject(row),
        scopes=scopes(row),
        display_name=row["display_name"],
        created_at=Micros(row["created_at"]),
        seen_at=Micros(row["seen_at"]),
        revoked_at=row["revoked_at"],
        wipe=row["wipe"],
        wipe_told_at=row.get("wipe_told_at"),
    )


def kept_device(row: Mapping[Any, Any]) -> dict[str, Any]:
    """What an answer keeps of a device's row: everything but its seed and its tokens' states."""
    named = ("device_id", "tenant_id", "client_id", "subject_kind", "subject_name", "scopes", "display_name")
    stands = ("created_at", "seen_at", "revoked_at", "wipe", "wipe_told_at")
    return {name: row[name] for name in (*named, *stands)}


def kept_api_key(api_key: ApiKey) -> dict[str, Any]:
    """A key as an answer keeps it; its columns, but for whose it is and its digest."""
    return asdict(api_key) | {"scopes": json.dumps(api_key.scopes, ensure_ascii=False)}


def subject_columns(subject: Subject, scopes: tuple[str, ...]) -> dict[str, str]:
    """What enrolments and devices hold of a subject and of scopes."""
    return {
        "subject_kind": subject.kind,
        "subject_name": subject.name,
        "scopes": json.dumps(scopes, ensure_ascii=False),
    }


def subject(row: Mapping[Any, Any]) -> Subject:
    """The subject of an enrolment's or a device's row."""
    return Subject(row["subject_kind"], row["subject_name"])


def scopes(row: Mapping[Any, Any]) -> tuple[str, ...]:
    """The scopes of a key's, an enrolment's or a device's row."""
    return tuple(json.loads(row["scopes"]))


# --- reading a tenant -----------------------------------------------------------------------------


def read_tenant(connection: Connection, tenant_id: str, *, locked: bool = False) -> Tenant:
    """The tenant of this id. Raises TenantNotFound.

    Nobody else changes a ``locked`` one before the transaction ends.
    """
    found = select(tenants).where(tenants.c.tenant_id == tenant_id)
    row = connection.execute(found.with_for_update() if locked else found).mappings().first()
    if row is None:
        raise TenantNotFound(tenant_id)
    return tenant(row)


def read_usable_tenant(connection: Connection, tenant_id: str, *, locked: bool = False) -> Tenant:
    """The tenant of this id, to which keys and devices may be given.

    Raises TenantNotFound, and TenantNotActive where it was deleted.
    """
    found = read_tenant(connection, tenant_id, locked=locked)
    check_usable(found)
    return found


def tenant_of_life(connection: Connection, incarnation: Incarnation) -> Tenant:
    """The tenant of this life, which a row of another table names."""
    row = connection.execute(select(tenants).where(tenants.c.incarnation == incarnation)).mappings().one()
    return tenant(row)
