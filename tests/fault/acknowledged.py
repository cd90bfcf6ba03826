"""What a device's app was told is saved, in a log that is on disk before the app goes on."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

CANARY = re.compile(r"zq([splh])(\d\d)x[0-9a-f]{8}")
"""A text's mark: s may be seen by every client, h by those who see the scope home, p by the client of
that number alone, and l stays on the device of that number."""


NEVER_SEEN = (0, "")
"""The stamp of a register that was set and cleared before its memory was first sent: it has none."""


def canary(kind: str, number: int, chance: int) -> str:
    """A mark of this kind of the device ``number``."""
    return f"zq{kind}{number:02d}x{chance:08x}"


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """One write. ``registers`` are the stamps that it gave, as (time, replica in hex); none for a delete.

    ``level`` is the memory's privacy level since; ``text`` its content, where the write changed that.
    """

    kind: str
    memory_id: str
    level: int
    text: str = ""
    registers: dict[str, tuple[int, str]] = field(default_factory=dict)


class Log:
    """Acknowledged writes, oldest first; a process that is killed may leave half a line at the end."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)
        if self._file.tell():
            self._file.write(b"\n")  # ends a line that a kill cut off

    def append(self, write: Acknowledged) -> None:
        """On disk when this returns."""
        self._file.write(json.dumps(asdict(write)).encode() + b"\n")
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """May be called again."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read(path: Path) -> Iterator[Acknowledged]:
    """The writes of a log that were written whole."""
    if not path.exists():
        return
    for line in path.read_bytes().splitlines():
        if line.endswith(b"}"):
            try:
                yield Acknowledged(**json.loads(line))
            except ValueError:
                continue  # half a line that happens to end so
