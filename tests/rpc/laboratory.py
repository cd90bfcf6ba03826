"""A tenant to send anything to, with a valid request at least of every RPC."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import grpc
from google.protobuf import message_factory, struct_pb2
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from rpc.conftest import Serving
from rpc.fuzzing import FIELDS, Answer, Line, Pools
from scrubjay import v1
from scrubjay.feed import pack, seal_page
from scrubjay.memory import ClientId, Memory, MemoryId, Micros, id_bytes, new_memory_id
from scrubjay.merge import Write
from scrubjay.operation import NO_ID, Operation, OperationKind, encode
from scrubjay.stamp import CommitStamp, ReplicaId, Stamp
from scrubjay.v1 import memory_service_pb2, sync_service_pb2, tenant_service_pb2

SERVICES = (
    memory_service_pb2.DESCRIPTOR.services_by_name["MemoryService"],
    sync_service_pb2.DESCRIPTOR.services_by_name["SyncService"],
    tenant_service_pb2.DESCRIPTOR.services_by_name["TenantAdminService"],
)
REPLICA = ReplicaId(b"replica 12345678")
INSTALLATION = b"installation 123"
PHONE = ClientId("phone")
LATE = Timestamp(seconds=253_402_300_799)
_NAMED = {"next_page_token": "page_token", "revision": "min_revision"}
"""What the field is called that takes what another one gives."""
_MOST_GIVEN = 30


def path_of(rpc: MethodDescriptor) -> str:
    """What a call of it is sent to."""
    return f"/{rpc.containing_service.full_name}/{rpc.name}"


def kind_of(rpc: MethodDescriptor) -> dict[str, bool]:
    """How its answer comes."""
    return {"streams": rpc.server_streaming, "endless": rpc.name == "Watch"}


@dataclass
class Laboratory:
    """A tenant with two subjects, two devices, keys, an operation and an audit log.

    ``lines`` are by service, or by RPC; ``valid`` are requests by path; ``given`` is what answers held, by
    the fields that take it.
    """

    serving: Serving
    name: str
    channel: grpc.Channel
    lines: dict[str, Line] = field(default_factory=dict)
    valid: dict[str, list[Message]] = field(default_factory=dict)
    given: Pools = field(default_factory=Pools)

    def call(self, rpc: MethodDescriptor, body: bytes) -> Answer:
        """What comes of these bytes, sent by one who may call."""
        line = self.lines.get(rpc.name) or self.lines[rpc.containing_service.name]
        return line.call(path_of(rpc), body, **kind_of(rpc))

    def learn(self, message: Message) -> None:
        """Note what an answer gives out."""
        for each, value in message.ListFields():
            if isinstance(message, struct_pb2.Struct) or each.name == "tenant_id":
                continue  # for a tenant that a fuzzed request may delete is this one alone
            for one in value if each.is_repeated else [value]:
                if isinstance(one, Message):
                    self.learn(one)
                elif isinstance(one, str | bytes):
                    known = self.given.setdefault(_NAMED.get(each.name, each.name), [])
                    if one not in known and len(known) < _MOST_GIVEN and len(one) < 2000:
                        known.append(one)


READS = (
    *(
        "Get",
        "BatchGet",
        "List",
        "Forget",
        "Search",
        "ExplainMiss",
        "Context",
        "ListEntities",
        "ListRelations",
    ),
    *("History", "Watch", "GetOperation", "ListOperations", "Sync", "Snapshot", "Vectors", "GetTenant"),
    *("GetUsage", "ListTenants", "ListApiKeys", "ListDevices", "ListAuditEvents", "ExportSubject"),
)
"""What is asked first, for what its answers give out."""


def laboratory(serving: Serving, name: str, channel: grpc.Channel) -> Laboratory:
    """A new tenant of this name, filled; ``channel`` is a plain one to its server."""
    lab, admin = Laboratory(serving, name, channel), serving.admin
    for each in (name, f"{name}-other"):
        admin.CreateTenant(v1.CreateTenantRequest(tenant_id=each))
    lab.given["tenant_id"] = [name, f"{name}-other"]
    lab.given |= {each: list(FIELDS) for each in ("field", "fields", "paths")}
    _open_lines(lab)
    for service, made in (
        ("MemoryService", _of_memories(lab)),
        ("TenantAdminService", _of_admins(lab)),
        ("SyncService", _of_devices(lab)),
    ):
        lab.valid |= {f"/scrubjay.v1.{service}/{rpc}": requests for rpc, requests in made.items()}
    for rpc in (rpc for service in SERVICES for rpc in service.methods):
        for request in lab.valid[path_of(rpc)] if rpc.name in READS else ():
            answer = lab.call(rpc, request.SerializeToString())
            assert answer.error is None, (rpc.name, answer.error)
            lab.learn(message_factory.GetMessageClass(rpc.output_type).FromString(answer.body))
    return lab


def _open_lines(lab: Laboratory) -> None:
    serving, admin = lab.serving, lab.serving.admin
    channel = lab.channel
    first = serving.app.first_credentials
    assert first is not None
    lab.lines["TenantAdminService"] = Line(channel, first.admin.secret)
    for name, role in (("MemoryService", v1.ROLE_SERVICE), ("ExportSubject", v1.ROLE_TENANT_ADMIN)):
        request = v1.CreateApiKeyRequest(
            tenant_id=lab.name, role=role, across_subjects=name == "MemoryService"
        )
        made = admin.CreateApiKey(request)
        lab.lines[name] = Line(channel, made.secret)
        lab.learn(made)
    for client_id in ("laptop", "phone"):
        enrolment = v1.CreateEnrolmentRequest(tenant_id=lab.name, user_id="alice", client_id=client_id)
        code = admin.CreateEnrolment(enrolment).enrolment_code
        lab.lines["RegisterDevice"] = Line(channel, code)
        stub = v1.SyncServiceStub(serving.open_channel(serving.app.address, code))
        device = stub.RegisterDevice(v1.RegisterDeviceRequest(installation_id=INSTALLATION))
        lab.lines["SyncService"] = Line(channel, device.device_token)
        lab.given.setdefault("device_id", []).append(device.device_id)
        lab.given["principal"] = [device.principal]
    lab.given["device_id"].pop()  # whose token is in use, so that nothing revokes it


CONTENTS = [f"I like tea number {n}, says Anna Berg from Lisbon." for n in range(4)]
ALICE = {"user_id": "alice"}


def _of_memories(lab: Laboratory) -> dict[str, list[Message]]:
    stub = v1.MemoryServiceStub(
        lab.serving.open_channel(lab.serving.app.address, lab.lines["MemoryService"].credential)
    )
    memories = [
        v1.Memory(user_id=user_id, content=content, scope="work", tags=["tea"], expires_at=expires_at)
        for user_id in ("alice", "bob")
        for content in CONTENTS
        for expires_at in (None, Timestamp(seconds=1))
    ]
    for each in memories:
        each.metadata.update({"a": 1, "b": ["x", {"c": None}], "a.b": "y"})
    added = stub.Add(v1.AddRequest(memories=memories, request_id="r1", dedup=v1.DEDUP_OFF))
    lab.learn(added)
    lab.given["request_id"] = ["r1", "r2"]
    messages = [v1.ConversationMessage(role="user", content=text, id="m1") for text in CONTENTS]
    template = v1.Memory(user_id="alice", source=v1.Source(conversation_id="c1"))
    asked = v1.AddRequest(
        messages=messages, template=template, policy=v1.WRITE_POLICY_APPEND, request_id="r2"
    )
    operation_id = stub.Add(asked).operation_id
    stub.WaitOperation(v1.WaitOperationRequest(id=operation_id))
    one, two = (result.memory for result in added.results[2:4])
    written = stub.History(v1.HistoryRequest(memory_id=one.id)).entries[0].operation_id
    tea = v1.Filter(condition=v1.Condition(field="tags", operator=v1.OPERATOR_CONTAINS))
    tea.condition.value.string_value = "tea"
    parts = v1.FilterList(filters=[tea, v1.Filter(negation=v1.Filter(any_of=v1.FilterList(filters=[tea])))])
    both = v1.Filter(all_of=parts)
    search = v1.SearchRequest(**ALICE, query="tea", scopes=["work"], filter=both, explain=True, neighbours=2)
    again = v1.UpdateRequest(
        memory=v1.Memory(id=one.id, content="Coffee.", confidence=0.5, tags=["a"]),
        update_mask=FieldMask(paths=["content", "confidence", "tags.a", "metadata.a"]),
    )
    return {
        "Add": [
            v1.AddRequest(memories=memories[:2]),
            asked,
            v1.AddRequest(messages=messages, template=template),
        ],
        "Get": [v1.GetRequest(id=one.id, include_field_stamps=True, min_revision=added.revision)],
        "BatchGet": [v1.BatchGetRequest(ids=[one.id, two.id], min_revision=added.revision)],
        "List": [v1.ListRequest(user_id=name, page_size=1, filter=tea) for name in ("alice", "bob")],
        "Update": [again],
        "Delete": [v1.DeleteRequest(id=two.id)],
        "DeleteAll": [v1.DeleteAllRequest(user_id="carol")],
        "DeleteByFilter": [v1.DeleteByFilterRequest(**ALICE, filter=tea, validate_only=True)],
        "Forget": [v1.ForgetRequest(**ALICE, validate_only=True, page_size=1)],
        "Feedback": [v1.FeedbackRequest(memory_id=one.id, kind=v1.FEEDBACK_KIND_HELPFUL)],
        "Restore": [v1.RestoreRequest(memory_id=one.id, operation_id=written, fields=["content"])],
        "Search": [
            search,
            v1.SearchRequest(
                **ALICE, query="Anna", as_of=LATE, valid_at=LATE, inherit=True, count_access=True
            ),
            v1.SearchRequest(query="tea", across_subjects=True, recipe="hybrid-v3", top_k=3),
        ],
        "ExplainMiss": [v1.ExplainMissRequest(search=search, memory_id=one.id)],
        "Context": [v1.ContextRequest(**ALICE, query="tea", filter=tea, max_items=3, max_tokens=100)],
        "ListEntities": [v1.ListEntitiesRequest(**ALICE, page_size=1)],
        "ListRelations": [v1.ListRelationsRequest(**ALICE, page_size=1, valid_at=LATE)],
        "History": [
            v1.HistoryRequest(**ALICE, page_size=1),
            v1.HistoryRequest(memory_id=one.id, page_size=1),
        ],
        "Watch": [v1.MemoryServiceWatchRequest(**ALICE)],
        "GetOperation": [v1.GetOperationRequest(id=operation_id)],
        "ListOperations": [v1.ListOperationsRequest(**ALICE, states=[v1.OPERATION_STATE_SUCCEEDED])],
        "CancelOperation": [v1.CancelOperationRequest(id=operation_id)],
        "WaitOperation": [v1.WaitOperationRequest(id=operation_id, timeout=Duration(nanos=1))],
    }


def _of_devices(lab: Laboratory) -> dict[str, list[Message]]:
    now = time.time_ns() // 1_000_000
    memory = Memory(
        new_memory_id(now, b"0123456789"), "Milk.", Micros(now * 1000), user_id="alice", owner_client_id=PHONE
    )
    stamp, later = Stamp(now << 16, REPLICA), Stamp(now + 1 << 16, REPLICA)
    create = Operation(NO_ID, memory.id, OperationKind.CREATE, stamp, memory)
    edit = Operation(
        NO_ID, memory.id, OperationKind.SET, later, None, (Write("content", "Oat.", later, stamp),)
    )
    gone = Operation(NO_ID, memory.id, OperationKind.DELETE, later)
    operations = [encode(one, REPLICA) for one in (create, edit, gone)]
    batch = v1.Batch(operations=operations)
    sender = {"replica_id": REPLICA, "protocol": 1, "first_number": 1}
    own = id_bytes(MemoryId(next(str(one) for one in lab.given["id"])))
    touch = v1.Touch(memory_id=own, total=3, last_access_at=LATE)
    page = seal_page([(memory.id, CommitStamp(1), v1.Change(kind=v1.CHANGE_KIND_DELETED))])
    packed = [pack(batch), pack(page), *operations]
    lab.given |= {each: list(packed) for each in ("operations", "packed_batch", "packed_page")}
    lab.given["memory_id"] = [*lab.given.get("memory_id", ()), own, id_bytes(memory.id)]
    lab.given["replica_id"] = [REPLICA]
    key = v1.VectorKey(memory_id=own, content_stamp=stamp.pack())
    return {
        "RegisterDevice": [v1.RegisterDeviceRequest(installation_id=INSTALLATION, display_name="phone")],
        "RefreshToken": [v1.RefreshTokenRequest()],
        "Sync": [
            v1.SyncRequest(protocol=1, include_digest=True, include_counts=True),
            v1.SyncRequest(protocol=1, max_bytes=1),
            v1.SyncRequest(**sender, touches=[touch], spell=3),
            v1.SyncRequest(**sender, batch=batch, accept_packed_results=True),
            v1.SyncRequest(**sender, packed_batch=pack(batch)),
        ],
        "Snapshot": [v1.SnapshotRequest(newest=3), v1.SnapshotRequest()],
        "Watch": [v1.WatchRequest()],
        "Reconcile": [v1.ReconcileRequest(operation_ids=[REPLICA], bucket_digests=[bytes(8)] * 256)],
        "Reoffer": [v1.ReofferRequest(packed_page=pack(page))],
        "Vectors": [v1.VectorsRequest(keys=[key])],
    }


def _of_admins(lab: Laboratory) -> dict[str, list[Message]]:
    name = {"tenant_id": lab.name}
    other = {"tenant_id": f"{lab.name}-other"}
    rule = v1.ForgetRule(scope="work", category="TASK", unused_days=3, below_confidence=0.5)
    settings = v1.Tenant(
        **other,
        display_name="x",
        forget_policy=v1.ForgetPolicy(rules=[rule]),
        write_settings=v1.WriteSettings(policy=v1.WRITE_POLICY_RULES, custom_instructions="x"),
        quotas=v1.Quotas(devices=3, calls_per_second=0.5, bytes=10**9),
    )
    mask = FieldMask(paths=["display_name", "forget_policy", "write_settings", "quotas"])
    key_id = str(lab.given["key_id"][0])
    device_id = str(lab.given["device_id"][0])
    return {
        "CreateTenant": [v1.CreateTenantRequest(tenant_id=f"{lab.name}-new", display_name="x")],
        "GetTenant": [v1.GetTenantRequest(**name)],
        "ListTenants": [v1.ListTenantsRequest(page_size=1)],
        "UpdateTenant": [v1.UpdateTenantRequest(tenant=settings, update_mask=mask)],
        "SuspendTenant": [v1.SuspendTenantRequest(**other, reason="x")],
        "ResumeTenant": [v1.ResumeTenantRequest(**other)],
        "DeleteTenant": [v1.DeleteTenantRequest(**other, grace_days=3)],
        "UndeleteTenant": [v1.UndeleteTenantRequest(**other)],
        "GetUsage": [v1.GetUsageRequest(**name, page_size=1)],
        "CreateApiKey": [
            v1.CreateApiKeyRequest(**other, role=v1.ROLE_READER, expires_at=LATE, client_id="a")
        ],
        "ListApiKeys": [v1.ListApiKeysRequest(**name, page_size=1)],
        "RotateApiKey": [v1.RotateApiKeyRequest(**name, key_id=key_id, overlap_seconds=60)],
        "RevokeApiKey": [v1.RevokeApiKeyRequest(**other, key_id=key_id)],
        "CreateEnrolment": [v1.CreateEnrolmentRequest(**other, user_id="alice", scopes=["work"])],
        "ListDevices": [v1.ListDevicesRequest(**name, page_size=1)],
        "RevokeDevice": [v1.RevokeDeviceRequest(**name, device_id=device_id)],
        "ExportSubject": [v1.ExportSubjectRequest(**name, user_id="bob")],
        "EraseSubject": [v1.EraseSubjectRequest(**name, user_id="carol")],
        "ExportTenant": [v1.ExportTenantRequest(**name)],
        "DownloadExport": [v1.DownloadExportRequest(**name, operation_id=str(lab.given["id"][0]), offset=1)],
        "UploadImport": [v1.UploadImportRequest(**name, upload_id="x", chunk=b"x")],
        "ImportTenant": [v1.ImportTenantRequest(**name, upload_id="x", sha256="0" * 64, validate_only=True)],
        "ReindexTenant": [v1.ReindexTenantRequest(**other, embedder="hash")],
        "GetTenantOperation": [v1.GetTenantOperationRequest(operation_id=str(lab.given["id"][0]))],
        "ListTenantOperations": [v1.ListTenantOperationsRequest(**name, page_size=1)],
        "CancelTenantOperation": [v1.CancelTenantOperationRequest(operation_id=str(lab.given["id"][0]))],
        "WaitTenantOperation": [
            v1.WaitTenantOperationRequest(operation_id=str(lab.given["id"][0]), timeout=Duration(nanos=1))
        ],
        "MoveTenant": [v1.MoveTenantRequest(**other, shard="elsewhere")],
        "ListShards": [v1.ListShardsRequest()],
        "DrainShard": [v1.DrainShardRequest(shard="elsewhere")],
        "ListAuditEvents": [v1.ListAuditEventsRequest(**name, page_size=1)],
        "VerifyAuditEvents": [v1.VerifyAuditEventsRequest()],
    }
