"""Making a whole file of a damaged one: what no server has is kept, the rest is loaded anew."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from client_sync import recovery
from client_sync.copies import LOCAL, Copies
from client_sync.errors import UNREADABLE, ReplicaDamaged, ReplicaMissing
from client_sync.identity import Identity, read_identity
from client_sync.outbox import Outbox
from client_sync.replica import Replica
from client_sync.replica_file import SIDE_FILES, opened_alone, set_meta
from client_sync.write_log import has_lost
from scrubjay.feed import read_state
from scrubjay.memory import id_text
from scrubjay.operation import reread
from scrubjay.stamp import ReplicaId

_KEPT = {
    "outbox": "memory_id, kind, body, number, operation_id",
    "dead_letters": "memory_id, kind, body, reason, refused_at",
    "graves": "id",
    "touches": "id, total, last_access_at, sent",
}
_ANYBODY = ReplicaId(bytes(16))
_WHICH = {"outbox": "result IS NULL"}


@dataclass(frozen=True, slots=True)
class Salvage:
    """What was kept: operations that were never answered, LOCAL_ONLY memories, refused operations.

    ``incomplete`` names the tables that could not be read to their end or hold what nobody can read, and the
    log where its end is missing: some of theirs may be lost.
    ``damaged`` is where the damaged file lies now.
    """

    unsent: int
    local: int
    dead_letters: int
    incomplete: tuple[str, ...]
    damaged: Path


def salvage(
    path: str | Path, identity: Identity | None = None, *, entropy: Callable[[int], bytes] = os.urandom
) -> Salvage:
    """Put a new file in the place of a damaged one; the next ``synchronize`` loads the rest.

    ``identity`` is whose it is, where the file can't say it any more. ReplicaMissing; ReplicaDamaged where
    neither the file nor the caller says whose it is: then nothing was changed.
    """
    path = Path(path)
    if not path.exists():
        raise ReplicaMissing(f"there is no replica at {path}")
    kept, incomplete = _read(path)
    meta = {str(key): value for key, value in kept.pop("meta")}
    owner = read_identity(meta.items()) or identity
    if owner is None:
        raise ReplicaDamaged(f"{path} does not say any more whose it is; enrol the device again")
    incomplete = (*incomplete, *_leave_out(kept, owner))
    damaged = _set_aside(path)
    with Replica.create(path, owner, entropy=entropy) as replica:
        with replica.file.transaction(durable=True) as sql:
            _write(sql, kept, meta)
            outbox = Outbox(sql, owner)
            copies = Copies(sql, owner, outbox)
            for memory_id in outbox.memory_ids():
                copies.touch(memory_id)
            copies.settle()
        recovery.begin_fork(replica)
        recovery.begin_reload(replica)
    counts = {table: len(rows) for table, rows in kept.items()}
    return Salvage(
        unsent=counts["outbox"],
        local=counts["rows"],
        dead_letters=counts["dead_letters"],
        incomplete=incomplete,
        damaged=damaged,
    )


_Rows = list[tuple[object, ...]]


def _read(path: Path) -> tuple[dict[str, _Rows], tuple[str, ...]]:
    queries = {table: f"SELECT {columns} FROM {table}" for table, columns in _KEPT.items()}  # noqa: S608 - fixed
    queries |= {table: f"{queries[table]} WHERE {which}" for table, which in _WHICH.items()}
    queries["meta"] = "SELECT key, value FROM meta"
    queries["rows"] = f"SELECT * FROM rows WHERE commit_stamp = {LOCAL}"  # noqa: S608 - fixed
    kept: dict[str, _Rows] = {table: [] for table in queries}
    incomplete = ["log"] if has_lost(path) else []
    for table, query in queries.items():
        try:
            kept[table].extend(_readable(path, query))
        except sqlite3.Error:
            incomplete.append(table)
    return kept, tuple(incomplete)


def _leave_out(kept: dict[str, _Rows], owner: Identity) -> list[str]:
    """Leave out memories and operations whose bytes say nothing any more; the tables that hold some."""

    def memory(row: tuple[Any, ...]) -> object:
        return id_text(row[0]), int(row[2]), read_state(row[3], row[4])

    def operation(row: tuple[Any, ...]) -> object:
        return id_text(row[0]), reread(row[2], _ANYBODY, owner.client_id, owner.subject)

    found = []
    for table, read in (("rows", memory), ("outbox", operation)):
        whole = [row for row in kept[table] if _reads(read, row)]
        if len(whole) < len(kept[table]):
            kept[table] = whole
            found.append(table)
    return found


def _reads(read: Callable[[tuple[Any, ...]], object], row: tuple[object, ...]) -> bool:
    try:
        read(row)
    except UNREADABLE:
        return False
    return True


def _readable(path: Path, query: str) -> Iterator[tuple[object, ...]]:
    connection = opened_alone(path)
    try:
        yield from connection.execute(query)
    finally:
        connection.close()


def _set_aside(path: Path) -> Path:
    damaged, count = path.with_name(path.name + ".damaged"), 1
    while damaged.exists():
        count += 1
        damaged = path.with_name(f"{path.name}.damaged-{count}")
    path.rename(damaged)
    for suffix in SIDE_FILES:
        side = path.with_name(path.name + suffix)
        if side.exists():
            side.rename(damaged.with_name(damaged.name + suffix))
    return damaged


def _write(sql: sqlite3.Connection, kept: dict[str, _Rows], meta: dict[str, object]) -> None:
    for table, columns in _KEPT.items():
        marks = ",".join("?" * (columns.count(",") + 1))
        sql.executemany(
            f"INSERT OR IGNORE INTO {table} ({columns}) VALUES ({marks})",  # noqa: S608 - fixed names
            kept[table],
        )
    sql.executemany("INSERT OR IGNORE INTO rows VALUES (?, ?, ?, ?, ?, ?)", kept["rows"])
    for key in ("replica_id", "clock_time", "clock_offset", "accepted_time", "spell"):
        if key in meta:
            set_meta(sql, **{key: meta[key]})
