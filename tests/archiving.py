"""Exports and imports carried out in process, and killed where a test says so."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sqlalchemy import func, select

from scrubjay import v1
from scrubjay.errors import ScrubjayError
from scrubjay.memory import JsonValue, Micros
from server.archive.folder import Archives
from server.operations.conductor import Phase, Plan
from server.operations.exporting import Exporter
from server.operations.importing import Importer
from server.router import Router
from server.store.tables import metadata
from tenants.database import open_engine
from tenants.operation import Kind, OperationState, TenantOperation
from tenants.registry import TenantChanges
from tenants.tenant import Incarnation, Tenant
from tests.devices import NOW, Server
from tests.killing import Killed

OPERATION = "0199bbbb-0000-7000-8000-000000000001"


@dataclass
class Work:
    """An operation at work, which dies at the report ``dies_at``, counted from 0."""

    server: Server
    operation: TenantOperation
    result: v1.TenantOperationResult | None = None
    reports: int = 0
    dies_at: int | None = None

    @property
    def tenant(self) -> Tenant:
        return self.server.tenant

    def report(self, done: int, total: int = 0) -> None:
        self.operation = replace(self.operation, done=done, total=total)
        if self.reports == self.dies_at:
            raise Killed
        self.reports += 1

    def note(self, **values: JsonValue) -> None:
        kept = json.loads(json.dumps({**(self.operation.notes or {}), **values}))
        self.operation = replace(self.operation, notes=kept)

    def answer(self, result: v1.TenantOperationResult) -> None:
        self.result = result

    def run(self, phase: Phase) -> None:
        """Carry out a phase, again where it was killed, which happens once at most."""
        task: Any = self
        try:
            phase.run(task)
        except Killed:
            self.dies_at = None
            phase.run(task)


def work(server: Server, kind: Kind, operation_id: str = OPERATION, **asked: JsonValue) -> Work:
    incarnation = server.tenant.incarnation
    return Work(
        server,
        TenantOperation(
            operation_id=operation_id,
            kind=kind,
            target=incarnation,
            tenant_id="acme",
            incarnation=incarnation,
            state=OperationState.RUNNING,
            asked=asked,
            actor="key",
            request_id="",
            created_at=NOW,
            updated_at=NOW,
        ),
    )


def export(server: Server, folder: Path, dies_at: int | None = None) -> Path:
    """The file that an export of the server's tenant writes."""
    archives = Archives(folder, 1 << 30, lambda: server.now)
    doing = work(server, Kind.EXPORT)
    doing.dies_at = dies_at
    for phase in Exporter(Router({"main": server.shard}), archives, lambda: server.now).plan().phases:
        doing.run(phase)
    path = archives.export_path(server.tenant.incarnation, OPERATION)
    assert doing.result is not None
    told = doing.result.export_tenant
    assert told.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert told.size_bytes == path.stat().st_size
    assert dict(told.counts) == json.loads(lines_of(path)[-1])["counts"]
    return path


def lines_of(path: Path) -> list[bytes]:
    return gzip.decompress(path.read_bytes()).splitlines(keepends=True)


@dataclass
class Importing:
    """An import of a file into the server's tenant."""

    server: Server
    folder: Path
    settled: TenantChanges | None = None

    def begin(self, data: bytes, *, validate_only: bool = False) -> tuple[Work, Plan]:
        server, digest = self.server, hashlib.sha256(data).hexdigest()
        archives = Archives(self.folder, 1 << 30, lambda: server.now)
        archives.upload(server.tenant, digest, 0, data)

        def settle(_tenant: Tenant, changes: TenantChanges) -> None:
            self.settled = changes

        router = Router({"main": server.shard})
        importer = Importer(
            router, archives, lambda _: server.embedder, settle, lambda: None, lambda: server.now
        )
        asked = {"upload_id": digest, "sha256": digest, "validate_only": validate_only}
        return work(server, Kind.IMPORT, **asked), importer.plan()

    def run(self, data: bytes, *, validate_only: bool = False, dies_at: int | None = None) -> Work:
        """Carry it out; where it fails, it is rolled back."""
        doing, plan = self.begin(data, validate_only=validate_only)
        doing.dies_at = dies_at
        try:
            for phase in plan.phases:
                doing.run(phase)
        except ScrubjayError:
            task: Any = doing
            plan.roll_back(task)
            raise
        return doing


@contextmanager
def another(url: str, folder: Path) -> Iterator[Server]:
    """A server with another life of a tenant, a little later."""
    with Server(url, folder) as server:
        life = Incarnation("22222222-2222-4222-8222-222222222222")
        server.tenant = replace(server.tenant, incarnation=life)
        server.now = Micros(NOW + 10**12)
        yield server


def rows_of(server: Server, url: str) -> dict[str, int]:
    """How many rows each table has of the server's life of the tenant, where it has any."""
    engine, life = open_engine(url), server.tenant.incarnation
    with engine.begin() as connection:
        counts = {
            name: connection.execute(
                select(func.count()).select_from(table).where(table.c.incarnation == life)
            ).scalar_one()
            for name, table in metadata.tables.items()
            if name != "imports"
        }
    engine.dispose()
    return {name: count for name, count in counts.items() if count}
