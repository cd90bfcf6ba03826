"""Tenants never meet: the tenant comes from the credential, and a foreign id is an unknown id."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from rpc.conftest import Serving
from rpc.refusal import refused
from scrubjay import v1

BY_ID: dict[str, Callable[[v1.MemoryServiceStub, str], Any]] = {
    "Get": lambda stub, memory_id: stub.Get(v1.GetRequest(id=memory_id)),
    "Update": lambda stub, memory_id: stub.Update(
        v1.UpdateRequest(
            memory=v1.Memory(id=memory_id, content="mine now"), update_mask=FieldMask(paths=["content"])
        )
    ),
    "Delete": lambda stub, memory_id: stub.Delete(v1.DeleteRequest(id=memory_id)),
    "History": lambda stub, memory_id: stub.History(v1.HistoryRequest(memory_id=memory_id)),
}


def test_another_tenants_id_is_byte_for_byte_an_unknown_id(serving: Serving) -> None:
    other = serving.tenant("other")
    living, dead = serving.dev.add("secret canary", "buried canary")
    serving.dev.memories.Delete(v1.DeleteRequest(id=dead.id))
    unknown = str(uuid.uuid4())
    for name, call in BY_ID.items():
        with refused() as missing:
            call(other.memories, unknown)
        assert missing.code is grpc.StatusCode.NOT_FOUND, name
        for foreign in (living.id, dead.id):
            with refused() as answer:
                call(other.memories, foreign)
            assert answer.code is grpc.StatusCode.NOT_FOUND, name
            assert answer.details.replace(foreign.encode(), unknown.encode()) == missing.details, name
    batch = other.memories.BatchGet(v1.BatchGetRequest(ids=[living.id, unknown]))
    assert batch == v1.BatchGetResponse(missing_ids=[living.id, unknown])
    assert serving.dev.memories.Get(v1.GetRequest(id=living.id)).memory == living


def test_the_same_user_of_two_tenants_is_two_users(serving: Serving) -> None:
    other = serving.tenant("other")
    serving.dev.add("dev canary")
    assert other.found("canary") == []
    assert not other.memories.List(v1.ListRequest(user_id="alice")).memories
    assert not other.memories.History(v1.HistoryRequest(user_id="alice")).entries
    assert other.memories.DeleteAll(v1.DeleteAllRequest(user_id="alice")).deleted_count == 0
    (same_id,) = serving.dev.add("kept")
    other.add("theirs", id=same_id.id)
    assert serving.dev.memories.Get(v1.GetRequest(id=same_id.id)).memory.content == "kept"
    assert other.memories.Get(v1.GetRequest(id=same_id.id)).memory.content == "theirs"


def test_request_ids_and_revisions_are_a_tenants_own(serving: Serving) -> None:
    other = serving.tenant("other")
    request = v1.AddRequest(request_id="same", memories=[v1.Memory(user_id="alice", content="mine")])
    mine = serving.dev.memories.Add(request)
    theirs = other.memories.Add(request)
    assert mine.results[0].memory.id != theirs.results[0].memory.id
    with refused() as answer:
        other.memories.List(v1.ListRequest(user_id="alice", min_revision=mine.revision))
    assert answer.fields == ["min_revision"]


@pytest.mark.parametrize("backend", ["sqlite"])
def test_credentials_that_are_none_get_one_and_the_same_answer(serving: Serving) -> None:
    created = serving.admin.CreateApiKey(
        v1.CreateApiKeyRequest(tenant_id="dev", role=v1.ROLE_SERVICE, display_name="to be revoked")
    )
    revoked = serving.named("dev", created.secret)
    assert revoked.found("x") == []
    serving.admin.RevokeApiKey(v1.RevokeApiKeyRequest(tenant_id="dev", key_id=created.api_key.key_id))
    answers = set()
    for key in (
        created.secret,
        "x",
        serving.dev.key[:-1] + ("0" if serving.dev.key[-1] != "0" else "1"),
        serving.dev.key + "x",
        "sj_live_",
    ):
        with refused() as answer:
            serving.named("dev", key).found("x")
        assert answer.code is grpc.StatusCode.UNAUTHENTICATED
        answers.add(answer.details)
    with grpc.insecure_channel(serving.app.address) as channel, refused() as answer:
        v1.MemoryServiceStub(channel).Get(v1.GetRequest(id=str(uuid.uuid4())))
    assert answer.code is grpc.StatusCode.UNAUTHENTICATED
    assert answers == {answer.details}


MEMORY_READS = ("Get", "BatchGet", "List", "Search", "History")
MEMORY_WRITES = ("Add", "Update", "Delete", "DeleteAll")
ADMIN = ("CreateTenant", "GetTenant", "ListTenants", "CreateApiKey", "RevokeApiKey")
MAY = {
    v1.ROLE_SERVICE: {*MEMORY_READS, *MEMORY_WRITES},
    v1.ROLE_READER: {*MEMORY_READS},
    v1.ROLE_TENANT_ADMIN: {"GetTenant", "CreateApiKey", "RevokeApiKey"},
}


@pytest.mark.parametrize("backend", ["sqlite"])
def test_every_role_calls_what_it_may_and_nothing_else(serving: Serving) -> None:
    for role, allowed in MAY.items():
        channel = serving.with_key("dev", role).channel
        for service, methods in (
            ("MemoryService", (*MEMORY_READS, *MEMORY_WRITES)),
            ("TenantAdminService", ADMIN),
        ):
            for method in methods:
                with refused() as answer:
                    channel.unary_unary(f"/scrubjay.v1.{service}/{method}")(b"", timeout=5)
                denied = answer.code is grpc.StatusCode.PERMISSION_DENIED
                assert denied is (method not in allowed), (role, method)


@pytest.mark.parametrize("backend", ["sqlite"])
def test_an_unknown_rpc_is_unimplemented(serving: Serving) -> None:
    with pytest.raises(grpc.RpcError) as raised:
        serving.dev.channel.unary_unary("/scrubjay.v1.MemoryService/Remember")(b"", timeout=5)
    assert isinstance(raised.value, grpc.Call)
    assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED
