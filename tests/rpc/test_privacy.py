"""Privacy on every path: each level, each role, each client, each RPC.

A memory that is hidden is one that is not there: the call gets what it would get of an unknown id, byte for
byte, or of a subject without memories, and changes nothing. An RPC that is in no table here is an error.
"""

from __future__ import annotations

import itertools
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from rpc.conftest import Serving, Tenant
from rpc.enrolment import enrolled
from rpc.refusal import refused
from scrubjay import v1
from scrubjay.feed import open_page, unpack
from scrubjay.memory import id_bytes
from scrubjay.stamp import Stamp
from scrubjay.v1 import memory_service_pb2, sync_service_pb2

PATIENCE = 20
CANARY = "quokka"
SHARED, PRIVATE, LOCAL_ONLY = (
    v1.PRIVACY_LEVEL_SHARED,
    v1.PRIVACY_LEVEL_PRIVATE,
    v1.PRIVACY_LEVEL_LOCAL_ONLY,
)
CHECKED_ELSEWHERE = {
    "RegisterDevice": "knows no memory",
    "RefreshToken": "knows no memory",
    "Reoffer": "takes memories only after a restore: contract/test_sync_recovery.py",
}

OF_WHO_ASKED = {
    "GetOperation": "known to the client that asked for it alone: test_operations.py",
    "ListOperations": "see GetOperation",
    "WaitOperation": "see GetOperation",
    "CancelOperation": "see GetOperation",
}


@dataclass(frozen=True)
class Target:
    """A memory that is asked for: its subject, its id, and an operation of its history."""

    user_id: str
    memory_id: str
    operation_id: str


@dataclass(frozen=True)
class Way:
    """One way to a memory. ``by_id`` names it, else its subject. ``fields`` make it one to be found."""

    rpc: str
    request: Callable[[Target], Message]
    by_id: bool = True
    writes: bool = False
    fields: dict[str, Any] = field(default_factory=dict)


def search(to: Target, **fields: Any) -> v1.SearchRequest:
    return v1.SearchRequest(user_id=to.user_id, query=CANARY, explain=True, neighbours=2, **fields)


def everywhere(to: Target) -> v1.SearchRequest:
    """A search across subjects for what the target alone says."""
    condition = v1.Condition(field="user_id", operator=v1.OPERATOR_EQ)
    condition.value.string_value = to.user_id
    return v1.SearchRequest(query=CANARY, across_subjects=True, filter=v1.Filter(condition=condition))


def holds_canary() -> v1.Filter:
    condition = v1.Condition(field="content", operator=v1.OPERATOR_CONTAINS)
    condition.value.string_value = CANARY
    return v1.Filter(condition=condition)


def update(to: Target) -> v1.UpdateRequest:
    changed = v1.Memory(id=to.memory_id, confidence=0.5)
    return v1.UpdateRequest(memory=changed, update_mask=FieldMask(paths=["confidence"]))


NOW = Timestamp(seconds=253_402_300_799)
"""As the store is at any later time."""
EXPIRED = {"expires_at": Timestamp(seconds=1)}
HELPFUL = v1.FEEDBACK_KIND_HELPFUL
WAYS = [
    Way("Get", lambda to: v1.GetRequest(id=to.memory_id)),
    Way("BatchGet", lambda to: v1.BatchGetRequest(ids=[to.memory_id]), by_id=False),
    Way("List", lambda to: v1.ListRequest(user_id=to.user_id), by_id=False),
    Way("Search", search, by_id=False),
    Way("Search", lambda to: search(to, as_of=NOW), by_id=False),
    Way("Search", lambda to: everywhere(to), by_id=False),
    Way("ExplainMiss", lambda to: v1.ExplainMissRequest(search=search(to), memory_id=to.memory_id)),
    Way("Context", lambda to: v1.ContextRequest(user_id=to.user_id, query=CANARY), by_id=False),
    Way(
        "ExplainMiss",
        lambda to: v1.ExplainMissRequest(search=search(to, as_of=NOW), memory_id=to.memory_id),
    ),
    Way(
        "Context",
        lambda to: v1.ContextRequest(user_id=to.user_id, query=CANARY, as_of=NOW),
        by_id=False,
    ),
    Way("ListEntities", lambda to: v1.ListEntitiesRequest(user_id=to.user_id), by_id=False),
    Way("ListRelations", lambda to: v1.ListRelationsRequest(user_id=to.user_id), by_id=False),
    Way("History", lambda to: v1.HistoryRequest(memory_id=to.memory_id)),
    Way("History", lambda to: v1.HistoryRequest(user_id=to.user_id), by_id=False),
    Way(
        "Watch",
        lambda to: v1.MemoryServiceWatchRequest(user_id=to.user_id, include_existing=True),
        by_id=False,
    ),
    Way("Update", update, writes=True),
    Way("Delete", lambda to: v1.DeleteRequest(id=to.memory_id), writes=True),
    Way("Feedback", lambda to: v1.FeedbackRequest(memory_id=to.memory_id, kind=HELPFUL), writes=True),
    Way(
        "Restore",
        lambda to: v1.RestoreRequest(memory_id=to.memory_id, operation_id=to.operation_id),
        writes=True,
    ),
    Way("DeleteAll", lambda to: v1.DeleteAllRequest(user_id=to.user_id), by_id=False, writes=True),
    Way(
        "DeleteByFilter",
        lambda to: v1.DeleteByFilterRequest(user_id=to.user_id, filter=holds_canary()),
        by_id=False,
        writes=True,
    ),
    Way(
        "Forget",
        lambda to: v1.ForgetRequest(user_id=to.user_id, validate_only=True),
        by_id=False,
        writes=True,
        fields=EXPIRED,
    ),
]


@dataclass(frozen=True)
class Asker:
    """Who asks: a channel, whether it acts for the memory's owner, and what its role lets it do."""

    name: str
    tenant: Tenant
    owner: bool
    reads: bool
    writes: bool

    def may(self, path: Way) -> bool:
        """Whether the role lets it call."""
        return self.writes if path.writes else self.reads


@dataclass
class House:
    """The owner of the memories and everybody who may ask for them."""

    owner: Tenant
    askers: list[Asker]
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def target(self, level: v1.PrivacyLevel.ValueType, **fields: Any) -> Target:
        """A memory of a subject of its own, edited once, so that there is something to undo."""
        user_id = f"user-{next(self.numbers)}"
        content = f"I like {CANARY}s, and {user_id} is my name."
        (made,) = self.owner.add(content, user_id=user_id, privacy_level=level, confidence=0.9, **fields)
        if not fields:
            edit = v1.Memory(id=made.id, category="EVENT")
            request = v1.UpdateRequest(memory=edit, update_mask=FieldMask(paths=["category"]))
            self.owner.memories.Update(request)
        history = self.owner.memories.History(v1.HistoryRequest(user_id=user_id)).entries
        return Target(user_id, made.id, history[0].operation_id)


@pytest.fixture
def house(serving: Serving) -> House:
    def acting(client_id: str, role: v1.Role.ValueType, tenant_id: str = "dev") -> Tenant:
        request = v1.CreateApiKeyRequest(tenant_id=tenant_id, role=role, across_subjects=True)
        return serving.named(tenant_id, serving.admin.CreateApiKey(request).secret, client_id=client_id)

    admin = serving.with_key("dev", v1.ROLE_TENANT_ADMIN)
    platform = serving.with_key("", v1.ROLE_PLATFORM_ADMIN)
    serving.tenant("stranger")
    phone = acting("phone", v1.ROLE_SERVICE)
    return House(
        phone,
        [
            Asker("owner's service", phone, owner=True, reads=True, writes=True),
            Asker("other service", acting("desk", v1.ROLE_SERVICE), owner=False, reads=True, writes=True),
            Asker("owner's reader", acting("phone", v1.ROLE_READER), owner=True, reads=True, writes=False),
            Asker("other reader", acting("desk", v1.ROLE_READER), owner=False, reads=True, writes=False),
            Asker("tenant admin", admin, owner=False, reads=False, writes=False),
            Asker("platform admin", platform, owner=False, reads=False, writes=False),
            Asker(
                "other tenant",
                acting("phone", v1.ROLE_SERVICE, "stranger"),
                owner=False,
                reads=True,
                writes=True,
            ),
        ],
    )


def call(asker: Asker, path: Way, to: Target) -> Message:
    method = getattr(asker.tenant.memories, path.rpc)
    if path.rpc != "Watch":
        return method(path.request(to))
    stream = method(path.request(to), timeout=PATIENCE)
    first = next(stream)
    stream.cancel()
    return first


def refusal(asker: Asker, path: Way, to: Target) -> tuple[grpc.StatusCode, bytes]:
    """How the call was refused, with the target's names taken out."""
    with refused() as answer:
        call(asker, path, to)
    return answer.code, answer.details.replace(to.memory_id.encode(), b"<id>")


def test_every_rpc_is_in_the_tables() -> None:
    service = memory_service_pb2.DESCRIPTOR.services_by_name["MemoryService"]
    ways = {path.rpc for path in WAYS} | {"Add"} | set(OF_WHO_ASKED)
    assert ways == {rpc.name for rpc in service.methods}
    devices = sync_service_pb2.DESCRIPTOR.services_by_name["SyncService"]
    assert set(DEVICE_WAYS) | set(CHECKED_ELSEWHERE) == {rpc.name for rpc in devices.methods}


@pytest.mark.parametrize("level", [SHARED, PRIVATE], ids=["shared", "private"])
def test_who_may_not_see_a_memory_is_told_what_is_told_of_none(house: House, level: Any) -> None:
    for asker, path in itertools.product(house.askers, WAYS):
        where = f"{asker.name}, {path.rpc}"
        to = house.target(level, **path.fields)
        unknown = Target("nobody", str(uuid.uuid4()), str(uuid.uuid4()))
        before = house.owner.memories.History(v1.HistoryRequest(user_id=to.user_id))
        same_tenant = asker.tenant.tenant_id == "dev"
        if not asker.may(path):
            told = refusal(asker, path, to)
            assert told[0] is grpc.StatusCode.PERMISSION_DENIED, where
            assert told == refusal(asker, path, unknown), where
        elif same_tenant and (level == SHARED or asker.owner):
            answer = call(asker, path, to)
            if path.rpc in ("DeleteAll", "DeleteByFilter"):
                assert answer.deleted_count == 1, where
            elif path.rpc != "Delete":
                assert CANARY in str(answer), where
            continue
        elif path.by_id:
            told = refusal(asker, path, to)
            assert told[0] is grpc.StatusCode.NOT_FOUND, where
            assert told == refusal(asker, path, unknown), where
        else:
            answer = call(asker, path, to)
            assert CANARY not in str(answer), where
            assert path.rpc == "BatchGet" or to.memory_id not in str(answer), where
            assert getattr(answer, "deleted_count", 0) == 0, where
        assert house.owner.memories.History(v1.HistoryRequest(user_id=to.user_id)) == before, where


@pytest.mark.parametrize("level", [SHARED, PRIVATE], ids=["shared", "private"])
def test_an_add_says_nothing_of_what_another_client_keeps_private(house: House, level: Any) -> None:
    for asker in (asker for asker in house.askers if asker.writes and not asker.owner):
        to = house.target(PRIVATE)
        before = house.owner.memories.History(v1.HistoryRequest(memory_id=to.memory_id))
        guesses = (
            f"I like {CANARY}s, and {to.user_id} is my name.",
            f"I love {CANARY}s and {to.user_id} is my name",
        )
        memories = [v1.Memory(user_id=to.user_id, content=text, privacy_level=level) for text in guesses]
        results = asker.tenant.memories.Add(v1.AddRequest(memories=memories)).results
        assert [one.status for one in results] == [v1.ADD_STATUS_ADDED, v1.ADD_STATUS_MERGED_INTO], asker.name
        assert to.memory_id not in str(results), asker.name
        assert house.owner.memories.History(v1.HistoryRequest(memory_id=to.memory_id)) == before, asker.name
        again = v1.Memory(user_id=to.user_id, content=guesses[0], privacy_level=PRIVATE)
        (result,) = house.owner.memories.Add(v1.AddRequest(memories=[again])).results
        assert (result.status, result.memory.id) == (v1.ADD_STATUS_DUPLICATE, to.memory_id)


def test_what_never_leaves_its_device_is_taken_from_nobody(house: House) -> None:
    for asker in house.askers:
        secret = v1.Memory(user_id="alice", content=CANARY, privacy_level=LOCAL_ONLY)
        with refused() as answer:
            asker.tenant.memories.Add(v1.AddRequest(memories=[secret]))
        if asker.writes:
            assert answer.fields == ["memories[0].privacy_level"]
        else:
            assert answer.code is grpc.StatusCode.PERMISSION_DENIED
    to = house.target(SHARED)
    local = v1.Memory(id=to.memory_id, privacy_level=LOCAL_ONLY)
    mask = FieldMask(paths=["privacy_level"])
    with refused() as answer:
        house.owner.memories.Update(v1.UpdateRequest(memory=local, update_mask=mask))
    assert answer.fields == ["memory.privacy_level"]


# --- devices --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Looked:
    """A memory that a device looks for, the stamp of its content, and a folder for what it loads."""

    memory: v1.Memory
    content_stamp: bytes
    folder: Path

    @property
    def key(self) -> bytes:
        return id_bytes(self.memory.id)


def synced(device: v1.SyncServiceStub, at: Looked) -> bool:
    page = device.Sync(v1.SyncRequest(protocol=1)).page
    return at.memory.id in [memory_id for memory_id, _, _ in open_page(page)]


def loaded(device: v1.SyncServiceStub, at: Looked) -> bool:
    responses = list(device.Snapshot(v1.SnapshotRequest(newest=10), timeout=PATIENCE))
    newest = open_page(unpack(v1.Page, "newest_page", responses[0].newest_page))
    path = at.folder / "loaded.db"
    path.write_bytes(b"".join(one.chunk for one in responses))
    with closing(sqlite3.connect(path)) as connection:
        ids = [row[0] for row in connection.execute("SELECT id FROM rows")]
    assert (at.key in ids) is (at.memory.id in [memory_id for memory_id, _, _ in newest])
    assert (at.key in ids) is (at.memory.content.encode() in path.read_bytes())
    return at.key in ids


def watched(device: v1.SyncServiceStub, at: Looked) -> bool:
    stream = device.Watch(v1.WatchRequest(), timeout=PATIENCE)
    first = next(stream)
    stream.cancel()
    return at.memory.id in [memory_id for memory_id, _, _ in open_page(first.page)]


def told_apart(device: v1.SyncServiceStub, at: Looked) -> bool:
    request = v1.ReconcileRequest(bucket_digests=[bytes(8)] * 256)
    return at.key[0] in device.Reconcile(request).differing_buckets


def embedded(device: v1.SyncServiceStub, at: Looked) -> bool:
    key = v1.VectorKey(memory_id=at.key, content_stamp=at.content_stamp)
    return bool(device.Vectors(v1.VectorsRequest(keys=[key])).vectors)


DEVICE_WAYS: dict[str, Callable[[v1.SyncServiceStub, Looked], bool]] = {
    "Sync": synced,
    "Snapshot": loaded,
    "Watch": watched,
    "Reconcile": told_apart,
    "Vectors": embedded,
}


@pytest.mark.parametrize("level", [SHARED, PRIVATE], ids=["shared", "private"])
def test_a_device_has_what_its_client_and_its_scopes_may_see(
    serving: Serving, tmp_path: Path, level: Any
) -> None:
    phone = serving.named("dev", serving.dev.key, client_id="phone")
    (made,) = phone.add(f"the {CANARY} at home", scope="home", privacy_level=level)
    read = phone.memories.Get(v1.GetRequest(id=made.id, include_field_stamps=True))
    stamps = {one.field: one.stamp for one in read.field_stamps}
    at = Looked(made, Stamp.parse(stamps["content"]).pack(), tmp_path)
    devices = {
        "phone": (enrolled(serving, "phone")[0], True),
        "laptop": (enrolled(serving, "laptop")[0], level == SHARED),
        "office": (enrolled(serving, "office", scopes=["work"])[0], False),
        "bob's": (enrolled(serving, "tablet", user_id="bob")[0], False),
    }
    for (name, (device, sees)), (rpc, way) in itertools.product(devices.items(), DEVICE_WAYS.items()):
        assert way(device, at) is sees, f"{name}, {rpc}"


def test_no_key_is_a_device_and_no_device_is_a_key(serving: Serving) -> None:
    stub = v1.SyncServiceStub(serving.dev.channel)
    for way in DEVICE_WAYS.values():
        with refused() as answer:
            way(stub, Looked(v1.Memory(id=str(uuid.uuid4())), bytes(24), Path()))
        assert answer.code is grpc.StatusCode.PERMISSION_DENIED
