"""How much each tenant has in a shard."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

UUID = sa.String(36).with_variant(postgresql.UUID(as_uuid=False), "postgresql")


def upgrade() -> None:
    op.create_table(
        "stocks",
        sa.Column("incarnation", UUID, primary_key=True),
        sa.Column("memories", sa.BigInteger, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
    )
    op.execute(
        "INSERT INTO stocks (incarnation, memories, bytes) "
        "SELECT incarnation, count(*), sum(length(message)) FROM memories GROUP BY incarnation"
    )
    if op.get_bind().dialect.name == "sqlite":
        op.execute(
            "UPDATE stocks SET bytes = bytes + coalesce((SELECT sum(length(CAST(changes AS BLOB))) "
            "FROM history WHERE history.incarnation = stocks.incarnation), 0)"
        )
    else:
        op.execute(
            "UPDATE stocks SET bytes = bytes + coalesce((SELECT sum(octet_length(changes)) "
            "FROM history WHERE history.incarnation = stocks.incarnation), 0)"
        )
