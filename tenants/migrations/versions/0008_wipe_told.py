"""When a device was told to delete what it holds."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Of those that were told before, it is not known; one that calls again is told again."""
    op.add_column("catalogue_devices", sa.Column("wipe_told_at", sa.BigInteger))
