"""A tenant that is not in use: every RPC on its memories is refused, and its admin sees how it stands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import grpc
import pytest

from rpc.conftest import Serving
from rpc.refusal import refused
from scrubjay import v1
from server.app import ALLOWED
from server.services import memory_service, sync_service
from tenants.tenant import Role

SUSPENDED, DELETING = v1.ERROR_REASON_TENANT_SUSPENDED, v1.ERROR_REASON_TENANT_DELETING
STREAMS = {"Watch", "Snapshot"}
ENTRANCES = [
    (path, role)
    for path, roles in sorted({**memory_service.ALLOWED, **sync_service.ALLOWED}.items())
    for role in sorted(roles - {Role.EXPIRED_DEVICE, Role.REVOKED_DEVICE})
]
"""Every RPC on memories, with each role that is let in. Left out is what a device's token becomes."""


def credential(serving: Serving, role: Role) -> str:
    if role in (Role.DEVICE, Role.ENROLMENT):
        request = v1.CreateEnrolmentRequest(tenant_id="dev", user_id="alice")
        code = serving.admin.CreateEnrolment(request).enrolment_code
        if role is Role.ENROLMENT:
            return code
        stub = v1.SyncServiceStub(serving.open_channel(serving.app.address, code))
        return stub.RegisterDevice(v1.RegisterDeviceRequest(installation_id=b"i" * 16)).device_token
    request = v1.CreateApiKeyRequest(tenant_id="dev", role=v1.Role.ValueType(role))
    return serving.admin.CreateApiKey(request).secret


def call(channel: grpc.Channel, path: str) -> None:
    """The RPC with an empty request, to its first answer."""
    if path.rpartition("/")[2] in STREAMS:
        next(iter(channel.unary_stream(path)(b"", timeout=10)))
    else:
        channel.unary_unary(path)(b"", timeout=10)


def suspend(serving: Serving) -> None:
    serving.admin.SuspendTenant(v1.SuspendTenantRequest(tenant_id="dev", reason="secret reason"))


def delete(serving: Serving) -> None:
    serving.admin.DeleteTenant(v1.DeleteTenantRequest(tenant_id="dev"))


@pytest.fixture
def channels(serving: Serving) -> dict[Role, grpc.Channel]:
    """A channel for each role, its credential known to the server from a call before."""
    roles = {role for _, role in ENTRANCES}
    opened = {
        role: serving.open_channel(serving.app.address, credential(serving, role)) for role in sorted(roles)
    }
    for path, role in ENTRANCES:
        if role is not Role.ENROLMENT and path.rpartition("/")[2] in ("Get", "Vectors"):
            with suppress(grpc.RpcError):  # the id of a Get is missing
                call(opened[role], path)
    return opened


@pytest.mark.parametrize("move", [suspend, delete])
def test_every_rpc_on_memories_is_refused_at_once(
    serving: Serving, channels: dict[Role, grpc.Channel], move: Callable[[Serving], None]
) -> None:
    move(serving)
    for path, role in ENTRANCES:
        with refused() as answer:
            call(channels[role], path)
        assert answer.code is grpc.StatusCode.FAILED_PRECONDITION, (path, role)
        assert answer.error.reason == (SUSPENDED if move is suspend else DELETING), (path, role)
        assert "secret reason" not in answer.error.message


def test_the_table_names_every_rpc_on_memories() -> None:
    admin = {path for path in ALLOWED if "TenantAdminService" in path}
    assert {path for path, _ in ENTRANCES} == set(ALLOWED) - admin


def moves(serving: Serving) -> Iterator[tuple[Callable[[], object], Callable[[], object]]]:
    """Moves, each with what takes it back."""
    admin = serving.admin
    yield (
        lambda: suspend(serving),
        lambda: admin.ResumeTenant(v1.ResumeTenantRequest(tenant_id="dev")),
    )
    yield (
        lambda: delete(serving),
        lambda: admin.UndeleteTenant(v1.UndeleteTenantRequest(tenant_id="dev")),
    )


def test_what_is_taken_back_leaves_everything_as_it_was(serving: Serving) -> None:
    (kept,) = serving.dev.add("kept")
    other = serving.tenant("other")
    for move, back in moves(serving):
        move()
        with refused():
            serving.dev.memories.Get(v1.GetRequest(id=kept.id))
        other.add("theirs")
        back()
        assert serving.dev.memories.Get(v1.GetRequest(id=kept.id)).memory == kept


def test_its_admin_sees_how_it_stands_and_moves_nothing(serving: Serving) -> None:
    key = credential(serving, Role.TENANT_ADMIN)
    admin = v1.TenantAdminServiceStub(serving.open_channel(serving.app.address, key))
    suspend(serving)
    shown = admin.GetTenant(v1.GetTenantRequest(tenant_id="dev")).tenant
    assert (shown.state, shown.suspension_reason) == (v1.TENANT_STATE_SUSPENDED, "secret reason")
    with refused() as answer:
        admin.ResumeTenant(v1.ResumeTenantRequest(tenant_id="dev"))
    assert answer.error.reason == v1.ERROR_REASON_ROLE_NOT_ALLOWED


def test_a_lost_device_is_told_to_wipe_whatever_its_tenants_state(serving: Serving) -> None:
    channel = serving.open_channel(serving.app.address, credential(serving, Role.DEVICE))
    (device,) = serving.admin.ListDevices(v1.ListDevicesRequest(tenant_id="dev")).devices
    suspend(serving)
    revoke = v1.RevokeDeviceRequest(tenant_id="dev", device_id=device.device_id, wipe=True)
    serving.admin.RevokeDevice(revoke)
    answer = v1.SyncServiceStub(channel).Sync(v1.SyncRequest(protocol=1))
    assert answer.directive == v1.DIRECTIVE_WIPE
