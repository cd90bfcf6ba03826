"""What a tenant has and calls, counted by a running server and told to its admin."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from client_sync import Remote, Replica, synchronize
from rpc.conftest import Serving, served
from rpc.test_backend_watch import watch
from rpc.test_tenant_states import credential
from scrubjay import connect, v1
from server.app import App
from server.config import Settings
from tenants.tenant import Role


def used(serving: Serving) -> v1.GetUsageResponse:
    """What the tenant's own admin is told."""
    key = credential(serving, Role.TENANT_ADMIN)
    admin = v1.TenantAdminServiceStub(serving.open_channel(serving.app.address, key))
    return admin.GetUsage(v1.GetUsageRequest(tenant_id="dev"))


def rows(told: v1.GetUsageResponse) -> dict[tuple[str, str], v1.UsageRow]:
    return {(row.key_id, row.rpc): row for row in told.rows}


def key_of(secret: str) -> str:
    return secret.split("_")[2]


def test_calls_are_told_by_key_and_rpc_and_memories_beside_them(serving: Serving) -> None:
    mine, reader = key_of(serving.dev.key), serving.with_key("dev", v1.ROLE_READER)
    serving.tenant("other").add("another tenant's")
    (kept, _) = serving.dev.add("one", "two")
    serving.dev.add("three")
    serving.dev.add("three")  # stored already
    serving.dev.memories.Delete(v1.DeleteRequest(id=kept.id))
    request = v1.GetRequest(id=kept.id)
    with suppress(grpc.RpcError):
        serving.dev.memories.Get(request)
    reader.found("one")
    with suppress(grpc.RpcError):  # a reader may not: it is told so before anything is counted
        reader.add("no")
    found = rows(used(serving))
    assert {place: (row.calls, row.refused, row.memories) for place, row in found.items()} == {
        (mine, "Add"): (3, 0, 0),
        (mine, "Delete"): (1, 0, 0),
        (mine, "Get"): (1, 1, 0),
        (mine, ""): (0, 0, 3),
        (key_of(reader.key), "Search"): (1, 0, 0),
    }
    get = found[mine, "Get"]
    assert (get.bytes_in, get.bytes_out) == (request.ByteSize(), 0)
    add = found[mine, "Add"]
    assert 0 < add.bytes_in < add.bytes_out


def test_what_a_device_does_is_told_by_its_id(serving: Serving, tmp_path: Path) -> None:
    asked = v1.CreateEnrolmentRequest(tenant_id="dev", user_id="alice")
    code = serving.admin.CreateEnrolment(asked).enrolment_code
    credentials = Remote.register(serving.app.address, code, installation_id=b"i" * 16)
    saved = credentials.save(tmp_path / "device.json")
    with (
        Replica.create(tmp_path / "replica.db", saved.identity) as replica,
        Remote(saved.target, saved) as remote,
    ):
        replica.add("of a device")
        replica.add("another one")
        synchronize(replica, remote)
    (device,) = serving.admin.ListDevices(v1.ListDevicesRequest(tenant_id="dev")).devices
    found = rows(used(serving))
    assert found[device.device_id, "Sync"].calls >= 1
    assert found[device.device_id, ""].memories == 2
    assert [row.calls for (_, rpc), row in found.items() if rpc == "RegisterDevice"] == [1]


def test_what_is_refused_by_a_limit_is_counted_as_refused(serving: Serving) -> None:
    told = v1.Tenant(tenant_id="dev", quotas=v1.Quotas(memories=1, calls_per_second_per_key=0.001))
    serving.dev.add("the first")
    serving.admin.UpdateTenant(v1.UpdateTenantRequest(tenant=told, update_mask=FieldMask(paths=["quotas"])))
    for _ in range(3):
        with suppress(grpc.RpcError):
            serving.dev.add("more")
    row = rows(used(serving))[key_of(serving.dev.key), "Add"]
    assert (row.calls, row.refused) == (4, 3)


def test_a_stream_is_one_call_and_all_its_bytes(serving: Serving) -> None:
    serving.dev.add(*(f"fact {n}" for n in range(5)))
    stream = watch(serving.dev, include_existing=True)
    sent = next(stream).ByteSize()
    serving.dev.add("one more")
    sent += next(stream).ByteSize()
    stream.cancel()
    row = rows(used(serving))[key_of(serving.dev.key), "Watch"]
    assert row.calls == 1
    assert row.bytes_out >= sent > 0


def test_what_a_tenant_has_stands_beside_what_it_may_have(serving: Serving) -> None:
    told = v1.Tenant(tenant_id="dev", quotas=v1.Quotas(memories=10, api_keys=5))
    serving.admin.UpdateTenant(v1.UpdateTenantRequest(tenant=told, update_mask=FieldMask(paths=["quotas"])))
    serving.dev.add("one", "two")
    credential(serving, Role.DEVICE)
    answer = used(serving)
    assert (answer.stock.memories, answer.stock.devices, answer.stock.api_keys) == (2, 1, 2)
    assert answer.stock.bytes > 100
    assert (answer.quotas.memories, answer.quotas.api_keys, answer.quotas.devices) == (10, 5, 0)


@pytest.mark.parametrize("backend", ["sqlite"])
def test_what_was_counted_is_there_after_a_stop(settings: Settings, tmp_path: Path) -> None:
    with served(settings) as serving:
        serving.dev.add("one")
        mine = key_of(serving.dev.key)
        key = credential(serving, Role.TENANT_ADMIN)
    with App(settings) as app, connect(app.address, key) as channel:
        told = v1.TenantAdminServiceStub(channel).GetUsage(v1.GetUsageRequest(tenant_id="dev"))
        assert rows(told)[mine, "Add"].calls == 1
