"""Long operations on tenants."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy import false, true

revision = "0010"
down_revision = "0009"

_OPEN = sa.text("lease_until IS NOT NULL")


def upgrade() -> None:
    """A table of its own."""
    byte_ordered = sa.String(36).with_variant(sa.String(36, collation="C"), "postgresql")
    op.create_table(
        "catalogue_operations",
        sa.Column("operation_id", byte_ordered, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("target", sa.Text, nullable=False),
        sa.Column("tenant_id", sa.Text, nullable=False),
        sa.Column("incarnation", sa.String(36), nullable=False),
        sa.Column("state", sa.SmallInteger, nullable=False),
        sa.Column("phase", sa.Text, nullable=False, server_default=""),
        sa.Column("done", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("total", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("per_second", sa.Double, nullable=False, server_default="0"),
        sa.Column("asked", sa.Text, nullable=False),
        sa.Column("notes", sa.Text, nullable=False, server_default="{}"),
        sa.Column("answer", sa.LargeBinary, nullable=False),
        sa.Column("error", sa.LargeBinary, nullable=False),
        sa.Column("cancellable", sa.Boolean, nullable=False, server_default=true()),
        sa.Column("cancelling", sa.Boolean, nullable=False, server_default=false()),
        sa.Column("failures", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("request_id", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.Column("ended_at", sa.BigInteger),
        sa.Column("fence", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("lease_until", sa.BigInteger),
        sa.PrimaryKeyConstraint("operation_id", name="catalogue_operations_pk"),
    )
    op.create_index("catalogue_operations_by_tenant", "catalogue_operations", ["tenant_id", "operation_id"])
    op.create_index(
        "catalogue_operations_that_are_open",
        "catalogue_operations",
        ["target"],
        unique=True,
        sqlite_where=_OPEN,
        postgresql_where=_OPEN,
    )
