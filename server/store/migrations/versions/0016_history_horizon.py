"""Up to where the history of a stream was forgotten."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    """All of it is there."""
    op.add_column("streams", sa.Column("history_horizon", sa.BigInteger, nullable=False, server_default="0"))
