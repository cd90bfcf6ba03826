"""Shards of whose subjects a test asks nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from scrubjay import v1
from scrubjay.errors import ExportGone
from scrubjay.memory import Micros, Subject
from tenants.receipt import PurgeReceipt
from tenants.tenant import Tenant


class NoSubjects:
    """Holds nothing of anybody."""

    def stock(self, tenant: Tenant) -> dict[str, int]:
        return {"memories": 0, "bytes": 0}

    def erase(self, tenant: Tenant, subject: Subject, asked_at: Micros) -> PurgeReceipt:
        return PurgeReceipt(asked_at, asked_at)

    def export(self, tenant: Tenant, subject: Subject, devices: Iterable[v1.Device]) -> Iterator[str]:
        return iter(())

    def exported(self, tenant: Tenant, operation_id: str, offset: int) -> Iterator[bytes]:
        raise ExportGone(operation_id)

    def upload(self, tenant: Tenant, upload_id: str, offset: int, chunk: bytes) -> int:
        return 0
