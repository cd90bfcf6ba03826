"""The end of a tenant's life in a shard, wherever it is cut and whoever writes meanwhile."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import func, select

from scrubjay import v1
from scrubjay.errors import ScrubjayError, StorageUnavailable, TenantDeleting, TenantNotFound
from scrubjay.memory import ClientId, Micros
from server.index.cache import StreamCache
from server.purging import SETTLED_MICROS, Purger
from server.shard.purging import PURGED_AT_ONCE
from server.snapshots import Snapshots
from server.store.memory_store import MemoryStore
from server.store.purging import PURGED_TABLES
from server.store.tables import metadata
from tenants.database import migrate, open_engine
from tenants.registry import SCRIPTS, VERSION_TABLE, Registry, lives
from tenants.registry.lives import Lives
from tenants.tenant import Caller, Incarnation, Role, Tenant, TenantState
from tests.devices import DAY, NOW, Server
from tests.killing import Killed, killed_at

NEVER = threading.Event()
ENDED = threading.Event()
ENDED.set()


@dataclass
class Place:
    """A server with the catalogue that its tenants are in."""

    server: Server
    registry: Registry
    snapshots: Snapshots
    url: str

    def purger(self) -> Purger:
        return Purger(
            {"main": self.server.shard},
            self.registry.lives,
            self.snapshots,
            self.server.archives,
            lambda: self.server.now,
        )

    def tenant(self, tenant_id: str) -> Tenant:
        return self.registry.create_tenant(tenant_id, "", now=self.server.now)

    def add(self, tenant: Tenant, *contents: str, user_id: str = "alice") -> None:
        """Memories as a server adds them that has not heard of any deletion."""
        caller = Caller(Role.SERVICE, "key", ClientId("web"), tenant)
        memories = [v1.Memory(user_id=user_id, content=content) for content in contents]
        for at in range(0, len(memories), 100):
            self.server.memories.add(v1.AddRequest(memories=memories[at : at + 100]), caller)

    def delete(self, tenant: Tenant) -> Tenant:
        """The tenant deleted, its grace passed, and every server told."""
        deleted = self.registry.lives.delete_tenant(tenant.tenant_id, 1, now=self.server.now)
        self.server.now = Micros(self.server.now + DAY + SETTLED_MICROS)
        return deleted

    def rows(self, incarnation: Incarnation) -> dict[str, int]:
        """How many rows each table has of a tenant, where it has any."""
        engine = open_engine(self.url)
        with engine.begin() as connection:
            counts = {
                name: connection.execute(
                    select(func.count()).select_from(table).where(table.c.incarnation == incarnation)
                ).scalar_one()
                for name, table in metadata.tables.items()
            }
        engine.dispose()
        return {name: count for name, count in counts.items() if count and name != "purges"}


@pytest.fixture
def place(shard_url: str, tmp_path: Path) -> Iterator[Place]:
    engine = open_engine(f"sqlite:///{tmp_path / 'catalogue.db'}")
    migrate(engine, SCRIPTS, VERSION_TABLE)
    with Server(shard_url, tmp_path) as server:
        registry = Registry(engine, pepper=b"p" * 32, shard_names=["main"], space=server.embedder.space.id)
        snapshots = Snapshots(tmp_path / "device-snapshots", b"secret", budget_bytes=1 << 20)
        yield Place(server, registry, snapshots, shard_url)
        snapshots.close()
    engine.dispose()


def purged(place: Place, tenant: Tenant) -> bool:
    return place.registry.get_tenant(tenant.tenant_id).state is TenantState.PURGED


def test_every_row_of_the_tenant_goes_and_none_of_another(place: Place) -> None:
    doomed, kept = place.tenant("doomed"), place.tenant("kept")
    for tenant in (doomed, kept):
        place.add(tenant, *(f"fact {n}" for n in range(30)))
        place.add(tenant, "another stream", user_id="bob")
    before, theirs = place.rows(doomed.incarnation), place.rows(kept.incarnation)
    assert (before["memories"], before["streams"]) == (31, 2)
    assert place.purger().run(NEVER) == 0
    place.delete(doomed)
    assert place.purger().run(NEVER) == 1
    assert place.rows(doomed.incarnation) == {}
    assert place.rows(kept.incarnation) == theirs
    receipt = place.registry.get_tenant("doomed").purge
    assert receipt is not None
    assert {name: receipt.swept[name] for name in PURGED_TABLES if receipt.swept[name]} == before
    assert {"index files", "device snapshots", "API keys", "devices"} < set(receipt.swept)
    assert receipt.finished_at == place.server.now
    assert place.purger().run(NEVER) == 0


def test_its_exports_and_uploads_go_with_it(place: Place, tmp_path: Path) -> None:
    doomed, kept, archives = place.tenant("doomed"), place.tenant("kept"), place.server.archives
    for tenant in (doomed, kept):
        archives.upload(tenant, "a file", 0, b"all that it has")
        export = archives.export_path(tenant.incarnation, "0199bbbb-0000-7000-8000-000000000001")
        export.parent.mkdir(parents=True)
        export.write_bytes(b"all that it has")
    place.delete(doomed)
    assert place.purger().run(NEVER) == 1
    receipt = place.registry.get_tenant("doomed").purge
    assert receipt is not None
    assert receipt.swept["exports and uploads"] == 2
    left = [path for path in tmp_path.rglob("*") if path.is_file() and b"all that it" in path.read_bytes()]
    assert [kept.incarnation in str(path) for path in left] == [True, True]
    for days, count in ((6, 2), (8, 0)):  # files are as old as the disk's clock says
        place.server.now = Micros(time.time_ns() // 1000 + days * DAY)
        archives.collect(NEVER)
        assert archives.count_of(kept.incarnation) == count


def test_nothing_is_purged_before_the_grace_has_passed_and_everyone_was_told(place: Place) -> None:
    tenant = place.tenant("doomed")
    place.add(tenant, "fact")
    place.registry.lives.delete_tenant("doomed", 1, now=NOW)
    place.server.now = Micros(NOW + DAY + SETTLED_MICROS - 1)
    assert place.purger().run(NEVER) == 0
    assert place.rows(tenant.incarnation)["memories"] == 1
    place.server.now = Micros(NOW + DAY + SETTLED_MICROS)
    assert place.purger().run(NEVER) == 1


STEPS = (
    (MemoryStore, "compact"),
    (StreamCache, "discard_all"),
    (Snapshots, "discard_all"),
    (Lives, "begin_purge"),
    (Lives, "finish_purge"),
    (lives, "compact"),
)
"""What a purge does, in no order: it is killed before each one and after each one."""


def test_a_purge_that_is_killed_at_any_moment_is_ended_by_the_next(place: Place) -> None:
    kept = place.tenant("kept")
    place.add(kept, "theirs")
    theirs = place.rows(kept.incarnation)
    for moment in itertools.count(step=3):  # before a step, behind another
        tenant = place.tenant("doomed")
        place.add(tenant, "one", "two")
        before = place.rows(tenant.incarnation)
        place.delete(tenant)
        with killed_at(moment, STEPS, blocks=[(MemoryStore, "purging")]), suppress(Killed):
            place.purger().run(NEVER)
        whole = purged(place, tenant)
        place.purger().run(NEVER)
        assert purged(place, tenant), moment
        assert place.rows(tenant.incarnation) == {}, moment
        receipt = place.registry.get_tenant("doomed").purge
        assert receipt is not None
        swept = {name: receipt.swept[name] for name in PURGED_TABLES if receipt.swept[name]}
        assert swept == before, moment
        if whole:
            break
    assert moment > 2 * len(PURGED_TABLES)
    assert place.rows(kept.incarnation) == theirs


def test_a_purge_that_is_told_to_end_goes_on_later(place: Place) -> None:
    tenant = place.tenant("doomed")
    place.add(tenant, "fact")
    place.delete(tenant)
    assert place.purger().run(ENDED) == 0
    assert not purged(place, tenant)
    assert place.purger().run(NEVER) == 1


def test_many_rows_go_in_small_transactions_and_are_all_counted(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.shard.purging.PURGED_AT_ONCE", 7)
    assert PURGED_AT_ONCE > 7
    tenant = place.tenant("doomed")
    place.add(tenant, *(f"fact {n}" for n in range(50)))
    place.delete(tenant)
    assert place.purger().run(NEVER) == 1
    receipt = place.registry.get_tenant("doomed").purge
    assert receipt is not None
    assert (receipt.swept["memories"], receipt.swept["history"]) == (50, 50)
    assert place.rows(tenant.incarnation) == {}


def test_who_writes_meanwhile_is_refused_and_leaves_nothing(place: Place) -> None:
    tenant = place.tenant("doomed")
    refused: list[ScrubjayError] = []

    def write(user_id: str) -> None:
        while not refused:
            try:
                place.add(tenant, "late", user_id=user_id)
            except TenantDeleting as error:
                refused.append(error)

    place.add(tenant, "early")
    place.delete(tenant)
    writers = [threading.Thread(target=write, args=(f"user-{n}",)) for n in range(4)]
    for writer in writers:
        writer.start()
    while not purged(place, tenant):
        place.purger().run(NEVER)
    for writer in writers:
        writer.join()
    assert refused
    assert place.rows(tenant.incarnation) == {}


def look_at(place: Place, tenant: Tenant) -> None:
    request = v1.SearchRequest(user_id="alice", query="fact", count_access=True)
    place.server.memories.search(request, Caller(Role.SERVICE, "key", ClientId("web"), tenant))


def test_counts_of_a_purged_tenant_do_not_keep_those_of_others_waiting(place: Place) -> None:
    doomed, kept = place.tenant("doomed"), place.tenant("kept")
    for tenant in (doomed, kept):
        place.add(tenant, "fact")
        look_at(place, tenant)
    place.delete(doomed)
    place.purger().run(NEVER)
    place.server.shard.accesses.write()
    look_at(place, kept)
    place.server.shard.accesses.write()
    assert place.rows(kept.incarnation)["access_counts"] == 1
    assert place.rows(doomed.incarnation) == {}


def test_a_life_that_ended_is_not_the_next_one(place: Place) -> None:
    first = place.tenant("doomed")
    place.add(first, "of the first life")
    place.delete(first)
    place.purger().run(NEVER)
    second = place.tenant("doomed")
    place.add(second, "of the second life")
    with pytest.raises(TenantDeleting):
        place.add(first, "late")
    with pytest.raises(TenantNotFound):
        place.registry.lives.finish_purge(first, {}, now=place.server.now)
    place.purger().run(NEVER)
    assert place.rows(second.incarnation)["memories"] == 1


def test_a_shard_that_does_not_answer_keeps_its_tenant_until_it_does(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tenant = place.tenant("doomed")
    place.add(tenant, "fact")
    place.delete(tenant)

    def fail(*_: object) -> None:
        raise StorageUnavailable

    with monkeypatch.context() as patch:
        patch.setattr(MemoryStore, "compact", fail)
        assert place.purger().run(NEVER) == 0
    assert "goes on later" in caplog.text
    assert not purged(place, tenant)
    assert place.purger().run(NEVER) == 1


def test_the_highest_head_outlives_the_streams(place: Place) -> None:
    tenant = place.tenant("doomed")
    place.add(tenant, "fact")
    highest = place.server.shard.highest_head()
    assert highest > 0
    place.delete(tenant)
    place.purger().run(NEVER)
    with MemoryStore(place.url) as store, store.reading_purges() as reading:
        assert reading.highest() == highest


def test_what_another_server_purged_leaves_this_ones_disk(place: Place, tmp_path: Path) -> None:
    tenant = place.tenant("doomed")
    place.add(tenant, "fact")
    folder = tmp_path / "index" / tenant.incarnation
    folder.mkdir(parents=True)
    (folder / "kept.hnsw").write_bytes(b"vectors")
    place.delete(tenant)
    other = place.purger()
    with place.server.store.purging() as purging:
        purging.end_life(tenant.incarnation, place.server.now)
    place.registry.lives.undelete_tenant("doomed", now=place.server.now)
    assert other.run(NEVER) == 0
    assert not folder.exists()
