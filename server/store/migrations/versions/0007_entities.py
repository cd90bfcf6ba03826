"""Entities: whom and what memories mention, and what they say of these."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_UUID = sa.String(36).with_variant(postgresql.UUID(as_uuid=False), "postgresql")
_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "mentions",
        sa.Column("incarnation", _UUID, primary_key=True),
        sa.Column("memory_id", _UUID, primary_key=True),
        sa.Column("entity_id", _UUID, primary_key=True),
        sa.Column("stream", _NAME, nullable=False),
        sa.Column("normal", _NAME, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.SmallInteger(), nullable=False),
    )
    op.create_index("mentions_by_entity", "mentions", ["incarnation", "stream", "normal", "entity_id"])
    op.create_table(
        "relations",
        sa.Column("incarnation", _UUID, primary_key=True),
        sa.Column("memory_id", _UUID, primary_key=True),
        sa.Column("number", sa.SmallInteger(), primary_key=True, autoincrement=False),
        sa.Column("stream", _NAME, nullable=False),
        sa.Column("subject_id", _UUID, nullable=False),
        sa.Column("relation", sa.Text(), nullable=False),
        sa.Column("object_id", _UUID, nullable=False),
        sa.Column("valid_from", sa.BigInteger()),
        sa.Column("valid_to", sa.BigInteger()),
    )
    op.create_index("relations_by_subject", "relations", ["incarnation", "stream", "subject_id"])
    op.create_index("relations_by_object", "relations", ["incarnation", "stream", "object_id"])
    op.create_table(
        "unlinked",
        sa.Column("incarnation", _UUID, primary_key=True),
        sa.Column("stream", _NAME, primary_key=True),
    )
    # What is there already is read by the server, in its own time.
    op.execute("INSERT INTO unlinked (incarnation, stream) SELECT incarnation, stream FROM streams")
