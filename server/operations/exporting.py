"""Exporting a tenant: everything that is held of it, in one file.

    write   subject by subject, each as it is at one moment; a kill costs what was written since the last
            member of the file that is noted
    seal    the manifest, and the file's digest

Whoever goes on where the file is not, another server, writes it anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from scrubjay import v1
from scrubjay.memory import Micros, Subject
from scrubjay.wire import to_timestamp
from server.archive.file import ArchiveWriter, opened
from server.archive.folder import KEPT_DAYS, Archives
from server.archive.lines import Line, Seal, encoded, settings_line, stream_lines, tenant_head
from server.operations.conductor import Phase, Plan, Task
from server.router import Router
from server.store.memory_store import StreamKey
from tenants.digest import file_digest
from tenants.tenant import Tenant


class Exporter:
    """Exports tenants to files. ``clock`` gives microseconds since 1970."""

    def __init__(self, router: Router, archives: Archives, clock: Callable[[], Micros]) -> None:
        self._router = router
        self._archives = archives
        self._clock = clock

    def plan(self) -> Plan:
        """How one is carried out."""
        return Plan((Phase("write", self._write), Phase("seal", self._seal)), self._roll_back)

    def _path(self, task: Task) -> Path:
        return self._archives.export_path(task.operation.incarnation, task.operation.operation_id)

    # --- writing ------------------------------------------------------------------------------------

    def _write(self, task: Task) -> None:
        tenant, shard = task.tenant, self._router.shard(task.tenant)
        shard.accesses.write()
        total = shard.living_count(tenant.incarnation)
        size, after, seal = self._begun(task)
        with ArchiveWriter(self._path(task), size) as writer:

            def keep(line: Line) -> None:
                text = encoded(line)
                writer.write(text)
                seal.add(text, line.get("kind", ""))
                task.report(seal.counts["memory"], total)

            if not size:
                keep(tenant_head(tenant, self._clock()))
                keep(settings_line(tenant))
            for stream in self._streams(tenant, after):
                for line in self._lines(tenant, stream):
                    keep(line)
                after = stream
                if writer.is_due:
                    _note(task, writer, after, seal)
            _note(task, writer, after, seal)

    def _begun(self, task: Task) -> tuple[int, str, Seal]:
        """What there is of the file and what to go on behind: its size, the stream, and the seal so far."""
        notes, path = task.operation.notes or {}, self._path(task)
        size = _number(notes.get("size"))
        if not size or not path.exists() or path.stat().st_size < size:
            return 0, "", Seal()
        with ArchiveWriter(path, size):
            pass  # cuts off what is behind
        seal = Seal()
        with opened(path) as lines:
            for line in lines:
                seal.add(line)
                task.report(task.operation.done, task.operation.total)
        seal.counts = Counter(_counts(notes.get("counts")))
        return size, str(notes["stream"]), seal

    def _streams(self, tenant: Tenant, after: str) -> Iterator[str]:
        shard = self._router.shard(tenant)
        while page := shard.held_streams(tenant.incarnation, after):
            yield from page
            after = page[-1]

    def _lines(self, tenant: Tenant, stream: str) -> Iterator[Line]:
        kind, _, name = stream.partition(":")
        key = StreamKey(tenant.incarnation, stream)
        with self._router.shard(tenant).subject_at_once(key) as pages:
            yield from stream_lines(Subject(kind, name), pages)

    # --- its end ------------------------------------------------------------------------------------

    def _seal(self, task: Task) -> None:
        path = self._path(task)
        notes = task.operation.notes or {}
        if not path.exists() or path.stat().st_size < _number(notes.get("size")):
            self._write(task)
        notes = task.operation.notes or {}
        seal = Seal()
        seal.counts = Counter(_counts(notes["counts"]))
        with ArchiveWriter(path, _number(notes["size"])) as writer:
            writer.write(encoded({**seal.manifest(), "sha256": notes["sha256"]}))
            size = writer.end_member()
        task.answer(
            v1.TenantOperationResult(
                export_tenant=v1.ExportTenantResult(
                    size_bytes=size,
                    sha256=file_digest(path, lambda done: task.report(done, size)),
                    counts=dict(seal.counts),
                    expires_at=to_timestamp(Micros(self._clock() + KEPT_DAYS * 24 * 3600 * 1_000_000)),
                )
            )
        )

    def _roll_back(self, task: Task) -> None:
        self._path(task).unlink(missing_ok=True)


def _note(task: Task, writer: ArchiveWriter, stream: str, seal: Seal) -> None:
    size = writer.end_member()
    task.note(size=size, stream=stream, counts=dict(seal.counts), sha256=seal.sha256)


def _number(noted: object) -> int:
    return noted if isinstance(noted, int) else 0


def _counts(noted: Any) -> dict[str, int]:
    return dict(noted or {})
