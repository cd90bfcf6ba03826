"""Tenants and keys over SQL."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from sqlalchemy import ColumnElement, Connection, Engine, delete, select, update

from scrubjay.errors import (
    CredentialInvalid,
    TenantExists,
)
from scrubjay.memory import JsonValue, Micros
from tenants import forget_policy, quotas, retention, write_settings
from tenants.credential_cache import Credential, CredentialCache
from tenants.credentials import (
    CredentialKind,
    ParsedCredential,
    key_digest,
    parse,
)
from tenants.database import migrate, open_engine
from tenants.forget_policy import ForgetPolicy
from tenants.placement import place
from tenants.quota_book import QuotaBook
from tenants.quotas import UNLIMITED, Quotas
from tenants.registry import rows
from tenants.registry.devices import Devices
from tenants.registry.enrolments import Enrolments
from tenants.registry.keys import ApiKeys, NewApiKey, Wanted
from tenants.registry.lives import Lives
from tenants.registry.once import Answer, Asked, RequestKey, once
from tenants.registry.operations import Operations
from tenants.registry.placing import Placing
from tenants.registry.reindexing import Reindexing
from tenants.registry.subjects import Subjects
from tenants.registry.tables import SCRIPTS, VERSION_TABLE, api_keys, insert_new, tenants
from tenants.registry.usage import UsageBook
from tenants.retention import DEFAULT_RETENTION, Retention
from tenants.tenant import (
    API_KEY_ROLES,
    DEVICES,
    Caller,
    Incarnation,
    Role,
    Tenant,
    TenantState,
)
from tenants.write_settings import DEFAULT_SETTINGS, WriteSettings

FIRST_TENANT_ID = "dev"


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
    quotas: Quotas = UNLIMITED
    retention: Retention = DEFAULT_RETENTION

    def columns(self) -> dict[str, str | None]:
        """The columns to write."""
        values = {
            "display_name": self.display_name,
            "forget_policy": forget_policy.to_text(self.forget_policy),
            "write_settings": write_settings.to_text(self.write_settings),
            "quotas": quotas.to_text(self.quotas),
            "retention": retention.to_text(self.retention),
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


class Registry(ApiKeys):
    """The catalogue of one deployment, safe for many threads and beside other servers'.

    ``engine`` comes from ``tenants.database``, holds migrated tables and is closed by its owner.
    ``pepper`` keys the digests: another one invalidates every key. New tenants get one of ``shard_names``
    and the embedding space ``space``; ``offered`` are all spaces, by embedder. ``entropy`` gives that many
    unpredictable bytes. Every method
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
        offered: Mapping[str, str] = MappingProxyType({}),
        cache: CredentialCache | None = None,
        entropy: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        super().__init__(engine, pepper=pepper, cache=cache or CredentialCache(), entropy=entropy)
        self._shard_names = frozenset(shard_names)
        self._space = space
        self.enrolments = Enrolments(engine, pepper=pepper, entropy=entropy, audit=self.audit)
        self.quota_book = QuotaBook(self.living)
        self.lives = Lives(engine, cache=self._cache, audit=self.audit)
        self.operations = Operations(engine, entropy=entropy, audit=self.audit)
        self.reindexing = Reindexing(engine, cache=self._cache, offered=offered)
        self.usage = UsageBook(engine)
        self.placing = Placing(engine, names=self._shard_names, cache=self._cache, audit=self.audit)
        self.subjects = Subjects(engine, cache=self._cache, audit=self.audit)
        self.devices = Devices(engine, pepper=pepper, cache=self._cache, entropy=entropy, audit=self.audit)

    # --- tenants ----------------------------------------------------------------------------------

    def create_tenant(
        self, tenant_id: str, display_name: str, *, now: Micros, request: RequestKey | None = None
    ) -> Tenant:
        """A new tenant, usable at once, of a new id or one whose tenant was purged.

        Raises TenantExists, RequestIdReused.
        """

        def create(connection: Connection) -> Answer:
            tenant = self._new_tenant(connection, tenant_id, display_name, now)
            row = rows.kept_tenant(tenant)
            purged = tenants.c.tenant_id == tenant_id, tenants.c.state == TenantState.PURGED
            connection.execute(delete(tenants).where(*purged))
            if not insert_new(connection, tenants, row):
                raise TenantExists(tenant_id)
            return row

        asked = Asked("create_tenant", tenant_id, [display_name], now, request)
        with self._engine.begin() as connection:
            return rows.tenant(once(connection, self.audit, asked, create))

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

        columns: JsonValue = {**changes.columns()}
        asked = Asked("update_tenant", tenant_id, [columns], now, request, ", ".join(sorted(changes.fields)))
        with self._engine.begin() as connection:
            changed = rows.tenant(once(connection, self.audit, asked, change))
        self._cache.forget_tenant(changed.incarnation)
        self.quota_book.forget(changed.incarnation)
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

    def retaining(self) -> list[Tenant]:
        """The tenants in use that said how long their past is kept, suspended ones too."""
        usable = tenants.c.state.in_((TenantState.ACTIVE, TenantState.SUSPENDED))
        found = select(tenants).where(tenants.c.retention.is_not(None), usable)
        with self._engine.begin() as connection:
            return [rows.tenant(row) for row in connection.execute(found).mappings()]

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

    # --- credentials ------------------------------------------------------------------------------

    def forget(self, incarnation: Incarnation) -> None:
        """Have what a tenant's credentials stand for read again, since it may lie on another shard."""
        self._cache.forget_tenant(incarnation)

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
            tenant = self._new_tenant(connection, FIRST_TENANT_ID, FIRST_TENANT_ID, now)
            if not insert_new(connection, tenants, rows.kept_tenant(tenant)):
                return None
            service = self._issue(connection, tenant, Wanted(Role.SERVICE, "first service key"), now)
            admin = self._issue(connection, None, Wanted(Role.PLATFORM_ADMIN, "first platform admin"), now)
            return FirstCredentials(self._new_api_key(*admin), tenant, self._new_api_key(*service))

    # --- parts ------------------------------------------------------------------------------------

    def _new_tenant(self, connection: Connection, tenant_id: str, display_name: str, now: Micros) -> Tenant:
        incarnation = Incarnation(str(uuid.UUID(bytes=self._entropy(16), version=4)))
        shard = place(incarnation, self.placing.open_among(connection))
        return Tenant(tenant_id, display_name, incarnation, TenantState.ACTIVE, shard, self._space, now)

    def _read_credential(self, parsed: ParsedCredential, digest: bytes, now: Micros) -> Credential | None:
        if parsed.kind is CredentialKind.ENROLMENT:
            return self.enrolments.read_credential(parsed.id, digest, now)
        if parsed.kind is CredentialKind.DEVICE:
            return self.devices.read_credential(parsed.id, parsed.generation, digest, now)
        return self.read_api_key(parsed.id, digest)


_CACHED = API_KEY_ROLES | DEVICES
"""Who is known for a while without a look at the database. What else a credential may be is soon over, or
lasts because nobody should call so."""
