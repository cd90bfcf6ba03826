"""Why an operation was done, where its author or the sweep said so."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("history", sa.Column("reason", sa.Text()))
