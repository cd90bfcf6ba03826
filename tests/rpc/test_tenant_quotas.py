"""What a tenant may have and call: each limit against each RPC that counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from client_sync import Remote, Replica, synchronize
from rpc.conftest import Serving, served
from rpc.refusal import refused
from rpc.test_tenant_states import ENTRANCES, call, credential
from scrubjay import v1
from scrubjay.channel import from_rpc_error
from scrubjay.errors import QuotaExceeded, QuotaViolation
from server.config import Settings
from tenants.tenant import Role

LIMITED, EXCEEDED = v1.ERROR_REASON_RATE_LIMITED, v1.ERROR_REASON_QUOTA_EXCEEDED


def limit(serving: Serving, **quotas: Any) -> None:
    told = v1.Tenant(tenant_id="dev", quotas=v1.Quotas(**quotas))
    mask = FieldMask(paths=["quotas"])
    serving.admin.UpdateTenant(v1.UpdateTenantRequest(tenant=told, update_mask=mask))


def channels(serving: Serving) -> dict[Role, grpc.Channel]:
    """A channel for each role that calls on memories."""
    return {
        role: serving.open_channel(serving.app.address, credential(serving, role))
        for role in sorted({role for _, role in ENTRANCES})
    }


def key(serving: Serving) -> v1.ApiKey:
    return serving.admin.CreateApiKey(v1.CreateApiKeyRequest(tenant_id="dev", role=v1.ROLE_READER)).api_key


# --- rates ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["sqlite"])
@pytest.mark.parametrize("quota", ["calls_per_second", "calls_per_second_per_key"])
def test_every_rpc_on_memories_counts_as_a_call(serving: Serving, quota: str) -> None:
    opened = channels(serving)
    limit(serving, **{quota: 0.001})
    first = {role: path for path, role in reversed(ENTRANCES)}
    for role in first if quota == "calls_per_second_per_key" else [Role.READER]:
        with suppress(grpc.RpcError):  # the one call that there is: what it lacks is told
            call(opened[role], first[role])
    for path, role in ENTRANCES:
        with refused() as answer:
            call(opened[role], path)
        assert answer.code is grpc.StatusCode.RESOURCE_EXHAUSTED, (path, role)
        assert answer.error.reason == LIMITED, (path, role)
        assert answer.error.retry_after_seconds == pytest.approx(1000, rel=0.1), (path, role)


def test_one_noisy_tenant_or_key_takes_nothing_from_another(serving: Serving) -> None:
    quiet, other = serving.with_key("dev", v1.ROLE_SERVICE), serving.tenant("other")
    limit(serving, calls_per_second_per_key=0.001)
    serving.dev.add("the only one")
    with refused() as answer:
        serving.dev.add("one more")
    assert answer.error.reason == LIMITED
    quiet.add("of another key")
    for n in range(5):
        other.add(f"of another tenant {n}")
    limit(serving)
    kept = serving.dev.memories.List(v1.ListRequest(user_id="alice")).memories
    assert {memory.content for memory in kept} == {"the only one", "of another key"}


def test_admins_are_not_counted(serving: Serving) -> None:
    limit(serving, calls_per_second=0.001)
    admin_key = credential(serving, Role.TENANT_ADMIN)
    admin = v1.TenantAdminServiceStub(serving.open_channel(serving.app.address, admin_key))
    for _ in range(5):
        admin.GetTenant(v1.GetTenantRequest(tenant_id="dev"))


def test_a_shards_calls_are_limited_together_and_refused_alike(settings: Settings) -> None:
    with served(settings.model_copy(update={"shard_calls_per_second": 0.002})) as serving:
        serving.dev.add("the only one")
        with refused() as answer:
            serving.dev.add("one more")
        assert answer.error.reason == LIMITED
        assert answer.error.retry_after_seconds == pytest.approx(1000, rel=0.5)
        admin_key = credential(serving, Role.TENANT_ADMIN)
        admin = v1.TenantAdminServiceStub(serving.open_channel(serving.app.address, admin_key))
        for _ in range(3):
            admin.GetTenant(v1.GetTenantRequest(tenant_id="dev"))


# --- stocks ---------------------------------------------------------------------------------------


def exceeded(quota: str, number: int, error: Any) -> bool:
    told = QuotaViolation("tenants/dev", f"may have {number} {quota.replace('_', ' ')}")
    return bool(
        error.reason == EXCEEDED
        and error.metadata == {"quota": quota, "limit": str(number)}
        and error.quota_violations == (told,)
    )


def test_keys_that_have_not_ended_are_counted(serving: Serving) -> None:
    limit(serving, api_keys=3)  # the tenant's first one is there
    keys = [key(serving), key(serving)]
    rotate = v1.RotateApiKeyRequest(tenant_id="dev", key_id=keys[0].key_id)
    for call_it in (lambda: key(serving), lambda: serving.admin.RotateApiKey(rotate)):
        with refused() as answer:
            call_it()
        assert exceeded("api_keys", 3, answer.error)
        assert answer.error.retry_after_seconds is None
    serving.admin.RevokeApiKey(v1.RevokeApiKeyRequest(tenant_id="dev", key_id=keys[1].key_id))
    serving.admin.RotateApiKey(rotate)
    with refused():
        key(serving)


def test_devices_that_were_not_revoked_are_counted(serving: Serving) -> None:
    limit(serving, devices=1)
    codes = [credential(serving, Role.ENROLMENT) for _ in range(2)]
    stubs = [v1.SyncServiceStub(serving.open_channel(serving.app.address, code)) for code in codes]
    requests = [v1.RegisterDeviceRequest(installation_id=bytes([n]) * 16) for n in range(2)]
    first = stubs[0].RegisterDevice(requests[0])
    assert stubs[0].RegisterDevice(requests[0]).device_id == first.device_id
    with refused() as answer:
        stubs[1].RegisterDevice(requests[1])
    assert exceeded("devices", 1, answer.error)
    revoke = v1.RevokeDeviceRequest(tenant_id="dev", device_id=first.device_id)
    serving.admin.RevokeDevice(revoke)
    assert stubs[1].RegisterDevice(requests[1]).device_id != first.device_id


def test_only_a_platform_admin_writes_quotas(serving: Serving) -> None:
    admin_key = credential(serving, Role.TENANT_ADMIN)
    admin = v1.TenantAdminServiceStub(serving.open_channel(serving.app.address, admin_key))
    limit(serving, devices=7)
    request = v1.UpdateTenantRequest(
        tenant=v1.Tenant(tenant_id="dev"), update_mask=FieldMask(paths=["quotas"])
    )
    with refused() as answer:
        admin.UpdateTenant(request)
    assert answer.error.reason == v1.ERROR_REASON_ROLE_NOT_ALLOWED
    assert admin.GetTenant(v1.GetTenantRequest(tenant_id="dev")).tenant.quotas.devices == 7


# --- memories and bytes ---------------------------------------------------------------------------


@pytest.fixture
def alice(serving: Serving, tmp_path: Path) -> Iterator[Callable[[], object]]:
    """What makes a device of alice's add a memory and send it."""
    asked = v1.CreateEnrolmentRequest(tenant_id="dev", user_id="alice")
    code = serving.admin.CreateEnrolment(asked).enrolment_code
    made = Remote.register(serving.app.address, code, installation_id=b"i" * 16)
    credentials = made.save(tmp_path / "device.json")
    with (
        Replica.create(tmp_path / "replica.db", credentials.identity) as replica,
        Remote(credentials.target, credentials) as remote,
    ):
        synchronize(replica, remote)

        def send() -> None:
            if not any(memory.content == "of a device" for memory in replica.list(limit=10)):
                replica.add("of a device")
            synchronize(replica, remote)

        yield send


def add_messages(serving: Serving) -> None:
    said = v1.ConversationMessage(role="user", content="I live in Porto with two cats.")
    template = v1.Memory(user_id="alice")
    request = v1.AddRequest(messages=[said], template=template, policy=v1.WRITE_POLICY_RAW)
    serving.dev.memories.Add(request)


def restore_deleted(serving: Serving, memory_id: str) -> None:
    serving.dev.memories.Restore(v1.RestoreRequest(memory_id=memory_id))


def stored(serving: Serving) -> int:
    return len(serving.dev.memories.List(v1.ListRequest(user_id="alice", page_size=1000)).memories)


@pytest.mark.parametrize("way", ["Add", "Add with messages", "Restore", "Sync"])
@pytest.mark.parametrize("quota", ["memories", "bytes"])
def test_every_rpc_that_stores_a_memory_is_held_to_the_limit(
    serving: Serving, alice: Callable[[], object], way: str, quota: str
) -> None:
    kept, gone = serving.dev.add("kept", "deleted")
    serving.dev.memories.Delete(v1.DeleteRequest(id=gone.id))
    calls: dict[str, Callable[[], object]] = {
        "Add": lambda: serving.dev.add("one more"),
        "Add with messages": lambda: add_messages(serving),
        "Restore": lambda: restore_deleted(serving, gone.id),
        "Sync": alice,
    }
    limit(serving, **{quota: 1})
    with pytest.raises((grpc.RpcError, QuotaExceeded)) as caught:
        calls[way]()
    error = from_rpc_error(caught.value) if isinstance(caught.value, grpc.RpcError) else caught.value
    assert exceeded(quota, 1, error)
    assert stored(serving) == 1
    limit(serving, **{quota: 2 if quota == "memories" else 1_000_000})
    calls[way]()
    assert stored(serving) == 2
    with suppress(grpc.RpcError):
        calls["Add"]()
    serving.dev.memories.Delete(v1.DeleteRequest(id=kept.id))


def test_a_refused_call_consumes_nothing_and_may_be_sent_again(serving: Serving) -> None:
    limit(serving, memories=1)
    serving.dev.add("kept")
    request = v1.AddRequest(request_id="r-1", memories=[v1.Memory(user_id="alice", content="later")])
    with refused() as answer:
        serving.dev.memories.Add(request)
    assert exceeded("memories", 1, answer.error)
    limit(serving, memories=2)
    assert serving.dev.memories.Add(request).results[0].memory.content == "later"
    with refused():
        serving.dev.add("one more")
    limit(serving)
    serving.dev.add("one more")
