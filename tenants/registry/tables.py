"""The catalogue's tables. They may share a PostgreSQL database with a shard, hence the prefix.

A shard's keys all begin with a tenant's incarnation. These cannot: the catalogue is where an id or a key
becomes an incarnation, so it is looked up by what the outside knows. Times are microseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    ForeignKeyConstraint,
    Index,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    String,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy.dialects import postgresql, sqlite

SCRIPTS = Path(__file__).parent.parent / "migrations"
VERSION_TABLE = "alembic_version_catalogue"
"""Where ``tenants.database.migrate`` finds these tables' migrations, and where it notes them."""

metadata = MetaData()

_BYTE_ORDERED = Text().with_variant(Text(collation="C"), "postgresql")

tenants = Table(
    "catalogue_tenants",
    metadata,
    Column("tenant_id", _BYTE_ORDERED, nullable=False),
    Column("display_name", Text, nullable=False),
    Column("incarnation", String(36), nullable=False),
    Column("state", SmallInteger, nullable=False),
    Column("shard", Text, nullable=False),
    Column("space", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    PrimaryKeyConstraint("tenant_id", name="catalogue_tenants_pk"),
    UniqueConstraint("incarnation", name="catalogue_tenants_by_incarnation"),
)

api_keys = Table(
    "catalogue_api_keys",
    metadata,
    Column("key_id", String(16), nullable=False),
    Column("incarnation", String(36)),
    Column("digest", LargeBinary(32), nullable=False),
    Column("display_name", Text, nullable=False),
    Column("role", SmallInteger, nullable=False),
    Column("client_id", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger),
    Column("revoked_at", BigInteger),
    PrimaryKeyConstraint("key_id", name="catalogue_api_keys_pk"),
    ForeignKeyConstraint(
        ["incarnation"], ["catalogue_tenants.incarnation"], name="catalogue_api_keys_of_tenant"
    ),
    Index("catalogue_api_keys_by_tenant", "incarnation"),
)

requests = Table(
    "catalogue_requests",
    metadata,
    Column("scope", String(36), nullable=False),
    Column("request_id", Text, nullable=False),
    Column("digest", LargeBinary(32), nullable=False),
    Column("answer", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    PrimaryKeyConstraint("scope", "request_id", name="catalogue_requests_pk"),
    Index("catalogue_requests_by_age", "created_at"),
)


def insert_new(connection: Connection, table: Table, row: Mapping[str, Any]) -> bool:
    """Insert ``row`` unless one with its key is there or being written; whether it was inserted.

    Waits for another transaction that is inserting the same key, and inserts if that one fails.
    """
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    statement = insert(table).values(row).on_conflict_do_nothing().returning(*table.primary_key)
    return connection.execute(statement).first() is not None
