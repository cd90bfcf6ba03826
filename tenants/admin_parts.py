"""What every part of TenantAdminService's door is built on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from scrubjay import v1
from scrubjay.memory import Micros, Subject
from tenants.receipt import PurgeReceipt
from tenants.registry import Registry
from tenants.tenant import Tenant


class Subjects(Protocol):
    """What shards hold of tenants and their subjects."""

    def stock(self, tenant: Tenant) -> dict[str, int]:
        """How many ``memories`` a tenant has, and how many ``bytes`` were written of them."""

    def erase(self, tenant: Tenant, subject: Subject, asked_at: Micros) -> PurgeReceipt:
        """Erase a subject, unless that was done since ``asked_at``; what was deleted."""

    def export(self, tenant: Tenant, subject: Subject, devices: Iterable[v1.Device]) -> Iterator[str]:
        """All that is held of a subject, line by line, each with its newline; the devices are given."""

    def exported(self, tenant: Tenant, operation_id: str, offset: int) -> Iterator[bytes]:
        """The file of a tenant's export from ``offset`` on. ExportGone where it is not here."""

    def upload(self, tenant: Tenant, upload_id: str, offset: int, chunk: bytes) -> int:
        """Take a part of a file to be imported; how many bytes of it are there. QuotaExceeded."""


class HeldShard(Protocol):
    """A shard, as far as its state is told."""

    @property
    def kind(self) -> str:
        """Of its database: ``sqlite`` or ``postgresql``."""

    def stock_of_all(self) -> tuple[int, int]:
        """How many memories and bytes it has. StorageUnavailable where its database does not answer."""


@dataclass(frozen=True, slots=True)
class AdminParts:
    """What it asks. ``secret`` seals page tokens; ``clock`` gives microseconds since 1970; ``begun`` is set
    where a long operation was begun or cancelled; the shards are those that it tells of."""

    registry: Registry
    secret: bytes
    clock: Callable[[], Micros]
    subjects: Subjects
    begun: threading.Event = field(default_factory=threading.Event)
    shards: Mapping[str, HeldShard] = field(default_factory=lambda: MappingProxyType({}))
