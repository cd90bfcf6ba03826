"""What a server's databases hold of the memories that devices sync, read with SQL while no server runs."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import psycopg

from scrubjay.feed import read_state
from scrubjay.memory import MemoryId
from scrubjay.merge import State
from scrubjay.operation import OperationKind

_Query = Callable[[str], Iterable[tuple[Any, ...]]]


@dataclass
class Served:
    """``rows``: the living as (commit stamp, state); ``graves``: the dead; ``changes``: of every memory, the
    kinds of its operations and what they wrote, as text; ``counts``: totals by (memory, replica);
    ``waiting``: memories with edits that came before their create."""

    rows: dict[MemoryId, tuple[int, State]] = field(default_factory=dict)
    graves: set[MemoryId] = field(default_factory=set)
    changes: dict[MemoryId, list[tuple[OperationKind, str]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    counts: dict[tuple[MemoryId, bytes], int] = field(default_factory=dict)
    waiting: set[MemoryId] = field(default_factory=set)


def of_files(data_dir: Path) -> Served:
    """What the SQLite files hold. AssertionError where one is damaged."""
    found = Served()
    for file in sorted(data_dir.glob("shard-*.db")):
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            _gather(found, connection.execute)
    return found


def of_postgres(url: str) -> Served:
    """What a PostgreSQL database holds."""
    found = Served()
    with psycopg.connect(url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        _gather(found, partial(_rows, connection))
    return found


def _rows(connection: Any, sql: str) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = connection.execute(sql).fetchall()
    return rows


def _gather(found: Served, query: _Query) -> None:
    for key, stamp, message, stamps in query("SELECT id, commit_stamp, message, field_stamps FROM memories"):
        found.rows[MemoryId(str(key))] = (stamp, read_state(bytes(message), bytes(stamps)))
    found.graves |= {MemoryId(str(key)) for (key,) in query("SELECT memory_id FROM graveyard")}
    for key, kind, changes in query("SELECT memory_id, kind, changes FROM history ORDER BY commit_stamp"):
        found.changes[MemoryId(str(key))].append((OperationKind(kind), changes))
    for key, replica, total in query("SELECT memory_id, replica_id, total FROM access_counts"):
        found.counts[MemoryId(str(key)), bytes(replica)] = total
    found.waiting |= {MemoryId(str(key)) for (key,) in query("SELECT memory_id FROM waiting")}
