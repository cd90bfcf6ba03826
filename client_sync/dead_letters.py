"""Dead letters: operations that the server refused for good, kept with the reason until somebody looks."""

from __future__ import annotations

import sqlite3

from client_sync.outbox import Entry, Outbox
from scrubjay.memory import Micros, id_bytes
from scrubjay.operation import OperationKind


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
