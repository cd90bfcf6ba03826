"""Archives as files: gzip, in members that are whole by themselves, so that it may be cut behind any."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO

from server.archive.values import Fault

MEMBER_BYTES = 4 * 1024 * 1024
"""Lines of one member: what a server that is killed writes again, beside the subject that was under way."""
MOST_LINE_BYTES = 32 * 1024 * 1024
"""A request of 4 MiB, the largest that is taken, has some 25 MiB where every character is escaped."""
_BUFFER_BYTES = 256 * 1024
_GZIP = b"\x1f\x8b"
_LEVEL = 4
"""Twice as fast as the usual 6, and a twentieth larger."""


class ArchiveWriter:
    """Writes lines behind the first ``size`` bytes of a file, which are whole members; what was behind them
    is cut off."""

    def __init__(self, path: Path, size: int) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b")
        self._file.truncate(size)
        self._file.seek(size)
        self._member: gzip.GzipFile | None = None
        self._written = 0

    @property
    def is_due(self) -> bool:
        """Whether the member is as long as one should be."""
        return self._written >= MEMBER_BYTES

    def write(self, line: bytes) -> None:
        """A line with its newline."""
        if self._member is None:
            self._member = gzip.GzipFile("", "wb", _LEVEL, self._file, 0)
        self._member.write(line)
        self._written += len(line)

    def end_member(self) -> int:
        """Make durable what was written; the bytes of the file, behind which another writer may go on."""
        if self._member is not None:
            self._member.close()
            self._member, self._written = None, 0
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._file.tell()

    def __enter__(self) -> ArchiveWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


class ArchiveLines:
    """The lines of an open archive, gzip or plain. Fault where they can't be read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._lines = (
            io.BufferedReader(gzip.GzipFile(fileobj=file), _BUFFER_BYTES) if _is_gzip(file) else file
        )

    @property
    def position(self) -> int:
        """How many bytes of the file were read."""
        return self._file.tell()

    def __iter__(self) -> Iterator[bytes]:
        """Each with its newline."""
        while line := self._next():
            yield line

    def _next(self) -> bytes:
        try:
            line = self._lines.readline(MOST_LINE_BYTES + 1)
        except (EOFError, gzip.BadGzipFile, zlib.error):
            raise Fault("can't be read: the file is cut off or damaged here") from None
        if len(line) > MOST_LINE_BYTES:
            raise Fault(f"has more than {MOST_LINE_BYTES} bytes")
        return line


def _is_gzip(file: IO[bytes]) -> bool:
    start = file.read(len(_GZIP))
    file.seek(0)
    return start == _GZIP


@contextmanager
def opened(path: Path) -> Iterator[ArchiveLines]:
    """The lines of a file, for the block."""
    with path.open("rb") as file:
        yield ArchiveLines(file)
