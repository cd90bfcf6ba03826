"""Tenants and keys over SQL."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field

from sqlalchemy import ColumnElement, Connection, Engine, delete, insert, select, update

from scrubjay.errors import (
    ApiKeyNotFound,
    CredentialInvalid,
    InvalidField,
    TenantExists,
)
from scrubjay.memory import ClientId, JsonValue, Micros
from tenants import forget_policy, write_settings
from tenants.credential_cache import Credential, CredentialCache
from tenants.credentials import (
    KEY_ID_BYTES,
    SECRET_BYTES,
    CredentialKind,
    ParsedCredential,
    derive_secret,
    key_digest,
    new_key,
    new_key_id,
    parse,
    same_digest,
)
from tenants.database import migrate, open_engine
from tenants.forget_policy import ForgetPolicy
from tenants.placement import place
from tenants.registry import rows
from tenants.registry.devices import Devices
from tenants.registry.enrolments import Enrolments
from tenants.registry.lives import Lives
from tenants.registry.once import Answer, RequestKey, once
from tenants.registry.tables import SCRIPTS, VERSION_TABLE, api_keys, insert_new, tenants
from tenants.tenant import (
    ACROSS_SUBJECTS,
    API_KEY_ROLES,
    DEVICES,
    ApiKey,
    Caller,
    Incarnation,
    Role,
    Tenant,
    TenantState,
)
from tenants.write_settings import DEFAULT_SETTINGS, WriteSettings

FIRST_TENANT_ID = "dev"


@dataclass(frozen=True, slots=True)
class NewApiKey:
    """A key that was just made. ``secret`` is the whole key and is stored nowhere."""

    api_key: ApiKey
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class FirstCredentials:
    """What a new catalogue is opened with: a platform admin's key, and a tenant with a service key."""

    admin: NewApiKey
    tenant: Tenant
    service: NewApiKey


@dataclass(frozen=True, slots=True)
class TenantChanges:
    """What to write of a tenant: a field that ``fields`` does not name stays as it is."""

    fields: frozenset[str]
    display_name: str = ""
    forget_policy: ForgetPolicy | None = None
    write_settings: WriteSettings = DEFAULT_SETTINGS

    def columns(self) -> dict[str, str | None]:
        """The columns to write."""
        values = {
            "display_name": self.display_name,
            "forget_policy": forget_policy.to_text(self.forget_policy),
            "write_settings": write_settings.to_text(self.write_settings),
        }
        return {name: value for name, value in values.items() if name in self.fields}


def open_catalogue(url: str) -> Engine:
    """The catalogue's database with this version's tables; its caller disposes of it."""
    engine = open_engine(url)
    try:
        migrate(engine, SCRIPTS, VERSION_TABLE)
    except BaseException:
        engine.dispose()
        raise
    return engine


class Registry:
    """The catalogue of one deployment, safe for many threads and beside other servers'.

    ``engine`` comes from ``tenants.database``, holds migrated tables and is closed by its owner.
    ``pepper`` keys the digests: another one invalidates every key. New tenants get one of ``shard_names``
    and the embedding space ``space``. ``entropy`` gives that many unpredictable bytes. Every method
    raises StorageUnavailable where the database does not answer; so do those of ``lives``, ``enrolments``
    and ``devices``, which are the same catalogue's.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        pepper: bytes,
        shard_names: Iterable[str],
        space: str,
        cache: CredentialCache | None = None,
        entropy: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self._engine = engine
        self._pepper = pepper
        self._shard_names = frozenset(shard_names)
        self._space = space
        self._cache = cache or CredentialCache()
        self._entropy = entropy
        self.enrolments = Enrolments(engine, pepper=pepper, entropy=entropy)
        self.lives = Lives(engine, cache=self._cache)
        self.devices = Devices(engine, pepper=pepper, cache=self._cache, entropy=entropy)

    # --- tenants ----------------------------------------------------------------------------------

    def create_tenant(
        self, tenant_id: str, display_name: str, *, now: Micros, request: RequestKey | None = None
    ) -> Tenant:
        """A new tenant, usable at once, of a new id or one whose tenant was purged.

        Raises TenantExists, RequestIdReused.
        """

        def create(connection: Connection) -> Answer:
            tenant = self._new_tenant(tenant_id, display_name, now)
            row = rows.kept_tenant(tenant)
            purged = tenants.c.tenant_id == tenant_id, tenants.c.state == TenantState.PURGED
            connection.execute(delete(tenants).where(*purged))
            if not insert_new(connection, tenants, row):
                raise TenantExists(tenant_id)
            return row

        body: list[JsonValue] = ["create_tenant", tenant_id, display_name]
        with self._engine.begin() as connection:
            return rows.tenant(once(connection, request, body, now, create))

    def update_tenant(
        self, tenant_id: str, changes: TenantChanges, *, now: Micros, request: RequestKey | None = None
    ) -> Tenant:
        """Write what ``changes`` names. Raises TenantNotFound, RequestIdReused.

        Calls go by it when this returns, on other servers within the cache's seconds; a sweep that begins
        after this returns, on every server.
        """

        def change(connection: Connection) -> Answer:
            values = changes.columns()
            connection.execute(update(tenants).where(tenants.c.tenant_id == tenant_id).values(values))
            return rows.kept_tenant(rows.read_tenant(connection, tenant_id))

        body: list[JsonValue] = ["update_tenant", tenant_id, changes.columns()]
        with self._engine.begin() as connection:
            changed = rows.tenant(once(connection, request, body, now, change))
        self._cache.forget_tenant(changed.incarnation)
        return changed

    def get_tenant(self, tenant_id: str) -> Tenant:
        """The tenant of this id. Raises TenantNotFound."""
        with self._engine.begin() as connection:
            return rows.read_tenant(connection, tenant_id)

    def current(self, tenant: Tenant) -> Tenant:
        """The tenant as it is now. Raises TenantNotFound."""
        return self.get_tenant(tenant.tenant_id)

    def living(self, incarnation: Incarnation) -> Tenant | None:
        """The tenant whose life this is, as it is now; None where that is over."""
        one = select(tenants).where(
            tenants.c.incarnation == incarnation, tenants.c.state != TenantState.PURGED
        )
        with self._engine.begin() as connection:
            row = connection.execute(one).mappings().first()
            return None if row is None else rows.tenant(row)

    def list_tenants(self, limit: int, after: str = "") -> list[Tenant]:
        """At most ``limit`` tenants with ids greater than ``after``, by id in byte order."""
        page = select(tenants).where(tenants.c.tenant_id > after).order_by(tenants.c.tenant_id).limit(limit)
        with self._engine.begin() as connection:
            return [rows.tenant(row) for row in connection.execute(page).mappings()]

    def every_tenant(self) -> Iterator[Tenant]:
        """All tenants by id, each as it is when it is its turn."""
        after = ""
        while found := self.list_tenants(1, after):
            yield from found
            after = found[-1].tenant_id

    def spaces(self) -> frozenset[str]:
        """The embedding spaces that tenants' vectors live in."""
        return self._of_living(tenants.c.space)

    def shards(self) -> frozenset[str]:
        """The names of the shards that tenants' memories lie on."""
        return self._of_living(tenants.c.shard)

    def _of_living(self, column: ColumnElement[str]) -> frozenset[str]:
        found = select(column).where(tenants.c.state != TenantState.PURGED).distinct()
        with self._engine.begin() as connection:
            return frozenset(connection.execute(found).scalars())

    # --- keys -------------------------------------------------------------------------------------

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
        request: RequestKey | None = None,
    ) -> NewApiKey:
        """A new key of a tenant, or of the platform where ``tenant_id`` is None.

        ``client_id`` defaults to the key's id; ``across_subjects`` is for roles of ACROSS_SUBJECTS alone. A
        repeat of ``request`` gives the same secret again: the request's record holds a seed, not the secret,
        and the seed goes with the record. Raises TenantNotFound, TenantNotActive for a deleted one,
        InvalidField for an ``expires_at`` that has passed, RequestIdReused.
        """
        if (tenant_id is None) != (role is Role.PLATFORM_ADMIN):
            raise ValueError(f"a key of tenant {tenant_id!r} cannot have the role {role.name}")
        if across_subjects and role not in ACROSS_SUBJECTS:
            raise ValueError(f"a key of role {role.name} can't be given across_subjects")

        def create(connection: Connection) -> Answer:
            if expires_at is not None and expires_at <= now:
                raise InvalidField.of("expires_at", "has passed; give a later time, or none")
            tenant = None if tenant_id is None else rows.read_usable_tenant(connection, tenant_id)
            api_key, seed = self._issue(
                connection, tenant, role, display_name, client_id, now, expires_at, across_subjects
            )
            return {"api_key": asdict(api_key), "seed": seed.hex()}

        body: list[JsonValue] = ["create_api_key", tenant_id, role, display_name, client_id, expires_at]
        if across_subjects:  # without the grant, as an older version has it
            body.append("across_subjects")
        with self._engine.begin() as connection:
            answer = once(connection, request, body, now, create)
        return self._new_api_key(rows.api_key(answer["api_key"]), bytes.fromhex(answer["seed"]))

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
                "api_key": asdict(rows.api_key({**row, "tenant_id": tenant_id})),
                "digest": row["digest"].hex(),
            }

        body: list[JsonValue] = ["revoke_api_key", tenant_id, key_id]
        with self._engine.begin() as connection:
            answer = once(connection, request, body, now, revoke)
        self._cache.forget(bytes.fromhex(answer["digest"]))
        return rows.api_key(answer["api_key"])

    def authenticate(self, key: str, now: Micros) -> Caller:
        """Who calls with this API key, enrolment code or device's token.

        A token that has expired and one of a revoked device still name their callers, in roles of their own.
        Raises CredentialInvalid, one and the same for every other reason.
        """
        parsed = parse(key)
        if parsed is None:
            raise CredentialInvalid
        digest = key_digest(self._pepper, key)
        known, credential = self._cache.get(digest, now)
        if not known or (credential is not None and not credential.is_valid(now)):
            moment = self._cache.moment()
            credential = self._read_credential(parsed, digest, now)
            if credential is None or credential.caller.role in _CACHED:
                self._cache.put(digest, credential, now, moment)
        if credential is None or not credential.is_valid(now):
            raise CredentialInvalid
        return credential.caller

    def bootstrap(self, now: Micros) -> FirstCredentials | None:
        """The first credentials of an empty catalogue, once and for one server; else None."""
        with self._engine.begin() as connection:
            for table in (tenants, api_keys):
                if connection.execute(select(*table.primary_key).limit(1)).first() is not None:
                    return None
            tenant = self._new_tenant(FIRST_TENANT_ID, FIRST_TENANT_ID, now)
            if not insert_new(connection, tenants, rows.kept_tenant(tenant)):
                return None
            service = self._issue(connection, tenant, Role.SERVICE, "first service key", "", now, None)
            admin = self._issue(connection, None, Role.PLATFORM_ADMIN, "first platform admin", "", now, None)
            return FirstCredentials(self._new_api_key(*admin), tenant, self._new_api_key(*service))

    # --- parts ------------------------------------------------------------------------------------

    def _new_tenant(self, tenant_id: str, display_name: str, now: Micros) -> Tenant:
        incarnation = Incarnation(str(uuid.UUID(bytes=self._entropy(16), version=4)))
        shard = place(incarnation, self._shard_names)
        return Tenant(tenant_id, display_name, incarnation, TenantState.ACTIVE, shard, self._space, now)

    def _issue(
        self,
        connection: Connection,
        tenant: Tenant | None,
        role: Role,
        display_name: str,
        client_id: str,
        now: Micros,
        expires_at: Micros | None,
        across_subjects: bool = False,
    ) -> tuple[ApiKey, bytes]:
        """Insert a new key; returns it and the seed of its secret."""
        key_id = new_key_id(self._entropy(KEY_ID_BYTES))
        tenant_id = None if tenant is None else tenant.tenant_id
        client = ClientId(client_id or key_id)
        api_key = ApiKey(
            key_id,
            tenant_id,
            display_name,
            role,
            client,
            now,
            expires_at,
            across_subjects=across_subjects,
        )
        seed = self._entropy(SECRET_BYTES)
        row = asdict(api_key) | {
            "incarnation": None if tenant is None else tenant.incarnation,
            "digest": key_digest(self._pepper, self._new_api_key(api_key, seed).secret),
        }
        del row["tenant_id"]
        connection.execute(insert(api_keys).values(row))
        return api_key, seed

    def _new_api_key(self, api_key: ApiKey, seed: bytes) -> NewApiKey:
        secret = derive_secret(self._pepper, seed, api_key.key_id)
        return NewApiKey(api_key, new_key(api_key.key_id, secret))

    def _read_credential(self, parsed: ParsedCredential, digest: bytes, now: Micros) -> Credential | None:
        if parsed.kind is CredentialKind.ENROLMENT:
            return self.enrolments.read_credential(parsed.id, digest, now)
        if parsed.kind is CredentialKind.DEVICE:
            return self.devices.read_credential(parsed.id, parsed.generation, digest, now)
        return self._read_api_key(parsed.id, digest)

    def _read_api_key(self, key_id: str, digest: bytes) -> Credential | None:
        with self._engine.begin() as connection:
            key = connection.execute(select(api_keys).where(api_keys.c.key_id == key_id)).mappings().first()
            if key is None or not same_digest(key["digest"], digest) or key["revoked_at"] is not None:
                return None
            life = key["incarnation"]
            return rows.credential(key, None if life is None else rows.tenant_of_life(connection, life))


_CACHED = API_KEY_ROLES | DEVICES
"""Who is known for a while without a look at the database. What else a credential may be is soon over, or
lasts because nobody should call so."""


def _key(key_id: str, tenant: Tenant | None) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    """A key by its id within one tenant, or among the platform's."""
    incarnation = None if tenant is None else tenant.incarnation
    return api_keys.c.key_id == key_id, api_keys.c.incarnation == incarnation
