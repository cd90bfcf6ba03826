"""A shard's migrations, on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Engine, inspect, text

from scrubjay.memory import ClientId, Memory, MemoryId, Micros
from scrubjay.merge import create
from scrubjay.stamp import CommitStamp, ReplicaId, Stamp
from server.ingest.words import mark
from server.store.memory_store import MIGRATIONS, VERSION_TABLE, MemoryStore, StoredMemory, StreamKey
from server.store.rows import CREATED, memory_row
from server.store.tables import metadata
from tenants.database import SchemaTooNew, migrate, open_engine, pending
from tenants.registry import SCRIPTS as CATALOGUE_MIGRATIONS
from tenants.registry import VERSION_TABLE as CATALOGUE_VERSION_TABLE
from tenants.tenant import Incarnation


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = open_engine(database_url)
    yield engine
    engine.dispose()


def differences(engine: Engine) -> list[object]:
    """What autogenerate would change in the shard's tables."""

    def ours(name: str | None, kind: str, _parents: object) -> bool:
        return kind != "table" or name in metadata.tables

    options = {"version_table": VERSION_TABLE, "compare_type": True, "include_name": ours}
    with engine.connect() as connection:
        return list(compare_metadata(MigrationContext.configure(connection, opts=options), metadata))


def test_the_migrations_make_the_tables_of_the_code(engine: Engine) -> None:
    assert differences(engine) != []
    migrate(engine, MIGRATIONS, VERSION_TABLE)
    assert differences(engine) == []
    assert set(inspect(engine).get_table_names()) == {*metadata.tables, VERSION_TABLE}


def test_migrating_again_changes_nothing(engine: Engine) -> None:
    assert pending(engine, MIGRATIONS, VERSION_TABLE)
    for _ in range(2):
        migrate(engine, MIGRATIONS, VERSION_TABLE)
        assert not pending(engine, MIGRATIONS, VERSION_TABLE)


def test_many_processes_may_migrate_at_once(database_url: str) -> None:
    def start(_number: int) -> bool:
        with MemoryStore(database_url) as store:
            store.migrate()
            return store.pending()

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(start, range(4))) == [False] * 4


def test_a_database_that_a_newer_version_migrated_is_refused(engine: Engine) -> None:
    migrate(engine, MIGRATIONS, VERSION_TABLE)
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    for call in (migrate, pending):
        with pytest.raises(SchemaTooNew, match=r"9999.*run the version that migrated it"):
            call(engine, MIGRATIONS, VERSION_TABLE)


def test_a_refusal_keeps_the_password_to_itself() -> None:
    with pytest.raises(ValueError, match="give sqlite") as caught:
        open_engine("mysql://root:hunter2@localhost/scrubjay")
    assert "hunter2" not in str(caught.value)


def test_a_catalogue_and_a_shard_may_share_a_database(engine: Engine) -> None:
    migrate(engine, CATALOGUE_MIGRATIONS, CATALOGUE_VERSION_TABLE)
    migrate(engine, MIGRATIONS, VERSION_TABLE)
    assert differences(engine) == []
    assert not pending(engine, CATALOGUE_MIGRATIONS, CATALOGUE_VERSION_TABLE)


FIRST_TABLES = MIGRATIONS / "versions" / "0001_first_tables.py"
ACME = "11111111-1111-4111-8111-111111111111"
LIVING, SHARED_DEAD, PRIVATE_DEAD = (f"00000000-0000-7000-8000-00000000000{n}" for n in (1, 2, 3))


@pytest.fixture
def at_first(engine: Engine, tmp_path: Path) -> Engine:
    """A database at the first revision, with a memory and two deletions in it."""
    scripts = tmp_path / "first"
    (scripts / "versions").mkdir(parents=True)
    (scripts / "env.py").write_text((MIGRATIONS / "env.py").read_text())
    (scripts / "versions" / FIRST_TABLES.name).write_text(FIRST_TABLES.read_text())
    migrate(engine, scripts, VERSION_TABLE)
    memory = Memory(MemoryId(LIVING), "tea", Micros(7), user_id="alice", owner_client_id=ClientId("web"))
    state = create(memory, Stamp(5, ReplicaId(b"r" * 16)))
    stored = StoredMemory.of(state, CommitStamp(5))
    named = memory_row(StreamKey(Incarnation(ACME), "user:alice"), stored)
    row = {name.removeprefix("new_"): value for name, value in named.items()}
    del row["field_commits"], row["superseded_by"]
    names = ", ".join(row)
    values = ", ".join(f":{name}" for name in row)
    with engine.begin() as connection:
        connection.execute(text(f"INSERT INTO memories ({names}) VALUES ({values})"), row)
        connection.execute(text(f"INSERT INTO streams VALUES ('{ACME}', 'user:alice', 9, 1, 0)"))
        for n, dead in enumerate((SHARED_DEAD, PRIVATE_DEAD)):
            grave = {"id": dead, "at": 8 + n, "stamp": b"s" * 24}
            connection.execute(
                text(f"INSERT INTO graveyard VALUES ('{ACME}', :id, 'user:alice', :at, :stamp)"), grave
            )
            for at, private_to in ((2 + 2 * n, "early"), (8 + n, "web" if n else "")):
                connection.execute(
                    text(
                        "INSERT INTO history VALUES "
                        f"('{ACME}', 'user:alice', :at, :id, :id, 3, '[]', 'web', :replica, '', '', 1, 7, :p)"
                    ),
                    {"id": dead, "at": at, "replica": b"r" * 16, "p": private_to},
                )
    return engine


def test_a_populated_first_database_is_brought_to_this_version(at_first: Engine, database_url: str) -> None:
    key = StreamKey(Incarnation(ACME), "user:alice")
    with MemoryStore(database_url) as store:
        assert store.pending()
        store.migrate()
        with store.read() as reading:
            head = reading.head(key)
            stored = reading.get(key.incarnation, MemoryId(LIVING))
            graves = reading.graves_after(key, CommitStamp(0), 10)
            history = reading.history(key.incarnation, key, None, 10)
            unlinked = reading.unlinked(10)
            marked = reading.marked(key, [mark("Tea!"), mark("coffee")])
        assert marked == {mark("tea")}
        assert unlinked == [key]
        assert head is not None
        assert (head.head, head.epoch, head.counts_head) == (9, 1, 0)
        assert stored is not None
        assert (stored.memory.content, stored.field_commits) == ("tea", {CREATED: 5})
        assert [(one.memory_id, one.private_to) for one in graves] == [
            (SHARED_DEAD, ""),
            (PRIVATE_DEAD, "web"),
        ]
        late = {(row.spell, row.deleted, row.restores, row.reason) for row in history}
        assert late == {("", b"", "", "")}
        (stamp,) = store.write([key], lambda writing: writing.stamps(key, 1, 0))
        assert stamp == 10
    assert differences(at_first) == []


def test_a_migration_that_fails_leaves_nothing_behind(engine: Engine, tmp_path: Path) -> None:
    scripts = tmp_path / "100% broken"
    (scripts / "versions").mkdir(parents=True)
    (scripts / "env.py").write_text((MIGRATIONS / "env.py").read_text())
    (scripts / "versions" / "0001_half.py").write_text(
        "from alembic import op\n"
        "import sqlalchemy as sa\n"
        "revision, down_revision = '0001', None\n"
        "def upgrade():\n"
        "    op.create_table('half', sa.Column('id', sa.Integer, primary_key=True))\n"
        "    raise ArithmeticError('on the way')\n"
    )
    with pytest.raises(ArithmeticError):
        migrate(engine, scripts, VERSION_TABLE)
    assert inspect(engine).get_table_names() == []
