"""The mark of each memory's text, by which what was said before is found."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from server.ingest.words import mark

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

UUID = sa.String(36).with_variant(postgresql.UUID(as_uuid=False), "postgresql")
MARKED_AT_ONCE = 1000


def upgrade() -> None:
    op.add_column("memories", sa.Column("mark", sa.BigInteger()))
    _mark_all(op.get_bind())
    op.create_index("memories_by_mark", "memories", ["incarnation", "stream", "mark", "id"])


def _mark_all(connection: sa.Connection) -> None:
    memories = sa.table(
        "memories",
        sa.column("incarnation", UUID),
        sa.column("id", UUID),
        sa.column("content", sa.Text()),
        sa.column("mark", sa.BigInteger()),
    )
    place = (memories.c.incarnation, memories.c.id)
    page = sa.select(*place, memories.c.content).order_by(*place).limit(MARKED_AT_ONCE)
    update = (
        memories.update()
        .where(memories.c.incarnation == sa.bindparam("of"), memories.c.id == sa.bindparam("one"))
        .values(mark=sa.bindparam("found"))
    )
    rows = connection.execute(page).all()
    while rows:
        connection.execute(
            update, [{"of": row.incarnation, "one": row.id, "found": mark(row.content)} for row in rows]
        )
        last = rows[-1]
        behind = sa.tuple_(*place) > sa.tuple_(sa.literal(last.incarnation, UUID), sa.literal(last.id, UUID))
        rows = connection.execute(page.where(behind)).all()
