"""What a tenant forgets, and which keys may search across its subjects."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Until told otherwise, tenants forget by the default rule and keys search one subject at a time."""
    op.add_column("catalogue_tenants", sa.Column("forget_policy", sa.Text))
    op.add_column(
        "catalogue_api_keys",
        sa.Column("across_subjects", sa.Boolean, nullable=False, server_default=sa.false()),
    )
