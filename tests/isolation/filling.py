"""Filling a tenant: everything that an id, a token or a name can be had of, and all of it noted."""

from __future__ import annotations

import os

import grpc
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from sqlalchemy import Engine

from scrubjay import v1
from scrubjay.feed import open_page
from scrubjay.memory import MemoryId, Micros, id_bytes, new_memory_id
from scrubjay.operation import derived_id, next_chain
from scrubjay.stamp import ReplicaId, Stamp
from tenants.registry.tables import operations
from tests.isolation.fields import Kind
from tests.isolation.home import ADMIN, ALICE, DEVICE, SERVICE, WEB, Home
from tests.isolation.known import Known, create_operation, fresh_id, request_id, set_operation
from tests.isolation.lines import RPCS

COMMON_IDS = [fresh_id() for _ in range(3)]
"""The ids of memories that every tenant has."""
COMMON_PENDING = fresh_id()
"""The id of a memory that no tenant has yet, and that a device of each edited."""
EXPIRED = Timestamp(seconds=1)


def filled(channel: grpc.Channel, platform: str, tenant_id: str, name: str, catalogue: Engine) -> Home:
    """A new tenant of this id, with something of everything; ``name`` is this life's."""
    home = Home(Known(name, tenant_id, f"quokka{name}"), channel, platform)
    made = home.govern("CreateTenant", v1.CreateTenantRequest(**home.tenant, display_name=home.known.canary))
    assert isinstance(made, v1.CreateTenantResponse)
    note(home, Kind.LIFE, made.tenant.incarnation)
    note(home, Kind.TENANT, tenant_id)
    _keys(home)
    _memories(home)
    _conversations(home)
    _devices(home)
    _admins(home)
    _operations(home, catalogue)
    _tokens(home)
    return home


def note(home: Home, kind: Kind, *values: str | bytes) -> None:
    """Keep what a caller was given."""
    home.known.values[kind] += values


def _keys(home: Home) -> None:
    for caller, role in ((SERVICE, v1.ROLE_SERVICE), (ADMIN, v1.ROLE_TENANT_ADMIN)):
        made = home.key(role, across_subjects=caller == SERVICE, client_id=WEB if caller == SERVICE else "")
        home.known.keys[caller] = made.secret
        note(home, Kind.KEY, made.api_key.key_id)


def _memories(home: Home) -> None:
    name, canary = home.known.name, home.known.canary
    about = {
        Kind.USER: f"user-of-{name}",
        Kind.AGENT: f"agent-of-{name}",
        Kind.RUN: f"run-of-{name}",
    }
    scope, source = f"scope-of-{name}", v1.Source(conversation_id=f"talk-of-{name}", message_ids=["m1"])
    texts = [f"{canary} {n}: My sister Anna Berg lives in Lisbon." for n in range(3)]
    given = [
        v1.Memory(
            **ALICE, content=text, scope=scope, source=source, metadata={"where": canary}, tags=[canary]
        )
        for text in texts
    ]
    given += [
        *(
            v1.Memory(id=each, **ALICE, content=f"{canary} too. My sister Anna Berg lives in Lisbon.")
            for each in COMMON_IDS
        ),
        v1.Memory(
            user_id=about[Kind.USER], content=f"{canary} of one user. My brother Bo Lund lives in Oslo."
        ),
        v1.Memory(agent_id=about[Kind.AGENT], content=f"{canary} of one agent."),
        v1.Memory(run_id=about[Kind.RUN], content=f"{canary} of one run."),
        *(v1.Memory(**ALICE, content=f"{canary} {n} is over.", expires_at=EXPIRED) for n in range(3)),
    ]
    added = home.memories("Add", v1.AddRequest(memories=given, dedup=v1.DEDUP_OFF))
    assert isinstance(added, v1.AddResponse)
    for rpc in _mutations("MemoryService"):
        once = v1.Memory(user_id="bob", content=f"{canary} was asked for once.")
        home.memories("Add", v1.AddRequest(memories=[once], request_id=request_id(name, rpc)))
    told = f"{canary} secret. My cousin Ida Holm lives in Turku."
    secret = v1.Memory(**ALICE, content=told, privacy_level=v1.PRIVACY_LEVEL_PRIVATE)
    private = home.memories("Add", v1.AddRequest(memories=[secret]), client_id=f"client-of-{name}")
    assert isinstance(private, v1.AddResponse)
    moved = home.memory(user_id="alice", content=f"{canary} moved.", scope="elsewhere")
    asked = v1.UpdateRequest(memory=v1.Memory(id=moved.id, scope=scope))
    asked.update_mask.paths.append("scope")
    home.memories("Update", asked)
    dead = home.memory(user_id="alice", content=f"{canary} is dead.")
    home.memories("Delete", v1.DeleteRequest(id=dead.id))
    living = [one.memory for one in added.results]
    note(home, Kind.MEMORY, living[0].id, dead.id, private.results[0].memory.id)
    note(home, Kind.FILTER_VALUE, living[0].id)
    note(home, Kind.MEMORY_BYTES, id_bytes(MemoryId(living[0].id)))
    note(home, Kind.ETAG, living[0].etag)
    note(home, Kind.NAME, scope)
    note(home, Kind.CLIENT, f"client-of-{name}")
    note(home, Kind.REVISION, added.revision)
    for kind, value in about.items():
        note(home, kind, value)
    entries = home.memories("History", v1.HistoryRequest(memory_id=living[0].id))
    assert isinstance(entries, v1.HistoryResponse)
    note(home, Kind.OPERATION, entries.entries[0].operation_id)
    read = home.memories("Get", v1.GetRequest(id=living[0].id, include_field_stamps=True))
    assert isinstance(read, v1.GetResponse)
    stamps = {one.field: one.stamp for one in read.field_stamps}
    note(home, Kind.STAMP, stamps["content"])
    note(home, Kind.CONTENT_STAMP, Stamp.parse(stamps["content"]).pack())
    for user_id in (about[Kind.USER], "alice"):
        found = home.memories("ListEntities", v1.ListEntitiesRequest(user_id=user_id))
        assert isinstance(found, v1.ListEntitiesResponse)
        note(home, Kind.ENTITY, *(one.id for one in found.entities))


def _conversations(home: Home) -> None:
    for n in range(2):
        messages = [v1.ConversationMessage(role="user", content=f"{home.known.canary} said {n}.", id=f"m{n}")]
        template = v1.Memory(**ALICE, source=v1.Source(conversation_id="c1"))
        asked = v1.AddRequest(messages=messages, template=template, policy=v1.WRITE_POLICY_APPEND)
        begun = home.memories("Add", asked)
        assert isinstance(begun, v1.AddResponse)
        home.memories("WaitOperation", v1.WaitOperationRequest(id=begun.operation_id))
        note(home, Kind.JOB, begun.operation_id)


def _devices(home: Home) -> None:
    code = home.enrolment("alice", "phone")
    home.known.keys["used code"] = code
    home.known.keys["open code"] = home.enrolment("alice", f"client-of-{home.known.name}")
    installation = os.urandom(16)
    asked = v1.RegisterDeviceRequest(installation_id=installation, display_name=home.known.canary)
    home.known.keys[DEVICE] = code
    made = home.sync("RegisterDevice", asked)
    assert isinstance(made, v1.RegisterDeviceResponse)
    home.known.keys[DEVICE] = made.device_token
    note(home, Kind.INSTALLATION, installation)
    note(home, Kind.DEVICE, made.device_id)
    note(home, Kind.PRINCIPAL, made.principal)
    home.device()
    _synced(home)
    snapshot = home.sync("Snapshot", v1.SnapshotRequest())
    assert isinstance(snapshot, v1.SnapshotResponse)
    note(home, Kind.SNAPSHOT_TOKEN, snapshot.resume_token)
    watched = home.memories("Watch", v1.MemoryServiceWatchRequest(**ALICE, include_existing=True))
    assert isinstance(watched, v1.MemoryServiceWatchResponse)
    note(home, Kind.WATCH_TOKEN, watched.resume_token)


def _synced(home: Home) -> None:
    """The device sends up a memory, and takes down all that is there."""
    replica = ReplicaId(os.urandom(16))
    memory_id = fresh_id()
    encoded = create_operation(memory_id, f"{home.known.canary} was written offline.")
    early = set_operation(COMMON_PENDING)
    batch = v1.Batch(operations=[encoded, early])
    touches = [
        v1.Touch(memory_id=id_bytes(MemoryId(each)), total=3, last_access_at=EXPIRED)
        for each in (memory_id, *COMMON_IDS)
    ]
    asked = v1.SyncRequest(protocol=1, replica_id=replica, first_number=1, batch=batch, touches=touches)
    asked.include_digest = True
    synced = home.sync("Sync", asked)
    assert isinstance(synced, v1.SyncResponse)
    statuses = [v1.OPERATION_STATUS_APPLIED, v1.OPERATION_STATUS_PENDING_CREATE]
    assert [one.status for one in synced.results] == statuses
    note(home, Kind.CURSOR, synced.last_sync_at)
    note(home, Kind.REPLICA, replica)
    note(home, Kind.CHAIN, next_chain(next_chain(b"", encoded), early))
    note(home, Kind.DIGEST, synced.digest)
    note(home, Kind.OPERATION_BYTES, id_bytes(MemoryId(derived_id(replica, 1, encoded))))


def _admins(home: Home) -> None:
    settings = v1.WriteSettings(custom_instructions=f"Remember {home.known.canary}.")
    asked = v1.UpdateTenantRequest(tenant=v1.Tenant(**home.tenant, write_settings=settings))
    asked.update_mask.paths.append("write_settings")
    home.admin("UpdateTenant", asked)
    enrolment = v1.CreateEnrolmentRequest(**home.tenant, user_id="alice", display_name=home.known.canary)
    home.admin("EraseSubject", v1.EraseSubjectRequest(**home.tenant, user_id="carol"))
    for name in _mutations("TenantAdminService"):
        enrolment.request_id = request_id(home.known.name, name)
        home.admin("CreateEnrolment", enrolment)


def _mutations(service: str) -> list[str]:
    """The service's RPCs that take a request id."""
    return [
        name
        for name, rpc in RPCS.items()
        if name.startswith(service) and "request_id" in rpc.input_type.fields_by_name
    ]


def _operations(home: Home, catalogue: Engine) -> None:
    """Long operations that were done on the tenant."""
    for _ in range(2):
        row = {
            "operation_id": new_memory_id(Micros(1_700_000_000_000), os.urandom(10)),
            "kind": "ReindexTenant",
            "target": str(home.known.values[Kind.LIFE][0]),
            "tenant_id": home.known.tenant_id,
            "incarnation": str(home.known.values[Kind.LIFE][0]),
            "state": v1.OPERATION_STATE_SUCCEEDED,
            "asked": "{}",
            "answer": b"",
            "error": b"",
            "actor": str(home.known.values[Kind.KEY][0]),
            "request_id": "",
            "created_at": 1,
            "updated_at": 1,
            "ended_at": 1 << 52,
        }
        with catalogue.begin() as connection:
            connection.execute(operations.insert().values(row))
        note(home, Kind.TENANT_JOB, str(row["operation_id"]))


def _tokens(home: Home) -> None:
    """A page of each list, and where it goes on."""
    tenant = home.tenant
    lists: dict[str, tuple[str, Message]] = {
        "MemoryService/List": (SERVICE, v1.ListRequest(**ALICE, page_size=1)),
        "MemoryService/History": (SERVICE, v1.HistoryRequest(**ALICE, page_size=1)),
        "MemoryService/ListEntities": (SERVICE, v1.ListEntitiesRequest(**ALICE, page_size=1)),
        "MemoryService/ListRelations": (SERVICE, v1.ListRelationsRequest(**ALICE, page_size=1)),
        "MemoryService/Forget": (SERVICE, v1.ForgetRequest(**ALICE, validate_only=True, page_size=1)),
        "MemoryService/ListOperations": (SERVICE, v1.ListOperationsRequest(page_size=1)),
        "TenantAdminService/ListApiKeys": (ADMIN, v1.ListApiKeysRequest(**tenant, page_size=1)),
        "TenantAdminService/ListDevices": (ADMIN, v1.ListDevicesRequest(**tenant, page_size=1)),
        "TenantAdminService/GetUsage": (ADMIN, v1.GetUsageRequest(**tenant, page_size=1)),
        "TenantAdminService/ListAuditEvents": (ADMIN, v1.ListAuditEventsRequest(**tenant, page_size=1)),
        "TenantAdminService/ListTenantOperations": (
            ADMIN,
            v1.ListTenantOperationsRequest(**tenant, page_size=1),
        ),
    }
    for name, (caller, request) in lists.items():
        answer = home.call(caller, name, request).only()
        token = getattr(answer, "next_page_token", "")
        assert token, name
        home.known.page_tokens[name] = token


def told(response: v1.SyncResponse) -> list[str]:
    """The memories that a page tells of."""
    return [memory_id for memory_id, _, _ in open_page(response.page)]
