"""Tenants that move from shard to shard."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

UUID = sa.String(36).with_variant(postgresql.UUID(as_uuid=False), "postgresql")
NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")

# Called by triggers that are made for one tenant while it moves: what they name are the columns of the
# table's primary key but the incarnation.
TOUCH = """
CREATE FUNCTION scrubjay_touch() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    written jsonb;
BEGIN
    IF TG_OP = 'DELETE' THEN written := to_jsonb(OLD); ELSE written := to_jsonb(NEW); END IF;
    INSERT INTO touched (incarnation, entry, table_name, key)
    SELECT (written ->> 'incarnation')::uuid, gen_random_uuid()::text, TG_TABLE_NAME,
        coalesce(jsonb_agg(written ->> name ORDER BY place), '[]')::text
    FROM unnest(TG_ARGV) WITH ORDINALITY AS part (name, place);
    RETURN NULL;
END $$
"""


def upgrade() -> None:
    op.create_table(
        "moves",
        sa.Column("incarnation", UUID, primary_key=True),
        sa.Column("state", sa.SmallInteger, nullable=False),
        sa.Column("operation_id", sa.Text, nullable=False),
        sa.Column("fence", sa.BigInteger, nullable=False),
        sa.Column("highest", sa.BigInteger, nullable=False),
        sa.Column("changed_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "touched",
        sa.Column("incarnation", UUID, primary_key=True),
        sa.Column("entry", NAME, primary_key=True),
        sa.Column("table_name", sa.Text, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
    )
    if op.get_bind().dialect.name == "postgresql":
        op.execute(TOUCH)
