"""What sync needs: who may hear of what, replicas and their operations, access counts."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_UUID = sa.String(36).with_variant(postgresql.UUID(), "postgresql")
_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")

# A grave is heard of by whom History shows the deletion to.
_GRAVES_PRIVATE_TO = """
UPDATE graveyard SET private_to = COALESCE((
    SELECT history.private_to FROM history
    WHERE history.incarnation = graveyard.incarnation AND history.memory_id = graveyard.memory_id
    ORDER BY history.commit_stamp DESC LIMIT 1
), '')
"""


def upgrade() -> None:
    with op.batch_alter_table("streams") as streams:
        streams.alter_column("epoch", existing_type=sa.Integer(), type_=sa.BigInteger(), nullable=False)
        streams.add_column(sa.Column("counts_head", sa.BigInteger, nullable=False, server_default="0"))
    # An empty object: every register counts as written at the row's own commit stamp.
    op.add_column("memories", sa.Column("field_commits", sa.Text, nullable=False, server_default="{}"))
    op.add_column("graveyard", sa.Column("private_to", sa.Text, nullable=False, server_default=""))
    op.add_column("graveyard", sa.Column("scope", sa.Text, nullable=False, server_default=""))
    op.execute(_GRAVES_PRIVATE_TO)
    op.add_column("history", sa.Column("spell", sa.Text, nullable=False, server_default=""))
    op.create_table(
        "retractions",
        sa.Column("incarnation", _UUID, primary_key=True),
        sa.Column("stream", _NAME, primary_key=True),
        sa.Column("memory_id", _UUID, primary_key=True),
        sa.Column("scope", _NAME, primary_key=True),
        sa.Column("private_to", _NAME, primary_key=True),
        sa.Column("commit_stamp", sa.BigInteger, nullable=False),
    )
    op.create_index("retractions_by_commit_stamp", "retractions", ["incarnation", "stream", "commit_stamp"])
    op.create_table(
        "operations",
        sa.Column("incarnation", _UUID, primary_key=True),
        sa.Column("operation_id", _UUID, primary_key=True),
        sa.Column("stream", _NAME, nullable=False),
        sa.Column("commit_stamp", sa.BigInteger, nullable=False),
        sa.Column("status", sa.SmallInteger, nullable=False),
        sa.Column("result", sa.LargeBinary, nullable=False),
    )
    op.create_index("operations_by_commit_stamp", "operations", ["incarnation", "stream", "commit_stamp"])
    op.create_table(
        "replicas",
        sa.Column("incarnation", _UUID, primary_key=True),
        sa.Column("stream", _NAME, primary_key=True),
        sa.Column("replica_id", sa.LargeBinary, primary_key=True),
        sa.Column("client_id", sa.Text, nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("chain", sa.LargeBinary, nullable=False),
        sa.Column("seen_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "waiting",
        sa.Column("incarnation", _UUID, primary_key=True),
        sa.Column("stream", _NAME, primary_key=True),
        sa.Column("memory_id", _UUID, primary_key=True),
        sa.Column("operation_id", _UUID, primary_key=True),
        sa.Column("commit_stamp", sa.BigInteger, nullable=False),
        sa.Column("client_id", sa.Text, nullable=False),
        sa.Column("scopes", sa.Text, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("replica_id", sa.LargeBinary, nullable=False),
        sa.Column("spell", sa.Text, nullable=False),
        sa.Column("operation", sa.LargeBinary, nullable=False),
        sa.Column("vector", sa.LargeBinary),
    )
    op.create_index("waiting_by_commit_stamp", "waiting", ["incarnation", "stream", "commit_stamp"])
    op.create_table(
        "access_counts",
        sa.Column("incarnation", _UUID, primary_key=True),
        sa.Column("stream", _NAME, primary_key=True),
        sa.Column("memory_id", _UUID, primary_key=True),
        sa.Column("replica_id", sa.LargeBinary, primary_key=True),
        sa.Column("total", sa.BigInteger, nullable=False),
        sa.Column("last_access_at", sa.BigInteger, nullable=False),
        sa.Column("lane_stamp", sa.BigInteger, nullable=False),
    )
    op.create_index("access_counts_by_lane_stamp", "access_counts", ["incarnation", "stream", "lane_stamp"])
