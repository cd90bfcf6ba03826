"""Imports into tenants, and how far each has come."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

UUID = sa.String(36).with_variant(postgresql.UUID(as_uuid=False), "postgresql")


def upgrade() -> None:
    op.create_table(
        "imports",
        sa.Column("incarnation", UUID, primary_key=True),
        sa.Column("operation_id", UUID, primary_key=True),
        sa.Column("place", sa.BigInteger),
    )
