"""Subjects that were erased, and which stream a kept answer is about."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

UUID = sa.String(36).with_variant(postgresql.UUID(as_uuid=False), "postgresql")
NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Answers that are kept already name no stream, and go within a day."""
    op.create_table(
        "erasures",
        sa.Column("incarnation", UUID, primary_key=True),
        sa.Column("stream", NAME, primary_key=True),
        sa.Column("began_at", sa.BigInteger, nullable=False),
        sa.Column("finished_at", sa.BigInteger),
        sa.Column("swept", sa.Text, nullable=False),
    )
    op.add_column("requests", sa.Column("stream", NAME))
    op.create_index("requests_by_stream", "requests", ["incarnation", "stream"])
