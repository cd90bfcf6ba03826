"""Devices through the real door: they come in by a code, stay in by their tokens, and go at a word."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha256

import grpc
import pytest
from google.protobuf.message import Message

from rpc.conftest import Serving
from rpc.refusal import refused
from scrubjay import connect, v1
from scrubjay.errors import DeviceNotFound, DeviceRevoked, TokenExpired
from scrubjay.memory import Micros
from server.interceptors import Door
from server.services import sync_service
from server.services.registration import Registration
from server.slots import Slots
from tenants import tenant_service
from tenants.admin_parts import AdminParts
from tenants.database import migrate, open_engine
from tenants.registry import SCRIPTS, VERSION_TABLE, FirstCredentials, Registry
from tenants.tenant import Caller, Role
from tests.no_subjects import NoSubjects

HOUR_MICROS = 3600 * 1_000_000
INSTALLATION = b"i" * 16
DEVICES_CALLS = {"RefreshToken", "Sync", "Snapshot", "Watch", "Reconcile", "Reoffer", "Vectors"}
ADMINS_CALLS = {
    "GetTenant",
    "CreateApiKey",
    "RevokeApiKey",
    "CreateEnrolment",
    "ListDevices",
    "RevokeDevice",
}


class Clock:
    """The services' clock; the door goes by the real time."""

    def __init__(self) -> None:
        self.behind = 0

    def __call__(self) -> Micros:
        return Micros(time.time_ns() // 1000 - self.behind)


class Sync:
    """Registration as it is, and behind it who came through the door."""

    def __init__(self, registration: Registration) -> None:
        self.register_device = registration.register_device
        self.refresh_token = registration.refresh_token
        self.callers: list[Caller] = []

    def sync(self, _request: v1.SyncRequest, caller: Caller) -> v1.SyncResponse:
        self.callers.append(caller)
        revoked = caller.role is Role.REVOKED_DEVICE
        return v1.SyncResponse(directive=v1.DIRECTIVE_WIPE if revoked else v1.DIRECTIVE_OK)

    def reconcile(self, _request: v1.ReconcileRequest, _caller: Caller) -> v1.ReconcileResponse:
        return v1.ReconcileResponse()

    def snapshot(self, _request: object, _caller: Caller, _ending: object) -> Iterator[Message]:
        return iter(())

    watch = snapshot
    reoffer = vectors = reconcile


@dataclass
class Running:
    """A server of the admins' and the devices' services."""

    address: str
    first: FirstCredentials
    clock: Clock
    sync: Sync
    channel: Callable[..., grpc.Channel]

    @property
    def admin(self) -> v1.TenantAdminServiceStub:
        return v1.TenantAdminServiceStub(self.channel(self.first.admin.secret))

    def device(self, credential: str, **options: object) -> v1.SyncServiceStub:
        return v1.SyncServiceStub(self.channel(credential, **options))

    def code(self, **fields: object) -> str:
        given = {"tenant_id": "dev", "user_id": "alice", **fields}
        return self.admin.CreateEnrolment(v1.CreateEnrolmentRequest(**given)).enrolment_code

    def register(self, code: str, installation_id: bytes = INSTALLATION) -> v1.RegisterDeviceResponse:
        request = v1.RegisterDeviceRequest(installation_id=installation_id)
        return self.device(code).RegisterDevice(request)

    def refresh(self, token: str) -> v1.RefreshTokenResponse:
        return self.device(token).RefreshToken(v1.RefreshTokenRequest())

    def directive(self, token: str) -> v1.Directive.ValueType:
        return self.device(token).Sync(v1.SyncRequest()).directive

    def revoke(self, device_id: str, wipe: bool = False) -> v1.Device:
        request = v1.RevokeDeviceRequest(tenant_id="dev", device_id=device_id, wipe=wipe)
        return self.admin.RevokeDevice(request).device


@pytest.fixture
def running(database_url: str) -> Iterator[Running]:
    with ExitStack() as stack:
        engine = open_engine(database_url)
        stack.callback(engine.dispose)
        migrate(engine, SCRIPTS, VERSION_TABLE)
        registry = Registry(engine, pepper=b"p" * 32, shard_names=["shard-0"], space="lite-1/512")
        clock = Clock()
        first = registry.bootstrap(clock())
        assert first is not None
        sync = Sync(Registration(registry, clock))
        admin = tenant_service.TenantAdminService(AdminParts(registry, b"s" * 32, clock, NoSubjects()))
        allowed = {**sync_service.ALLOWED, **tenant_service.ALLOWED}
        door = Door(registry, allowed, Slots(handlers=4, queued=8, streams=1))
        server = grpc.server(stack.enter_context(ThreadPoolExecutor(4)))
        for module, name, service in (
            (v1.sync_service_pb2, "SyncService", sync),
            (v1.tenant_service_pb2, "TenantAdminService", admin),
        ):
            descriptor = module.DESCRIPTOR.services_by_name[name]
            server.add_generic_rpc_handlers((door.handlers(descriptor, service),))
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        stack.callback(lambda: server.stop(None).wait())
        yield Running(
            address,
            first,
            clock,
            sync,
            lambda key, **options: stack.enter_context(connect(address, key, **options)),
        )


def test_a_device_comes_in_by_its_code_and_stays_in_by_its_tokens(running: Running) -> None:
    made = running.admin.CreateEnrolment(
        v1.CreateEnrolmentRequest(
            tenant_id="dev", user_id="alice", scopes=["work"], client_id="phone", display_name="Phone"
        )
    )
    registered = running.register(made.enrolment_code)
    incarnation = running.first.tenant.incarnation
    assert registered.principal == sha256(f"{incarnation}\0user:alice\0phone".encode()).digest()[:8]
    assert (registered.client_id, registered.user_id, registered.agent_id) == ("phone", "alice", "")
    assert list(registered.scopes) == ["work"]
    left = registered.expires_at.ToMicroseconds() - running.clock()
    assert HOUR_MICROS * 0.9 < left <= HOUR_MICROS

    assert running.directive(registered.device_token) == v1.DIRECTIVE_OK
    (caller,) = running.sync.callers
    assert (caller.role, caller.client_id, caller.tenant) == (Role.DEVICE, "phone", running.first.tenant)
    assert caller.device is not None
    assert (caller.device.device_id, caller.device.scopes) == (registered.device_id, ("work",))
    assert caller.device.subject.key == "user:alice"

    refreshed = running.refresh(registered.device_token)
    for token in (refreshed.device_token, registered.device_token):
        assert running.directive(token) == v1.DIRECTIVE_OK
    (device,) = running.admin.ListDevices(v1.ListDevicesRequest(tenant_id="dev")).devices
    assert (device.device_id, device.display_name) == (registered.device_id, "Phone")


def test_repeats_after_lost_answers_change_nothing(running: Running) -> None:
    code = running.code()
    first, again = running.register(code), running.register(code)
    assert (again.device_id, again.device_token) == (first.device_id, first.device_token)
    lost, given = running.refresh(first.device_token), running.refresh(first.device_token)
    assert given.device_token == lost.device_token
    assert running.directive(given.device_token) == v1.DIRECTIVE_OK
    assert len(running.admin.ListDevices(v1.ListDevicesRequest(tenant_id="dev")).devices) == 1


def test_an_expired_token_refreshes_and_does_nothing_else(running: Running) -> None:
    code = running.code()
    running.clock.behind = 2 * HOUR_MICROS
    expired = running.register(code).device_token
    running.clock.behind = 0
    device = running.device(expired)
    for call in (
        lambda: device.Sync(v1.SyncRequest()),
        lambda: device.Vectors(v1.VectorsRequest()),
        lambda: list(device.Watch(v1.WatchRequest())),
        lambda: running.register(expired),
    ):
        with refused() as answer:
            call()
        assert (answer.code, type(answer.error)) == (grpc.StatusCode.UNAUTHENTICATED, TokenExpired)
    assert running.directive(running.refresh(expired).device_token) == v1.DIRECTIVE_OK


def test_an_older_token_that_comes_back_ends_the_device(running: Running) -> None:
    first = running.register(running.code()).device_token
    second = running.refresh(first).device_token
    assert running.directive(second) == v1.DIRECTIVE_OK
    for token in (first, second):
        with refused() as answer:
            running.refresh(token)
        assert (answer.code, type(answer.error)) == (grpc.StatusCode.UNAUTHENTICATED, DeviceRevoked)
    with refused() as answer:
        running.directive(second)
    assert type(answer.error) is DeviceRevoked
    (device,) = running.admin.ListDevices(v1.ListDevicesRequest(tenant_id="dev")).devices
    assert device.HasField("revoked_at")
    assert not device.wipe


def test_a_revoked_device_is_told_to_wipe_by_sync_alone_and_only_once_it_was_ordered(
    running: Running,
) -> None:
    code = running.code()
    registered = running.register(code)
    token = registered.device_token
    assert running.directive(token) == v1.DIRECTIVE_OK
    running.revoke(registered.device_id)
    calls: dict[str, Callable[[], object]] = {
        "RefreshToken": lambda: running.refresh(token),
        "Vectors": lambda: running.device(token).Vectors(v1.VectorsRequest()),
        "RegisterDevice": lambda: running.register(code),
    }
    for name, call in (calls | {"Sync": lambda: running.directive(token)}).items():
        with refused() as answer:
            call()
        assert (answer.code, type(answer.error)) == (grpc.StatusCode.UNAUTHENTICATED, DeviceRevoked), name
    assert running.revoke(registered.device_id, wipe=True).wipe
    assert running.directive(token) == v1.DIRECTIVE_WIPE
    for name, call in calls.items():
        with refused() as answer:
            call()
        assert type(answer.error) is DeviceRevoked, name


def test_a_device_that_was_away_still_hears_that_it_must_wipe(running: Running) -> None:
    code = running.code()
    running.clock.behind = 2 * HOUR_MICROS
    registered = running.register(code)
    running.clock.behind = 0
    running.revoke(registered.device_id, wipe=True)
    assert running.directive(registered.device_token) == v1.DIRECTIVE_WIPE


def is_denied(call: Callable[..., object]) -> bool:
    """Whether the role may not make this call, whatever else is wrong with an empty one."""
    try:
        call(b"", timeout=5)
    except grpc.RpcError as error:
        return isinstance(error, grpc.Call) and error.code() is grpc.StatusCode.PERMISSION_DENIED
    return False


def test_every_credential_calls_what_it_may_and_nothing_else(running: Running) -> None:
    key = running.admin.CreateApiKey(v1.CreateApiKeyRequest(tenant_id="dev", role=v1.ROLE_TENANT_ADMIN))
    credentials = {
        "code": (running.code(), {"RegisterDevice"}),
        "token": (running.register(running.code()).device_token, DEVICES_CALLS),
        "service key": (running.first.service.secret, set()),
        "admin's key": (key.secret, ADMINS_CALLS),
    }
    for name, (credential, allowed) in credentials.items():
        channel = running.channel(credential)
        for service, methods in (
            ("SyncService", {"RegisterDevice", *DEVICES_CALLS}),
            ("TenantAdminService", {"CreateTenant", "ListTenants", *ADMINS_CALLS}),
        ):
            for method in sorted(methods):
                denied = is_denied(channel.unary_unary(f"/scrubjay.v1.{service}/{method}"))
                assert denied is (method not in allowed), (name, method)


def test_a_device_is_one_client_whatever_the_header_says(running: Running) -> None:
    token = running.register(running.code(client_id="phone")).device_token
    assert running.device(token, client_id="phone").Sync(v1.SyncRequest()).directive == v1.DIRECTIVE_OK
    with refused() as answer:
        running.device(token, client_id="desk").Sync(v1.SyncRequest())
    assert (answer.code, answer.fields) == (grpc.StatusCode.INVALID_ARGUMENT, ["scrubjay-client"])
    assert [caller.client_id for caller in running.sync.callers] == ["phone"]


def test_a_wrong_field_is_named_with_what_would_be_right(running: Running) -> None:
    device = running.device(running.code())
    for wrong in (b"", b"i" * 15, b"i" * 17):
        with refused() as answer:
            device.RegisterDevice(v1.RegisterDeviceRequest(installation_id=wrong, display_name="\0"))
        assert answer.fields == ["installation_id", "display_name"]
        assert "16 random ones" in answer.error.message
    with refused() as answer:
        running.admin.CreateApiKey(v1.CreateApiKeyRequest(tenant_id="dev", role=v1.ROLE_DEVICE))
    assert answer.fields == ["role"]
    assert "CreateEnrolment" in answer.error.message


def test_codes_that_are_none_get_one_and_the_same_answer(running: Running) -> None:
    used = running.code()
    running.register(used)
    answers = set()
    for code, installation_id in (
        (used, b"another phone !!"),
        (used[:-1] + ("0" if used[-1] != "0" else "1"), INSTALLATION),
        ("sj_enrol_", INSTALLATION),
    ):
        with refused() as answer:
            running.register(code, installation_id)
        assert answer.code is grpc.StatusCode.UNAUTHENTICATED
        answers.add(answer.details)
    assert len(answers) == 1


def test_another_tenants_admin_meets_no_device_of_this_one(running: Running) -> None:
    device_id = running.register(running.code()).device_id
    running.admin.CreateTenant(v1.CreateTenantRequest(tenant_id="rival"))
    key = running.admin.CreateApiKey(v1.CreateApiKeyRequest(tenant_id="rival", role=v1.ROLE_TENANT_ADMIN))
    rival = v1.TenantAdminServiceStub(running.channel(key.secret))
    assert not rival.ListDevices(v1.ListDevicesRequest(tenant_id="rival")).devices
    for call in (
        lambda tenant_id: rival.CreateEnrolment(
            v1.CreateEnrolmentRequest(tenant_id=tenant_id, user_id="alice")
        ),
        lambda tenant_id: rival.ListDevices(v1.ListDevicesRequest(tenant_id=tenant_id)),
        lambda tenant_id: rival.RevokeDevice(
            v1.RevokeDeviceRequest(tenant_id=tenant_id, device_id=device_id, wipe=True)
        ),
    ):
        with refused() as foreign:
            call("dev")
        with refused() as unknown:
            call("dew")
        assert foreign.code is grpc.StatusCode.NOT_FOUND
        assert foreign.details.replace(b"dev", b"dew") == unknown.details
    with refused() as foreign:
        rival.RevokeDevice(v1.RevokeDeviceRequest(tenant_id="rival", device_id=device_id))
    assert type(foreign.error) is DeviceNotFound
    (device,) = running.admin.ListDevices(v1.ListDevicesRequest(tenant_id="dev")).devices
    assert not device.HasField("revoked_at")


@pytest.mark.parametrize("backend", ["sqlite"])
def test_the_whole_server_lets_a_device_in_and_tells_it_to_wipe(serving: Serving) -> None:
    made = serving.admin.CreateEnrolment(v1.CreateEnrolmentRequest(tenant_id="dev", user_id="alice"))
    code = v1.SyncServiceStub(serving.open_channel(serving.app.address, made.enrolment_code))
    registered = code.RegisterDevice(v1.RegisterDeviceRequest(installation_id=INSTALLATION))
    device = v1.SyncServiceStub(serving.open_channel(serving.app.address, registered.device_token))
    request = v1.SyncRequest(protocol=1, principal=registered.principal)
    serving.dev.add("alice's memory")
    answer = device.Sync(request)
    assert (answer.directive, len(answer.page.changes)) == (v1.DIRECTIVE_OK, 1)
    revoke = v1.RevokeDeviceRequest(tenant_id="dev", device_id=registered.device_id, wipe=True)
    serving.admin.RevokeDevice(revoke)
    answer = device.Sync(request)
    assert answer == v1.SyncResponse(directive=v1.DIRECTIVE_WIPE, server_time=answer.server_time)
