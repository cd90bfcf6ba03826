"""The catalogue's migrations, on SQLite and on PostgreSQL."""

from __future__ import annotations

from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from tenants.database import migrate, open_engine, pending
from tenants.registry import SCRIPTS, VERSION_TABLE
from tenants.registry.tables import metadata


def test_migrations_make_what_the_code_expects_and_can_be_repeated(database_url: str) -> None:
    engine = open_engine(database_url)
    assert pending(engine, SCRIPTS, VERSION_TABLE)
    for _ in range(2):
        migrate(engine, SCRIPTS, VERSION_TABLE)
        assert not pending(engine, SCRIPTS, VERSION_TABLE)
    options = {"version_table": VERSION_TABLE, "compare_type": True}
    with engine.begin() as connection:
        assert compare_metadata(MigrationContext.configure(connection, opts=options), metadata) == []
    engine.dispose()
