"""Tenants that may move, and shards that take no more tenants."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Nobody moves yet."""
    moving = sa.Column("moving", sa.Boolean, nullable=False, server_default=sa.false())
    op.add_column("catalogue_tenants", moving)
    op.create_table(
        "catalogue_draining_shards",
        sa.Column("name", sa.Text().with_variant(sa.Text(collation="C"), "postgresql"), nullable=False),
        sa.PrimaryKeyConstraint("name", name="catalogue_draining_shards_pk"),
    )
