"""The audit log, and where it ends."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Make an empty log."""
    op.create_table(
        "catalogue_audit_events",
        sa.Column("number", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("role", sa.SmallInteger, nullable=False),
        sa.Column("tenant_id", sa.Text, nullable=False),
        sa.Column("incarnation", sa.String(36), nullable=False),
        sa.Column("method", sa.Text, nullable=False),
        sa.Column("resource", sa.Text, nullable=False),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
        sa.Column("digest", sa.LargeBinary(32), nullable=False),
        sa.PrimaryKeyConstraint("number", name="catalogue_audit_events_pk"),
    )
    op.create_index("catalogue_audit_events_by_tenant", "catalogue_audit_events", ["tenant_id", "number"])
    head = op.create_table(
        "catalogue_audit_head",
        sa.Column("number", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("digest", sa.LargeBinary(32), nullable=False),
        sa.Column("seal", sa.LargeBinary(32), nullable=False),
        sa.PrimaryKeyConstraint("number", name="catalogue_audit_head_pk"),
    )
    op.bulk_insert(head, [{"number": 0, "digest": bytes(32), "seal": b""}])
