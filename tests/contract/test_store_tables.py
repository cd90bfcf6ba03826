"""The law of a shard's tables: everything begins with the tenant's incarnation."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import (
    Column,
    ForeignKeyConstraint,
    Index,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    UniqueConstraint,
    inspect,
)

from server.store.tables import metadata
from tenants.database import open_engine


def lawless(tables: MetaData) -> Iterator[str]:
    """Every key, constraint and index that does not begin with the incarnation."""
    for table in tables.tables.values():
        keyed = (PrimaryKeyConstraint, UniqueConstraint, ForeignKeyConstraint)
        constraints = [c for c in table.constraints if isinstance(c, keyed)]
        for one in [*constraints, *table.indexes]:
            columns = [getattr(column, "name", "an expression") for column in one.columns]
            if columns[:1] != ["incarnation"]:
                yield f"{table.name}: {type(one).__name__} over {columns}"


def test_every_key_constraint_and_index_begins_with_the_incarnation() -> None:
    assert len(metadata.tables) == 22
    assert list(lawless(metadata)) == []


def test_so_does_every_one_of_the_migrated_database(shard_url: str) -> None:
    engine = open_engine(shard_url)
    found = MetaData()
    found.reflect(engine, only=list(metadata.tables))
    assert list(lawless(found)) == []
    indexes = {index["name"] for table in found.tables for index in inspect(engine).get_indexes(table)}
    engine.dispose()
    assert indexes == {str(index.name) for table in metadata.tables.values() for index in table.indexes}


@pytest.mark.parametrize("wrong", ["key", "index", "unique"])
def test_the_law_notices_a_table_that_breaks_it(wrong: str) -> None:
    tables = MetaData()
    columns = [Column("incarnation", String), Column("id", String)]
    extra = {
        "key": PrimaryKeyConstraint("id", "incarnation"),
        "index": Index("by_id", "id"),
        "unique": UniqueConstraint("id"),
    }
    rest = [] if wrong == "key" else [PrimaryKeyConstraint("incarnation", "id")]
    Table("wrong", tables, *columns, extra[wrong], *rest)
    assert len(list(lawless(tables))) == 1
