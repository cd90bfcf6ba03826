"""Values: a tenant, a key without its secret, and what a credential turns into."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NewType

from scrubjay.errors import FieldViolation
from scrubjay.memory import ClientId, Micros, Subject, Viewer
from tenants.forget_policy import ForgetPolicy
from tenants.quotas import UNLIMITED, Quotas
from tenants.receipt import PurgeReceipt
from tenants.retention import DEFAULT_RETENTION, Retention
from tenants.write_settings import DEFAULT_SETTINGS, WriteSettings

Incarnation = NewType("Incarnation", str)
"""The UUID of one life of a tenant. Storage and cursors are keyed by it, never by the tenant's id."""

_TENANT_ID = re.compile(r"[a-z][a-z0-9-]{0,62}")


class TenantState(IntEnum):
    """Where a tenant stands in its life; the numbers are the contract's."""

    ACTIVE = 1
    SUSPENDED = 2
    DELETING = 3
    PURGED = 4


class Role(IntEnum):
    """What a credential may do; the numbers are the contract's, those above 100 this program's own."""

    PLATFORM_ADMIN = 1
    TENANT_ADMIN = 2
    SERVICE = 3
    READER = 4
    DEVICE = 5
    ENROLMENT = 101
    EXPIRED_DEVICE = 102
    REVOKED_DEVICE = 103


API_KEY_ROLES = frozenset({Role.PLATFORM_ADMIN, Role.TENANT_ADMIN, Role.SERVICE, Role.READER})
"""What an API key may be. The others come from an enrolment, and their client with them."""
PLATFORM_ADMINS = frozenset({Role.PLATFORM_ADMIN})
"""Who may act on every tenant."""
TENANT_ADMINS = frozenset({Role.PLATFORM_ADMIN, Role.TENANT_ADMIN})
"""Who may act on one tenant: a tenant's own admins on theirs alone."""
OWN_ADMINS = frozenset({Role.TENANT_ADMIN})
"""Who may have all content of a tenant in one piece, or put it there: its own admins alone."""
MEMORY_READERS = frozenset({Role.SERVICE, Role.READER})
"""Who may read memories. No admin sees memory content."""
ACROSS_SUBJECTS = frozenset({Role.SERVICE, Role.READER})
"""Whose keys may be given the grant to search across a tenant's subjects."""
SCOPED = frozenset({Role.SERVICE, Role.READER})
"""Whose keys may be kept within scopes."""
MEMORY_WRITERS = frozenset({Role.SERVICE})
"""Who may write memories."""
DEVICES = frozenset({Role.DEVICE})
"""Who may sync one subject's memories."""

PRINCIPAL_BYTES = 8


@dataclass(frozen=True, slots=True)
class Tenant:
    """One customer. ``shard`` is a shard's name, ``space`` the embedding space of its vectors.

    ``forget_policy`` is None where it never said what it forgets. ``suspended_at`` stays through a deletion,
    and so tells what an undeletion leads back to; ``purge`` is set once the purge has begun. ``moving``: it
    may leave its shard at any time, or has left one shortly before.
    """

    tenant_id: str
    display_name: str
    incarnation: Incarnation
    state: TenantState
    shard: str
    space: str
    created_at: Micros
    forget_policy: ForgetPolicy | None = None
    write_settings: WriteSettings = DEFAULT_SETTINGS
    suspended_at: Micros | None = None
    suspension_reason: str = ""
    deleted_at: Micros | None = None
    purge_at: Micros | None = None
    purge: PurgeReceipt | None = None
    quotas: Quotas = UNLIMITED
    retention: Retention = DEFAULT_RETENTION
    moving: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A credential without its secret. ``tenant_id`` is None for a platform admin's key.

    ``across_subjects`` lets it search all subjects of its tenant at once. With ``scopes`` it reaches the
    memories within these alone.
    """

    key_id: str
    tenant_id: str | None
    display_name: str
    role: Role
    client_id: ClientId
    created_at: Micros
    expires_at: Micros | None = None
    revoked_at: Micros | None = None
    across_subjects: bool = False
    scopes: tuple[str, ...] = ()

    def has_ended(self, now: Micros) -> bool:
        """Whether nobody is let in with it any more."""
        return self.revoked_at is not None or (self.expires_at is not None and self.expires_at <= now)


@dataclass(frozen=True, slots=True)
class Device:
    """A place of use that syncs one subject's memories. Without scopes, it sees all of them.

    ``seen_at`` is when it last took a new token. ``wipe`` tells a revoked one to delete what it holds, and
    ``wipe_told_at`` is when that came to it first.
    """

    device_id: str
    tenant_id: str
    client_id: ClientId
    subject: Subject
    scopes: tuple[str, ...]
    display_name: str
    created_at: Micros
    seen_at: Micros
    revoked_at: Micros | None = None
    wipe: bool = False
    wipe_told_at: Micros | None = None


@dataclass(frozen=True, slots=True)
class DeviceBinding:
    """What a device's token is bound to beside its client. Without scopes, it sees all of the subject's.

    ``generation`` is the token's place among the device's tokens, from 1.
    """

    device_id: str
    subject: Subject
    scopes: tuple[str, ...] = ()
    generation: int = 0


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, as its credential says. ``tenant`` is None for a platform admin, and only there.

    ``device`` is set for a device in any state. ``wiped`` says of a revoked one that it must delete what
    it holds. ``across_subjects``: may search all subjects of the tenant at once. ``scopes`` are those of an
    API key, which reaches the memories within these alone; empty: all.
    """

    role: Role
    key_id: str
    client_id: ClientId
    tenant: Tenant | None
    device: DeviceBinding | None = None
    wiped: bool = False
    across_subjects: bool = False
    scopes: tuple[str, ...] = ()

    @property
    def viewer(self) -> Viewer:
        """For whom a memory exists or not, where an API key calls."""
        return Viewer(self.client_id, self.scopes)


def principal(incarnation: Incarnation, subject: Subject, client_id: ClientId) -> bytes:
    """``PRINCIPAL_BYTES`` bytes that name tenant, subject and client together.

    A replica keeps them, so that its queue is never sent under another principal.
    """
    named = f"{incarnation}\0{subject.key}\0{client_id}"
    return hashlib.sha256(named.encode()).digest()[:PRINCIPAL_BYTES]


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
