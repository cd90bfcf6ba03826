"""A replica's SQLite file: its tables, and transactions on it.

What was only ever written here is kept with ``synchronous=FULL``; what came from the server can be loaded
again, and is kept with NORMAL. Deleted bytes are overwritten, and what was taken back is in no byte of the
files once ``forget`` ran.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NoReturn

from client_sync.errors import (
    ReplicaClosed,
    ReplicaDamaged,
    ReplicaExists,
    ReplicaMissing,
    ReplicaUnwritable,
    UpgradeNeeded,
)
from client_sync.write_log import has_lost

SCHEMA_VERSION = 1
BUSY_SECONDS = 30
"""How long to wait for another process that writes the file, such as a background sync; one that rewrites the
file for a million memories on a slow machine takes that long."""
FORGET_SECONDS = 2.0
"""How long forgetting waits for another program, or thread, that reads or writes the file."""
_FOLDED_AGAIN_SECONDS = 0.05
"""SQLite itself waits for readers, but not for somebody else who folds the log back."""
_ASKED_AT_ONCE = 500
"""Values of one query: SQLite takes at least 999."""
SIDE_FILES = ("-wal", "-shm", ".loading", ".loading.lock", ".loading.lock-journal")

_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE rows (
    id BLOB NOT NULL PRIMARY KEY,
    commit_stamp INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    message BLOB NOT NULL,
    field_stamps BLOB NOT NULL,
    terms BLOB
);
CREATE INDEX rows_by_created_at ON rows (created_at, id);
CREATE INDEX rows_without_terms ON rows (terms) WHERE terms IS NULL;
CREATE TABLE beneath (
    id BLOB NOT NULL PRIMARY KEY,
    commit_stamp INTEGER NOT NULL,
    message BLOB,
    field_stamps BLOB
) WITHOUT ROWID;
CREATE TABLE outbox (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    memory_id BLOB NOT NULL,
    kind INTEGER NOT NULL,
    body BLOB NOT NULL,
    number INTEGER,
    operation_id BLOB,
    result BLOB,
    commit_stamp INTEGER
);
CREATE INDEX outbox_by_memory ON outbox (memory_id, position);
CREATE TABLE graves (id BLOB NOT NULL PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE dead_letters (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    memory_id BLOB NOT NULL,
    kind INTEGER NOT NULL,
    body BLOB NOT NULL,
    reason TEXT NOT NULL,
    refused_at INTEGER NOT NULL
);
CREATE TABLE journal (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    memory_id BLOB NOT NULL,
    at INTEGER NOT NULL,
    origin TEXT NOT NULL,
    kind INTEGER NOT NULL,
    outcome INTEGER NOT NULL,
    changes TEXT NOT NULL
);
CREATE INDEX journal_by_memory ON journal (memory_id, position);
CREATE TABLE vectors (
    id BLOB NOT NULL PRIMARY KEY,
    content_stamp BLOB NOT NULL,
    space TEXT NOT NULL,
    code BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE touches (
    id BLOB NOT NULL PRIMARY KEY,
    total INTEGER NOT NULL,
    last_access_at INTEGER NOT NULL,
    sent INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE counts (
    id BLOB NOT NULL PRIMARY KEY,
    count INTEGER NOT NULL,
    last_access_at INTEGER NOT NULL
) WITHOUT ROWID;
"""


class ReplicaFile:
    """An open file, safe for many threads; other processes may have it open too."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection
        self._lock = threading.RLock()

    @classmethod
    def create(cls, path: Path) -> ReplicaFile:
        """A new file with empty tables. ReplicaExists where there is one."""
        if path.exists():
            raise ReplicaExists(f"{path} exists; open it, or delete it first")
        path.parent.mkdir(parents=True, exist_ok=True)
        file = cls._opened(path)
        with file.transaction(durable=True) as sql:
            for statement in _SCHEMA.split(";"):
                sql.execute(statement)
            sql.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        path.chmod(0o600)
        return file

    @classmethod
    def open(cls, path: Path) -> ReplicaFile:
        """An existing file. ReplicaMissing, ReplicaDamaged, UpgradeNeeded."""
        if not path.exists():
            raise ReplicaMissing(f"there is no replica at {path}; make one with 'scrubjay init'")
        file = cls._opened(path)
        try:
            with file.reading() as sql:
                (version,) = sql.execute("PRAGMA user_version").fetchone()
                sql.execute("SELECT count(*) FROM meta").fetchone()
            if version > SCHEMA_VERSION:
                raise UpgradeNeeded(f"{path} was written by a newer version of Scrubjay; upgrade this one")
        except BaseException:
            file.close()
            raise
        return file

    @classmethod
    def _opened(cls, path: Path) -> ReplicaFile:
        return cls(path, _connected(path, BUSY_SECONDS))

    @contextmanager
    def transaction(self, *, durable: bool) -> Iterator[sqlite3.Connection]:
        """A transaction that writes; undone where the block raises. ``durable``: survives a power cut."""
        with self._lock:
            try:
                self._connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
                self._connection.execute("BEGIN IMMEDIATE")
            except sqlite3.Error as error:
                raise_mapped(error, self.path)
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except sqlite3.Error as error:
                self._undo()
                raise_mapped(error, self.path)
            except BaseException:
                self._undo()
                raise

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Reads of one moment."""
        with self._lock:
            began = not self._connection.in_transaction
            try:
                if began:
                    self._connection.execute("BEGIN")
                yield self._connection
            except sqlite3.Error as error:
                raise_mapped(error, self.path)
            finally:
                if began:
                    self._undo()

    def _undo(self) -> None:
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise_mapped(error, self.path)

    def forget(self) -> bool:
        """Rewrite the file where ``must_forget`` was called, so that what was deleted before is in no byte of
        it or its log. Others read meanwhile, and wait where they write; a second for 300 000 memories.

        False where it could not be done now, since somebody else reads or writes, or the disk is full: call
        it again later. It may be killed at any moment.
        """
        with self.reading() as sql:
            asked = get_meta(sql, "to_forget")
        if asked is None:
            return True
        try:
            with closing(_connected(self.path, FORGET_SECONDS)) as connection:
                return _rewrite(connection, asked, self.path)
        except ReplicaUnwritable:
            return False

    @contextmanager
    def loaded(self, path: Path) -> Iterator[None]:
        """Another database attached as ``loaded`` for the block; transactions begin within it."""
        with self._lock:
            try:
                self._connection.execute("ATTACH DATABASE ? AS loaded", (str(path),))
            except sqlite3.Error as error:
                raise_mapped(error, self.path)
            try:
                yield
            finally:
                self._connection.execute("DETACH DATABASE loaded")

    def close(self) -> None:
        """Close the file. May be called again."""
        with self._lock:
            self._connection.close()

    def delete(self) -> None:
        """Close and delete the file and all beside it, overwritten before."""
        with self._lock:
            self.close()
            delete_files(self.path)


def delete_files(path: Path) -> None:
    """Delete a replica's files, their bytes overwritten first."""
    for each in (path, *(path.with_name(path.name + suffix) for suffix in SIDE_FILES)):
        if each.exists():
            with each.open("r+b") as file:
                size = each.stat().st_size
                for at in range(0, size, 1 << 20):
                    file.write(b"\0" * min(1 << 20, size - at))
                file.flush()
            each.unlink()


def opened_alone(path: Path) -> sqlite3.Connection:
    """A connection to a database file that is there, as it is: nothing is set, and no error mapped."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, isolation_level=None)


def is_whole(path: str | Path) -> bool:
    """Whether SQLite finds no damage in the whole file, and its log is taken to its end; takes some 100 ms
    for 100 000 memories. What is missing of a log is told once."""
    if has_lost(Path(path)):
        return False
    try:
        with closing(opened_alone(Path(path))) as sql:
            return bool(sql.execute("PRAGMA quick_check(1)").fetchone() == ("ok",))
    except sqlite3.Error:
        return False


def get_meta(sql: sqlite3.Connection, key: str, default: Any = None) -> Any:
    """A value of the meta table."""
    row = sql.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return default if row is None else row[0]


def set_meta(sql: sqlite3.Connection, **values: Any) -> None:
    """Store values in the meta table; None removes one."""
    for key, value in values.items():
        if value is None:
            sql.execute("DELETE FROM meta WHERE key = ?", (key,))
        else:
            sql.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))


def is_recovering(sql: sqlite3.Connection) -> bool:
    """Whether a recovery is under way, behind which all is sent and taken anew."""
    return any(get_meta(sql, key) is not None for key in ("reoffer_from", "forked", "reload"))


def rows_among(sql: sqlite3.Connection, query: str, ids: Sequence[bytes]) -> set[bytes]:
    """What ``query``, which ends with ``IN``, finds among the ids."""
    found: set[bytes] = set()
    for at in range(0, len(ids), _ASKED_AT_ONCE):
        some = ids[at : at + _ASKED_AT_ONCE]
        found.update(row[0] for row in sql.execute(f"{query} ({','.join('?' * len(some))})", some))
    return found


def must_forget(sql: sqlite3.Connection) -> None:
    """Note with a deletion that its bytes must go: ``ReplicaFile.forget`` is to be called behind it."""
    sql.execute("INSERT OR REPLACE INTO meta VALUES ('to_forget', randomblob(16))")


def _connected(path: Path, timeout: float) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, timeout=timeout, isolation_level=None, check_same_thread=False, cached_statements=256
    )
    try:
        for pragma in ("journal_mode = WAL", "secure_delete = ON", "foreign_keys = OFF"):
            connection.execute(f"PRAGMA {pragma}").close()
    except sqlite3.Error as error:
        connection.close()
        raise_mapped(error, path)
    return connection


def _rewrite(connection: sqlite3.Connection, asked: bytes, path: Path) -> bool:
    """Whether no byte is left of what was deleted before ``asked`` was noted.

    SQLite overwrites a cell that it frees, but not the copies that stayed where it moved cells to another
    page; only new pages have none. The log is folded back first: where a reader keeps it from that, the
    new pages would only lie beside the old.
    """
    try:
        if not _fold_back(connection):
            return False
        connection.execute("VACUUM").close()
        if not _fold_back(connection):
            return False
        connection.execute("DELETE FROM meta WHERE key = 'to_forget' AND value = ?", (asked,)).close()
    except sqlite3.Error as error:
        raise_mapped(error, path)
    return True


def _fold_back(connection: sqlite3.Connection) -> bool:
    """Empty the log into the file; whether nobody kept it from that all of ``FORGET_SECONDS``."""
    ends_at = time.monotonic() + FORGET_SECONDS
    while True:
        (busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if not busy or time.monotonic() >= ends_at:
            return not busy
        time.sleep(_FOLDED_AGAIN_SECONDS)


def raise_mapped(error: sqlite3.Error, path: Path) -> NoReturn:
    """What SQLite says about a file, as what its owner can do."""
    words = str(error)
    if isinstance(error, sqlite3.ProgrammingError) and "closed database" in words:
        raise ReplicaClosed(f"{path} was closed; open it again") from error
    if isinstance(error, sqlite3.OperationalError) and any(
        sign in words for sign in ("full", "locked", "busy", "readonly", "disk I/O", "unable to open")
    ):
        raise ReplicaUnwritable(f"{path} can't be written now ({words}); nothing was saved") from error
    if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.ProgrammingError):
        raise ReplicaDamaged(
            f"{path} is damaged ({words}); "
            "'scrubjay restore' keeps what was never sent and loads the rest anew"
        ) from error
    raise error
