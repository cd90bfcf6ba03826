"""The first tables of a shard."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_UUID = sa.String(36).with_variant(postgresql.UUID(), "postgresql")
_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "streams",
        sa.Column("incarnation", _UUID, primary_key=True),
        sa.Column("stream", _NAME, primary_key=True),
        sa.Column("head", sa.BigInteger, nullable=False),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("horizon", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "memories",
        sa.Column("incarnation", _UUID, primary_key=True),
        sa.Column("id", _UUID, primary_key=True),
        sa.Column("stream", _NAME, nullable=False),
        sa.Column("commit_stamp", sa.BigInteger, nullable=False),
        sa.Column("user_id", sa.Text, nullable=False),
        sa.Column("agent_id", sa.Text, nullable=False),
        sa.Column("run_id", sa.Text, nullable=False),
        sa.Column("owner_client_id", sa.Text, nullable=False),
        sa.Column("scope", sa.Text, nullable=False),
        sa.Column("category", sa.Text, nullable=False),
        sa.Column("content", sa.Text, nullable=False),
        sa.Column("tags", sa.Text, nullable=False),
        sa.Column("metadata", sa.Text, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("confidence", sa.Double, nullable=False),
        sa.Column("privacy_level", sa.SmallInteger, nullable=False),
        sa.Column("pinned", sa.Boolean, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("valid_from", sa.BigInteger),
        sa.Column("valid_to", sa.BigInteger),
        sa.Column("expires_at", sa.BigInteger),
        sa.Column("content_stamp", sa.LargeBinary, nullable=False),
        sa.Column("field_stamps", sa.LargeBinary, nullable=False),
        sa.Column("message", sa.LargeBinary, nullable=False),
    )
    op.create_index(
        "memories_by_commit_stamp", "memories", ["incarnation", "stream", "commit_stamp"], unique=True
    )
    op.create_index("memories_by_created_at", "memories", ["incarnation", "stream", "created_at", "id"])
    op.create_table(
        "graveyard",
        sa.Column("incarnation", _UUID, primary_key=True),
        sa.Column("memory_id", _UUID, primary_key=True),
        sa.Column("stream", _NAME, nullable=False),
        sa.Column("commit_stamp", sa.BigInteger, nullable=False),
        sa.Column("stamp", sa.LargeBinary, nullable=False),
    )
    op.create_index("graveyard_by_commit_stamp", "graveyard", ["incarnation", "stream", "commit_stamp"])
    op.create_table(
        "history",
        sa.Column("incarnation", _UUID, primary_key=True),
        sa.Column("stream", _NAME, primary_key=True),
        sa.Column("commit_stamp", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("operation_id", _UUID, nullable=False),
        sa.Column("memory_id", _UUID, nullable=False),
        sa.Column("kind", sa.SmallInteger, nullable=False),
        sa.Column("changes", sa.Text, nullable=False),
        sa.Column("client_id", sa.Text, nullable=False),
        sa.Column("replica_id", sa.LargeBinary, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("outcome", sa.SmallInteger, nullable=False),
        sa.Column("claimed_at", sa.BigInteger, nullable=False),
        sa.Column("private_to", sa.Text, nullable=False),
    )
    op.create_index("history_by_memory", "history", ["incarnation", "memory_id", "commit_stamp"])
    op.create_table(
        "vectors",
        sa.Column("incarnation", _UUID, primary_key=True),
        sa.Column("stream", _NAME, primary_key=True),
        sa.Column("memory_id", _UUID, primary_key=True),
        sa.Column("space", _NAME, primary_key=True),
        sa.Column("content_stamp", sa.LargeBinary, nullable=False),
        sa.Column("vector", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "requests",
        sa.Column("incarnation", _UUID, primary_key=True),
        sa.Column("request_id", _NAME, primary_key=True),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("response", sa.LargeBinary, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
    )
    op.create_index("requests_by_age", "requests", ["incarnation", "created_at"])
