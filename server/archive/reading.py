"""An archive of a tenant read line by line, and judged as a whole before anything of it is stored."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import count
from typing import TypeAlias

from scrubjay.memory import Micros, id_bytes
from server.archive import records, values
from server.archive.file import ArchiveLines
from server.archive.lines import MANIFEST, Seal
from server.archive.records import Head, ImportedMemory, Manifest, Stream, TenantSettings
from server.archive.values import Fault
from server.ingest.batch import MOST_AHEAD_MILLIS
from server.store.exporting import RecentMessages, Unread
from server.store.history import HistoryRow
from server.store.memory_store import Grave
from server.store.replicas import WaitingOperation
from tenants.tenant import Incarnation

LINES_BETWEEN_REPORTS = 20
MOST_PROBLEMS = 20
"""Then the rest of an archive is not read: it would be the same again and again."""

Record: TypeAlias = (
    Head
    | TenantSettings
    | Stream
    | ImportedMemory
    | HistoryRow
    | Grave
    | WaitingOperation
    | RecentMessages
    | Unread
    | Manifest
)


class RecordReader:
    """Reads the lines of an archive in their order, for an import at ``now`` into this life of a tenant."""

    def __init__(self, incarnation: Incarnation, now: Micros) -> None:
        self._incarnation = incarnation
        self._latest = (now // 1000 + MOST_AHEAD_MILLIS) << 16 | 0xFFFF
        self._begun = False
        self.stream: Stream | None = None

    def read(self, line: bytes) -> tuple[str, Record]:
        """The next line's kind, empty of the first, and what it holds. Fault where that can't be."""
        found = values.read_json(line)
        if not self._begun:
            self._begun = True
            return "", records.read_head(found)
        if not line.endswith(b"\n"):
            raise Fault("has no end: the file is cut off")
        kind = values.text(found, "kind")
        if kind == "settings":
            return kind, records.read_settings(found)
        if kind == MANIFEST:
            return kind, records.read_manifest(found)
        if kind == "subject":
            self.stream = None
            self.stream = records.read_stream(found, self._incarnation, self._latest)
            return kind, self.stream
        return kind, self._of_subject(kind, found)

    def _of_subject(self, kind: str, line: values.Line) -> Record:
        stream = self.stream
        if stream is None:
            raise Fault(f"{kind[:64]!r} stands behind no line of a subject")
        match kind:
            case "memory":
                return records.read_memory(line, stream)
            case "history":
                return records.read_operation(line, stream)
            case "deletion":
                return records.read_grave(line, stream)
            case "waiting":
                return records.read_waiting(line, stream)
            case "recent_messages":
                return records.read_recent_messages(line)
            case "request":
                return records.read_request(line, stream)
        raise Fault(f"{kind[:64]!r} is no kind of line that this version knows")


@dataclass
class Findings:
    """What an archive holds, and what is wrong with it, as (line, from 1; what)."""

    seal: Seal = field(default_factory=Seal)
    lines: int = 0
    head: Head | None = None
    settings: TenantSettings | None = None
    problems: list[tuple[int, str]] = field(default_factory=list)

    def note(self, what: str) -> None:
        """Note what is wrong with the line that was read last."""
        self.problems.append((self.lines, what))


def examine(
    lines: ArchiveLines, incarnation: Incarnation, now: Micros, report: Callable[[], object]
) -> Findings:
    """Read a whole archive, up to ``MOST_PROBLEMS``; ``report`` is called again and again."""
    found, reader = Findings(), RecordReader(incarnation, now)
    with closing(_Names()) as names:
        sealed = False
        for line in _readable(lines, found):
            if found.lines % LINES_BETWEEN_REPORTS == 0:
                report()
            if sealed:
                found.note("stands behind the manifest, which is the last line")
                break
            sealed = _examined(line, found, reader, names)
            if len(found.problems) >= MOST_PROBLEMS or (found.problems and found.head is None):
                return found
    if not sealed and not found.problems:
        found.lines += 1
        found.note("is not there: the file ends without its manifest")
    return found


def _readable(lines: ArchiveLines, found: Findings) -> Iterator[bytes]:
    every = iter(lines)
    while True:
        found.lines += 1
        try:
            line = next(every, b"")
        except Fault as error:
            found.note(str(error))
            return
        if not line:
            found.lines -= 1
            return
        yield line


def _examined(line: bytes, found: Findings, reader: RecordReader, names: _Names) -> bool:
    """Judge a line; whether it is the manifest."""
    try:
        kind, record = reader.read(line)
        if isinstance(record, Manifest):
            _check_manifest(record, found)
            return True
        if isinstance(record, Head):
            found.head = record
        elif isinstance(record, TenantSettings):
            if found.settings is not None:
                raise Fault("is a second one of its kind")
            found.settings = record
        else:
            names.take(record)
        found.seal.add(line, kind)
    except Fault as error:
        found.note(str(error))
    return False


def _check_manifest(manifest: Manifest, found: Findings) -> None:
    if found.problems:
        return
    if dict(found.seal.counts) != dict(manifest.counts):
        raise Fault(f"counts {dict(manifest.counts)}, but there are {dict(found.seal.counts)}")
    if found.seal.sha256 != manifest.sha256:
        raise Fault("has another digest than the lines before it: the file was changed")


class _Names:
    """What an archive must not hold twice, in a file of SQLite's own that goes when it is closed."""

    def __init__(self) -> None:
        self._file = sqlite3.connect("", isolation_level=None)
        self._file.execute("CREATE TABLE names (name BLOB PRIMARY KEY) WITHOUT ROWID")
        self._file.execute("BEGIN")
        self._streams = count()
        self._stream = b""

    def take(self, record: Record) -> None:
        """Note what a record has for itself. Fault where another has it."""
        for what, name in self._of(record):
            if not self._file.execute("INSERT OR IGNORE INTO names VALUES (?)", (name,)).rowcount:
                raise Fault(f"{what} is there already")

    def _of(self, record: Record) -> Iterator[tuple[str, bytes]]:
        if isinstance(record, Stream):
            self._stream = next(self._streams).to_bytes(8, "big")
            yield record.key.stream, b"s" + record.key.stream.encode()
        elif isinstance(record, ImportedMemory):
            memory_id = record.stored.memory.id
            yield f"the memory {memory_id}", b"m" + id_bytes(memory_id)
            yield "another memory's etag", b"c" + self._stream + _packed(record.stored.commit_stamp)
        elif isinstance(record, Grave):
            yield f"the memory {record.memory_id}", b"m" + id_bytes(record.memory_id)
        elif isinstance(record, HistoryRow):
            yield "another operation's commit stamp", b"h" + self._stream + _packed(record.commit_stamp)
        elif isinstance(record, WaitingOperation):
            named = id_bytes(record.memory_id) + id_bytes(record.operation_id)
            yield f"the waiting edit {record.operation_id}", b"w" + named
        elif isinstance(record, RecentMessages):
            place = f"{record.scope}\0{record.client_id}".encode()
            yield f"what {record.client_id!r} said in {record.scope!r}", b"r" + self._stream + place
        elif isinstance(record, Unread):
            yield f"the request {record.job_id}", b"j" + id_bytes(record.job_id)

    def close(self) -> None:
        """Give the file back."""
        self._file.close()


def _packed(stamp: int) -> bytes:
    return stamp.to_bytes(8, "big")
