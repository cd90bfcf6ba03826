"""What tenants' credentials did, by day."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """A table that begins empty: what was called before is not known."""
    byte_ordered = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
    op.create_table(
        "catalogue_usage",
        sa.Column("incarnation", sa.String(36), nullable=False),
        sa.Column("day", sa.BigInteger, nullable=False),
        sa.Column("key_id", byte_ordered, nullable=False),
        sa.Column("rpc", byte_ordered, nullable=False),
        sa.Column("calls", sa.BigInteger, nullable=False),
        sa.Column("refused", sa.BigInteger, nullable=False),
        sa.Column("bytes_in", sa.BigInteger, nullable=False),
        sa.Column("bytes_out", sa.BigInteger, nullable=False),
        sa.Column("memories", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("incarnation", "day", "key_id", "rpc", name="catalogue_usage_pk"),
    )
    op.create_index("catalogue_usage_by_day", "catalogue_usage", ["day"])
