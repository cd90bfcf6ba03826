"""API keys over SQL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from sqlalchemy import ColumnElement, Connection, Engine, insert, select, update

from scrubjay.errors import ApiKeyNotFound, InvalidField
from scrubjay.memory import ClientId, JsonValue, Micros
from tenants.credential_cache import Credential, CredentialCache
from tenants.credentials import (
    KEY_ID_BYTES,
    SECRET_BYTES,
    derive_secret,
    key_digest,
    new_key,
    new_key_id,
    same_digest,
)
from tenants.registry import rows
from tenants.registry.audit import AuditLog
from tenants.registry.once import Answer, Asked, RequestKey, once
from tenants.registry.stocks import check_room
from tenants.registry.tables import api_keys
from tenants.tenant import ACROSS_SUBJECTS, SCOPED, ApiKey, Role, Tenant

DEFAULT_OVERLAP_SECONDS = 24 * 3600
"""How long a key that was rotated is still good: a deployment takes less."""
MAX_OVERLAP_SECONDS = 30 * 24 * 3600
"""Longer, and the old key is not being replaced."""


@dataclass(frozen=True, slots=True)
class NewApiKey:
    """A key that was just made. ``secret`` is the whole key and is stored nowhere."""

    api_key: ApiKey
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class RotatedApiKey:
    """A key in place of another, which ends when it says."""

    made: NewApiKey
    old: ApiKey


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a new key is to be; ``client_id`` is empty for its own id."""

    role: Role
    display_name: str = ""
    client_id: str = ""
    expires_at: Micros | None = None
    across_subjects: bool = False
    scopes: tuple[str, ...] = ()

    @classmethod
    def like(cls, old: ApiKey) -> Wanted:
        """One that may do what another may, as the same client and until the same end."""
        return cls(old.role, old.display_name, old.client_id, old.expires_at, old.across_subjects, old.scopes)


class ApiKeys:
    """The keys of a catalogue; a part of ``Registry``."""

    def __init__(
        self, engine: Engine, *, pepper: bytes, cache: CredentialCache, entropy: Callable[[int], bytes]
    ) -> None:
        self._engine = engine
        self._pepper = pepper
        self._cache = cache
        self._entropy = entropy
        self.audit = AuditLog(engine, pepper=pepper)

    def create_api_key(
        self,
        tenant_id: str | None,
        role: Role,
        *,
        now: Micros,
        display_name: str = "",
        client_id: str = "",
        expires_at: Micros | None = None,
        across_subjects: bool = False,
        scopes: tuple[str, ...] = (),
        request: RequestKey | None = None,
    ) -> NewApiKey:
        """A new key of a tenant, or of the platform where ``tenant_id`` is None.

        ``client_id`` defaults to the key's id; ``across_subjects`` is for roles of ACROSS_SUBJECTS alone,
        ``scopes`` for those of SCOPED. A repeat of ``request`` gives the same secret again: the request's
        record holds a seed, not the secret, and the seed goes with the record. Raises TenantNotFound,
        TenantNotActive for a deleted one, QuotaExceeded, InvalidField for an ``expires_at`` that has passed,
        RequestIdReused.
        """
        if (tenant_id is None) != (role is Role.PLATFORM_ADMIN):
            raise ValueError(f"a key of tenant {tenant_id!r} cannot have the role {role.name}")
        if across_subjects and role not in ACROSS_SUBJECTS:
            raise ValueError(f"a key of role {role.name} can't be given across_subjects")
        if scopes and role not in SCOPED:
            raise ValueError(f"a key of role {role.name} can't be kept within scopes")

        def create(connection: Connection) -> Answer:
            if expires_at is not None and expires_at <= now:
                raise InvalidField.of("expires_at", "has passed; give a later time, or none")
            tenant = None if tenant_id is None else rows.read_usable_tenant(connection, tenant_id)
            check_room(connection, tenant, "api_keys", now)
            wanted = Wanted(role, display_name, client_id, expires_at, across_subjects, scopes)
            api_key, seed = self._issue(connection, tenant, wanted, now)
            return {"api_key": rows.kept_api_key(api_key), "seed": seed.hex()}

        rest: list[JsonValue] = [role, display_name, client_id, expires_at]
        if across_subjects:  # without the grant, as an older version has it
            rest.append("across_subjects")
        if scopes:
            rest.append(list(scopes))
        asked = Asked("create_api_key", tenant_id, rest, now, request, role.name)
        with self._engine.begin() as connection:
            answer = once(connection, self.audit, asked, create)
        return self._new_api_key(rows.api_key(answer["api_key"]), bytes.fromhex(answer["seed"]))

    def list_api_keys(self, tenant_id: str | None, limit: int, after: str = "") -> list[ApiKey]:
        """At most ``limit`` keys of this tenant, or of the platform where ``tenant_id`` is None, with ids
        greater than ``after``, by id, those that have ended too. Raises TenantNotFound."""
        with self._engine.begin() as connection:
            tenant = None if tenant_id is None else rows.read_tenant(connection, tenant_id)
            life = None if tenant is None else tenant.incarnation
            theirs = select(api_keys).where(api_keys.c.incarnation == life, api_keys.c.key_id > after)
            found = connection.execute(theirs.order_by(api_keys.c.key_id).limit(limit)).mappings()
            return [rows.api_key({**row, "tenant_id": tenant_id}) for row in found]

    def rotate_api_key(
        self,
        tenant_id: str | None,
        key_id: str,
        *,
        now: Micros,
        overlap_seconds: int = DEFAULT_OVERLAP_SECONDS,
        request: RequestKey | None = None,
    ) -> RotatedApiKey:
        """A new key in place of one of this tenant, or of the platform where ``tenant_id`` is None.

        The new one may do what the old one may, as the same client and until the same end. The old one ends
        in ``overlap_seconds``, but never later than it would have. A repeat of ``request`` gives the same
        secret again. Raises TenantNotFound, TenantNotActive for a deleted one, ApiKeyNotFound,
        QuotaExceeded, InvalidField for a key that has ended, RequestIdReused.
        """

        def rotate(connection: Connection) -> Answer:
            ends = Micros(now + overlap_seconds * 1_000_000)
            tenant = None if tenant_id is None else rows.read_usable_tenant(connection, tenant_id)
            key = _key(key_id, tenant)
            row = connection.execute(select(api_keys).where(*key).with_for_update()).mappings().first()
            if row is None:
                raise ApiKeyNotFound(key_id)
            old = rows.api_key({**row, "tenant_id": tenant_id})
            if old.has_ended(now):
                raise InvalidField.of("key_id", "has ended; make a new key")
            check_room(connection, tenant, "api_keys", now)
            api_key, seed = self._issue(connection, tenant, Wanted.like(old), now)
            ended = replace(old, expires_at=ends if old.expires_at is None else min(ends, old.expires_at))
            connection.execute(update(api_keys).where(*key).values(expires_at=ended.expires_at))
            return {
                "api_key": rows.kept_api_key(api_key),
                "seed": seed.hex(),
                "old": rows.kept_api_key(ended),
                "old_digest": row["digest"].hex(),
            }

        asked = Asked("rotate_api_key", tenant_id, [key_id, overlap_seconds], now, request)
        with self._engine.begin() as connection:
            answer = once(connection, self.audit, asked, rotate)
        self._cache.forget(bytes.fromhex(answer["old_digest"]))
        made = self._new_api_key(rows.api_key(answer["api_key"]), bytes.fromhex(answer["seed"]))
        return RotatedApiKey(made, rows.api_key(answer["old"]))

    def revoke_api_key(
        self, tenant_id: str | None, key_id: str, *, now: Micros, request: RequestKey | None = None
    ) -> ApiKey:
        """End a key of this tenant, or of the platform where ``tenant_id`` is None.

        Refused by this process when this returns, by others within the cache's seconds. A key that was
        revoked before keeps its time. Raises TenantNotFound, ApiKeyNotFound, RequestIdReused.
        """

        def revoke(connection: Connection) -> Answer:
            tenant = None if tenant_id is None else rows.read_tenant(connection, tenant_id)
            key = _key(key_id, tenant)
            connection.execute(
                update(api_keys).where(*key, api_keys.c.revoked_at.is_(None)).values(revoked_at=now)
            )
            row = connection.execute(select(api_keys).where(*key)).mappings().first()
            if row is None:
                raise ApiKeyNotFound(key_id)
            return {
                "api_key": rows.kept_api_key(rows.api_key({**row, "tenant_id": tenant_id})),
                "digest": row["digest"].hex(),
            }

        asked = Asked("revoke_api_key", tenant_id, [key_id], now, request)
        with self._engine.begin() as connection:
            answer = once(connection, self.audit, asked, revoke)
        self._cache.forget(bytes.fromhex(answer["digest"]))
        return rows.api_key(answer["api_key"])

    def read_api_key(self, key_id: str, digest: bytes) -> Credential | None:
        """Who calls with a key of this digest; None where it is unknown or revoked."""
        with self._engine.begin() as connection:
            key = connection.execute(select(api_keys).where(api_keys.c.key_id == key_id)).mappings().first()
            if key is None or not same_digest(key["digest"], digest) or key["revoked_at"] is not None:
                return None
            life = key["incarnation"]
            return rows.credential(key, None if life is None else rows.tenant_of_life(connection, life))

    # --- parts ------------------------------------------------------------------------------------

    def _issue(
        self, connection: Connection, tenant: Tenant | None, wanted: Wanted, now: Micros
    ) -> tuple[ApiKey, bytes]:
        """Insert a new key; returns it and the seed of its secret."""
        key_id = new_key_id(self._entropy(KEY_ID_BYTES))
        tenant_id = None if tenant is None else tenant.tenant_id
        api_key = ApiKey(
            key_id,
            tenant_id,
            wanted.display_name,
            wanted.role,
            ClientId(wanted.client_id or key_id),
            now,
            wanted.expires_at,
            across_subjects=wanted.across_subjects,
            scopes=wanted.scopes,
        )
        seed = self._entropy(SECRET_BYTES)
        row = rows.kept_api_key(api_key) | {
            "incarnation": None if tenant is None else tenant.incarnation,
            "digest": key_digest(self._pepper, self._new_api_key(api_key, seed).secret),
        }
        del row["tenant_id"]
        connection.execute(insert(api_keys).values(row))
        return api_key, seed

    def _new_api_key(self, api_key: ApiKey, seed: bytes) -> NewApiKey:
        secret = derive_secret(self._pepper, seed, api_key.key_id)
        return NewApiKey(api_key, new_key(api_key.key_id, secret))


def _key(key_id: str, tenant: Tenant | None) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    """A key by its id within one tenant, or among the platform's."""
    incarnation = None if tenant is None else tenant.incarnation
    return api_keys.c.key_id == key_id, api_keys.c.incarnation == incarnation
