"""Devices, and the codes that let them in."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make the two tables."""
    by_bytes = sa.String(16).with_variant(sa.String(16, collation="C"), "postgresql")
    op.create_table(
        "catalogue_enrolments",
        sa.Column("enrolment_id", sa.String(16), nullable=False),
        sa.Column("incarnation", sa.String(36), nullable=False),
        sa.Column("digest", sa.LargeBinary(32), nullable=False),
        sa.Column("client_id", sa.Text, nullable=False),
        sa.Column("subject_kind", sa.Text, nullable=False),
        sa.Column("subject_name", sa.Text, nullable=False),
        sa.Column("scopes", sa.Text, nullable=False),
        sa.Column("display_name", sa.Text, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        sa.Column("device_id", sa.String(16)),
        sa.Column("installation_id", sa.LargeBinary(16)),
        sa.PrimaryKeyConstraint("enrolment_id", name="catalogue_enrolments_pk"),
        sa.ForeignKeyConstraint(
            ["incarnation"], ["catalogue_tenants.incarnation"], name="catalogue_enrolments_of_tenant"
        ),
    )
    op.create_index("catalogue_enrolments_by_tenant", "catalogue_enrolments", ["incarnation"])
    op.create_index("catalogue_enrolments_by_age", "catalogue_enrolments", ["expires_at"])
    op.create_index("catalogue_enrolments_by_device", "catalogue_enrolments", ["device_id"])
    op.create_table(
        "catalogue_devices",
        sa.Column("device_id", by_bytes, nullable=False),
        sa.Column("incarnation", sa.String(36), nullable=False),
        sa.Column("client_id", sa.Text, nullable=False),
        sa.Column("subject_kind", sa.Text, nullable=False),
        sa.Column("subject_name", sa.Text, nullable=False),
        sa.Column("scopes", sa.Text, nullable=False),
        sa.Column("display_name", sa.Text, nullable=False),
        sa.Column("seed", sa.LargeBinary(20), nullable=False),
        sa.Column("generation", sa.BigInteger, nullable=False),
        sa.Column("confirmed", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        sa.Column("previous_expires_at", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("seen_at", sa.BigInteger, nullable=False),
        sa.Column("revoked_at", sa.BigInteger),
        sa.Column("wipe", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("device_id", name="catalogue_devices_pk"),
        sa.ForeignKeyConstraint(
            ["incarnation"], ["catalogue_tenants.incarnation"], name="catalogue_devices_of_tenant"
        ),
    )
    op.create_index("catalogue_devices_by_tenant", "catalogue_devices", ["incarnation", "device_id"])
