"""Which memory replaced a memory."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "memories", sa.Column("superseded_by", sa.String(36).with_variant(postgresql.UUID(), "postgresql"))
    )
