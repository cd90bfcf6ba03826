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
    Boolean,
    Column,
    Connection,
    Double,
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
    false,
    text,
    true,
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
    Column("forget_policy", Text),
    Column("write_settings", Text),
    Column("suspended_at", BigInteger),
    Column("suspension_reason", Text, nullable=False, server_default=""),
    Column("deleted_at", BigInteger),
    Column("purge_at", BigInteger),
    Column("purge", Text),
    Column("quotas", Text),
    Column("retention", Text),
    Column("moving", Boolean, nullable=False, server_default=false()),
    PrimaryKeyConstraint("tenant_id", name="catalogue_tenants_pk"),
    UniqueConstraint("incarnation", name="catalogue_tenants_by_incarnation"),
)
"""``forget_policy`` is a JSON array of rules, ``write_settings``, ``quotas`` and ``retention`` a JSON object;
each is NULL where nothing was said. ``purge`` is the receipt of its purge, a JSON object, once that has
begun. ``moving`` is set from a while before it leaves its shard until a while after."""

draining_shards = Table(
    "catalogue_draining_shards",
    metadata,
    Column("name", _BYTE_ORDERED, nullable=False),
    PrimaryKeyConstraint("name", name="catalogue_draining_shards_pk"),
)
"""The shards that no tenant is placed on."""

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
    Column("across_subjects", Boolean, nullable=False, server_default=false()),
    Column("scopes", Text, nullable=False, server_default="[]"),
    PrimaryKeyConstraint("key_id", name="catalogue_api_keys_pk"),
    ForeignKeyConstraint(
        ["incarnation"], ["catalogue_tenants.incarnation"], name="catalogue_api_keys_of_tenant"
    ),
    Index("catalogue_api_keys_by_tenant", "incarnation"),
)

enrolments = Table(
    "catalogue_enrolments",
    metadata,
    Column("enrolment_id", String(16), nullable=False),
    Column("incarnation", String(36), nullable=False),
    Column("digest", LargeBinary(32), nullable=False),
    Column("client_id", Text, nullable=False),
    Column("subject_kind", Text, nullable=False),
    Column("subject_name", Text, nullable=False),
    Column("scopes", Text, nullable=False),
    Column("display_name", Text, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Column("device_id", String(16)),
    Column("installation_id", LargeBinary(16)),
    PrimaryKeyConstraint("enrolment_id", name="catalogue_enrolments_pk"),
    ForeignKeyConstraint(
        ["incarnation"], ["catalogue_tenants.incarnation"], name="catalogue_enrolments_of_tenant"
    ),
    Index("catalogue_enrolments_by_tenant", "incarnation"),
    Index("catalogue_enrolments_by_age", "expires_at"),
    Index("catalogue_enrolments_by_device", "device_id"),
)
"""``device_id`` and ``installation_id`` are set once the code was used."""

devices = Table(
    "catalogue_devices",
    metadata,
    Column("device_id", String(16).with_variant(String(16, collation="C"), "postgresql"), nullable=False),
    Column("incarnation", String(36), nullable=False),
    Column("client_id", Text, nullable=False),
    Column("subject_kind", Text, nullable=False),
    Column("subject_name", Text, nullable=False),
    Column("scopes", Text, nullable=False),
    Column("display_name", Text, nullable=False),
    Column("seed", LargeBinary(20), nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("confirmed", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Column("previous_expires_at", BigInteger, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("seen_at", BigInteger, nullable=False),
    Column("revoked_at", BigInteger),
    Column("wipe", Boolean, nullable=False),
    Column("wipe_told_at", BigInteger),
    PrimaryKeyConstraint("device_id", name="catalogue_devices_pk"),
    ForeignKeyConstraint(
        ["incarnation"], ["catalogue_tenants.incarnation"], name="catalogue_devices_of_tenant"
    ),
    Index("catalogue_devices_by_tenant", "incarnation", "device_id"),
)
"""``generation`` is the newest token's, ``confirmed`` that of the newest one that was used. The two times of
expiry are the newest token's and that of the one before. ``scopes`` is a JSON array of texts."""

usage = Table(
    "catalogue_usage",
    metadata,
    Column("incarnation", String(36), nullable=False),
    Column("day", BigInteger, nullable=False),
    Column("key_id", _BYTE_ORDERED, nullable=False),
    Column("rpc", _BYTE_ORDERED, nullable=False),
    Column("calls", BigInteger, nullable=False),
    Column("refused", BigInteger, nullable=False),
    Column("bytes_in", BigInteger, nullable=False),
    Column("bytes_out", BigInteger, nullable=False),
    Column("memories", BigInteger, nullable=False),
    PrimaryKeyConstraint("incarnation", "day", "key_id", "rpc", name="catalogue_usage_pk"),
    Index("catalogue_usage_by_day", "day"),
)
"""``day`` counts from 1970, in UTC. ``rpc`` is empty in the row that counts ``memories``."""

requests = Table(
    "catalogue_requests",
    metadata,
    Column("scope", String(36), nullable=False),
    Column("request_id", Text, nullable=False),
    Column("digest", LargeBinary(32), nullable=False),
    Column("answer", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("tenant_id", Text),
    PrimaryKeyConstraint("scope", "request_id", name="catalogue_requests_pk"),
    Index("catalogue_requests_by_age", "created_at"),
)
"""``tenant_id`` is whom the answer is about, NULL for the platform's keys."""

operations = Table(
    "catalogue_operations",
    metadata,
    Column("operation_id", String(36).with_variant(String(36, collation="C"), "postgresql"), nullable=False),
    Column("kind", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("tenant_id", Text, nullable=False),
    Column("incarnation", String(36), nullable=False),
    Column("state", SmallInteger, nullable=False),
    Column("phase", Text, nullable=False, server_default=""),
    Column("done", BigInteger, nullable=False, server_default="0"),
    Column("total", BigInteger, nullable=False, server_default="0"),
    Column("per_second", Double, nullable=False, server_default="0"),
    Column("asked", Text, nullable=False),
    Column("notes", Text, nullable=False, server_default="{}"),
    Column("answer", LargeBinary, nullable=False),
    Column("error", LargeBinary, nullable=False),
    Column("cancellable", Boolean, nullable=False, server_default=true()),
    Column("cancelling", Boolean, nullable=False, server_default=false()),
    Column("failures", BigInteger, nullable=False, server_default="0"),
    Column("actor", Text, nullable=False),
    Column("request_id", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("ended_at", BigInteger),
    Column("fence", BigInteger, nullable=False, server_default="0"),
    Column("lease_until", BigInteger),
    PrimaryKeyConstraint("operation_id", name="catalogue_operations_pk"),
    Index("catalogue_operations_by_tenant", "tenant_id", "operation_id"),
    # One open operation at a time: only one that has not ended has a lease_until.
    Index(
        "catalogue_operations_that_are_open",
        "target",
        unique=True,
        sqlite_where=text("lease_until IS NOT NULL"),
        postgresql_where=text("lease_until IS NOT NULL"),
    ),
)
"""``asked`` and ``notes`` are JSON objects."""

audit_events = Table(
    "catalogue_audit_events",
    metadata,
    Column("number", BigInteger, nullable=False, autoincrement=False),
    Column("at", BigInteger, nullable=False),
    Column("actor", Text, nullable=False),
    Column("role", SmallInteger, nullable=False),
    Column("tenant_id", Text, nullable=False),
    Column("incarnation", String(36), nullable=False),
    Column("method", Text, nullable=False),
    Column("resource", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("detail", Text, nullable=False),
    Column("digest", LargeBinary(32), nullable=False),
    PrimaryKeyConstraint("number", name="catalogue_audit_events_pk"),
    Index("catalogue_audit_events_by_tenant", "tenant_id", "number"),
)

audit_head = Table(
    "catalogue_audit_head",
    metadata,
    Column("number", BigInteger, nullable=False, autoincrement=False),
    Column("digest", LargeBinary(32), nullable=False),
    Column("seal", LargeBinary(32), nullable=False),
    PrimaryKeyConstraint("number", name="catalogue_audit_head_pk"),
)
"""One row, which who adds an event holds."""


audit_tail = Table(
    "catalogue_audit_tail",
    metadata,
    Column("number", BigInteger, nullable=False, autoincrement=False),
    Column("digest", LargeBinary(32), nullable=False),
    Column("seal", LargeBinary(32), nullable=False),
    PrimaryKeyConstraint("number", name="catalogue_audit_tail_pk"),
)
"""One row, once the log was cut off."""


def insert_new(connection: Connection, table: Table, row: Mapping[str, Any]) -> bool:
    """Insert ``row`` unless one with its key is there or being written; whether it was inserted.

    Waits for another transaction that is inserting the same key, and inserts if that one fails.
    """
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    statement = insert(table).values(row).on_conflict_do_nothing().returning(*table.primary_key)
    return connection.execute(statement).first() is not None
