"""Keys that reach some scopes alone."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """A key from before reaches all."""
    op.add_column("catalogue_api_keys", sa.Column("scopes", sa.Text, nullable=False, server_default="[]"))
