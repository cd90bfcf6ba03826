"""How long a tenant's past is kept."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    """Until told otherwise, as long as before."""
    op.add_column("catalogue_tenants", sa.Column("retention", sa.Text))
