"""Usage in the catalogue: what servers counted is added together, kept for long enough, and gone with its
tenant."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, func, select

from scrubjay import v1
from scrubjay.errors import StorageUnavailable
from scrubjay.memory import ClientId, Micros
from tenants.admin_parts import AdminParts
from tenants.database import migrate, open_engine
from tenants.registry import SCRIPTS, VERSION_TABLE, Registry
from tenants.registry.tables import usage
from tenants.registry.usage import UsageBook
from tenants.tenant import Caller, Role, Tenant
from tenants.tenant_service import TenantAdminService
from tenants.usage import KEPT_DAYS, Usage, UsageCounter, UsageKey, day_text
from tests.no_subjects import NoSubjects

DAY_NANOS = 86_400 * 1_000_000_000
TODAY = 20_787
NOW = Micros(TODAY * 86_400_000_000 + 5)
PLATFORM = Caller(Role.PLATFORM_ADMIN, "platform", ClientId("platform"), None)


class Clock:
    day = TODAY

    def __call__(self) -> int:
        return self.day * DAY_NANOS + 5


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = open_engine(database_url)
    migrate(engine, SCRIPTS, VERSION_TABLE)
    yield engine
    engine.dispose()


@pytest.fixture
def registry(engine: Engine) -> Registry:
    return Registry(engine, pepper=b"p" * 32, shard_names=["shard-0"], space="lite-1/512")


@pytest.fixture
def acme(registry: Registry) -> Tenant:
    return registry.create_tenant("acme", "Acme", now=NOW)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def book(engine: Engine, clock: Clock) -> UsageBook:
    return UsageBook(engine, UsageCounter(clock))


def caller(tenant: Tenant, key_id: str = "key") -> Caller:
    return Caller(Role.SERVICE, key_id, ClientId(key_id), tenant)


def stored(book: UsageBook, tenant: Tenant) -> dict[UsageKey, Usage]:
    return dict(book.list_usage(tenant.incarnation, (0, 2 * TODAY), 1000))


def count(engine: Engine) -> int:
    with engine.begin() as connection:
        return int(connection.execute(select(func.count()).select_from(usage)).scalar_one())


def test_several_servers_add_to_the_same_row(engine: Engine, acme: Tenant, clock: Clock) -> None:
    books = [UsageBook(engine, UsageCounter(clock)) for _ in range(3)]
    for n, book in enumerate(books):
        book.counter.count_call(caller(acme), "Add", 100, 10 + n, refused=n % 2)
        book.counter.count_memories(acme.incarnation, "key", 2)
        book.write()
        book.write()
    assert stored(books[0], acme) == {
        UsageKey(acme.incarnation, TODAY, "key", ""): Usage(memories=6),
        UsageKey(acme.incarnation, TODAY, "key", "Add"): Usage(3, 1, 300, 33),
    }


def test_what_the_catalogue_does_not_take_is_written_later(
    book: UsageBook, acme: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise StorageUnavailable

    book.counter.count_call(caller(acme), "Add", 100, 10)
    monkeypatch.setattr(book, "_add", fail)
    book.write()
    monkeypatch.undo()
    book.counter.count_call(caller(acme), "Add", 1, 1)
    book.write()
    assert list(stored(book, acme).values()) == [Usage(2, 0, 101, 11)]


def test_rows_are_kept_for_their_days_and_then_deleted(
    book: UsageBook, acme: Tenant, clock: Clock, engine: Engine
) -> None:
    for day in (TODAY - KEPT_DAYS - 1, TODAY - KEPT_DAYS, TODAY):
        clock.day = day
        book.counter.count_call(caller(acme), "Add", 1, 1)
        book.write()
    assert [key.day for key in stored(book, acme)] == [TODAY - KEPT_DAYS, TODAY]
    clock.day += 1
    book.write()
    assert [key.day for key in stored(book, acme)] == [TODAY]


def test_nothing_is_left_of_a_purged_tenant_however_late_it_is_counted(
    book: UsageBook, registry: Registry, acme: Tenant, engine: Engine
) -> None:
    rival = registry.create_tenant("rival", "Rival", now=NOW)

    def call() -> None:
        for tenant in (acme, rival):
            book.counter.count_call(caller(tenant), "Add", 1, 1)
        book.write()

    call()
    registry.lives.delete_tenant("acme", 0, now=NOW)
    call()
    assert list(stored(book, acme).values()) == [Usage(2, 0, 2, 2)]
    begun = registry.lives.begin_purge(registry.get_tenant("acme"), now=NOW)
    call()
    purged = registry.lives.finish_purge(begun, {}, now=NOW)
    call()
    assert stored(book, acme) == {}
    assert list(stored(book, rival).values()) == [Usage(4, 0, 4, 4)]
    assert purged.purge is not None
    assert purged.purge.swept["usage"] == 1
    registry.create_tenant("acme", "Another", now=NOW)
    call()
    assert count(engine) == 1


# --- GetUsage -------------------------------------------------------------------------------------


@pytest.fixture
def service(registry: Registry, clock: Clock) -> TenantAdminService:
    registry.usage.counter = UsageCounter(clock)
    return TenantAdminService(AdminParts(registry, b"s" * 32, lambda: NOW, NoSubjects()))


@pytest.mark.parametrize("size", [1, 2, 100])
def test_pages_join_to_all_rows_of_the_days(
    service: TenantAdminService, registry: Registry, acme: Tenant, clock: Clock, size: int
) -> None:
    expected = []
    for day in (TODAY - 2, TODAY - 1, TODAY):
        clock.day = day
        for key_id in ("a", "b"):
            for rpc in ("Add", "Search"):
                registry.usage.counter.count_call(caller(acme, key_id), rpc, 1, 1)
                expected.append((day_text(day), key_id, rpc))
    request = v1.GetUsageRequest(tenant_id="acme", from_day=day_text(TODAY - 1), page_size=size)
    found: list[tuple[str, str, str]] = []
    while not found or request.page_token:
        page = service.get_usage(request, PLATFORM)
        found += [(row.day, row.key_id, row.rpc) for row in page.rows]
        request.page_token = page.next_page_token
    assert found == expected[4:]


def test_a_month_is_told_where_nobody_says_which_days(
    service: TenantAdminService, registry: Registry, acme: Tenant, clock: Clock
) -> None:
    for day in (TODAY - 30, TODAY - 29, TODAY):
        clock.day = day
        registry.usage.counter.count_call(caller(acme), "Add", 1, 1)
    told = service.get_usage(v1.GetUsageRequest(tenant_id="acme"), PLATFORM)
    assert [row.day for row in told.rows] == [day_text(TODAY - 29), day_text(TODAY)]
    earlier = v1.GetUsageRequest(tenant_id="acme", to_day=day_text(TODAY - 1))
    assert [row.day for row in service.get_usage(earlier, PLATFORM).rows] == [
        day_text(TODAY - 30),
        day_text(TODAY - 29),
    ]
