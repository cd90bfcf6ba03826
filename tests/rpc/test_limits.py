"""Every limit against every RPC: which calls a limit counts, and that what it refuses consumes nothing."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from types import MappingProxyType

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask

from rpc import test_archives
from rpc.conftest import served
from scrubjay import connect, v1
from scrubjay.channel import from_rpc_error
from scrubjay.errors import ScrubjayError
from scrubjay.feed import pack, seal_page, whole
from scrubjay.memory import ClientId, Memory, MemoryId, Micros, Subject, new_memory_id
from scrubjay.merge import create
from scrubjay.operation import NO_CHAIN, NO_ID, Operation, OperationKind, encode
from scrubjay.stamp import CommitStamp, ReplicaId, Stamp, pack_field_stamps
from scrubjay.wire import to_message
from server.app import ALLOWED, App
from server.config import Settings
from server.upkeep import begin_epochs

EXCEEDED, LIMITED = v1.ERROR_REASON_QUOTA_EXCEEDED, v1.ERROR_REASON_RATE_LIMITED
UNKNOWN = "00000000-0000-7000-8000-000000000000"
MEMORY, SYNC, ADMIN = "MemoryService", "SyncService", "TenantAdminService"

STORES = {"MemoryService/Add", "MemoryService/Restore", "SyncService/Sync", "SyncService/Reoffer"}
ON_MEMORIES = {path for each in ALLOWED if ADMIN not in (path := each.removeprefix("/scrubjay.v1."))}
COUNTS = MappingProxyType(
    {
        "memories": STORES | {"TenantAdminService/ImportTenant"},
        "bytes": STORES
        | {"MemoryService/Update", "MemoryService/Feedback", "TenantAdminService/ImportTenant"},
        "devices": {"SyncService/RegisterDevice"},
        "api_keys": {"TenantAdminService/CreateApiKey", "TenantAdminService/RotateApiKey"},
        "calls_per_second": ON_MEMORIES,
        "calls_per_second_per_key": ON_MEMORIES,
    }
)
"""Which RPCs each limit counts. All others it does not."""
TAKES_AWAY = {
    *("MemoryService/Delete", "MemoryService/DeleteAll", "MemoryService/DeleteByFilter"),
    *("MemoryService/Forget", "TenantAdminService/EraseSubject"),
}
"""What writes history and is refused by no limit of bytes: a tenant that has its fill may delete."""
ELSEWHERE = MappingProxyType(
    {"TenantAdminService/ImportTenant": test_archives.test_more_than_the_quotas_allow_is_not_imported}
)
"""What is counted by work behind the call, and where that is tested."""

Thunk = Callable[[], object]


@dataclass
class World:
    """A server, its first tenant, an admin of each kind, a device, and what that held in an earlier epoch."""

    admin: v1.TenantAdminServiceStub
    own_admin: v1.TenantAdminServiceStub
    memories: v1.MemoryServiceStub
    device: v1.SyncServiceStub
    enrolled: v1.RegisterDeviceResponse
    cursor: str
    open_sync: Callable[[str], v1.SyncServiceStub]
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def fresh(self) -> str:
        return f"fact number {next(self.numbers)} {os.urandom(4).hex()}"

    def made(self, user_id: str = "alice", **fields: object) -> v1.Memory:
        memory = v1.Memory(user_id=user_id, content=self.fresh(), tags=["tea"], **fields)  # type: ignore[arg-type]  # by name
        return self.memories.Add(v1.AddRequest(memories=[memory])).results[0].memory

    def code(self) -> str:
        request = v1.CreateEnrolmentRequest(tenant_id="dev", user_id="alice")
        return self.admin.CreateEnrolment(request).enrolment_code

    def key(self) -> str:
        request = v1.CreateApiKeyRequest(tenant_id="dev", role=v1.ROLE_READER)
        return self.admin.CreateApiKey(request).api_key.key_id

    def limit(self, **quotas: float) -> None:
        told = v1.Tenant(tenant_id="dev", quotas=v1.Quotas(**quotas))  # type: ignore[arg-type]  # by name
        mask = FieldMask(paths=["quotas"])
        self.admin.UpdateTenant(v1.UpdateTenantRequest(tenant=told, update_mask=mask))

    def stock(self) -> v1.Stock:
        return self.admin.GetUsage(v1.GetUsageRequest(tenant_id="dev")).stock


# --- a call of each RPC ---------------------------------------------------------------------------

CALLS: dict[str, Callable[[World], Thunk]] = {}
"""By RPC, what prepares a call of it that succeeds where nothing is limited."""
UNTOUCHED = {
    *("MemoryService/GetOperation", "MemoryService/WaitOperation", "MemoryService/CancelOperation"),
    *(f"TenantAdminService/{name}TenantOperation" for name in ("Get", "Cancel", "Wait")),
    *(f"TenantAdminService/{name}" for name in ("MoveTenant", "DrainShard", "ReindexTenant")),
    *(f"TenantAdminService/{name}" for name in ("DownloadExport", "UploadImport", "ImportTenant")),
}
"""What is asked of nothing that is there: the call is answered NOT_FOUND or the like, and by no limit."""


def call(path: str) -> Callable[[Callable[[World], Thunk]], Callable[[World], Thunk]]:
    def note(prepare: Callable[[World], Thunk]) -> Callable[[World], Thunk]:
        CALLS[path] = prepare
        return prepare

    return note


def asked(path: str, make: Callable[[World], object]) -> None:
    """A call whose request is made beforehand."""
    service, _, rpc = path.partition("/")

    def prepare(world: World) -> Thunk:
        request = make(world)
        stub: object = {MEMORY: world.memories, SYNC: world.device, ADMIN: world.admin}[service]
        if path.endswith(("ExportSubject", "ExportTenant", "DownloadExport", "UploadImport", "ImportTenant")):
            stub = world.own_admin
        return lambda: first(getattr(stub, rpc)(request))

    CALLS[path] = prepare


def first(answer: object) -> object:
    """The answer; of a stream its first one."""
    if isinstance(answer, Iterator):
        answer = next(answer)
    return answer


TENANT = {"tenant_id": "dev"}
ALICE = {"user_id": "alice"}
TEA = v1.Filter(condition=v1.Condition(field="tags", operator=v1.OPERATOR_CONTAINS))
TEA.condition.value.string_value = "tea"


def with_memory(world: World, **fields: object) -> dict[str, str]:
    """A new user with a memory."""
    user_id = f"user {next(world.numbers)}"
    world.made(user_id, **fields)
    return {"user_id": user_id}


def deleted(world: World) -> str:
    memory = world.made()
    world.memories.Delete(v1.DeleteRequest(id=memory.id))
    return memory.id


def search(query: str = "tea") -> v1.SearchRequest:
    return v1.SearchRequest(**ALICE, query=query)


asked("MemoryService/Add", lambda w: v1.AddRequest(memories=[v1.Memory(**ALICE, content=w.fresh())]))
asked(
    "MemoryService/Update",
    lambda w: v1.UpdateRequest(
        memory=v1.Memory(id=w.made().id, content=w.fresh()), update_mask=FieldMask(paths=["content"])
    ),
)
asked("MemoryService/Delete", lambda w: v1.DeleteRequest(id=w.made().id))
asked("MemoryService/DeleteAll", lambda w: v1.DeleteAllRequest(**with_memory(w)))
asked("MemoryService/DeleteByFilter", lambda w: v1.DeleteByFilterRequest(**with_memory(w), filter=TEA))
asked("MemoryService/Forget", lambda w: v1.ForgetRequest(**with_memory(w)))
asked(
    "MemoryService/Feedback",
    lambda w: v1.FeedbackRequest(memory_id=w.made(confidence=0.5).id, kind=v1.FEEDBACK_KIND_HELPFUL),
)
asked("MemoryService/Restore", lambda w: v1.RestoreRequest(memory_id=deleted(w)))
asked("MemoryService/Get", lambda w: v1.GetRequest(id=w.made().id))
asked("MemoryService/BatchGet", lambda w: v1.BatchGetRequest(ids=[w.made().id]))
asked("MemoryService/List", lambda _: v1.ListRequest(**ALICE))
asked("MemoryService/Search", lambda _: search())
asked("MemoryService/Context", lambda _: v1.ContextRequest(**ALICE, query="tea"))
asked("MemoryService/ExplainMiss", lambda w: v1.ExplainMissRequest(search=search(), memory_id=w.made().id))
asked("MemoryService/History", lambda w: v1.HistoryRequest(memory_id=w.made().id))
asked("MemoryService/Watch", lambda _: v1.MemoryServiceWatchRequest(**ALICE))
asked("MemoryService/ListEntities", lambda _: v1.ListEntitiesRequest(**ALICE))
asked("MemoryService/ListRelations", lambda _: v1.ListRelationsRequest(**ALICE))
asked("MemoryService/ListOperations", lambda _: v1.ListOperationsRequest())
asked("MemoryService/GetOperation", lambda _: v1.GetOperationRequest(id=UNKNOWN))
asked("MemoryService/CancelOperation", lambda _: v1.CancelOperationRequest(id=UNKNOWN))
asked("MemoryService/WaitOperation", lambda _: v1.WaitOperationRequest(id=UNKNOWN))
asked("SyncService/RefreshToken", lambda _: v1.RefreshTokenRequest())
asked("SyncService/Snapshot", lambda _: v1.SnapshotRequest(newest=1))
asked("SyncService/Watch", lambda _: v1.WatchRequest())
asked("SyncService/Reconcile", lambda _: v1.ReconcileRequest(bucket_digests=[bytes(8)] * 256))
asked("SyncService/Vectors", lambda _: v1.VectorsRequest())


def of_device(world: World) -> tuple[Memory, Stamp, ReplicaId]:
    """A memory that a device made."""
    replica, millis = ReplicaId(os.urandom(16)), time.time_ns() // 1_000_000
    stamp = Stamp(millis << 16, replica)
    memory_id, client_id = new_memory_id(millis, os.urandom(10)), ClientId(world.enrolled.client_id)
    memory = Memory(
        memory_id, world.fresh(), Micros(millis * 1000), user_id="alice", owner_client_id=client_id
    )
    return memory, stamp, replica


@call("SyncService/Sync")
def sync(world: World) -> Thunk:
    memory, stamp, replica = of_device(world)
    made = Operation(NO_ID, MemoryId(memory.id), OperationKind.CREATE, stamp, memory)
    request = v1.SyncRequest(
        protocol=1,
        replica_id=replica,
        principal=world.enrolled.principal,
        first_number=1,
        chain=NO_CHAIN,
        batch=v1.Batch(operations=[encode(made, replica)]),
    )

    def send() -> object:
        answer = world.device.Sync(request)
        assert [one.status for one in answer.results] == [v1.OPERATION_STATUS_APPLIED]
        return answer

    return send


@call("SyncService/Reoffer")
def reoffer(world: World) -> Thunk:
    memory, stamp, _ = of_device(world)
    state = create(memory, stamp)
    message = to_message(memory, CommitStamp(1)).SerializeToString()
    change = whole(message, pack_field_stamps(state.stamps), Subject("user", "alice"))
    page = pack(seal_page([(memory.id, CommitStamp(1), change)]))
    request = v1.ReofferRequest(last_sync_at=world.cursor, packed_page=page)
    return lambda: world.device.Reoffer(request)


@call("SyncService/RegisterDevice")
def register(world: World) -> Thunk:
    stub, request = world.open_sync(world.code()), v1.RegisterDeviceRequest(installation_id=os.urandom(16))
    return lambda: stub.RegisterDevice(request)


asked(
    "TenantAdminService/CreateTenant",
    lambda w: v1.CreateTenantRequest(tenant_id=f"t{next(w.numbers)}"),
)
asked("TenantAdminService/GetTenant", lambda _: v1.GetTenantRequest(**TENANT))
asked("TenantAdminService/ListTenants", lambda _: v1.ListTenantsRequest())
asked(
    "TenantAdminService/UpdateTenant",
    lambda _: v1.UpdateTenantRequest(
        tenant=v1.Tenant(**TENANT), update_mask=FieldMask(paths=["display_name"])
    ),
)
asked("TenantAdminService/GetUsage", lambda _: v1.GetUsageRequest(**TENANT))
asked("TenantAdminService/CreateApiKey", lambda _: v1.CreateApiKeyRequest(**TENANT, role=v1.ROLE_READER))
asked("TenantAdminService/ListApiKeys", lambda _: v1.ListApiKeysRequest(**TENANT))
asked("TenantAdminService/RotateApiKey", lambda w: v1.RotateApiKeyRequest(**TENANT, key_id=w.key()))
asked("TenantAdminService/RevokeApiKey", lambda w: v1.RevokeApiKeyRequest(**TENANT, key_id=w.key()))
asked("TenantAdminService/CreateEnrolment", lambda _: v1.CreateEnrolmentRequest(**TENANT, user_id="x"))
asked("TenantAdminService/ListDevices", lambda _: v1.ListDevicesRequest(**TENANT))
asked("TenantAdminService/ExportSubject", lambda _: v1.ExportSubjectRequest(**TENANT, user_id="x"))
asked("TenantAdminService/EraseSubject", lambda w: v1.EraseSubjectRequest(**TENANT, **with_memory(w)))
asked("TenantAdminService/DownloadExport", lambda _: v1.DownloadExportRequest(**TENANT, operation_id=UNKNOWN))
asked(
    "TenantAdminService/UploadImport", lambda _: v1.UploadImportRequest(**TENANT, upload_id="x", chunk=b"x")
)
asked(
    "TenantAdminService/ImportTenant",
    lambda _: v1.ImportTenantRequest(**TENANT, upload_id="none", sha256="0" * 64),
)
asked("TenantAdminService/ReindexTenant", lambda _: v1.ReindexTenantRequest(**TENANT, embedder="none"))
asked("TenantAdminService/GetTenantOperation", lambda _: v1.GetTenantOperationRequest(operation_id=UNKNOWN))
asked("TenantAdminService/ListTenantOperations", lambda _: v1.ListTenantOperationsRequest(**TENANT))
asked(
    "TenantAdminService/CancelTenantOperation",
    lambda _: v1.CancelTenantOperationRequest(operation_id=UNKNOWN),
)
asked("TenantAdminService/WaitTenantOperation", lambda _: v1.WaitTenantOperationRequest(operation_id=UNKNOWN))
asked("TenantAdminService/MoveTenant", lambda _: v1.MoveTenantRequest(**TENANT, shard="none"))
asked("TenantAdminService/ListShards", lambda _: v1.ListShardsRequest())
asked("TenantAdminService/DrainShard", lambda _: v1.DrainShardRequest(shard="none"))
asked("TenantAdminService/ListAuditEvents", lambda _: v1.ListAuditEventsRequest(**TENANT))
asked("TenantAdminService/VerifyAuditEvents", lambda _: v1.VerifyAuditEventsRequest())


@call("TenantAdminService/RevokeDevice")
def revoke_device(world: World) -> Thunk:
    asked_first = v1.RegisterDeviceRequest(installation_id=os.urandom(16))
    device_id = world.open_sync(world.code()).RegisterDevice(asked_first).device_id
    return lambda: world.admin.RevokeDevice(v1.RevokeDeviceRequest(**TENANT, device_id=device_id))


@call("TenantAdminService/ExportTenant")
def export_tenant(world: World) -> Thunk:
    def export() -> None:
        begun = world.own_admin.ExportTenant(v1.ExportTenantRequest(**TENANT)).operation.operation
        wait = v1.WaitTenantOperationRequest(operation_id=begun.id, timeout=Duration(seconds=30))
        ended = world.admin.WaitTenantOperation(wait).operation.operation
        assert ended.state == v1.OPERATION_STATE_SUCCEEDED

    return export


@call("TenantAdminService/SuspendTenant")
@call("TenantAdminService/ResumeTenant")
def suspend_and_resume(world: World) -> Thunk:
    def both() -> None:
        world.admin.SuspendTenant(v1.SuspendTenantRequest(**TENANT))
        world.admin.ResumeTenant(v1.ResumeTenantRequest(**TENANT))

    return both


@call("TenantAdminService/DeleteTenant")
@call("TenantAdminService/UndeleteTenant")
def delete_and_undelete(world: World) -> Thunk:
    def both() -> None:
        world.admin.DeleteTenant(v1.DeleteTenantRequest(**TENANT, grace_days=9))
        world.admin.UndeleteTenant(v1.UndeleteTenantRequest(**TENANT))

    return both


# --- the walk -------------------------------------------------------------------------------------


def test_every_rpc_is_in_the_tables() -> None:
    paths = {path.removeprefix("/scrubjay.v1.") for path in ALLOWED}
    assert set(CALLS) == paths, "say what prepares a call of it, and which limits count it"
    assert all(counted <= paths for counted in COUNTS.values())
    assert set(COUNTS) == {one.name for one in v1.Quotas.DESCRIPTOR.fields}


@contextmanager
def world_on(settings: Settings) -> Iterator[World]:
    """A world whose device was here before the databases were put back in time."""
    with served(settings) as serving:
        first_ones = serving.app.first_credentials
        assert first_ones is not None
        admin = serving.admin
        request = v1.CreateEnrolmentRequest(tenant_id="dev", user_id="alice", client_id="phone")
        code = admin.CreateEnrolment(request).enrolment_code
        made = v1.CreateApiKeyRequest(tenant_id="dev", role=v1.ROLE_TENANT_ADMIN)
        own_key = admin.CreateApiKey(made).secret
        stub = v1.SyncServiceStub(serving.open_channel(serving.app.address, code))
        enrolled = stub.RegisterDevice(v1.RegisterDeviceRequest(installation_id=b"i" * 16))
        serving.dev.add("base")
        device = v1.SyncServiceStub(serving.open_channel(serving.app.address, enrolled.device_token))
        cursor = device.Sync(v1.SyncRequest(protocol=1)).last_sync_at
    begin_epochs(settings)
    opened: list[grpc.Channel] = []

    def channel(key: str) -> grpc.Channel:
        opened.append(connect(app.address, key))
        return opened[-1]

    with App(settings) as app:
        yield World(
            admin=v1.TenantAdminServiceStub(channel(first_ones.admin.secret)),
            own_admin=v1.TenantAdminServiceStub(channel(own_key)),
            memories=v1.MemoryServiceStub(channel(first_ones.service.secret)),
            device=v1.SyncServiceStub(channel(enrolled.device_token)),
            enrolled=enrolled,
            cursor=cursor,
            open_sync=lambda key: v1.SyncServiceStub(channel(key)),
        )
        for one in opened:
            one.close()


def outcome(thunk: Thunk) -> ScrubjayError | None:
    """What the call is refused with."""
    try:
        thunk()
    except grpc.RpcError as error:
        return from_rpc_error(error)
    return None


def test_each_limit_counts_the_calls_that_it_should_and_no_others(settings: Settings) -> None:
    with world_on(settings) as world:
        check_what_each_call_adds(world)
        for limit in ("memories", "bytes", "devices", "api_keys"):
            check_stock(world, limit)
        for limit in ("calls_per_second", "calls_per_second_per_key"):
            check_rate(world, limit)


def check_what_each_call_adds(world: World) -> None:
    """Without limits each call succeeds, and adds to the stocks that the table names alone."""
    for path, prepare in CALLS.items():
        thunk = prepare(world)
        before = world.stock()
        error, after = outcome(thunk), world.stock()
        if path in UNTOUCHED:
            assert error is None or error.reason not in (EXCEEDED, LIMITED), path
            continue
        assert error is None, (path, error)
        for stock in ("memories", "bytes", "devices", "api_keys"):
            more = getattr(after, stock) > getattr(before, stock)
            assert more == (path in COUNTS[stock]) or path in TAKES_AWAY, (path, stock)


def check_stock(world: World, limit: str) -> None:
    """With the stock used up, what adds to it is refused and adds nothing to any; all else goes on."""
    thunks = {path: prepare(world) for path, prepare in CALLS.items()}
    world.limit(**{limit: 1})
    refused: list[str] = []
    for path, thunk in thunks.items():
        before = world.stock()
        error = outcome(thunk)
        if path in COUNTS[limit] - ELSEWHERE.keys():
            assert error is not None, (path, limit)
            assert (error.reason, error.metadata["quota"]) == (EXCEEDED, limit), (path, error)
            assert error.quota_violations[0].subject == "tenants/dev"
            assert error.retry_after_seconds is None
            assert world.stock() == before, (path, limit)
            refused.append(path)
        elif path in UNTOUCHED:
            assert error is None or error.reason not in (EXCEEDED, LIMITED), (path, error)
        else:
            assert error is None, (path, limit, error)
    world.limit()
    for path in refused:  # nothing of it was done: it may be done now
        assert outcome(thunks[path]) is None, (path, limit)


def check_rate(world: World, limit: str) -> None:
    """With the rate used up, every call on memories is refused and does nothing; no other is."""
    thunks = {path: prepare(world) for path, prepare in CALLS.items()}
    world.limit(**{limit: 0.001})
    for path, thunk in thunks.items():
        error = outcome(thunk)
        if path in COUNTS[limit]:
            before = world.stock()
            error = error or outcome(thunk)  # the one call that a key has in a thousand seconds
            assert error is not None, (path, limit)
            if error.reason != LIMITED:
                error = outcome(thunk)
            assert error is not None, (path, limit)
            assert error.reason == LIMITED, (path, error)
            assert error.retry_after_seconds == pytest.approx(1000, rel=0.2), path
            assert world.stock() == before, (path, limit)
        else:
            assert error is None or path in UNTOUCHED, (path, limit, error)
            assert error is None or error.reason not in (EXCEEDED, LIMITED), (path, error)
    world.limit()
