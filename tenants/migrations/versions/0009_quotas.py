"""How much a tenant may have and call."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Until told otherwise, nothing is limited."""
    op.add_column("catalogue_tenants", sa.Column("quotas", sa.Text))
