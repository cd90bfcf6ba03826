"""Subjects whole: exporting all that the server holds of one, and erasing it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from scrubjay import v1
from scrubjay.memory import Micros, Subject
from server.archive.folder import Archives
from server.archive.lines import Line, device_line, sealed, subject_head, subject_lines
from server.erasing import Eraser
from server.router import Router
from server.shard.exporting import SubjectPages
from server.store.memory_store import StreamKey
from tenants.receipt import PurgeReceipt
from tenants.tenant import Tenant


class Subjects:
    """Exports and erases subjects, and keeps files of whole tenants. ``clock`` gives microseconds since
    1970."""

    def __init__(
        self, router: Router, eraser: Eraser, archives: Archives, clock: Callable[[], Micros]
    ) -> None:
        self._router = router
        self._eraser = eraser
        self._archives = archives
        self._clock = clock

    def stock(self, tenant: Tenant) -> dict[str, int]:
        """How many ``memories`` a tenant has, and how many ``bytes`` were written of them."""
        return self._router.shard(tenant).stock(tenant.incarnation)._asdict()

    def erase(self, tenant: Tenant, subject: Subject, asked_at: Micros) -> PurgeReceipt:
        """Erase a subject, unless that was done since ``asked_at``; what was deleted."""
        return self._eraser.erase(tenant, subject, asked_at)

    def export(self, tenant: Tenant, subject: Subject, devices: Iterable[v1.Device]) -> Iterator[str]:
        """All that is held of a subject, line by line, each with its newline; the devices are given."""
        key = StreamKey(tenant.incarnation, subject.key)
        pages = self._router.shard(tenant).subject_pages(key)
        yield from sealed(subject_head(tenant, subject, self._clock()), _lines(pages, devices))

    def exported(self, tenant: Tenant, operation_id: str, offset: int) -> Iterator[bytes]:
        """The file of an export from ``offset`` on. ExportGone where it is not here."""
        return self._archives.chunks(tenant.incarnation, operation_id, offset)

    def upload(self, tenant: Tenant, upload_id: str, offset: int, chunk: bytes) -> int:
        """Take a part of a file to be imported; how many bytes of it are there. QuotaExceeded."""
        return self._archives.upload(tenant, upload_id, offset, chunk)


def _lines(pages: SubjectPages, devices: Iterable[v1.Device]) -> Iterator[Line]:
    yield from subject_lines(pages)
    yield from map(device_line, devices)
