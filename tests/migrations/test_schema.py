"""The schema as databases have it: keys begin with the tenant, and migrations make what the code expects."""

from __future__ import annotations

from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import MetaData, inspect

from server.store import memory_store, tables
from tenants import registry
from tenants.database import migrate, open_engine, pending
from tenants.registry.tables import metadata as catalogue_metadata

FIRST = "incarnation"
SCHEMAS: dict[str, tuple[MetaData, Path, str]] = {
    "shard": (tables.metadata, memory_store.MIGRATIONS, memory_store.VERSION_TABLE),
    "catalogue": (catalogue_metadata, registry.SCRIPTS, registry.VERSION_TABLE),
}


def test_every_key_and_index_of_a_shard_begins_with_the_tenant(database_url: str) -> None:
    engine = open_engine(database_url)
    migrate(engine, memory_store.MIGRATIONS, memory_store.VERSION_TABLE)
    inspector = inspect(engine)
    found = [name for name in inspector.get_table_names() if name != memory_store.VERSION_TABLE]
    assert sorted(found) == sorted(tables.metadata.tables)
    for table in found:
        keys = [inspector.get_pk_constraint(table)["constrained_columns"]]
        keys += [index["column_names"] for index in inspector.get_indexes(table)]
        keys += [unique["column_names"] for unique in inspector.get_unique_constraints(table)]
        keys += [key["constrained_columns"] for key in inspector.get_foreign_keys(table)]
        for key in keys:
            assert key[0] == FIRST, (table, key)
    engine.dispose()


@pytest.mark.parametrize("schema", SCHEMAS)
def test_migrations_make_what_the_code_expects_and_can_be_repeated(database_url: str, schema: str) -> None:
    metadata, scripts, version_table = SCHEMAS[schema]
    engine = open_engine(database_url)
    assert pending(engine, scripts, version_table)
    migrate(engine, scripts, version_table)
    migrate(engine, scripts, version_table)
    assert not pending(engine, scripts, version_table)
    with engine.begin() as connection:
        context = MigrationContext.configure(
            connection, opts={"version_table": version_table, "compare_type": True}
        )
        assert compare_metadata(context, metadata) == []
    engine.dispose()


def test_catalogue_and_shard_share_one_database(database_url: str) -> None:
    engine = open_engine(database_url)
    for _, scripts, version_table in SCHEMAS.values():
        migrate(engine, scripts, version_table)
    names = set(inspect(engine).get_table_names())
    assert names >= {*tables.metadata.tables, *catalogue_metadata.tables}
    engine.dispose()
