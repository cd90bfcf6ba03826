"""What a deletion took away, and what an operation brings back."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("history", sa.Column("deleted", sa.LargeBinary()))
    op.add_column(
        "history", sa.Column("restores", sa.String(36).with_variant(postgresql.UUID(), "postgresql"))
    )
