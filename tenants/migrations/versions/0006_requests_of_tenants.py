"""Which tenant a kept answer is about, so that it goes with the tenant."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Answers that are kept already name none, and go within a day."""
    op.add_column("catalogue_requests", sa.Column("tenant_id", sa.Text))
