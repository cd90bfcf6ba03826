"""Recent messages: what a model was told last."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

UUID = sa.String(36).with_variant(postgresql.UUID(as_uuid=False), "postgresql")
NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "recent_messages",
        sa.Column("incarnation", UUID, primary_key=True),
        sa.Column("stream", NAME, primary_key=True),
        sa.Column("scope", NAME, primary_key=True),
        sa.Column("client_id", NAME, primary_key=True),
        sa.Column("messages", sa.Text(), nullable=False),
    )
