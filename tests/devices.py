"""A server's services in process, and devices that speak its protocol by hand."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any

from scrubjay import v1
from scrubjay.feed import open_page, unpack
from scrubjay.memory import ClientId, JsonValue, Memory, MemoryId, Micros, Subject, new_memory_id
from scrubjay.merge import Write
from scrubjay.operation import (
    NO_CHAIN,
    NO_ID,
    Operation,
    OperationId,
    OperationKind,
    encode,
    next_chain,
)
from scrubjay.stamp import CommitStamp, ReplicaId, Stamp, next_time
from server.archive.folder import Archives
from server.index.cache import StreamCache
from server.index.shelf import Shelf
from server.providers.embedder import Embedder
from server.providers.embedders import Embedders
from server.providers.hashed import HashEmbedder
from server.router import Router
from server.services.memory_door import MemoryParts
from server.services.memory_service import MemoryService
from server.services.sync_service import SyncService
from server.shard import Shard
from server.snapshots import Snapshots
from server.store.memory_store import MemoryStore, StreamKey
from tenants.tenant import Caller, DeviceBinding, Incarnation, Role, Tenant, TenantState, principal

ACME = Incarnation("11111111-1111-4111-8111-111111111111")
ALICE = Subject("user", "alice")
KEY = StreamKey(ACME, ALICE.key)
NOW = Micros(1_796_000_000_000_000)
SECOND = 1_000_000
DAY = 24 * 3600 * SECOND


class NoRegistration:
    """What these tests register: nothing."""

    def register_device(self, request: v1.RegisterDeviceRequest, caller: Caller) -> v1.RegisterDeviceResponse:
        raise NotImplementedError

    def refresh_token(self, request: v1.RefreshTokenRequest, caller: Caller) -> v1.RefreshTokenResponse:
        raise NotImplementedError

    def note_wipe(self, caller: Caller) -> None:
        """No catalogue knows the device."""


class Server:
    """One shard's services on a database with a shard's tables, and a clock that tests move."""

    def __init__(
        self,
        url: str,
        folder: Path,
        embedder: Embedder | None = None,
        others: Mapping[str, Embedder] = MappingProxyType({}),
    ) -> None:
        self.now = NOW
        self.embedder = embedder or HashEmbedder()
        space = self.embedder.space
        with ExitStack() as stack:
            self.store = stack.enter_context(MemoryStore(url))
            shelf = Shelf(folder / "index")
            self.embedders = Embedders({"hash": self.embedder, **others})
            self.cache = StreamCache(self.store, shelf, self.embedders.dimensions, budget_bytes=1 << 24)
            stack.callback(self.cache.close)
            self.shard = Shard("main", self.store, self.cache)
            router = Router({"main": self.shard})
            self.tenant = Tenant("acme", "", ACME, TenantState.ACTIVE, "main", space.id, Micros(0))
            parts = MemoryParts(router, self.embedders, b"secret", lambda: self.now)
            self.memories = MemoryService(parts)
            self.snapshots = Snapshots(folder / "snapshots", b"secret", budget_bytes=1 << 26)
            stack.callback(self.snapshots.close)
            self.archives = Archives(folder, 1 << 30, lambda: self.now)
            self.sync = SyncService(
                router, self.embedders, b"secret", lambda: self.now, NoRegistration(), self.snapshots
            )
            self._stack = stack.pop_all()

    def wait(self, seconds: float = 1) -> None:
        """Time passes."""
        self.now = Micros(self.now + int(seconds * SECOND))

    def service(self, client_id: str = "web") -> Caller:
        """A backend that acts for a client."""
        return Caller(Role.SERVICE, "key", ClientId(client_id), self.tenant)

    def device(self, client_id: str = "phone", scopes: tuple[str, ...] = (), **given: Any) -> Device:
        """A device of alice, or of the ``subject`` given."""
        return Device(self, ClientId(client_id), scopes, **given)

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()


@dataclass
class Device:
    """Sends what it is told to, keeps its cursor, and believes the server."""

    server: Server
    client_id: ClientId
    scopes: tuple[str, ...] = ()
    subject: Subject = ALICE
    replica: ReplicaId = field(default_factory=lambda: ReplicaId(os.urandom(16)))
    number: int = 0
    chain: bytes = NO_CHAIN
    cursor: str = ""
    time: int = 0

    @property
    def caller(self) -> Caller:
        """As the door sees it."""
        binding = DeviceBinding(f"device-{self.client_id}", self.subject, self.scopes)
        return Caller(Role.DEVICE, "device-key", self.client_id, self.server.tenant, binding)

    def stamp(self, seconds: float = 0) -> Stamp:
        """The next stamp of its clock, which may be wrong by ``seconds``."""
        millis = self.server.now // 1000 + int(seconds * 1000)
        self.time = next_time(self.time, millis) if not seconds else next_time(0, millis)
        return Stamp(self.time, self.replica)

    # --- operations -------------------------------------------------------------------------------

    def create(
        self,
        content: str = "Likes tea.",
        *,
        memory_id: str = "",
        stamp: Stamp | None = None,
        operation_id: str = "",
        **fields: Any,
    ) -> Operation:
        """An operation that makes a memory."""
        stamp = stamp or self.stamp()
        memory_id = memory_id or new_memory_id(stamp.millis, os.urandom(10))
        fields = {"created_at": self.server.now, f"{self.subject.kind}_id": self.subject.name} | fields
        memory = Memory(MemoryId(memory_id), content, owner_client_id=self.client_id, **fields)
        return Operation(OperationId(operation_id), MemoryId(memory_id), OperationKind.CREATE, stamp, memory)

    def set(
        self,
        memory_id: str,
        values: Mapping[str, JsonValue],
        *,
        bases: Mapping[str, Stamp] | None = None,
        stamp: Stamp | None = None,
        operation_id: str = "",
    ) -> Operation:
        """An operation that writes registers."""
        self.time = max([self.time, *(base.time for base in (bases or {}).values())])
        stamp = stamp or self.stamp()
        writes = tuple(Write(name, value, stamp, (bases or {}).get(name)) for name, value in values.items())
        return Operation(
            OperationId(operation_id), MemoryId(memory_id), OperationKind.SET, stamp, writes=writes
        )

    def delete(self, memory_id: str, *, stamp: Stamp | None = None) -> Operation:
        """An operation that deletes a memory."""
        return Operation(NO_ID, MemoryId(memory_id), OperationKind.DELETE, stamp or self.stamp())

    def encoded(self, *operations: Operation) -> list[bytes]:
        """The operations as this device sends them."""
        return [encode(operation, self.replica) for operation in operations]

    # --- calls ------------------------------------------------------------------------------------

    def request(self, *operations: Operation, **fields: Any) -> v1.SyncRequest:
        """A Sync of these operations from where the device stands."""
        given: dict[str, Any] = {
            "last_sync_at": self.cursor,
            "protocol": 1,
            "replica_id": self.replica,
            "principal": principal(self.server.tenant.incarnation, self.subject, self.client_id),
            "first_number": self.number + 1,
            "chain": self.chain,
            "batch": v1.Batch(operations=self.encoded(*operations)) if operations else None,
        }
        return v1.SyncRequest(**{**given, **fields})

    def call(self, request: v1.SyncRequest) -> v1.SyncResponse:
        """Sync, and nothing is kept of the answer."""
        return self.server.sync.sync(request, self.caller)

    def sync(self, *operations: Operation, **fields: Any) -> Synced:
        """Sync, and keep the cursor and the chain."""
        request = self.request(*operations, **fields)
        response = self.call(request)
        if response.directive == v1.DIRECTIVE_OK:
            self.answered(request, response)
        return Synced(response)

    def answered(self, request: v1.SyncRequest, response: v1.SyncResponse) -> None:
        """Keep the cursor, and the chain behind what was answered."""
        self.cursor = response.last_sync_at
        for encoded, result in zip(request.batch.operations, response.results, strict=True):
            if result.status != v1.OPERATION_STATUS_RETRY_LATER:
                self.chain = next_chain(self.chain, encoded)
                self.number += 1

    def pull(self, **fields: Any) -> list[Told]:
        """Everything that changed, in as many pages as it takes."""
        told: list[Told] = []
        while True:
            synced = self.sync(**fields)
            assert synced.response.directive == v1.DIRECTIVE_OK
            told += synced.told
            if not synced.response.more:
                return told


@dataclass(frozen=True)
class Told:
    """One change of a page."""

    memory_id: MemoryId
    commit_stamp: CommitStamp
    change: v1.Change

    @property
    def kind(self) -> v1.ChangeKind.ValueType:
        """How it changed."""
        return self.change.kind

    @property
    def short(self) -> str:
        """``WHOLE text``, ``PART text``, ``DELETED`` or ``RETRACTED``."""
        name = v1.ChangeKind.Name(self.kind).removeprefix("CHANGE_KIND_")
        return f"{name} {self.change.memory.content}".strip()


@dataclass(frozen=True)
class Synced:
    """An answer, opened."""

    response: v1.SyncResponse

    @property
    def statuses(self) -> list[str]:
        """How each operation ended."""
        prefix = "OPERATION_STATUS_"
        return [v1.OperationStatus.Name(one.status).removeprefix(prefix) for one in self.response.results]

    @property
    def told(self) -> list[Told]:
        """The changes of the page."""
        return opened(self.response)

    @property
    def short(self) -> list[str]:
        """The changes in short."""
        return [one.short for one in self.told]


def opened(response: v1.SyncResponse) -> list[Told]:
    """The changes of a response's page."""
    page = response.page
    if response.packed_page:
        page = unpack(v1.Page, "packed_page", response.packed_page)
    return [Told(*change) for change in open_page(page)]


def short(told: Sequence[Told]) -> list[str]:
    """Changes in short."""
    return [one.short for one in told]
