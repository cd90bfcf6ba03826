"""Crashes of a device: its process ends, or its power fails, before a chosen statement of SQL.

What is left is what was in the files at that moment. After a power failure the log goes back to what was
last synced: SQLite with ``synchronous=NORMAL`` syncs nothing when it commits.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_CHANGES_FILES = re.compile(
    r"\s*(BEGIN IMMEDIATE|COMMIT|INSERT|UPDATE|DELETE|REPLACE|ATTACH|DETACH|VACUUM)", re.I
)


class Crash(BaseException):
    """The device's process ended here."""


@dataclass(slots=True)
class CrashPoint:
    """When to crash: before the ``statements``-th statement that writes; ``power`` fails with it or not."""

    statements: int
    power: bool


@dataclass(slots=True)
class Disk:
    """The files of one replica, and how they would be found after a crash.

    ``synced`` is how much of the write-ahead log a power failure leaves.
    """

    path: Path
    connections: list[CrashingConnection] = field(default_factory=list)
    armed: CrashPoint | None = None
    image: dict[str, bytes] | None = None
    synced: int = 0

    @property
    def wal(self) -> Path:
        """The write-ahead log."""
        return self.path.with_name(f"{self.path.name}-wal")

    def files(self) -> dict[str, bytes]:
        """Every file of the replica, the shared memory apart: it does not outlive a process."""
        names = self.path.parent.glob(f"{self.path.name}*")
        return {each.name: each.read_bytes() for each in names if not each.name.endswith("-shm")}

    def put(self, files: dict[str, bytes]) -> None:
        """Replace every file by these. Nothing may have them open."""
        for each in self.path.parent.glob(f"{self.path.name}*"):
            each.unlink()
        for name, data in files.items():
            self.path.with_name(name).write_bytes(data)

    def crash(self, *, power: bool) -> None:
        """Keep the files as a crash leaves them now."""
        self.armed = None
        self.image = self.files()
        if power and self.wal.name in self.image:
            self.image[self.wal.name] = self.image[self.wal.name][: self.synced]

    def recover(self) -> None:
        """What a crashed process held open is closed, and its files are as the crash left them."""
        for connection in self.connections:
            connection.close()
        self.connections.clear()
        self.armed = None
        if self.image is not None:
            self.put(self.image)
            self.image = None
        self.synced = self.wal.stat().st_size if self.wal.exists() else 0

    def before(self, sql: str) -> None:
        """Called before each statement."""
        if self.image is not None:
            raise Crash
        if self.armed is None or _CHANGES_FILES.match(sql) is None:
            return
        self.armed.statements -= 1
        if self.armed.statements <= 0:
            self.crash(power=self.armed.power)
            raise Crash

    def after(self, connection: sqlite3.Connection, sql: str) -> None:
        """Called after each statement."""
        word = sql.strip().upper()
        if word.startswith("PRAGMA WAL_CHECKPOINT") or (word == "COMMIT" and _is_full(connection)):
            self.synced = self.wal.stat().st_size if self.wal.exists() else 0


def _is_full(connection: sqlite3.Connection) -> bool:
    (level,) = sqlite3.Connection.execute(connection, "PRAGMA synchronous").fetchone()
    return int(level) >= 2


class CrashingConnection(sqlite3.Connection):
    """A connection that asks its disk before every statement."""

    disk: Disk | None = None

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        """See sqlite3."""
        return self._guarded(sql, lambda: super(CrashingConnection, self).execute(sql, *parameters))

    def executemany(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        """See sqlite3."""
        return self._guarded(sql, lambda: super(CrashingConnection, self).executemany(sql, *parameters))

    def _guarded(self, sql: str, run: Callable[[], sqlite3.Cursor]) -> sqlite3.Cursor:
        if self.disk is None:
            return run()
        self.disk.before(sql)
        cursor = run()
        self.disk.after(self, sql)
        return cursor


@contextmanager
def crashing(disk_of: Callable[[Path], Disk | None]) -> Iterator[None]:
    """For the block, connections to files that have a disk belong to it."""
    connect = sqlite3.connect

    def connecting(database: Any, *args: Any, **kwargs: Any) -> Any:
        disk = disk_of(Path(database)) if isinstance(database, str | Path) else None
        if disk is None:
            return connect(database, *args, **kwargs)
        if disk.image is not None:
            raise Crash
        made = connect(database, *args, factory=CrashingConnection, **kwargs)
        made.disk = disk
        disk.connections.append(made)
        return made

    sqlite3.connect = connecting
    try:
        yield
    finally:
        sqlite3.connect = connect
