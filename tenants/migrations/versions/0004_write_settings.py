"""How a tenant's memories are written."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Until told otherwise, tenants write as their requests say."""
    op.add_column("catalogue_tenants", sa.Column("write_settings", sa.Text))
