"""A shard's tables. Every key, constraint and index begins with the tenant's incarnation, so that the
same schema can be distributed by tenant. Times are microseconds since 1970; no foreign keys, since rows
that belong together are written and deleted in one transaction.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Index,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects import postgresql

metadata = MetaData()

# Text in SQLite: no id is converted anywhere. 16 bytes would make the file a sixth smaller, and were as
# fast to insert, but slower by a seventh to get and to load.
_UUID = String(36).with_variant(postgresql.UUID(as_uuid=False), "postgresql")
# Compared byte by byte: faster, and no index depends on the operating system's collations.
_NAME = Text().with_variant(Text(collation="C"), "postgresql")


def _incarnation() -> Column[str]:
    return Column("incarnation", _UUID, primary_key=True)


def _column(name: str, kind: Any) -> Column[Any]:
    return Column(name, kind, nullable=False)


streams = Table(
    "streams",
    metadata,
    _incarnation(),
    Column("stream", _NAME, primary_key=True),
    _column("head", BigInteger),
    _column("epoch", BigInteger),
    _column("horizon", BigInteger),
    _column("counts_head", BigInteger),
    Column("history_horizon", BigInteger, nullable=False, server_default="0"),
)
"""``history_horizon`` is the newest operation whose history was forgotten."""

memories = Table(
    "memories",
    metadata,
    _incarnation(),
    Column("id", _UUID, primary_key=True),
    _column("stream", _NAME),
    _column("commit_stamp", BigInteger),
    _column("user_id", Text),
    _column("agent_id", Text),
    _column("run_id", Text),
    _column("owner_client_id", Text),
    _column("scope", Text),
    _column("category", Text),
    _column("content", Text),
    _column("tags", Text),
    _column("metadata", Text),
    _column("source", Text),
    _column("confidence", Double),
    _column("privacy_level", SmallInteger),
    _column("pinned", Boolean),
    _column("created_at", BigInteger),
    Column("valid_from", BigInteger),
    Column("valid_to", BigInteger),
    Column("expires_at", BigInteger),
    Column("superseded_by", _UUID),
    _column("content_stamp", LargeBinary),
    _column("field_stamps", LargeBinary),
    _column("field_commits", Text),
    _column("message", LargeBinary),
    Column("mark", BigInteger),
    Index("memories_by_commit_stamp", "incarnation", "stream", "commit_stamp", unique=True),
    Index("memories_by_created_at", "incarnation", "stream", "created_at", "id"),
    Index("memories_by_mark", "incarnation", "stream", "mark", "id"),
)

graveyard = Table(
    "graveyard",
    metadata,
    _incarnation(),
    Column("memory_id", _UUID, primary_key=True),
    _column("stream", _NAME),
    _column("commit_stamp", BigInteger),
    _column("stamp", LargeBinary),
    _column("private_to", Text),
    _column("scope", Text),
    Index("graveyard_by_commit_stamp", "incarnation", "stream", "commit_stamp"),
)

history = Table(
    "history",
    metadata,
    _incarnation(),
    Column("stream", _NAME, primary_key=True),
    Column("commit_stamp", BigInteger, primary_key=True, autoincrement=False),
    _column("operation_id", _UUID),
    _column("memory_id", _UUID),
    _column("kind", SmallInteger),
    _column("changes", Text),
    _column("client_id", Text),
    _column("replica_id", LargeBinary),
    _column("actor", Text),
    _column("role", Text),
    _column("outcome", SmallInteger),
    _column("claimed_at", BigInteger),
    _column("private_to", Text),
    _column("spell", Text),
    Column("deleted", LargeBinary),
    Column("restores", _UUID),
    Column("reason", Text),
    Index("history_by_memory", "incarnation", "memory_id", "commit_stamp"),
)

vectors = Table(
    "vectors",
    metadata,
    _incarnation(),
    Column("stream", _NAME, primary_key=True),
    Column("memory_id", _UUID, primary_key=True),
    Column("space", _NAME, primary_key=True),
    _column("content_stamp", LargeBinary),
    _column("vector", LargeBinary),
)

retractions = Table(
    "retractions",
    metadata,
    _incarnation(),
    Column("stream", _NAME, primary_key=True),
    Column("memory_id", _UUID, primary_key=True),
    Column("scope", _NAME, primary_key=True),
    Column("private_to", _NAME, primary_key=True),
    _column("commit_stamp", BigInteger),
    Index("retractions_by_commit_stamp", "incarnation", "stream", "commit_stamp"),
)

operations = Table(
    "operations",
    metadata,
    _incarnation(),
    Column("operation_id", _UUID, primary_key=True),
    _column("stream", _NAME),
    _column("commit_stamp", BigInteger),
    _column("status", SmallInteger),
    _column("result", LargeBinary),
    Index("operations_by_commit_stamp", "incarnation", "stream", "commit_stamp"),
)

replicas = Table(
    "replicas",
    metadata,
    _incarnation(),
    Column("stream", _NAME, primary_key=True),
    Column("replica_id", LargeBinary, primary_key=True),
    _column("client_id", Text),
    _column("number", BigInteger),
    _column("chain", LargeBinary),
    _column("seen_at", BigInteger),
)

waiting = Table(
    "waiting",
    metadata,
    _incarnation(),
    Column("stream", _NAME, primary_key=True),
    Column("memory_id", _UUID, primary_key=True),
    Column("operation_id", _UUID, primary_key=True),
    _column("commit_stamp", BigInteger),
    _column("client_id", Text),
    _column("scopes", Text),
    _column("actor", Text),
    _column("role", Text),
    _column("replica_id", LargeBinary),
    _column("spell", Text),
    _column("operation", LargeBinary),
    Column("vector", LargeBinary),
    _column("space", Text),
    Index("waiting_by_commit_stamp", "incarnation", "stream", "commit_stamp"),
)

access_counts = Table(
    "access_counts",
    metadata,
    _incarnation(),
    Column("stream", _NAME, primary_key=True),
    Column("memory_id", _UUID, primary_key=True),
    Column("replica_id", LargeBinary, primary_key=True),
    _column("total", BigInteger),
    _column("last_access_at", BigInteger),
    _column("lane_stamp", BigInteger),
    Index("access_counts_by_lane_stamp", "incarnation", "stream", "lane_stamp"),
)

recent_messages = Table(
    "recent_messages",
    metadata,
    _incarnation(),
    Column("stream", _NAME, primary_key=True),
    Column("scope", _NAME, primary_key=True),
    Column("client_id", _NAME, primary_key=True),
    _column("messages", Text),
)
"""The last messages that a client told a model of, as a JSON list."""

FORGOTTEN = (retractions, operations, waiting)
"""What is kept until the stream's horizon passes it."""

requests = Table(
    "requests",
    metadata,
    _incarnation(),
    Column("request_id", _NAME, primary_key=True),
    _column("digest", LargeBinary),
    _column("response", LargeBinary),
    _column("created_at", BigInteger),
    Column("stream", _NAME),
    Index("requests_by_age", "incarnation", "created_at"),
    Index("requests_by_stream", "incarnation", "stream"),
)
"""``stream`` is the one that the answer is about; NULL where it is not about one alone."""

stocks = Table(
    "stocks",
    metadata,
    _incarnation(),
    _column("memories", BigInteger),
    _column("bytes", BigInteger),
)

purges = Table(
    "purges",
    metadata,
    _incarnation(),
    _column("began_at", BigInteger),
    _column("highest", BigInteger),
    _column("swept", Text),
)
"""Lives that ended: how high their streams stood, and what was deleted of them, as a JSON object."""

moves = Table(
    "moves",
    metadata,
    _incarnation(),
    _column("state", SmallInteger),
    _column("operation_id", Text),
    _column("fence", BigInteger),
    _column("highest", BigInteger),
    _column("changed_at", BigInteger),
)
"""Tenants that leave the shard, left it, or arrive: see ``server.store.moving``. ``highest`` is how high
their streams stood here."""

touched = Table(
    "touched",
    metadata,
    _incarnation(),
    Column("entry", _NAME, primary_key=True),
    _column("table_name", Text),
    _column("key", Text),
)
"""Which rows of a tenant that leaves were written since they were copied: the rest of the primary key, as a
JSON list with bytes as hexadecimal digits."""

erasures = Table(
    "erasures",
    metadata,
    _incarnation(),
    Column("stream", _NAME, primary_key=True),
    _column("began_at", BigInteger),
    Column("finished_at", BigInteger),
    _column("swept", Text),
)
"""Subjects that were erased: when, and what was deleted of them, as a JSON object."""

imports = Table(
    "imports",
    metadata,
    _incarnation(),
    Column("operation_id", _UUID, primary_key=True),
    Column("place", BigInteger),
)
"""Imports into tenants: how many lines of the file are stored; NULL once it is over. While one is under way,
nobody else begins a stream of the tenant."""

jobs = Table(
    "jobs",
    metadata,
    _incarnation(),
    Column("id", _UUID, primary_key=True),
    _column("stream", _NAME),
    _column("kind", Text),
    _column("state", SmallInteger),
    _column("phase", Text),
    _column("done", BigInteger),
    _column("total", BigInteger),
    _column("request", LargeBinary),
    _column("answer", LargeBinary),
    _column("error", LargeBinary),
    _column("client_id", Text),
    _column("actor", Text),
    _column("role", Text),
    _column("request_id", Text),
    _column("private_to", Text),
    _column("created_at", BigInteger),
    _column("updated_at", BigInteger),
    Column("ended_at", BigInteger),
    _column("fence", BigInteger),
    Column("lease_until", BigInteger),
    Index("jobs_by_stream", "incarnation", "stream", "id"),
    # Of the few that have not ended: servers look for those again and again.
    Index(
        "jobs_that_wait",
        "incarnation",
        "id",
        sqlite_where=text("lease_until IS NOT NULL"),
        postgresql_where=text("lease_until IS NOT NULL"),
    ),
)

mentions = Table(
    "mentions",
    metadata,
    _incarnation(),
    Column("memory_id", _UUID, primary_key=True),
    Column("entity_id", _UUID, primary_key=True),
    _column("stream", _NAME),
    _column("normal", _NAME),
    _column("name", Text),
    _column("kind", SmallInteger),
    Index("mentions_by_entity", "incarnation", "stream", "normal", "entity_id"),
)

relations = Table(
    "relations",
    metadata,
    _incarnation(),
    Column("memory_id", _UUID, primary_key=True),
    Column("number", SmallInteger, primary_key=True, autoincrement=False),
    _column("stream", _NAME),
    _column("subject_id", _UUID),
    _column("relation", Text),
    _column("object_id", _UUID),
    Column("valid_from", BigInteger),
    Column("valid_to", BigInteger),
    Index("relations_by_subject", "incarnation", "stream", "subject_id"),
    Index("relations_by_object", "incarnation", "stream", "object_id"),
)

unlinked = Table("unlinked", metadata, _incarnation(), Column("stream", _NAME, primary_key=True))
"""Streams with memories from before there were entities, until these have their links."""
