"""What a tenant has in a shard: counted with every write, and never past its limits."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from runpy import run_path

import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import func, select, text

from scrubjay.errors import QuotaExceeded, QuotaViolation, StorageUnavailable
from scrubjay.memory import MemoryId
from server.store.memory_store import MIGRATIONS, MemoryStore, StreamKey, Writing
from server.store.stocks import Stock
from server.store.tables import memories
from tenants.database import open_engine
from tenants.quota_book import SECONDS, QuotaBook
from tenants.quotas import Allowance, Quotas
from tenants.tenant import Incarnation, Tenant
from tests.devices import Server
from tests.stored import ACME, ALICE, BOB, GLOBEX, add, delete, insert, memory


class Limits:
    """Limits that a test changes."""

    def __init__(self) -> None:
        self.of: dict[Incarnation, Quotas] = {}

    def __call__(self, incarnation: Incarnation) -> Allowance:
        return Allowance(self.of[incarnation], "acme") if incarnation in self.of else Allowance()


@pytest.fixture
def limits() -> Limits:
    return Limits()


@pytest.fixture
def store(shard_url: str, limits: Limits) -> Iterator[MemoryStore]:
    with MemoryStore(shard_url, limits=limits) as store:
        yield store


def counted(url: str, incarnation: Incarnation) -> int:
    """How many memories there really are."""
    engine = open_engine(url)
    with engine.begin() as connection:
        found = select(func.count()).select_from(memories).where(memories.c.incarnation == incarnation)
        count = connection.execute(found).scalar_one()
    engine.dispose()
    return int(count)


def test_the_count_is_that_of_the_rows_whatever_is_done(store: MemoryStore, shard_url: str) -> None:
    source, living = random.Random(7), list[tuple[StreamKey, MemoryId]]()
    for _ in range(40):
        key = source.choice((ALICE, BOB, StreamKey(GLOBEX, "user:alice")))
        if source.random() < 0.6 or not living:
            made = add(store, *(memory(f"fact {n}") for n in range(source.randint(1, 4))), key=key)
            living += [(key, one.memory.id) for one in made]
        else:
            of, memory_id = living.pop(source.randrange(len(living)))
            delete(store, memory_id, key=of)
            delete(store, memory_id, key=of)  # again: there is nothing any more
    for incarnation in (ACME, GLOBEX):
        assert store.stock(incarnation).memories == counted(shard_url, incarnation)


def test_bytes_grow_with_what_is_written_and_stay_when_it_is_deleted(store: MemoryStore) -> None:
    assert store.stock(ACME) == Stock(0, 0)
    (one,) = add(store, memory("x" * 1000))
    small = store.stock(ACME)
    assert 2000 < small.bytes < 4000  # the memory, and its history
    delete(store, one.memory.id)
    assert store.stock(ACME) == Stock(0, small.bytes)


def test_what_is_undone_is_not_counted(store: MemoryStore) -> None:
    def unit(writing: Writing) -> None:
        insert(writing, ALICE, [memory("undone")])
        raise KeyError

    with pytest.raises(KeyError):
        store.write([ALICE], unit)
    assert store.stock(ACME) == Stock(0, 0)


def test_a_limit_is_reached_and_not_passed(store: MemoryStore, limits: Limits, shard_url: str) -> None:
    limits.of[ACME] = Quotas(memories=3)
    made = add(store, *(memory(f"fact {n}") for n in range(2)))
    with pytest.raises(QuotaExceeded) as caught:
        add(store, *(memory(f"more {n}") for n in range(2)), key=BOB)
    assert caught.value.metadata == {"quota": "memories", "limit": "3"}
    assert caught.value.quota_violations == (QuotaViolation("tenants/acme", "may have 3 memories"),)
    assert counted(shard_url, ACME) == store.stock(ACME).memories == 2
    add(store, memory("third"), key=BOB)
    delete(store, made[0].memory.id)
    add(store, memory("fourth"))
    with pytest.raises(QuotaExceeded):
        add(store, memory("fifth"))
    add(store, memory("another tenant's"), key=StreamKey(GLOBEX, "user:alice"))
    limits.of[ACME] = Quotas(memories=1)
    delete(store, made[1].memory.id)  # what takes away is never refused


def test_bytes_have_a_limit_that_deleting_does_not_lift(store: MemoryStore, limits: Limits) -> None:
    (one,) = add(store, memory("x" * 1000))
    limits.of[ACME] = Quotas(bytes=store.stock(ACME).bytes)
    delete(store, one.memory.id)  # which History tells of, and no limit refuses
    with pytest.raises(QuotaExceeded, match="bytes"):
        add(store, memory("x" * 1000))
    assert store.stock(ACME).memories == 0


def test_writers_of_several_processes_do_not_pass_a_limit_together(
    shard_url: str, limits: Limits, backend: str
) -> None:
    limits.of[ACME] = Quotas(memories=20)
    count = 1 if backend == "sqlite" else 3  # one process owns a SQLite file
    stores = [MemoryStore(shard_url, limits=limits) for _ in range(count)]

    def write(n: int) -> bool:
        key = StreamKey(ACME, f"user:{n % 5}")
        try:
            add(stores[n % count], memory(f"fact {n}"), key=key)
        except QuotaExceeded:
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        stored = sum(pool.map(write, range(40)))
    assert stored == counted(shard_url, ACME) == stores[0].stock(ACME).memories == 20
    for store in stores:
        store.close()


def test_what_was_there_before_is_counted_by_the_migration(database_url: str) -> None:
    with MemoryStore(database_url) as store:
        store.migrate()
        add(store, memory("one"), memory("two 猫"))
        before = store.stock(ACME)
    engine = open_engine(database_url)
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE stocks"))
        with Operations.context(MigrationContext.configure(connection)):
            run_path(str(MIGRATIONS / "versions" / "0012_stocks.py"))["upgrade"]()
    engine.dispose()
    with MemoryStore(database_url) as store:
        assert store.stock(ACME) == before == Stock(2, before.bytes)


# --- what is known of limits ----------------------------------------------------------------------


def test_limits_are_read_again_when_they_are_old_or_forgotten(server: Server) -> None:
    tenants = {ACME: server.tenant}
    asked: list[Incarnation] = []
    now = [0.0]

    def read(incarnation: Incarnation) -> Tenant | None:
        asked.append(incarnation)
        if incarnation == GLOBEX:
            raise StorageUnavailable
        return tenants.get(incarnation)

    book = QuotaBook(read, lambda: now[0])
    known = Allowance(tenant_id=server.tenant.tenant_id)
    assert [book.allowance(ACME) for _ in range(3)] == [known] * 3
    assert asked == [ACME]
    now[0] = SECONDS
    book.allowance(ACME)
    book.forget(ACME)
    book.allowance(ACME)
    assert asked == [ACME] * 3
    del tenants[ACME]
    book.forget(ACME)
    assert book.allowance(ACME) == Allowance()
    assert book.allowance(GLOBEX) == Allowance()
