"""Watch through the whole server: devices of one user hear of each other, on one server and on two."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import grpc
import pytest

from rpc.conftest import Serving, Tenant
from rpc.enrolment import enrolled
from rpc.refusal import refused
from scrubjay import connect, v1
from scrubjay.errors import DeviceRevoked, RoleNotAllowed, Unavailable
from scrubjay.feed import open_page
from server import interceptors
from server.app import App
from server.config import Settings
from server.services import watching

PATIENCE = 20


def watch(device: v1.SyncServiceStub, cursor: str = "") -> Any:
    """A stream that has begun."""
    stream = device.Watch(v1.WatchRequest(last_sync_at=cursor), timeout=PATIENCE)
    next(stream)
    return stream


def contents(response: v1.WatchResponse) -> list[str]:
    return [change.memory.content for _, _, change in open_page(response.page)]


def test_a_device_hears_at_once_what_is_written(serving: Serving) -> None:
    phone, _ = enrolled(serving, "phone")
    stream = watch(phone)
    serving.dev.add("Likes tea.")
    first = next(stream)
    assert contents(first) == ["Likes tea."]
    serving.dev.add("Plays chess.")
    second = next(stream)
    assert (contents(second), second.from_sync_at) == (["Plays chess."], first.last_sync_at)
    synced = phone.Sync(v1.SyncRequest(protocol=1, last_sync_at=second.last_sync_at))
    assert (len(synced.page.changes), synced.last_sync_at) == (0, second.last_sync_at)
    stream.cancel()


def test_others_users_and_tenants_are_not_heard(serving: Serving) -> None:
    phone, _ = enrolled(serving, "phone")
    stream = watch(phone)
    serving.dev.add("Bob's.", user_id="bob")
    serving.tenant("other").add("Another alice's.")
    serving.dev.add("Likes tea.")
    assert contents(next(stream)) == ["Likes tea."]
    stream.cancel()


def test_a_backend_may_not_watch(serving: Serving) -> None:
    stub = v1.SyncServiceStub(serving.dev.channel)
    with refused() as answer:
        next(stub.Watch(v1.WatchRequest(), timeout=PATIENCE))
    assert (answer.code, type(answer.error)) == (grpc.StatusCode.PERMISSION_DENIED, RoleNotAllowed)


def test_the_watch_of_a_revoked_device_ends(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interceptors, "RECHECK_SECONDS", 0)
    monkeypatch.setattr(watching, "IDLE_SECONDS", 0.01)
    phone, device_id = enrolled(serving, "phone")
    stream = watch(phone)
    serving.admin.RevokeDevice(v1.RevokeDeviceRequest(tenant_id="dev", device_id=device_id))
    with refused() as answer:
        list(stream)
    assert (answer.code, type(answer.error)) == (grpc.StatusCode.UNAUTHENTICATED, DeviceRevoked)


def test_a_server_that_stops_ends_its_streams_at_once(settings: Settings) -> None:
    with ExitStack() as stack:
        app = stack.enter_context(App(settings))
        first = app.first_credentials
        assert first is not None
        admin = v1.TenantAdminServiceStub(stack.enter_context(connect(app.address, first.admin.secret)))
        request = v1.CreateEnrolmentRequest(tenant_id="dev", user_id="alice")
        code = admin.CreateEnrolment(request).enrolment_code
        register = v1.SyncServiceStub(stack.enter_context(connect(app.address, code)))
        made = register.RegisterDevice(v1.RegisterDeviceRequest(installation_id=b"i" * 16))
        phone = v1.SyncServiceStub(stack.enter_context(connect(app.address, made.device_token)))
        stream = watch(phone)
        began = time.monotonic()
        app.close()
        assert time.monotonic() - began < 10
        with refused() as answer:
            list(stream)
        assert (answer.code, type(answer.error)) == (grpc.StatusCode.UNAVAILABLE, Unavailable)


@pytest.fixture
def two_servers(postgres_url: str, tmp_path: Path) -> Iterator[tuple[Serving, App]]:
    """Two servers on one PostgreSQL database."""

    def settings(name: str) -> Settings:
        return Settings(
            listen="127.0.0.1:0",
            data_dir=tmp_path / name,
            shards=postgres_url,
            pepper="the same pepper on both",
            embedder="hash",
        )

    with ExitStack() as stack:

        def open_channel(target: str, key: str, **options: object) -> grpc.Channel:
            return stack.enter_context(connect(target, key, **options))

        one = stack.enter_context(closing(App(settings("one"))))
        other = stack.enter_context(closing(App(settings("other"))))
        first = one.first_credentials
        assert first is not None
        admin = v1.TenantAdminServiceStub(open_channel(one.address, first.admin.secret))
        channel = open_channel(one.address, first.service.secret)
        dev = Tenant("dev", first.service.secret, channel, v1.MemoryServiceStub(channel))
        yield Serving(one, settings("one"), admin, dev, open_channel), other


def test_a_device_on_one_server_hears_of_a_write_on_another(two_servers: tuple[Serving, App]) -> None:
    serving, other = two_servers
    phone, _ = enrolled(serving, "phone")
    stream = watch(phone)
    channel = serving.open_channel(other.address, serving.dev.key)
    v1.MemoryServiceStub(channel).Add(
        v1.AddRequest(memories=[v1.Memory(user_id="alice", content="Likes tea.")])
    )
    assert contents(next(stream)) == ["Likes tea."]
    stream.cancel()
