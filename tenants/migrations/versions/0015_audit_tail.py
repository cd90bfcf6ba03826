"""Up to where the audit log was cut off for its age."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    """A table that is empty: the log is whole."""
    op.create_table(
        "catalogue_audit_tail",
        sa.Column("number", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("digest", sa.LargeBinary(32), nullable=False),
        sa.Column("seal", sa.LargeBinary(32), nullable=False),
        sa.PrimaryKeyConstraint("number", name="catalogue_audit_tail_pk"),
    )
