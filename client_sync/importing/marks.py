"""How far the conversations of one user came to one server: a file beside the device's, in its home.

It holds hashes of message ids, and nothing that was said. What is marked is on disk when a call returns, so
a process that is killed anywhere leaves either the mark or none.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NewType

from client_sync.errors import ReplicaUnwritable
from client_sync.file_lock import locked
from scrubjay.memory import Micros

Mark = NewType("Mark", bytes)
"""16 bytes that stand for one message of one conversation."""

_FOLDER = "imports"
_LOCK_SECONDS = 1.0
_TABLES = (
    "CREATE TABLE IF NOT EXISTS taken (mark BLOB PRIMARY KEY) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS sending (mark BLOB PRIMARY KEY, request_id TEXT NOT NULL,"
    " began_at INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS failed (request_id TEXT PRIMARY KEY) WITHOUT ROWID",
)


def mark(conversation_id: str, message_id: str) -> Mark:
    """What stands for this message."""
    return Mark(digest(conversation_id, message_id))


def digest(*parts: str) -> bytes:
    """16 bytes that follow from these texts."""
    packed = b"".join(len(part.encode()).to_bytes(4, "big") + part.encode() for part in parts)
    return hashlib.sha256(packed).digest()[:16]


@dataclass(frozen=True, slots=True)
class Sending:
    """The messages of one call whose answer did not come, or was not marked, and when it was made."""

    marks: frozenset[Mark]
    request_id: str
    began_at: Micros


class Marks:
    """Marks of one place that messages go to, as long as ``marks_of`` holds it for this process."""

    def __init__(self, sql: sqlite3.Connection) -> None:
        self._sql = sql

    def taken(self, marks: Iterable[Mark]) -> set[Mark]:
        """Those of the marks that are done."""
        return {one for one in marks if self._row("SELECT 1 FROM taken WHERE mark = ?", one)}

    def sending(self, marks: Iterable[Mark]) -> Sending | None:
        """The call by which some of the marks may have arrived, or not."""
        found = {
            one: row
            for one in marks
            if (row := self._row("SELECT request_id, began_at FROM sending WHERE mark = ?", one))
        }
        for request_id, began_at in found.values():
            return Sending(
                frozenset(one for one, row in found.items() if row[0] == request_id), request_id, began_at
            )
        return None

    def _row(self, query: str, one: Mark) -> tuple[Any, ...] | None:
        row: tuple[Any, ...] | None = self._sql.execute(query, (one,)).fetchone()
        return row

    def send(self, marks: Iterable[Mark], request_id: str, now: Micros) -> None:
        """These go now."""
        with self._transaction():
            self._sql.executemany(
                "INSERT OR REPLACE INTO sending VALUES (?, ?, ?)", [(one, request_id, now) for one in marks]
            )

    def arrived(self, request_id: str) -> None:
        """What went by this call is done."""
        with self._transaction():
            self._sql.execute(
                "INSERT OR IGNORE INTO taken SELECT mark FROM sending WHERE request_id = ?", (request_id,)
            )
            self._sql.execute("DELETE FROM sending WHERE request_id = ?", (request_id,))

    def refused(self, request_id: str) -> None:
        """What went by this call was not stored."""
        with self._transaction():
            self._sql.execute("DELETE FROM sending WHERE request_id = ?", (request_id,))

    def failed(self, request_id: str) -> None:
        """What went by this call was not stored, and the server would say so again."""
        with self._transaction():
            self._sql.execute("DELETE FROM sending WHERE request_id = ?", (request_id,))
            self._sql.execute("INSERT OR IGNORE INTO failed VALUES (?)", (request_id,))

    def has_failed(self, request_id: str) -> bool:
        """Whether this call is known to have failed."""
        found = self._sql.execute("SELECT 1 FROM failed WHERE request_id = ?", (request_id,))
        return found.fetchone() is not None

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._sql:
            self._sql.execute("BEGIN IMMEDIATE")
            yield


@contextmanager
def marks_of(home: Path, *place: str) -> Iterator[Marks]:
    """The marks of a place, for this process alone. ReplicaUnwritable."""
    path = home / _FOLDER / f"{digest(*place).hex()}.progress"
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.parent.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise ReplicaUnwritable(f"{path.parent} can't be made ({error.strerror})") from error
    with locked(path, _LOCK_SECONDS):
        sql = sqlite3.connect(path, isolation_level=None)
        try:
            sql.execute("PRAGMA synchronous = EXTRA")  # the folder's entry of a journal is on disk too
            for table in _TABLES:
                sql.execute(table)
            yield Marks(sql)
        except sqlite3.Error as error:
            raise ReplicaUnwritable(f"{path} can't be used ({error}); delete it to begin anew") from error
        finally:
            sql.close()
