"""Dead letters: operations that the server refused for good, kept with the reason until somebody looks."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass

from client_sync.outbox import Entry, Outbox
from scrubjay.memory import JsonValue, Memory, MemoryId, Micros, id_bytes
from scrubjay.operation import OperationKind


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An operation that the server refused for good: a CREATE's ``memory`` or a SET's ``values``."""

    position: int
    memory_id: MemoryId
    kind: OperationKind
    reason: str
    refused_at: Micros
    memory: Memory | None
    values: Mapping[str, JsonValue]


def refuse(sql: sqlite3.Connection, outbox: Outbox, entry: Entry, reason: str, at: Micros) -> int:
    """Move a refused operation to the dead letters; after a refused create all on its memory. How many."""
    refused = [(entry, reason)]
    if entry.operation.kind is OperationKind.CREATE:
        later = [each for each in outbox.of(entry.operation.memory_id) if each.result is None]
        refused += [(each, f"its memory could not be created: {reason}") for each in later if not each.number]
    for each, why in refused:
        sql.execute(
            "INSERT INTO dead_letters (memory_id, kind, body, reason, refused_at) VALUES (?, ?, ?, ?, ?)",
            (id_bytes(each.operation.memory_id), int(each.operation.kind), each.body, why, at),
        )
    outbox.drop(each for each, _ in refused)
    return len(refused)


def dead_letters(sql: sqlite3.Connection, outbox: Outbox) -> list[DeadLetter]:
    """All of them, oldest first."""
    rows = sql.execute("SELECT position, body, reason, refused_at FROM dead_letters ORDER BY position")
    return [
        DeadLetter(
            position=position,
            memory_id=operation.memory_id,
            kind=operation.kind,
            reason=reason,
            refused_at=Micros(refused_at),
            memory=operation.memory,
            values={write.field: write.value for write in operation.writes},
        )
        for position, body, reason, refused_at in rows.fetchall()
        for operation in [outbox.read(body)]
    ]
