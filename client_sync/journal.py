"""What happened to memories as this device saw it: history that can be read offline."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass

from scrubjay.memory import JsonValue, MemoryId, Micros, canonical_json, id_bytes, id_text
from scrubjay.merge import Outcome, State, get
from scrubjay.operation import OperationKind

MOST_ENTRIES = 20_000
"""Some 5 MB; the server keeps everything."""
_SLACK = 500
_COLUMNS = "position, memory_id, at, origin, kind, outcome, changes"


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One change. ``origin`` is ``here`` or ``elsewhere``; ``changes`` are (register, old, new)."""

    memory_id: MemoryId
    at: Micros
    origin: str
    kind: OperationKind
    outcome: Outcome
    changes: tuple[tuple[str, JsonValue, JsonValue], ...]


def record(
    sql: sqlite3.Connection,
    memory_id: MemoryId,
    at: Micros,
    *,
    before: State | None,
    after: State | None,
    origin: str,
    outcome: Outcome = Outcome.APPLIED,
) -> None:
    """Note that a memory went from ``before`` to ``after``; nothing where they show the same."""
    changes = _changes(before, after)
    if not changes:
        return
    kind = OperationKind.DELETE if after is None else OperationKind.SET if before else OperationKind.CREATE
    cursor = sql.execute(
        "INSERT INTO journal (memory_id, at, origin, kind, outcome, changes) VALUES (?, ?, ?, ?, ?, ?)",
        (id_bytes(memory_id), at, origin, int(kind), int(outcome), canonical_json(changes)),
    )
    if cursor.lastrowid and cursor.lastrowid % _SLACK == 0:
        sql.execute("DELETE FROM journal WHERE position <= ?", (cursor.lastrowid - MOST_ENTRIES,))


def note_outcome(
    sql: sqlite3.Connection,
    memory_id: MemoryId,
    at: Micros,
    kind: OperationKind,
    outcome: Outcome,
    changes: list[JsonValue],
) -> None:
    """Note how an operation of this device ended, where it met another's."""
    sql.execute(
        "INSERT INTO journal (memory_id, at, origin, kind, outcome, changes) VALUES (?, ?, 'here', ?, ?, ?)",
        (id_bytes(memory_id), at, int(kind), int(outcome), canonical_json(changes)),
    )


def _changes(before: State | None, after: State | None) -> list[JsonValue]:
    fields = {**(before.stamps if before else {}), **(after.stamps if after else {})}
    found: list[JsonValue] = []
    for field in sorted(fields):
        old = get(before.memory, field) if before else None
        new = get(after.memory, field) if after else None
        if canonical_json(old) != canonical_json(new):
            found.append([field, old, new])
    return found


def entries(sql: sqlite3.Connection, memory_id: MemoryId, limit: int) -> list[JournalEntry]:
    """What happened to a memory, newest first."""
    return [entry for _, entry in page(sql, memory_id, limit=limit)]


def page(
    sql: sqlite3.Connection, memory_id: MemoryId | None, *, limit: int, before: int = 1 << 62
) -> list[tuple[int, JournalEntry]]:
    """What happened to one memory, else to all, newest first, each behind its position; ``before`` goes on
    behind one."""
    which, key = ("memory_id = ? AND", (id_bytes(memory_id),)) if memory_id else ("", ())
    query = f"SELECT {_COLUMNS} FROM journal WHERE {which} position < ? ORDER BY position DESC LIMIT ?"  # noqa: S608 - fixed texts
    rows = sql.execute(query, (*key, before, limit))
    return [
        (
            position,
            JournalEntry(
                MemoryId(id_text(key)),
                Micros(at),
                origin,
                OperationKind(kind),
                Outcome(outcome),
                tuple((field, old, new) for field, old, new in json.loads(changes)),
            ),
        )
        for position, key, at, origin, kind, outcome, changes in rows
    ]


def conflict_count(sql: sqlite3.Connection) -> int:
    """How many operations of this device met another's edit."""
    (count,) = sql.execute(
        "SELECT count(*) FROM journal WHERE outcome <> ?", (int(Outcome.APPLIED),)
    ).fetchone()
    return int(count)


def forget(sql: sqlite3.Connection, ids: list[bytes]) -> None:
    """Remove everything about memories that this client may not see any more."""
    sql.executemany("DELETE FROM journal WHERE memory_id = ?", [(each,) for each in ids])
