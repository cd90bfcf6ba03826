"""A valid request of every RPC, for the walk to put other tenants' ids into.

A new RPC needs a row here, or ``test_every_rpc_has_a_row`` fails: by its service and name, who calls, and a
function that makes a request which its caller may send again and again: what it uses up it takes from
``Home``, which makes it anew. Fields inside of messages are walked where a request of the RPC has the message
set. Every request is of the tenant's own; nothing of another is in it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace

from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from scrubjay import v1
from tests.isolation.fields import Kind
from tests.isolation.home import ADMIN, ALICE, DEVICE, ENROLMENT, PLATFORM, SERVICE, Home
from tests.isolation.known import Known

Put = Callable[[Message, Known], None]


@dataclass(frozen=True)
class Row:
    """Who calls, and with what. ``beside`` puts what goes with a foreign id beside it.

    ``sees_all``: the answer is about every tenant, since a platform admin asks. ``refused``: why even its
    own request is.
    """

    caller: str
    request: Callable[[Home], Message]
    beside: Put | None = None
    sees_all: bool = False
    refused: str = ""


def service(request: Callable[[Home], Message], beside: Put | None = None) -> Row:
    return Row(SERVICE, request, beside)


def admins(request: Callable[[Home], Message]) -> list[Row]:
    """The same by the tenant's own admin and by the platform's."""
    return [Row(ADMIN, request), Row(PLATFORM, request)]


def platform(request: Callable[[Home], Message]) -> list[Row]:
    """By a platform admin; a tenant's own admin is refused, whatever it names."""
    return [Row(PLATFORM, request), denied(request)]


def own(request: Callable[[Home], Message]) -> list[Row]:
    """By the tenant's own admin; a platform admin is refused, whatever it names."""
    return [Row(ADMIN, request), Row(PLATFORM, request, refused="a tenant's own admin's alone")]


def denied(request: Callable[[Home], Message]) -> Row:
    """By a tenant's own admin, who may not."""
    return Row(ADMIN, request, refused="a platform admin's alone")


def condition(home: Home) -> v1.Filter:
    made = v1.Condition(field="id", operator=v1.OPERATOR_EQ)
    made.value.string_value = str(home.known.values[Kind.FILTER_VALUE][0])
    return v1.Filter(condition=made)


def search(home: Home) -> v1.SearchRequest:
    return v1.SearchRequest(**ALICE, query="tea Anna", explain=True, neighbours=2, filter=condition(home))


def memory_of(home: Home) -> str:
    return str(home.known.values[Kind.MEMORY][0])


def edit(home: Home) -> v1.UpdateRequest:
    mine = home.memory()
    changed = v1.Memory(id=mine.id, superseded_by=memory_of(home), tags=["a"])
    stamps = [v1.FieldStamp(field="superseded_by", stamp=str(home.known.values[Kind.STAMP][0]))]
    paths = ["superseded_by", "tags"]
    return v1.UpdateRequest(memory=changed, update_mask=FieldMask(paths=paths), base_stamps=stamps)


def undo(home: Home) -> v1.RestoreRequest:
    mine = home.memory()
    changed = v1.Memory(id=mine.id, category="EVENT")
    home.memories("Update", v1.UpdateRequest(memory=changed, update_mask=FieldMask(paths=["category"])))
    entries = home.memories("History", v1.HistoryRequest(memory_id=mine.id))
    assert isinstance(entries, v1.HistoryResponse)
    return v1.RestoreRequest(memory_id=mine.id, operation_id=entries.entries[0].operation_id)


def undo_beside(message: Message, them: Known) -> None:
    """The operation on the memory that is named."""
    assert isinstance(message, v1.RestoreRequest)
    if them.values[Kind.MEMORY] and message.memory_id == them.values[Kind.MEMORY][0]:
        message.operation_id = str(them.values[Kind.OPERATION][0])


def vectors(home: Home) -> v1.VectorsRequest:
    known = home.known.values
    key = v1.VectorKey(
        memory_id=bytes(known[Kind.MEMORY_BYTES][0]),  # type: ignore[arg-type]  # noted as bytes
        content_stamp=bytes(known[Kind.CONTENT_STAMP][0]),  # type: ignore[arg-type]  # noted as bytes
    )
    return v1.VectorsRequest(keys=[key])


def vectors_beside(message: Message, them: Known) -> None:
    """The stamp of the memory that is named."""
    assert isinstance(message, v1.VectorsRequest)
    stamp = them.values[Kind.CONTENT_STAMP][0]
    assert isinstance(stamp, bytes)
    message.keys[0].content_stamp = stamp


def sending(home: Home, **fields: object) -> v1.SyncRequest:
    """A Sync of a replica that never sent anything."""
    given = {"protocol": 1, "replica_id": os.urandom(16), "first_number": 1, **fields}
    return v1.SyncRequest(**given)


def chain_beside(message: Message, them: Known) -> None:
    """The replica whose chain is named."""
    assert isinstance(message, v1.SyncRequest)
    if message.chain == them.values[Kind.CHAIN][0]:
        (message.replica_id,) = (one for one in them.values[Kind.REPLICA] if isinstance(one, bytes))


def batch(home: Home) -> v1.Batch:
    return v1.Batch(operations=[v for v in home.known.of(Kind.OPERATIONS, "") if isinstance(v, bytes)])


def touched(home: Home) -> v1.Touch:
    (own,) = home.known.values[Kind.MEMORY_BYTES]
    assert isinstance(own, bytes)
    return v1.Touch(memory_id=own, total=1, last_access_at=LATE)


def settings(home: Home) -> v1.UpdateTenantRequest:
    rule = v1.ForgetRule(scope="work", category="TASK", unused_days=3, below_confidence=0.5)
    tenant = v1.Tenant(
        **home.tenant,
        forget_policy=v1.ForgetPolicy(rules=[rule]),
        write_settings=v1.WriteSettings(custom_instructions="Remember."),
    )
    return v1.UpdateTenantRequest(
        tenant=tenant, update_mask=FieldMask(paths=["forget_policy", "write_settings"])
    )


def spare(home: Home, *before: str) -> dict[str, str]:
    """A new tenant, taken through these calls."""
    named = {"tenant_id": home.spare_tenant()}
    for name in before:
        home.govern(name, getattr(v1, f"{name}Request")(**named))
    return named


LATE = Timestamp(seconds=253_402_300_799)
NO_TIME = Duration(nanos=1)
HELPFUL = v1.FEEDBACK_KIND_HELPFUL
ROWS: dict[str, list[Row]] = {
    # --- MemoryService ----------------------------------------------------------------------------
    "MemoryService/Add": [
        service(
            lambda home: v1.AddRequest(
                memories=[
                    v1.Memory(user_id=home.nobody(), content="Likes tea.", source=v1.Source(role="user"))
                ]
            )
        ),
        service(
            lambda home: v1.AddRequest(
                messages=[v1.ConversationMessage(role="user", content="I like tea.", id="m1")],
                template=v1.Memory(user_id=home.nobody(), source=v1.Source(conversation_id="c1")),
                policy=v1.WRITE_POLICY_RULES,
            )
        ),
    ],
    "MemoryService/Get": [
        service(lambda home: v1.GetRequest(id=memory_of(home), include_field_stamps=True, count_access=True))
    ],
    "MemoryService/BatchGet": [service(lambda home: v1.BatchGetRequest(ids=[memory_of(home)]))],
    "MemoryService/List": [
        service(lambda home: v1.ListRequest(**ALICE, page_size=1)),
        service(lambda home: v1.ListRequest(**ALICE, page_size=3, filter=condition(home))),
    ],
    "MemoryService/Update": [service(edit)],
    "MemoryService/Delete": [service(lambda home: v1.DeleteRequest(id=home.memory().id))],
    "MemoryService/DeleteAll": [
        service(lambda home: v1.DeleteAllRequest(user_id=home.memory().user_id)),
    ],
    "MemoryService/DeleteByFilter": [
        service(lambda home: v1.DeleteByFilterRequest(user_id=home.memory().user_id, filter=condition(home))),
        service(lambda home: v1.DeleteByFilterRequest(**ALICE, filter=condition(home), validate_only=True)),
    ],
    "MemoryService/Forget": [
        service(lambda home: v1.ForgetRequest(**ALICE, validate_only=True, page_size=1))
    ],
    "MemoryService/Feedback": [
        service(lambda home: v1.FeedbackRequest(memory_id=home.memory().id, kind=HELPFUL))
    ],
    "MemoryService/Restore": [service(undo, undo_beside)],
    "MemoryService/Search": [
        service(search),
        service(lambda home: v1.SearchRequest(**ALICE, query="tea Anna", as_of=LATE, valid_at=LATE)),
        service(
            lambda home: v1.SearchRequest(query="tea Anna", across_subjects=True, filter=condition(home))
        ),
    ],
    "MemoryService/ExplainMiss": [
        service(lambda home: v1.ExplainMissRequest(search=search(home), memory_id=memory_of(home)))
    ],
    "MemoryService/Context": [
        service(lambda home: v1.ContextRequest(**ALICE, query="tea Anna", filter=condition(home)))
    ],
    "MemoryService/ListEntities": [service(lambda home: v1.ListEntitiesRequest(**ALICE, page_size=1))],
    "MemoryService/ListRelations": [service(lambda home: v1.ListRelationsRequest(**ALICE, page_size=1))],
    "MemoryService/History": [
        service(lambda home: v1.HistoryRequest(**ALICE, page_size=1)),
        service(lambda home: v1.HistoryRequest(memory_id=memory_of(home), page_size=1)),
    ],
    "MemoryService/Watch": [service(lambda home: v1.MemoryServiceWatchRequest(**ALICE))],
    "MemoryService/GetOperation": [service(lambda home: v1.GetOperationRequest(id=job_of(home)))],
    "MemoryService/ListOperations": [
        service(lambda home: v1.ListOperationsRequest(page_size=1)),
        service(lambda home: v1.ListOperationsRequest(**ALICE)),
    ],
    "MemoryService/CancelOperation": [
        Row(
            SERVICE,
            lambda home: v1.CancelOperationRequest(id=job_of(home)),
            refused="its operations have ended",
        )
    ],
    "MemoryService/WaitOperation": [
        service(lambda home: v1.WaitOperationRequest(id=job_of(home), timeout=NO_TIME))
    ],
    # --- SyncService ------------------------------------------------------------------------------
    "SyncService/RegisterDevice": [
        Row(ENROLMENT, lambda home: v1.RegisterDeviceRequest(installation_id=os.urandom(16)))
    ],
    "SyncService/RefreshToken": [Row(DEVICE, lambda home: v1.RefreshTokenRequest())],
    "SyncService/Sync": [
        Row(DEVICE, lambda home: sending(home, batch=batch(home), include_counts=True)),
        Row(DEVICE, lambda home: v1.SyncRequest(protocol=1, include_digest=True, include_counts=True)),
        Row(
            DEVICE,
            lambda home: sending(home, batch=batch(home), first_number=2, chain=os.urandom(16)),
            chain_beside,
        ),
        Row(DEVICE, lambda home: sending(home, touches=[touched(home)], include_counts=True)),
    ],
    "SyncService/Snapshot": [Row(DEVICE, lambda home: v1.SnapshotRequest(newest=3))],
    "SyncService/Watch": [Row(DEVICE, lambda home: v1.WatchRequest())],
    "SyncService/Reconcile": [
        Row(DEVICE, lambda home: v1.ReconcileRequest(operation_ids=[bytes(16)])),
        Row(DEVICE, lambda home: v1.ReconcileRequest(bucket_digests=[bytes(8)] * 256)),
    ],
    "SyncService/Reoffer": [
        Row(
            DEVICE,
            lambda home: v1.ReofferRequest(last_sync_at=cursor_of(home)),
            refused="only what a replica of an earlier epoch holds is taken",
        )
    ],
    "SyncService/Vectors": [Row(DEVICE, vectors, vectors_beside)],
    # --- TenantAdminService -----------------------------------------------------------------------
    "TenantAdminService/CreateTenant": platform(
        lambda home: v1.CreateTenantRequest(tenant_id=f"made-{os.urandom(6).hex()}")
    ),
    "TenantAdminService/GetTenant": [Row(ADMIN, lambda home: v1.GetTenantRequest(**home.tenant))],
    "TenantAdminService/ListTenants": [
        Row(PLATFORM, lambda home: v1.ListTenantsRequest(page_size=1), sees_all=True),
        denied(lambda home: v1.ListTenantsRequest(page_size=1)),
    ],
    "TenantAdminService/UpdateTenant": admins(settings),
    "TenantAdminService/SuspendTenant": platform(lambda home: v1.SuspendTenantRequest(**spare(home))),
    "TenantAdminService/ResumeTenant": platform(
        lambda home: v1.ResumeTenantRequest(**spare(home, "SuspendTenant"))
    ),
    "TenantAdminService/DeleteTenant": platform(lambda home: v1.DeleteTenantRequest(**spare(home))),
    "TenantAdminService/UndeleteTenant": platform(
        lambda home: v1.UndeleteTenantRequest(**spare(home, "DeleteTenant"))
    ),
    "TenantAdminService/CreateApiKey": admins(
        lambda home: v1.CreateApiKeyRequest(**home.tenant, role=v1.ROLE_READER)
    ),
    "TenantAdminService/ListApiKeys": admins(lambda home: v1.ListApiKeysRequest(**home.tenant, page_size=1)),
    "TenantAdminService/RotateApiKey": admins(
        lambda home: v1.RotateApiKeyRequest(**home.tenant, key_id=home.key().api_key.key_id)
    ),
    "TenantAdminService/RevokeApiKey": admins(
        lambda home: v1.RevokeApiKeyRequest(**home.tenant, key_id=home.key().api_key.key_id)
    ),
    "TenantAdminService/CreateEnrolment": admins(
        lambda home: v1.CreateEnrolmentRequest(**home.tenant, user_id=home.nobody())
    ),
    "TenantAdminService/ListDevices": admins(lambda home: v1.ListDevicesRequest(**home.tenant, page_size=1)),
    "TenantAdminService/RevokeDevice": admins(
        lambda home: v1.RevokeDeviceRequest(**home.tenant, device_id=home.device().device_id)
    ),
    "TenantAdminService/ExportSubject": [
        Row(ADMIN, lambda home: v1.ExportSubjectRequest(**home.tenant, user_id=home.nobody())),
    ],
    "TenantAdminService/EraseSubject": admins(
        lambda home: v1.EraseSubjectRequest(**home.tenant, user_id=home.nobody())
    ),
    "TenantAdminService/ExportTenant": own(lambda home: v1.ExportTenantRequest(**at_rest(home).tenant)),
    "TenantAdminService/DownloadExport": own(
        lambda home: v1.DownloadExportRequest(**home.tenant, operation_id=exported(home))
    ),
    "TenantAdminService/UploadImport": own(
        lambda home: v1.UploadImportRequest(**home.tenant, upload_id="a file", chunk=b"{}")
    ),
    "TenantAdminService/ImportTenant": own(
        lambda home: v1.ImportTenantRequest(
            **at_rest(home).tenant, upload_id="a file", sha256="0" * 64, validate_only=True
        )
    ),
    "TenantAdminService/GetUsage": admins(lambda home: v1.GetUsageRequest(**home.tenant, page_size=1)),
    "TenantAdminService/ListAuditEvents": admins(
        lambda home: v1.ListAuditEventsRequest(**home.tenant, page_size=1)
    ),
    "TenantAdminService/GetTenantOperation": admins(
        lambda home: v1.GetTenantOperationRequest(operation_id=tenant_job_of(home))
    ),
    "TenantAdminService/ListTenantOperations": admins(
        lambda home: v1.ListTenantOperationsRequest(**home.tenant, page_size=1)
    ),
    "TenantAdminService/CancelTenantOperation": [
        replace(row, refused="its operations have ended")
        for row in admins(lambda home: v1.CancelTenantOperationRequest(operation_id=tenant_job_of(home)))
    ],
    "TenantAdminService/WaitTenantOperation": admins(
        lambda home: v1.WaitTenantOperationRequest(operation_id=tenant_job_of(home), timeout=NO_TIME)
    ),
    "TenantAdminService/MoveTenant": [
        replace(row, refused=row.refused or "there is no such shard")
        for row in platform(lambda home: v1.MoveTenantRequest(**home.tenant, shard="elsewhere"))
    ],
    "TenantAdminService/ReindexTenant": [
        replace(row, refused=row.refused or "there is no such embedder")
        for row in platform(lambda home: v1.ReindexTenantRequest(**home.tenant, embedder="none"))
    ],
    "TenantAdminService/ListShards": platform(lambda home: v1.ListShardsRequest()),
    "TenantAdminService/DrainShard": [
        replace(row, refused=row.refused or "there is no such shard")
        for row in platform(lambda home: v1.DrainShardRequest(shard="elsewhere"))
    ],
    "TenantAdminService/VerifyAuditEvents": platform(lambda home: v1.VerifyAuditEventsRequest()),
}


def at_rest(home: Home) -> Home:
    """The tenant, once no operation has it for itself."""
    open_ones = v1.ListTenantOperationsRequest(**home.tenant, open_only=True)
    listed = home.admin("ListTenantOperations", open_ones)
    assert isinstance(listed, v1.ListTenantOperationsResponse)
    for one in listed.operations:
        home.admin("WaitTenantOperation", v1.WaitTenantOperationRequest(operation_id=one.operation.id))
    return home


def exported(home: Home) -> str:
    """An operation that wrote an export, one for all calls."""
    if "export" not in home.made:
        begun = home.admin("ExportTenant", v1.ExportTenantRequest(**at_rest(home).tenant))
        assert isinstance(begun, v1.ExportTenantResponse)
        home.made["export"] = begun.operation.operation.id
        at_rest(home)
    return home.made["export"]


def job_of(home: Home) -> str:
    return str(home.known.values[Kind.JOB][0])


def tenant_job_of(home: Home) -> str:
    return str(home.known.values[Kind.TENANT_JOB][0])


def cursor_of(home: Home) -> str:
    return str(home.known.values[Kind.CURSOR][0])
