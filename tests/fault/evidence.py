"""What a shard's database itself says, read with SQL while no server runs on it."""

from __future__ import annotations

import shutil
import sqlite3
from collections import defaultdict
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import psycopg

from scrubjay.operation import OperationKind

_Query = Callable[[str], list[tuple[Any, ...]]]

_CONTRADICTIONS = {
    "a memory without exactly one CREATE": """
        SELECT m.id FROM memories m WHERE 1 <> (SELECT count(*) FROM history h
        WHERE h.incarnation = m.incarnation AND h.memory_id = m.id AND h.kind = 1)""",
    "a memory whose newest operation is not its own commit stamp": """
        SELECT m.id FROM memories m WHERE m.commit_stamp IS DISTINCT FROM (
        SELECT max(h.commit_stamp) FROM history h WHERE h.incarnation = m.incarnation
        AND h.stream = m.stream AND h.memory_id = m.id)""",
    "a memory without the vector of its content": """
        SELECT m.id FROM memories m WHERE NOT EXISTS (SELECT 1 FROM vectors v WHERE
        v.incarnation = m.incarnation AND v.stream = m.stream AND v.memory_id = m.id
        AND v.content_stamp = m.content_stamp)""",
    "a vector without its memory": """
        SELECT v.memory_id FROM vectors v WHERE NOT EXISTS (SELECT 1 FROM memories m WHERE
        m.incarnation = v.incarnation AND m.id = v.memory_id)""",
    "a memory that is not linked to the address in it": """
        SELECT m.id FROM memories m WHERE m.content LIKE '%@example.org' AND NOT EXISTS (SELECT 1 FROM
        mentions x WHERE x.incarnation = m.incarnation AND x.memory_id = m.id AND x.stream = m.stream)""",
    "a mention without its memory": """
        SELECT x.memory_id FROM mentions x WHERE NOT EXISTS (SELECT 1 FROM memories m WHERE
        m.incarnation = x.incarnation AND m.id = x.memory_id)""",
    "a relation without its memory": """
        SELECT r.memory_id FROM relations r WHERE NOT EXISTS (SELECT 1 FROM memories m WHERE
        m.incarnation = r.incarnation AND m.id = r.memory_id)""",
    "a history of nothing": """
        SELECT h.memory_id FROM history h WHERE NOT EXISTS (SELECT 1 FROM memories m WHERE
        m.incarnation = h.incarnation AND m.id = h.memory_id) AND NOT EXISTS (SELECT 1 FROM graveyard g
        WHERE g.incarnation = h.incarnation AND g.memory_id = h.memory_id)""",
    "a memory that is alive and buried": """
        SELECT m.id FROM memories m JOIN graveyard g ON g.incarnation = m.incarnation
        AND g.memory_id = m.id""",
    "a grave without exactly one DELETE": """
        SELECT g.memory_id FROM graveyard g WHERE 1 <> (SELECT count(*) FROM history h
        WHERE h.incarnation = g.incarnation AND h.memory_id = g.memory_id AND h.kind = 3
        AND h.commit_stamp = g.commit_stamp)""",
    "a head that is not at its stream's newest operation": """
        SELECT s.stream FROM streams s WHERE s.head IS DISTINCT FROM (SELECT max(h.commit_stamp)
        FROM history h WHERE h.incarnation = s.incarnation AND h.stream = s.stream)""",
    "an operation in a stream without a head": """
        SELECT h.stream FROM history h WHERE NOT EXISTS (SELECT 1 FROM streams s
        WHERE s.incarnation = h.incarnation AND s.stream = h.stream)""",
}


@dataclass
class Evidence:
    """What is stored: content of the living, ids of the dead, kinds of operation by memory, oldest first."""

    contents: dict[str, str] = field(default_factory=dict)
    users: dict[str, str] = field(default_factory=dict)
    dead: set[str] = field(default_factory=set)
    operations: dict[str, list[OperationKind]] = field(default_factory=lambda: defaultdict(list))


def of_files(data_dir: Path, scratch: Path) -> Evidence:
    """What the SQLite files hold. Copies are read, so that the next start itself recovers from their logs."""
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    found = Evidence()
    for file in sorted(data_dir.glob("shard-*.db")):
        for part in (file, file.with_name(f"{file.name}-wal")):
            if part.exists():
                shutil.copy(part, scratch)
        with closing(sqlite3.connect(scratch / file.name)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            _gather(found, partial(_rows, connection))
    return found


def of_postgres(url: str) -> Evidence:
    """What a PostgreSQL database holds."""
    found = Evidence()
    with psycopg.connect(url) as connection:
        # A killed server's last commit may still be on its way: look at one moment.
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        _gather(found, partial(_rows, connection))
    return found


def _rows(connection: Any, sql: str) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = connection.execute(sql).fetchall()
    return rows


def _gather(found: Evidence, query: _Query) -> None:
    """Add one database to what was found. AssertionError where rows contradict one another."""
    contradictions = {what: rows for what, sql in _CONTRADICTIONS.items() if (rows := query(sql))}
    assert contradictions == {}
    for memory_id, user_id, content in query("SELECT id, user_id, content FROM memories"):
        found.contents[str(memory_id)] = content
        found.users[str(memory_id)] = user_id
    found.dead |= {str(memory_id) for (memory_id,) in query("SELECT memory_id FROM graveyard")}
    for memory_id, kind in query("SELECT memory_id, kind FROM history ORDER BY stream, commit_stamp"):
        found.operations[str(memory_id)].append(OperationKind(kind))
