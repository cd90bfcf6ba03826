"""A shard's migrations, on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Engine, inspect, text

from server.store.memory_store import MIGRATIONS, VERSION_TABLE, MemoryStore
from server.store.tables import metadata
from tenants.database import SchemaTooNew, migrate, open_engine, pending
from tenants.registry import SCRIPTS as CATALOGUE_MIGRATIONS
from tenants.registry import VERSION_TABLE as CATALOGUE_VERSION_TABLE


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
