"""Of which space a waiting edit's vector is. Of those from before nobody knows it: they are not used."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("waiting", sa.Column("space", sa.Text, nullable=False, server_default=""))
