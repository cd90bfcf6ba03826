"""Suspended, deleted and purged tenants."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Every tenant that is there stays what it is."""
    op.add_column("catalogue_tenants", sa.Column("suspended_at", sa.BigInteger))
    op.add_column(
        "catalogue_tenants",
        sa.Column("suspension_reason", sa.Text, nullable=False, server_default=""),
    )
    op.add_column("catalogue_tenants", sa.Column("deleted_at", sa.BigInteger))
    op.add_column("catalogue_tenants", sa.Column("purge_at", sa.BigInteger))
    op.add_column("catalogue_tenants", sa.Column("purge", sa.Text))
