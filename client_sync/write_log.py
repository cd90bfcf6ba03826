"""What SQLite does not say of a write-ahead log: that it was damaged in its middle.

SQLite takes a log up to the first frame whose checksum does not fit, and leaves out the rest in silence, as
it must: after a power cut that is a transaction that never ended. A frame behind it that ends one says
otherwise. What is cut off at the end leaves no such sign.

The format is SQLite's own: https://www.sqlite.org/fileformat2.html#walformat
"""

from __future__ import annotations

import sqlite3
import struct
from contextlib import closing
from pathlib import Path

_HEADER = struct.Struct(">IIIIIIII")
_FRAME = struct.Struct(">IIII")
_FRAME_BYTES = 24
_MAGIC = 0x377F0682
"""Its last bit says in which order the numbers under the checksums lie."""


def has_lost(path: Path) -> bool:
    """Whether the log of a database that nobody has open ends transactions that SQLite leaves out.

    Says so once: SQLite folds the rest of the log back. False where there is no log, or no database.
    """
    log = path.with_name(path.name + "-wal")
    if not log.exists():
        return False
    written = _written(log.read_bytes())
    if written is None:
        return True
    try:
        with closing(sqlite3.connect(path)) as sql:
            sql.execute("SELECT count(*) FROM sqlite_master").fetchone()
            (_, taken, _) = sql.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    except sqlite3.Error:
        return False  # which whoever reads the database meets too
    return written > int(taken)


def _written(log: bytes) -> int | None:
    """The number of the last frame that ends a transaction of the log's, whole or not; None where its header
    is damaged."""
    if len(log) < _HEADER.size + _FRAME_BYTES:
        return 0
    magic, _, page, _, *salts, first, second = _HEADER.unpack_from(log)
    if magic & ~1 != _MAGIC or (first, second) != _checksum(log[: _HEADER.size - 8], magic & 1):
        return None
    last, size = 0, _FRAME_BYTES + page
    for number, at in enumerate(range(_HEADER.size, len(log) - size + 1, size), start=1):
        _, commits, *mine = _FRAME.unpack_from(log, at)
        if commits and mine == salts:
            last = number
    return last


def _checksum(data: bytes, big_endian: int) -> tuple[int, int]:
    first = second = 0
    numbers = struct.unpack(f"{'>' if big_endian else '<'}{len(data) // 4}I", data)
    for one, other in zip(numbers[::2], numbers[1::2], strict=True):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + other + first) & 0xFFFFFFFF
    return first, second
