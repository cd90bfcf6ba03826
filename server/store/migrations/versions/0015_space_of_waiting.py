"""Of which space the vector of a waiting operation is. Nobody knows of those from before: they are of no use."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("waiting", sa.Column("space", sa.Text, nullable=False, server_default=""))
