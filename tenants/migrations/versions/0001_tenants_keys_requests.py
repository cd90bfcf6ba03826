"""Tenants, their keys, and the admin requests of the last day."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the three tables."""
    by_bytes = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
    op.create_table(
        "catalogue_tenants",
        sa.Column("tenant_id", by_bytes, nullable=False),
        sa.Column("display_name", sa.Text, nullable=False),
        sa.Column("incarnation", sa.String(36), nullable=False),
        sa.Column("state", sa.SmallInteger, nullable=False),
        sa.Column("shard", sa.Text, nullable=False),
        sa.Column("space", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", name="catalogue_tenants_pk"),
        sa.UniqueConstraint("incarnation", name="catalogue_tenants_by_incarnation"),
    )
    op.create_table(
        "catalogue_api_keys",
        sa.Column("key_id", sa.String(16), nullable=False),
        sa.Column("incarnation", sa.String(36)),
        sa.Column("digest", sa.LargeBinary(32), nullable=False),
        sa.Column("display_name", sa.Text, nullable=False),
        sa.Column("role", sa.SmallInteger, nullable=False),
        sa.Column("client_id", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger),
        sa.Column("revoked_at", sa.BigInteger),
        sa.PrimaryKeyConstraint("key_id", name="catalogue_api_keys_pk"),
        sa.ForeignKeyConstraint(
            ["incarnation"], ["catalogue_tenants.incarnation"], name="catalogue_api_keys_of_tenant"
        ),
    )
    op.create_index("catalogue_api_keys_by_tenant", "catalogue_api_keys", ["incarnation"])
    op.create_table(
        "catalogue_requests",
        sa.Column("scope", sa.String(36), nullable=False),
        sa.Column("request_id", sa.Text, nullable=False),
        sa.Column("digest", sa.LargeBinary(32), nullable=False),
        sa.Column("answer", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("scope", "request_id", name="catalogue_requests_pk"),
    )
    op.create_index("catalogue_requests_by_age", "catalogue_requests", ["created_at"])
