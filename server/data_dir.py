"""The data directory: one process's own while it runs, and the place of the pepper."""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class DataDirInUse(Exception):
    """Another server runs on the data directory."""


class DataDirUnusable(Exception):
    """The data directory can't be made or written to."""


@contextmanager
def locked(data_dir: Path) -> Iterator[None]:
    """Make the directory where it is missing and hold its lock for the block.

    Two processes that write one SQLite file can damage it. Raises DataDirInUse, DataDirUnusable.
    """
    try:
        data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = (data_dir / "lock").open("a+")
    except OSError as error:
        raise DataDirUnusable(
            f"{data_dir.absolute()} can't be the data directory: {error.strerror}; "
            "set SCRUBJAY_DATA_DIR to a folder that this user may write to"
        ) from error
    with lock as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            owner = file.read().strip() or "unknown"
            raise DataDirInUse(
                f"another server (process {owner}) runs on {data_dir.absolute()}; stop it, or set "
                "SCRUBJAY_DATA_DIR to another folder"
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def pepper(data_dir: Path, given: str) -> bytes:
    """The secret that keys and tokens are authenticated with: the given one, or the directory's own.

    The directory's own is made on first use and must be kept with its backups: another one invalidates
    every key.
    """
    if given:
        return given.encode()
    path = data_dir / "pepper"
    if not path.exists():
        beside = path.with_suffix(".new")
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(secrets.token_hex(32))
            file.flush()
            os.fsync(file.fileno())
        beside.rename(path)
    return path.read_text().strip().encode()
