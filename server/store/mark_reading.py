"""Reads of what may say the same: memories by the mark of their text."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import BigInteger, Select, and_, bindparam, exists, func, or_, select
from sqlalchemy.dialects import postgresql

from scrubjay.memory import Memory, PrivacyLevel, canonical_json
from server.store.rows import STORED_COLUMNS, StoredMemory, StreamKey, to_stored
from server.store.tables import memories
from server.store.transaction import Transaction

MOST_ALIKE = 16
"""Memories of one mark that are compared with a new one, the newest: nearly always there is one, and a stream
may have been filled with thousands of the same."""


class MarkReading:
    """Reads of memories by the mark of their text."""

    def __init__(self, transaction: Transaction) -> None:
        self._marks = transaction

    def marked(self, key: StreamKey, marks: Collection[int]) -> set[int]:
        """Those of the marks that a living memory of the stream has."""
        dialect = self._marks.dialect_name
        given = list(marks) if dialect == "postgresql" else canonical_json(list(marks))
        values = {"incarnation": key.incarnation, "stream": key.stream, "marks": given}
        return {row[0] for row in self._marks.all(_MARKED[dialect], values)}

    def alike(self, key: StreamKey, mark: int, new: Memory) -> list[StoredMemory]:
        """At most ``MOST_ALIKE`` living memories of the mark, newest first, that may stand for ``new``: of
        its scope, agent and run, for the same eyes, and true still."""
        values = {
            "incarnation": key.incarnation,
            "stream": key.stream,
            "mark": mark,
            "scope": new.scope,
            "agent_id": new.agent_id,
            "run_id": new.run_id,
            "privacy_level": int(new.privacy_level),
            "owner": new.owner_client_id,
            "limit": MOST_ALIKE,
            "shared": int(PrivacyLevel.SHARED),
        }
        return [to_stored(row) for row in self._marks.all(_ALIKE, values)]


_OF_STREAM = and_(
    memories.c.incarnation == bindparam("incarnation"), memories.c.stream == bindparam("stream")
)
_ALIKE = (
    select(*STORED_COLUMNS)
    .where(
        _OF_STREAM,
        memories.c.mark == bindparam("mark"),
        memories.c.scope == bindparam("scope"),
        memories.c.agent_id == bindparam("agent_id"),
        memories.c.run_id == bindparam("run_id"),
        memories.c.privacy_level == bindparam("privacy_level"),
        or_(
            memories.c.privacy_level == bindparam("shared"), memories.c.owner_client_id == bindparam("owner")
        ),
        memories.c.superseded_by.is_(None),
    )
    .order_by(memories.c.id.desc())
    .limit(bindparam("limit"))
)


def _having(marks: Any) -> Select[Any]:
    having = select(memories.c.mark).where(_OF_STREAM, memories.c.mark == marks)
    return select(marks).where(exists(having.correlate_except(memories)))


_MARKED = {
    "postgresql": _having(
        func.unnest(bindparam("marks", type_=postgresql.ARRAY(BigInteger))).column_valued("given")
    ),
    "sqlite": _having(func.json_each(bindparam("marks")).table_valued("value").c.value),
}
