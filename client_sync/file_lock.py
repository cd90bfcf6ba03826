"""A lock between the processes of one device, for what only one of them may do at a time."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from client_sync.errors import ReplicaUnwritable

LOCK_SECONDS = 90.0
"""How long to wait for another process that replaces a token: longer than its call may take."""
SUFFIX = ".lock"


@contextmanager
def locked(path: Path, seconds: float = LOCK_SECONDS) -> Iterator[None]:
    """Hold the lock beside ``path``, against all threads and processes. ReplicaUnwritable after ``seconds``.

    It is an empty SQLite file: its locks work on every platform and end with their process.
    """
    lock = sqlite3.connect(path.with_name(path.name + SUFFIX), timeout=seconds, isolation_level=None)
    try:
        try:
            lock.execute("BEGIN EXCLUSIVE")
        except sqlite3.Error as error:
            raise ReplicaUnwritable(
                f"another program has been at work on {path} for {seconds:.0f} s, or it can't be"
                f" written ({error}); nothing was changed"
            ) from error
        yield
    finally:
        lock.close()
