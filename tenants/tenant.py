"""Values: a tenant, a key without its secret, and what a credential turns into."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from typing import NewType

from scrubjay.errors import FieldViolation
from scrubjay.memory import ClientId, Micros

Incarnation = NewType("Incarnation", str)
"""The UUID of one life of a tenant. Storage and cursors are keyed by it, never by the tenant's id."""

_TENANT_ID = re.compile(r"[a-z][a-z0-9-]{0,62}")


class TenantState(IntEnum):
    """Where a tenant stands in its life; the numbers are the contract's."""

    ACTIVE = 1


class Role(IntEnum):
    """What a key may do; the numbers are the contract's."""

    PLATFORM_ADMIN = 1
    TENANT_ADMIN = 2
    SERVICE = 3
    READER = 4


PLATFORM_ADMINS = frozenset({Role.PLATFORM_ADMIN})
"""Who may act on every tenant."""
TENANT_ADMINS = frozenset({Role.PLATFORM_ADMIN, Role.TENANT_ADMIN})
"""Who may act on one tenant: a tenant's own admins on theirs alone."""
MEMORY_READERS = frozenset({Role.SERVICE, Role.READER})
"""Who may read memories. No admin sees memory content."""
MEMORY_WRITERS = frozenset({Role.SERVICE})
"""Who may write memories."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """One customer. ``shard`` is a shard's name, ``space`` the embedding space of its vectors."""

    tenant_id: str
    display_name: str
    incarnation: Incarnation
    state: TenantState
    shard: str
    space: str
    created_at: Micros


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A credential without its secret. ``tenant_id`` is None for a platform admin's key."""

    key_id: str
    tenant_id: str | None
    display_name: str
    role: Role
    client_id: ClientId
    created_at: Micros
    expires_at: Micros | None = None
    revoked_at: Micros | None = None


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, as its credential says. ``tenant`` is None for a platform admin, and only there."""

    role: Role
    key_id: str
    client_id: ClientId
    tenant: Tenant | None


def tenant_id_violation(field_path: str, tenant_id: str) -> FieldViolation | None:
    """What is wrong with a tenant's id, if anything."""
    if not tenant_id:
        return FieldViolation(field_path, "is empty; name a tenant")
    if not _TENANT_ID.fullmatch(tenant_id):
        return FieldViolation(
            field_path,
            f"{tenant_id[:64]!r} is no tenant id; "
            "give 1 to 63 lower-case letters, digits and '-', beginning with a letter",
        )
    return None
