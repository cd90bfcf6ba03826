"""Importing a tenant: what an export holds, into a tenant to which nothing was ever written.

    check   the whole file is read and judged; with ``validate_only`` that is all
    write   its rows are stored, past the streams' heads: nobody else can write to the tenant, and neither
            search nor a device sees anything of them
    embed   vectors are made, of the space that the tenant has here
    open    what was settled is settled here, and the streams are opened, at the commit stamps where they
            stood, in another epoch. From here on nothing is taken back

Rows are stored once: how far the file is stored is written with them (see ``server.store.importing``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from scrubjay import v1
from scrubjay.errors import InvalidField, TenantNotEmpty, Unavailable
from scrubjay.memory import MemoryId, Micros
from server.archive.file import ArchiveLines, opened
from server.archive.folder import Archives
from server.archive.reading import RecordReader, examine
from server.archive.records import Stream, content_of
from server.operations.conductor import Phase, Plan, Task
from server.operations.imported import Batch, changes, counts, job_of, noted, result, told
from server.providers.embedder import Embedder, TextKind
from server.router import Router
from server.shard import Shard
from server.store.exporting import NO_UUID, Unread
from server.store.importing import OpenedStream
from server.store.vector_codec import encode_vectors
from tenants.digest import file_digest
from tenants.registry import TenantChanges
from tenants.tenant import Incarnation, Tenant

EMBEDDED_AT_ONCE = 64
OPENED_AT_ONCE = 200
"""Streams that one transaction opens."""


class Importer:
    """Imports files into tenants.

    ``embedder`` makes the vectors of a tenant, ``settle`` writes what a tenant has settled, and ``added`` is
    called where requests were stored that are to be done. ``clock`` gives microseconds since 1970.
    """

    def __init__(
        self,
        router: Router,
        archives: Archives,
        embedder: Callable[[Tenant], Embedder],
        settle: Callable[[Tenant, TenantChanges], object],
        added: Callable[[], object],
        clock: Callable[[], Micros],
    ) -> None:
        self._router = router
        self._archives = archives
        self._embedder = embedder
        self._settle = settle
        self._added = added
        self._clock = clock

    def plan(self) -> Plan:
        """How one is carried out."""
        phases = (
            Phase("check", self._check),
            Phase("write", self._write),
            Phase("embed", self._embed),
            Phase("open", self._open, cancellable=False),
        )
        return Plan(phases, self._roll_back)

    def _check(self, task: Task) -> None:
        path = self._path(task)
        if not path.exists():
            raise InvalidField.of("upload_id", "names no file that was uploaded to this server")
        size = path.stat().st_size
        if file_digest(path, lambda done: task.report(done, 2 * size)) != task.operation.asked["sha256"]:
            raise InvalidField.of("sha256", f"is not that of the {size} bytes that are uploaded")
        now, incarnation = self._clock(), task.operation.incarnation
        with opened(path) as lines:
            found = examine(lines, incarnation, now, lambda: task.report(size + lines.position, 2 * size))
        if found.problems and not _is_dry(task):
            raise InvalidField.of("upload_id", told(found))
        task.note(**noted(found))

    # --- storing it ---------------------------------------------------------------------------------

    def _write(self, task: Task) -> None:
        if _is_dry(task):
            return
        shard, operation = self._router.shard(task.tenant), task.operation
        if not shard.begin_import(operation.incarnation, operation.operation_id):
            raise TenantNotEmpty(operation.tenant_id)
        number = place = _place(shard, task)
        total, done = _count(task, "memory"), 0
        reader, batch = RecordReader(operation.incarnation, self._clock()), Batch()
        with self._file(task) as lines:
            for number, line in enumerate(lines, 1):
                if number <= place:
                    done += _skip(line, reader) == "memory"
                    batch = Batch(reader.stream)
                    continue
                kind, record = reader.read(line)
                if batch.is_full or (isinstance(record, Stream) and batch.stream is not None):
                    place = self._store(shard, task, batch, place, number - 1)
                    batch = Batch(reader.stream if kind != "subject" else None)
                    task.report(done, total)
                batch.take(record, number, len(line))
                done += kind == "memory"
            self._store(shard, task, batch, place, number)

    def _store(self, shard: Shard, task: Task, batch: Batch, place: int, number: int) -> int:
        """Store a batch, which ends with that line; how many lines are stored then."""
        if batch.stream is None or number == place:
            return place
        tenant, rows, operation_id = task.tenant, batch.rows, task.operation.operation_id
        contents = [content_of(one, batch.stream.subject) for one in rows.waiting]
        vectors = iter(self._vectors(tenant, [text for text in contents if text is not None]))
        rows.waiting = [
            one if text is None else replace(one, vector=next(vectors), space=tenant.space)
            for one, text in zip(rows.waiting, contents, strict=True)
        ]
        shard.import_rows(batch.stream.key, operation_id, (place, number), rows)
        return number

    def _vectors(self, tenant: Tenant, texts: Sequence[str]) -> list[bytes]:
        return encode_vectors(self._embedder(tenant).embed(texts, TextKind.DOCUMENT)) if texts else []

    def _embed(self, task: Task) -> None:
        if _is_dry(task):
            return
        tenant, shard, operation_id = (
            task.tenant,
            self._router.shard(task.tenant),
            task.operation.operation_id,
        )
        place, after = _place(shard, task), MemoryId(NO_UUID)
        total, done = _count(task, "memory"), task.operation.done
        while page := shard.texts_without_vector(tenant.incarnation, tenant.space, after, EMBEDDED_AT_ONCE):
            vectors = self._vectors(tenant, [content for *_, content in page])
            made = [(*one[:3], vector) for one, vector in zip(page, vectors, strict=True)]
            shard.import_vectors(tenant.incarnation, operation_id, place, tenant.space, made)
            after, done = page[-1][1], done + len(page)
            task.report(done, total)

    # --- its end ------------------------------------------------------------------------------------

    def _open(self, task: Task) -> None:
        tenant, shard, operation_id = (
            task.tenant,
            self._router.shard(task.tenant),
            task.operation.operation_id,
        )
        notes = task.operation.notes or {}
        if shard.import_place(tenant.incarnation, operation_id) is not None:
            self._settle(tenant, changes(notes))
            epoch, done, total = self._clock() // 1000, 0, _count(task, "subject")
            with self._file(task) as lines:
                for some in self._opened(tenant.incarnation, lines):
                    shard.open_streams(some, epoch)
                    done += len(some)
                    task.report(done, total)
            shard.end_import(tenant.incarnation, operation_id)
            self._added()
        task.answer(v1.TenantOperationResult(import_tenant=result(notes)))
        if not _is_dry(task):
            self._path(task).unlink(missing_ok=True)

    def _opened(self, incarnation: Incarnation, lines: ArchiveLines) -> Iterator[list[OpenedStream]]:
        """The streams of the file, some at a time, each with the requests in it that are not done."""
        now = self._clock()
        reader = RecordReader(incarnation, now)
        some: list[OpenedStream] = []
        for number, line in enumerate(lines, 1):
            if number > 1 and _kind(line) not in ("subject", "request"):
                continue
            _, record = reader.read(line)
            if isinstance(record, Stream):
                if len(some) == OPENED_AT_ONCE:
                    yield some
                    some = []
                some.append(OpenedStream(record.key, record.head, record.horizon, record.history_horizon))
            elif isinstance(record, Unread):
                last = some[-1]
                some[-1] = replace(last, jobs=(*last.jobs, job_of(record, last.key, now)))
        if some:
            yield some

    def _roll_back(self, task: Task) -> None:
        if _is_dry(task):
            return
        operation, shard = task.operation, self._router.shard(task.tenant)
        shard.take_back_import(
            operation.incarnation,
            operation.operation_id,
            lambda: task.report(operation.done, operation.total),
        )
        self._path(task).unlink(missing_ok=True)

    # --- the file -----------------------------------------------------------------------------------

    def _path(self, task: Task) -> Path:
        upload_id = str(task.operation.asked["upload_id"])
        return self._archives.upload_path(task.operation.incarnation, upload_id)

    def _file(self, task: Task) -> AbstractContextManager[ArchiveLines]:
        """The lines of the file that was checked, for the block. Unavailable where it is not here."""
        path = self._path(task)
        if not path.exists():
            raise Unavailable("the uploaded file lies on another server")
        return opened(path)


def _is_dry(task: Task) -> bool:
    return bool(task.operation.asked["validate_only"])


def _count(task: Task, kind: str) -> int:
    return counts(task.operation.notes or {}).get(kind, 0)


def _place(shard: Shard, task: Task) -> int:
    """How many lines are stored. Unavailable where another server ended the import, or takes it back."""
    place = shard.import_place(task.operation.incarnation, task.operation.operation_id)
    if place is None or place < 0:
        raise Unavailable("the import is another server's now")
    return place


def _kind(line: bytes) -> str:
    """A line's kind, as far as it matters."""
    if b'"subject"' not in line and b'"request"' not in line and b'"memory"' not in line:
        return ""
    found = json.loads(line).get("kind")
    return found if isinstance(found, str) else ""


def _skip(line: bytes, reader: RecordReader) -> str:
    """Read of a line that is stored what those behind it need; its kind."""
    kind = _kind(line)
    if kind == "subject" or reader.stream is None:
        reader.read(line)
    return kind
