"""The catalogue, on SQLite and on PostgreSQL."""

from __future__ import annotations

import hashlib
import json
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from typing import Any, TypeVar

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Engine, event, func, insert, select

from scrubjay.errors import (
    ApiKeyNotFound,
    CredentialInvalid,
    InvalidField,
    RequestIdReused,
    ScrubjayError,
    TenantExists,
    TenantNotFound,
)
from scrubjay.memory import ClientId, Micros, canonical_json
from tenants.credential_cache import Credential, CredentialCache
from tenants.credentials import KEY_ID_BYTES, SECRET_BYTES, new_key, new_key_id
from tenants.database import migrate, open_engine
from tenants.placement import place
from tenants.registry import SCRIPTS, VERSION_TABLE, NewApiKey, Registry, RequestKey, TenantChanges
from tenants.registry.rows import kept_tenant
from tenants.registry.tables import api_keys, metadata, requests, tenants
from tenants.tenant import Caller, Incarnation, Role, TenantState

NOW = Micros(1_796_000_000_000_000)
PEPPER = b"p" * 32
SHARDS = ("shard-0", "shard-1", "shard-2", "shard-3")
REQUEST = RequestKey("11111111-2222-3333-4444-555555555555")

Result = TypeVar("Result")


def later(seconds: float) -> Micros:
    return Micros(NOW + int(seconds * 1_000_000))


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = open_engine(database_url, connections=8)
    migrate(engine, SCRIPTS, VERSION_TABLE)
    yield engine
    engine.dispose()


@pytest.fixture
def open_registry(engine: Engine) -> Callable[..., Registry]:
    def open_registry(**options: Any) -> Registry:
        given = {"pepper": PEPPER, "shard_names": SHARDS, "space": "lite-1/512", **options}
        return Registry(engine, **given)

    return open_registry


@pytest.fixture
def registry(open_registry: Callable[..., Registry]) -> Registry:
    return open_registry()


@pytest.fixture
def acme_key(registry: Registry) -> NewApiKey:
    registry.create_tenant("acme", "Acme", now=NOW)
    return registry.create_api_key("acme", Role.SERVICE, now=NOW, client_id="backend")


@pytest.fixture
def statements(engine: Engine) -> list[str]:
    """The selects that ran."""
    seen: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        if statement.startswith("SELECT"):
            seen.append(statement)

    event.listen(engine, "before_cursor_execute", note)
    return seen


def at_once(count: int, call: Callable[[], Result]) -> list[Result | ScrubjayError]:
    """The results of ``count`` threads that call at one moment; errors of ours are results too."""
    start = threading.Barrier(count)

    def run() -> Result | ScrubjayError:
        start.wait(10)
        try:
            return call()
        except ScrubjayError as error:
            return error

    with ThreadPoolExecutor(count) as pool:
        return [future.result() for future in [pool.submit(run) for _ in range(count)]]


def row_count(engine: Engine, table: Any) -> int:
    with engine.connect() as connection:
        return connection.execute(select(func.count()).select_from(table)).scalar_one()


# --- tables ---------------------------------------------------------------------------------------


def test_the_migrations_make_the_tables_of_the_code_and_no_others(engine: Engine) -> None:
    migrate(engine, SCRIPTS, VERSION_TABLE)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
        assert compare_metadata(context, metadata) == []
    assert all(name.startswith("catalogue_") for name in metadata.tables)


# --- tenants --------------------------------------------------------------------------------------


def test_a_tenant_is_usable_at_once(registry: Registry) -> None:
    made = registry.create_tenant("acme", "Acme & Söhne", now=NOW)
    assert registry.get_tenant("acme") == made
    assert registry.list_tenants(10) == [made]
    assert registry.spaces() == {"lite-1/512"}
    assert (made.tenant_id, made.display_name, made.created_at) == ("acme", "Acme & Söhne", NOW)
    assert made.state is TenantState.ACTIVE
    assert made.shard == place(made.incarnation, SHARDS)


def test_an_id_names_one_tenant(registry: Registry) -> None:
    made = registry.create_tenant("acme", "Acme", now=NOW)
    with pytest.raises(TenantExists):
        registry.create_tenant("acme", "Another", now=NOW)
    with pytest.raises(TenantNotFound):
        registry.get_tenant("acme-2")
    assert registry.list_tenants(10) == [made]


def test_every_tenant_has_an_incarnation_of_its_own(registry: Registry) -> None:
    made = [registry.create_tenant(f"t{n}", "", now=NOW) for n in range(8)]
    assert len({tenant.incarnation for tenant in made}) == 8


def test_spaces_are_those_in_use(open_registry: Callable[..., Registry]) -> None:
    assert open_registry().spaces() == frozenset()
    open_registry(space="lite-1/512").create_tenant("one", "", now=NOW)
    open_registry(space="e5-1/384").create_tenant("two", "", now=NOW)
    assert open_registry().spaces() == {"lite-1/512", "e5-1/384"}


def test_pages_over_a_thousand_tenants_stay_exact_while_others_are_made(
    registry: Registry, engine: Engine
) -> None:
    source = random.Random(5)
    ids = ["".join(source.choices("ab-9", k=12)) for _ in range(1_100)]
    ids = [f"t{text}" for text in dict.fromkeys(ids)][:1_000]
    like = registry.create_tenant("a", "", now=NOW)
    with engine.begin() as connection:
        rows = [replace(like, tenant_id=each, incarnation=Incarnation(f"life of {each}")) for each in ids]
        connection.execute(insert(tenants), [kept_tenant(row) for row in rows])

    found = ["a"]
    while page := registry.list_tenants(97, found[-1]):
        found += [tenant.tenant_id for tenant in page]
        if found[-1] < "u":  # one behind the reader, one before it
            registry.create_tenant(f"b-{len(found)}", "", now=NOW)
            registry.create_tenant(f"u-{len(found):04}", "", now=NOW)
    assert [tenant_id for tenant_id in found if tenant_id.startswith("t")] == sorted(ids)
    assert found == sorted(set(found))
    assert len(ids) == 1_000
    assert found[-1] == "u-0971"


# --- requests that come twice ---------------------------------------------------------------------


def test_a_walk_over_all_tenants_sees_each_as_it_is_when_it_is_its_turn(registry: Registry) -> None:
    for tenant_id in ("a", "b", "c"):
        registry.create_tenant(tenant_id, tenant_id, now=NOW)
    walk = registry.every_tenant()
    assert next(walk).tenant_id == "a"
    registry.update_tenant("b", TenantChanges(frozenset({"display_name"}), "B"), now=NOW)
    assert [tenant.display_name for tenant in walk] == ["B", "c"]


def test_sixteen_equal_requests_make_one_tenant_and_get_one_answer(registry: Registry) -> None:
    answers = at_once(16, lambda: registry.create_tenant("acme", "Acme", now=NOW, request=REQUEST))
    assert answers == [registry.get_tenant("acme")] * 16


def test_sixteen_requests_without_an_id_make_one_tenant_and_fifteen_errors(registry: Registry) -> None:
    answers = at_once(16, lambda: registry.create_tenant("acme", "Acme", now=NOW))
    assert sum(isinstance(answer, TenantExists) for answer in answers) == 15
    assert registry.get_tenant("acme") in answers


def test_sixteen_equal_requests_make_one_key_with_one_secret(registry: Registry, engine: Engine) -> None:
    registry.create_tenant("acme", "Acme", now=NOW)
    answers = at_once(16, lambda: registry.create_api_key("acme", Role.SERVICE, now=NOW, request=REQUEST))
    assert isinstance(answers[0], NewApiKey)
    assert answers == [answers[0]] * 16
    assert registry.authenticate(answers[0].secret, NOW).key_id == answers[0].api_key.key_id
    assert row_count(engine, api_keys) == 1


def test_requests_without_an_id_make_a_key_each(registry: Registry) -> None:
    registry.create_tenant("acme", "Acme", now=NOW)
    made = [registry.create_api_key("acme", Role.SERVICE, now=NOW) for _ in range(2)]
    assert made[0].secret != made[1].secret


@pytest.mark.parametrize(
    "other",
    [
        lambda registry: registry.create_tenant("acme", "Another", now=NOW, request=REQUEST),
        lambda registry: registry.create_tenant("acme-2", "Acme", now=NOW, request=REQUEST),
        lambda registry: registry.create_api_key("acme", Role.READER, now=NOW, request=REQUEST),
        lambda registry: registry.revoke_api_key("acme", "x", now=NOW, request=REQUEST),
    ],
    ids=["another name", "another id", "another method", "a third method"],
)
def test_a_request_id_with_another_body_is_refused(
    registry: Registry, other: Callable[[Registry], object]
) -> None:
    made = registry.create_tenant("acme", "Acme", now=NOW, request=REQUEST)
    with pytest.raises(RequestIdReused):
        other(registry)
    assert registry.list_tenants(10) == [made]


@pytest.mark.parametrize(
    "change",
    [
        {"role": Role.READER},
        {"display_name": "x"},
        {"client_id": "x"},
        {"expires_at": later(9)},
        {"tenant_id": "b"},
        {"across_subjects": True},
    ],
)
def test_every_part_of_a_key_belongs_to_the_body(registry: Registry, change: dict[str, Any]) -> None:
    registry.create_tenant("acme", "", now=NOW)
    registry.create_tenant("b", "", now=NOW)
    asked: dict[str, Any] = {"tenant_id": "acme", "role": Role.SERVICE, "now": NOW, "request": REQUEST}
    registry.create_api_key(**asked)
    with pytest.raises(RequestIdReused):
        registry.create_api_key(**{**asked, **change})


def test_one_tenants_request_ids_never_meet_anothers(registry: Registry) -> None:
    one = registry.create_tenant("acme", "", now=NOW, request=REQUEST)
    other = registry.create_tenant("b", "", now=NOW, request=replace(REQUEST, scope=one.incarnation))
    assert registry.list_tenants(10) == [one, other]


def test_a_request_id_is_kept_for_a_day(registry: Registry, acme_key: NewApiKey) -> None:
    first = registry.create_api_key("acme", Role.SERVICE, now=NOW, request=REQUEST)
    day = 24 * 3600
    again = registry.create_api_key("acme", Role.SERVICE, now=later(day - 1), request=REQUEST)
    assert again == first
    another = registry.create_api_key("acme", Role.SERVICE, now=later(day), request=REQUEST)
    assert another.api_key.key_id != first.api_key.key_id
    assert another.secret != first.secret


def test_the_first_answer_stays_what_it_was(registry: Registry, acme_key: NewApiKey) -> None:
    first = registry.create_api_key("acme", Role.SERVICE, now=NOW, request=REQUEST)
    registry.revoke_api_key("acme", first.api_key.key_id, now=NOW)
    assert registry.create_api_key("acme", Role.SERVICE, now=later(1), request=REQUEST) == first


def test_an_answer_that_an_older_version_kept_is_given_again(
    registry: Registry, engine: Engine, acme_key: NewApiKey
) -> None:
    asked = ["create_api_key", "acme", Role.SERVICE, "", "", None]
    kept = asdict(acme_key.api_key)
    del kept["across_subjects"], kept["scopes"]
    row = {
        "scope": "",
        "request_id": REQUEST.request_id,
        "digest": hashlib.sha256(canonical_json(asked).encode()).digest(),
        "answer": json.dumps({"api_key": kept, "seed": bytes(SECRET_BYTES).hex()}),
        "created_at": NOW,
    }
    with engine.begin() as connection:
        connection.execute(insert(requests).values(row))
    again = registry.create_api_key("acme", Role.SERVICE, now=later(1), request=REQUEST)
    assert again.api_key == acme_key.api_key


def test_a_request_that_failed_is_tried_anew(registry: Registry) -> None:
    with pytest.raises(TenantNotFound):
        registry.create_api_key("acme", Role.SERVICE, now=NOW, request=REQUEST)
    registry.create_tenant("acme", "", now=NOW)
    assert registry.create_api_key("acme", Role.SERVICE, now=NOW, request=REQUEST).secret


# --- keys -----------------------------------------------------------------------------------------


def test_a_key_turns_into_its_caller(registry: Registry, acme_key: NewApiKey) -> None:
    caller = registry.authenticate(acme_key.secret, NOW)
    assert caller == Caller(
        Role.SERVICE, acme_key.api_key.key_id, ClientId("backend"), registry.get_tenant("acme")
    )
    assert registry.authenticate(acme_key.secret, NOW) == caller


def test_a_key_searches_across_subjects_where_it_was_given_that(
    registry: Registry, acme_key: NewApiKey
) -> None:
    made = registry.create_api_key("acme", Role.READER, now=NOW, across_subjects=True)
    assert registry.authenticate(made.secret, NOW).across_subjects
    assert not registry.authenticate(acme_key.secret, NOW).across_subjects
    with pytest.raises(ValueError, match="across_subjects"):
        registry.create_api_key("acme", Role.TENANT_ADMIN, now=NOW, across_subjects=True)


def test_a_platform_admin_has_no_tenant(registry: Registry) -> None:
    made = registry.create_api_key(None, Role.PLATFORM_ADMIN, now=NOW)
    caller = registry.authenticate(made.secret, NOW)
    assert (caller.role, caller.tenant) == (Role.PLATFORM_ADMIN, None)
    assert caller.client_id == caller.key_id == made.api_key.key_id


@pytest.mark.parametrize(("tenant_id", "role"), [(None, Role.SERVICE), ("acme", Role.PLATFORM_ADMIN)])
def test_a_key_is_a_tenants_or_the_platforms(registry: Registry, tenant_id: str | None, role: Role) -> None:
    with pytest.raises(ValueError, match="cannot have the role"):
        registry.create_api_key(tenant_id, role, now=NOW)


@pytest.mark.parametrize("request_key", [None, REQUEST], ids=["once", "repeatable"])
def test_no_secret_is_in_the_database_or_in_a_repr(
    registry: Registry, engine: Engine, request_key: RequestKey | None
) -> None:
    registry.create_tenant("acme", "", now=NOW)
    made = registry.create_api_key("acme", Role.SERVICE, now=NOW, request=request_key)
    secret = made.secret.rpartition("_")[2]
    with engine.connect() as connection:
        stored = [repr(row) for table in metadata.sorted_tables for row in connection.execute(select(table))]
    assert len(stored) == (5 if request_key is None else 6)
    assert not any(secret[:32] in text or made.secret in text for text in stored)
    assert secret not in repr(made)


def test_all_that_is_no_credential_gets_one_answer(
    registry: Registry, open_registry: Callable[..., Registry], acme_key: NewApiKey
) -> None:
    key_id = acme_key.api_key.key_id
    expired = registry.create_api_key("acme", Role.SERVICE, now=NOW, expires_at=later(1))
    revoked = registry.create_api_key("acme", Role.SERVICE, now=NOW)
    registry.revoke_api_key("acme", revoked.api_key.key_id, now=NOW)
    wrong = {
        "empty": "",
        "no key": "Bearer x",
        "mistyped": acme_key.secret[:-1] + ("0" if acme_key.secret[-1] != "0" else "1"),
        "unknown": new_key(new_key_id(b"x" * KEY_ID_BYTES), b"y" * SECRET_BYTES),
        "another secret": new_key(key_id, b"y" * SECRET_BYTES),
        "expired": expired.secret,
        "revoked": revoked.secret,
    }
    for kind, key in wrong.items():
        for _ in range(2):
            with pytest.raises(CredentialInvalid) as caught:
                registry.authenticate(key, later(2))
            assert str(caught.value) == str(CredentialInvalid()), kind
    with pytest.raises(CredentialInvalid):
        open_registry(pepper=b"q" * 32).authenticate(acme_key.secret, NOW)
    assert registry.authenticate(acme_key.secret, later(2)).key_id == key_id


def test_a_key_ends_at_its_time_even_where_it_is_cached(registry: Registry, acme_key: NewApiKey) -> None:
    made = registry.create_api_key("acme", Role.READER, now=NOW, expires_at=later(10))
    assert registry.authenticate(made.secret, later(9.999)).role is Role.READER
    with pytest.raises(CredentialInvalid):
        registry.authenticate(made.secret, later(10))


def test_a_key_that_would_have_expired_is_not_made(registry: Registry, engine: Engine) -> None:
    registry.create_tenant("acme", "", now=NOW)
    with pytest.raises(InvalidField, match="expires_at: has passed"):
        registry.create_api_key("acme", Role.READER, now=NOW, expires_at=NOW)
    assert row_count(engine, api_keys) == 0


def test_a_revoked_key_is_refused_at_once_here_and_soon_elsewhere(
    registry: Registry, open_registry: Callable[..., Registry], acme_key: NewApiKey
) -> None:
    elsewhere = open_registry()
    for each in (registry, elsewhere):
        each.authenticate(acme_key.secret, NOW)
    registry.revoke_api_key("acme", acme_key.api_key.key_id, now=NOW)
    with pytest.raises(CredentialInvalid):
        registry.authenticate(acme_key.secret, NOW)
    with pytest.raises(CredentialInvalid):
        elsewhere.authenticate(acme_key.secret, later(30))


def test_a_key_is_never_accepted_after_its_revocation_returned(registry: Registry) -> None:
    registry.create_tenant("acme", "", now=NOW)

    def accepted_late(secret: str, revoked: threading.Event) -> bool:
        while True:
            late = revoked.is_set()
            try:
                registry.authenticate(secret, NOW)
            except CredentialInvalid:
                return False
            if late:
                return True

    with ThreadPoolExecutor(4) as pool:
        for _ in range(10):
            made = registry.create_api_key("acme", Role.SERVICE, now=NOW)
            revoked = threading.Event()
            users = [pool.submit(accepted_late, made.secret, revoked) for _ in range(4)]
            registry.revoke_api_key("acme", made.api_key.key_id, now=NOW)
            revoked.set()
            assert not any(user.result(10) for user in users)


def test_revoking_again_changes_nothing_and_succeeds(registry: Registry, acme_key: NewApiKey) -> None:
    key_id = acme_key.api_key.key_id
    revoked = registry.revoke_api_key("acme", key_id, now=later(5))
    assert revoked == replace(acme_key.api_key, revoked_at=later(5))
    assert registry.revoke_api_key("acme", key_id, now=later(9)) == revoked
    assert registry.revoke_api_key("acme", key_id, now=later(9), request=REQUEST) == revoked
    assert registry.revoke_api_key("acme", key_id, now=later(99), request=REQUEST) == revoked


def test_another_owners_key_is_byte_for_byte_an_unknown_one(
    registry: Registry, acme_key: NewApiKey, engine: Engine
) -> None:
    registry.create_tenant("rival", "", now=NOW)
    admin = registry.create_api_key(None, Role.PLATFORM_ADMIN, now=NOW)
    theirs = acme_key.api_key.key_id
    for owner, key_id in (("rival", theirs), (None, theirs), ("rival", admin.api_key.key_id)):
        with pytest.raises(ApiKeyNotFound) as caught:
            registry.revoke_api_key(owner, key_id, now=NOW)
        unknown = ApiKeyNotFound(key_id)
        assert (str(caught.value), caught.value.metadata) == (str(unknown), unknown.metadata)
    assert registry.authenticate(acme_key.secret, later(60)).key_id == theirs
    assert registry.authenticate(admin.secret, later(60)).tenant is None
    with pytest.raises(TenantNotFound):
        registry.revoke_api_key("nobody", theirs, now=NOW)


# --- what authentication costs --------------------------------------------------------------------


def test_a_key_is_read_once_in_thirty_seconds(
    registry: Registry, acme_key: NewApiKey, statements: list[str]
) -> None:
    registry.authenticate(acme_key.secret, NOW)
    read = len(statements)
    assert read > 0
    for seconds in (0, 10, 29.9):
        registry.authenticate(acme_key.secret, later(seconds))
    assert len(statements) == read
    registry.authenticate(acme_key.secret, later(30))
    assert len(statements) == 2 * read


def test_a_clock_that_was_set_back_does_not_prolong_what_is_cached(
    registry: Registry, acme_key: NewApiKey, statements: list[str]
) -> None:
    registry.authenticate(acme_key.secret, NOW)
    read = len(statements)
    registry.authenticate(acme_key.secret, later(-3600))
    assert len(statements) == 2 * read


def test_a_mistyped_key_costs_no_read_and_an_unknown_one_a_read_in_five_seconds(
    registry: Registry, acme_key: NewApiKey, statements: list[str]
) -> None:
    unknown = new_key(acme_key.api_key.key_id, b"y" * SECRET_BYTES)
    for key, seconds, reads in (
        (unknown[:-1] + "l", 0, 0),
        (unknown, 0, 1),
        (unknown, 4.9, 1),
        (unknown, 5, 2),
    ):
        with pytest.raises(CredentialInvalid):
            registry.authenticate(key, later(seconds))
        assert len(statements) == reads


def test_a_flood_of_made_up_keys_does_not_push_a_good_one_out(
    open_registry: Callable[..., Registry], acme_key: NewApiKey, statements: list[str]
) -> None:
    registry = open_registry(cache=CredentialCache(capacity=2, unknown_capacity=2))
    registry.authenticate(acme_key.secret, NOW)
    for n in range(20):
        with pytest.raises(CredentialInvalid):
            registry.authenticate(new_key(acme_key.api_key.key_id, bytes([n]) * SECRET_BYTES), NOW)
    before = len(statements)
    registry.authenticate(acme_key.secret, NOW)
    assert len(statements) == before


def test_the_cache_keeps_the_latest_used_and_no_more_than_its_capacity() -> None:
    cache = CredentialCache(capacity=2)
    credential = Credential(Caller(Role.SERVICE, "k", ClientId("c"), None), None)
    for digest in (b"1", b"2"):
        cache.put(digest, credential, NOW, cache.moment())
    assert cache.get(b"1", NOW) == (True, credential)
    cache.put(b"3", credential, NOW, cache.moment())
    assert [cache.get(digest, NOW)[0] for digest in (b"1", b"2", b"3")] == [True, False, True]


def test_what_was_read_before_a_revocation_is_not_kept_after_it() -> None:
    cache = CredentialCache()
    credential = Credential(Caller(Role.SERVICE, "k", ClientId("c"), None), None)
    moment = cache.moment()
    cache.forget(b"1")
    cache.put(b"1", credential, NOW, moment)
    assert cache.get(b"1", NOW) == (False, None)


# --- the first start ------------------------------------------------------------------------------


def test_one_of_many_first_starts_gets_the_first_credentials(
    open_registry: Callable[..., Registry], engine: Engine
) -> None:
    answers = at_once(8, lambda: open_registry().bootstrap(NOW))
    (first,) = [answer for answer in answers if answer is not None]
    assert not isinstance(first, ScrubjayError)
    registry = open_registry()
    assert registry.authenticate(first.admin.secret, NOW).role is Role.PLATFORM_ADMIN
    service = registry.authenticate(first.service.secret, NOW)
    assert (service.role, service.tenant) == (Role.SERVICE, registry.get_tenant("dev"))
    assert first.tenant == service.tenant
    assert registry.bootstrap(later(1)) is None
    assert (row_count(engine, tenants), row_count(engine, api_keys)) == (1, 2)


def test_a_catalogue_with_a_tenant_or_a_key_gets_no_first_credentials(registry: Registry) -> None:
    registry.create_api_key(None, Role.PLATFORM_ADMIN, now=NOW)
    assert registry.bootstrap(NOW) is None
    assert registry.list_tenants(10) == []
