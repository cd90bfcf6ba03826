"""Where archives lie as files: exports that can be fetched, and uploads to be imported.

    <folder>/exports/<life of the tenant>/<operation>.jsonl.gz
    <folder>/imports/<life of the tenant>/<digest of the upload's id>

Both hold everything of a tenant, so they go after a few days, with the tenant, and where one of its subjects
is erased. Several servers see each other's where the two folders are on a volume that they share.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from scrubjay.errors import ExportGone, QuotaExceeded
from scrubjay.memory import Micros
from server.store.memory_store import Extent, StreamKey
from tenants.tenant import Incarnation, Tenant

INTERVAL_SECONDS = 3600
KEPT_DAYS = 7
"""Of an export, to be fetched, and of an upload, to be gone on with: a week of holidays."""
CHUNK_BYTES = 1024 * 1024
"""What one message of a download holds."""


class Archives:
    """The files of one data directory. ``upload_bytes`` bounds the uploads of one tenant, ``clock`` gives
    microseconds since 1970."""

    def __init__(self, folder: Path, upload_bytes: int, clock: Callable[[], Micros]) -> None:
        self._exports = folder / "exports"
        self._imports = folder / "imports"
        self._upload_bytes = upload_bytes
        self._clock = clock
        self._lock = threading.Lock()

    def export_path(self, incarnation: Incarnation, operation_id: str) -> Path:
        """Where an export is written."""
        return self._exports / incarnation / f"{operation_id}.jsonl.gz"

    def upload_path(self, incarnation: Incarnation, upload_id: str) -> Path:
        """Where an upload lies."""
        return self._imports / incarnation / hashlib.sha256(upload_id.encode()).hexdigest()

    def chunks(self, incarnation: Incarnation, operation_id: str, offset: int) -> Iterator[bytes]:
        """An export from ``offset`` on. ExportGone where it is not here."""
        try:
            file = self.export_path(incarnation, operation_id).open("rb")
        except FileNotFoundError:
            raise ExportGone(operation_id) from None
        with file:
            file.seek(offset)
            while chunk := file.read(CHUNK_BYTES):
                yield chunk

    def upload(self, tenant: Tenant, upload_id: str, offset: int, data: bytes) -> int:
        """Take a part of an upload, where it is not there and joins what is; how many bytes there are then.

        QuotaExceeded where the tenant's uploads would be too large.
        """
        path = self.upload_path(tenant.incarnation, upload_id)
        with self._lock:
            size = path.stat().st_size if path.exists() else 0
            news = data[size - offset :] if offset <= size else b""
            if not news:
                return size
            self._check_room(tenant, len(news))
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as file:
                file.write(news)
                file.flush()
                os.fsync(file.fileno())
            return size + len(news)

    def _check_room(self, tenant: Tenant, more: int) -> None:
        taken = sum(path.stat().st_size for path in _files(self._imports / tenant.incarnation))
        if taken + more > self._upload_bytes:
            raise QuotaExceeded("upload_bytes", self._upload_bytes, tenant.tenant_id)

    def count_of(self, extent: Extent) -> int:
        """How many files there are of a tenant, or of the tenant of a subject."""
        return sum(1 for folder in self._folders(extent) for _ in _files(folder))

    def discard_all(self, extent: Extent) -> None:
        """Delete all files of a tenant, or of the tenant of a subject: that may be in any of them."""
        for folder in self._folders(extent):
            shutil.rmtree(folder, ignore_errors=True)

    def _folders(self, extent: Extent) -> tuple[Path, Path]:
        incarnation = extent.incarnation if isinstance(extent, StreamKey) else extent
        return self._exports / incarnation, self._imports / incarnation

    def collect(self, ending: threading.Event) -> int:
        """Delete what is too old, until ``ending``; how many files."""
        oldest = self._clock() / 1_000_000 - KEPT_DAYS * 24 * 3600
        old = [
            path
            for folder in (self._exports, self._imports)
            for path in _files(folder)
            if path.stat().st_mtime < oldest
        ]
        for count, path in enumerate(old):
            if ending.is_set():
                return count
            path.unlink(missing_ok=True)
        return len(old)


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]
