"""What a replica's file holds, read past the engine: SQL on the tables, and every byte of the files."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from client_sync.copies import FORGOTTEN
from scrubjay.feed import read_state
from scrubjay.memory import MemoryId, id_text
from scrubjay.merge import State
from scrubjay.stamp import Stamp, parse_time_text

LOCAL = -1


@dataclass(frozen=True, slots=True)
class Queued:
    """An operation in the outbox."""

    position: int
    memory_id: MemoryId
    kind: int
    body: bytes
    number: int | None
    answered: bool


@dataclass(frozen=True, slots=True)
class Held:
    """The content of a replica's file at one moment.

    ``shown`` is what the app reads; ``copies`` the server's memories as (commit stamp, state).
    """

    meta: dict[str, Any]
    shown: dict[MemoryId, State]
    local: set[MemoryId]
    copies: dict[MemoryId, tuple[int, State]]
    outbox: list[Queued]
    graves: set[MemoryId]
    dead_letters: set[MemoryId]
    given_up: set[MemoryId]
    """Those of the dead letters of whose refusal nobody heard."""
    touched: dict[MemoryId, int]
    counts: dict[MemoryId, int]
    embedded: dict[MemoryId, Stamp]
    """The memories that have a vector here, and of which content it was made."""
    named: dict[str, set[MemoryId]]
    """The memories that each table names."""

    @property
    def cursor(self) -> str:
        """``last_sync_at``."""
        return str(self.meta.get("cursor") or "")

    @property
    def unanswered(self) -> int:
        """Operations that no answer came for."""
        return sum(not queued.answered for queued in self.outbox)


@dataclass(frozen=True, slots=True)
class Position:
    """A cursor, read as its text says, without its MAC."""

    stamp: int
    base: int
    epoch: int

    @classmethod
    def of(cls, cursor: str) -> Position:
        """Where a cursor stands; the beginning for an empty one."""
        if not cursor:
            return cls(0, 0, 0)
        parts = cursor.split(".")
        times = [".".join(parts[at : at + 3]) for at in range(0, len(parts) - 2, 3)]
        stamps = [parse_time_text(time) for time in times]
        return cls(stamps[0], stamps[1] if len(stamps) > 1 else stamps[0], int(parts[-2]))


def read_held(path: Path) -> Held:
    """The content of a replica's file."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)) as sql:
        sql.execute("BEGIN")
        return _read(sql)


def _read(sql: sqlite3.Connection) -> Held:
    shown, local, copies = {}, set(), {}
    for key, commit_stamp, message, field_stamps in sql.execute(
        "SELECT id, commit_stamp, message, field_stamps FROM rows"
    ):
        memory_id = MemoryId(id_text(key))
        shown[memory_id] = state = read_state(message, field_stamps)
        if commit_stamp == LOCAL:
            local.add(memory_id)
        elif commit_stamp > 0:
            copies[memory_id] = (commit_stamp, state)
    for key, commit_stamp, message, field_stamps in sql.execute(
        "SELECT id, commit_stamp, message, field_stamps FROM beneath"
    ):
        memory_id = MemoryId(id_text(key))
        copies.pop(memory_id, None)
        if message is not None:
            copies[memory_id] = (commit_stamp, read_state(message, field_stamps))
    outbox = [
        Queued(position, MemoryId(id_text(key)), kind, body, number, result is not None)
        for position, key, kind, body, number, result in sql.execute(
            "SELECT position, memory_id, kind, body, number, result FROM outbox ORDER BY position"
        )
    ]
    named = {
        table: {MemoryId(id_text(row[0])) for row in sql.execute(f"SELECT {column} FROM {table}")}
        for table, column in _NAMES_IDS
    }
    return Held(
        meta=dict(sql.execute("SELECT key, value FROM meta")),
        shown=shown,
        local=local,
        copies=copies,
        outbox=outbox,
        graves=named["graves"],
        dead_letters=named["dead_letters"],
        given_up={
            MemoryId(id_text(row[0]))
            for row in sql.execute("SELECT memory_id FROM dead_letters WHERE reason = ?", (FORGOTTEN,))
        },
        touched=_numbers(sql, "SELECT id, total FROM touches"),
        embedded={
            MemoryId(id_text(key)): Stamp.unpack(stamp)
            for key, stamp in sql.execute("SELECT id, content_stamp FROM vectors")
        },
        counts=_numbers(sql, "SELECT id, count FROM counts"),
        named=named,
    )


_NAMES_IDS = (
    ("rows", "id"),
    ("beneath", "id"),
    ("outbox", "memory_id"),
    ("graves", "id"),
    ("dead_letters", "memory_id"),
    ("journal", "memory_id"),
    ("vectors", "id"),
    ("touches", "id"),
    ("counts", "id"),
)


def _numbers(sql: sqlite3.Connection, query: str) -> dict[MemoryId, int]:
    return {MemoryId(id_text(key)): int(number) for key, number in sql.execute(query)}


def every_byte(path: Path) -> bytes:
    """The bytes of a replica's files: pages in use and free, and the log."""
    return b"".join(each.read_bytes() for each in sorted(path.parent.glob(f"{path.name}*")))
