"""All that a tenant can ask of its own: the same, whatever there is of others beside it."""

from __future__ import annotations

from google.protobuf.message import Message

from scrubjay import v1
from tests.isolation.filling import COMMON_IDS
from tests.isolation.home import ADMIN, ALICE, DEVICE, SERVICE, Home
from tests.isolation.requests import LATE
from tests.isolation.walk import look_for, shape


def reads(home: Home) -> dict[str, tuple[str, str, Message]]:
    """What is asked, each under a name of its own: who asks, which RPC, with what."""
    expired = v1.ForgetRequest(**ALICE, validate_only=True)
    asked: dict[str, tuple[str, str, Message]] = {
        "common id": (SERVICE, "MemoryService/Get", v1.GetRequest(id=COMMON_IDS[0])),
        "common ids": (SERVICE, "MemoryService/BatchGet", v1.BatchGetRequest(ids=COMMON_IDS)),
        "list": (SERVICE, "MemoryService/List", v1.ListRequest(**ALICE)),
        "search": (SERVICE, "MemoryService/Search", v1.SearchRequest(**ALICE, query="Anna", explain=True)),
        "search of all": (
            SERVICE,
            "MemoryService/Search",
            v1.SearchRequest(query="quokka Anna", across_subjects=True, top_k=50),
        ),
        "search of the past": (
            SERVICE,
            "MemoryService/Search",
            v1.SearchRequest(**ALICE, query="Anna", as_of=LATE),
        ),
        "context": (SERVICE, "MemoryService/Context", v1.ContextRequest(**ALICE, query="Anna")),
        "entities": (SERVICE, "MemoryService/ListEntities", v1.ListEntitiesRequest(**ALICE)),
        "relations": (SERVICE, "MemoryService/ListRelations", v1.ListRelationsRequest(**ALICE)),
        "history": (SERVICE, "MemoryService/History", v1.HistoryRequest(**ALICE)),
        "history of the common id": (
            SERVICE,
            "MemoryService/History",
            v1.HistoryRequest(memory_id=COMMON_IDS[0]),
        ),
        "to forget": (SERVICE, "MemoryService/Forget", expired),
        "to forget of all": (SERVICE, "MemoryService/Forget", v1.ForgetRequest(validate_only=True)),
        "operations": (SERVICE, "MemoryService/ListOperations", v1.ListOperationsRequest()),
        "watch": (
            SERVICE,
            "MemoryService/Watch",
            v1.MemoryServiceWatchRequest(**ALICE, include_existing=True),
        ),
        "sync": (DEVICE, "SyncService/Sync", v1.SyncRequest(protocol=1, include_counts=True)),
        "snapshot": (DEVICE, "SyncService/Snapshot", v1.SnapshotRequest(newest=9)),
        "reconcile": (DEVICE, "SyncService/Reconcile", v1.ReconcileRequest(bucket_digests=[bytes(8)] * 256)),
        "tenant": (ADMIN, "TenantAdminService/GetTenant", v1.GetTenantRequest(**home.tenant)),
        "devices": (ADMIN, "TenantAdminService/ListDevices", v1.ListDevicesRequest(**home.tenant)),
        "usage": (ADMIN, "TenantAdminService/GetUsage", v1.GetUsageRequest(**home.tenant)),
        "audit": (ADMIN, "TenantAdminService/ListAuditEvents", v1.ListAuditEventsRequest(**home.tenant)),
        "done with it": (
            ADMIN,
            "TenantAdminService/ListTenantOperations",
            v1.ListTenantOperationsRequest(**home.tenant),
        ),
        "export": (
            ADMIN,
            "TenantAdminService/ExportSubject",
            v1.ExportSubjectRequest(**home.tenant, **ALICE),
        ),
    }
    return asked


def told(home: Home, marks: frozenset[bytes] | set[bytes] = frozenset()) -> dict[str, object]:
    """What home is told. Raises Found where an answer holds one of the marks."""
    found: dict[str, object] = {}
    for name, (caller, rpc, request) in reads(home).items():
        came = home.call(caller, rpc, request)
        look_for(name, came.whole, set(marks))
        assert came.ok, (name, came.code, came.message)
        found[name] = [shape(one, "") for one in came.responses]
    return found
