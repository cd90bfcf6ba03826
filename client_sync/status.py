"""How a replica stands, in numbers."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from client_sync import journal
from client_sync.identity import Identity
from client_sync.outbox import Outbox
from client_sync.replica_file import get_meta
from scrubjay.memory import Micros


@dataclass(frozen=True, slots=True)
class Status:
    """How a replica stands. ``unsent``: operations that no server has answered. ``conflicts``: own
    operations that met another's edit. ``synced_at``: when everything was last exchanged, if ever."""

    memories: int
    unsent: int
    dead_letters: int
    conflicts: int
    last_sync_at: str
    synced_at: Micros | None
    lag_seconds: float | None


def status_of(sql: sqlite3.Connection, identity: Identity, now: Micros) -> Status:
    """How the replica of ``identity`` stands at ``now``, as one look at the file has it."""
    (memories,) = sql.execute("SELECT count(*) FROM rows").fetchone()
    (dead,) = sql.execute("SELECT count(*) FROM dead_letters").fetchone()
    synced_at = get_meta(sql, "synced_at")
    return Status(
        memories=memories,
        unsent=Outbox(sql, identity).unanswered_count(),
        dead_letters=dead,
        conflicts=journal.conflict_count(sql),
        last_sync_at=get_meta(sql, "cursor", ""),
        synced_at=None if synced_at is None else Micros(synced_at),
        lag_seconds=None if synced_at is None else max(0, now - synced_at) / 1_000_000,
    )
