"""A server as a device calls it: its token, its patience and its streams, against a scripted server."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import timestamp_pb2
from google.rpc import code_pb2

from client_sync.credentials import DeviceCredentials
from client_sync.errors import ReplicaUnwritable
from client_sync.remote import EARLY_MICROS, Remote
from scrubjay import v1
from scrubjay.errors import (
    CredentialInvalid,
    DeadlineExceeded,
    DeviceRevoked,
    InternalError,
    InvalidField,
    PrincipalMismatch,
    ScrubjayError,
    ServerBusy,
    StorageUnavailable,
    TokenExpired,
    Unavailable,
)
from scrubjay.memory import ClientId, Micros, Subject
from scrubjay.status import to_status
from scrubjay.v1.sync_service_pb2_grpc import SyncServiceServicer, add_SyncServiceServicer_to_server
from scrubjay.wire import to_timestamp
from tests.waiting import patiently

SECONDS = 10.0
HOUR = 3_600_000_000
NOW = Micros(1_795_996_800_000_000)


@dataclass
class Server(SyncServiceServicer):
    """Takes the tokens in ``good``; gives token-2, token-3 and so on. ``failures`` end the next calls."""

    good: set[str] = field(default_factory=lambda: {"token-1"})
    tokens: int = 1
    lifetime: int = HOUR
    failures: list[ScrubjayError] = field(default_factory=list)
    refusal: ScrubjayError | None = None
    calls: list[tuple[str, str]] = field(default_factory=list)
    before_answer: Callable[[], object] = lambda: None
    responses: list[Any] = field(default_factory=list)
    ending: ScrubjayError | None = None
    hold: threading.Event = field(default_factory=threading.Event)
    deadlines: dict[str, float] = field(default_factory=dict)
    target: str = ""

    def _enter(self, rpc: str, context: grpc.ServicerContext) -> None:
        token = str(dict(context.invocation_metadata())["authorization"]).removeprefix("Bearer ")
        self.calls.append((rpc, token))
        self.deadlines[rpc] = context.time_remaining()
        if self.failures:
            refuse(context, self.failures.pop(0))
        if rpc == "RefreshToken":
            if self.refusal is not None:
                refuse(context, self.refusal)
        elif token not in self.good:
            refuse(context, TokenExpired())

    def Sync(self, request: v1.SyncRequest, context: grpc.ServicerContext) -> v1.SyncResponse:
        self._enter("Sync", context)
        self.before_answer()
        return v1.SyncResponse(last_sync_at=f"after {request.last_sync_at}")

    def Reconcile(self, request: Any, context: grpc.ServicerContext) -> v1.ReconcileResponse:
        self._enter("Reconcile", context)
        return v1.ReconcileResponse(behind=True)

    def Reoffer(self, request: Any, context: grpc.ServicerContext) -> v1.ReofferResponse:
        self._enter("Reoffer", context)
        return v1.ReofferResponse(taken_count=3)

    def Vectors(self, request: Any, context: grpc.ServicerContext) -> v1.VectorsResponse:
        self._enter("Vectors", context)
        return v1.VectorsResponse(space="s-1/4")

    def RefreshToken(self, request: Any, context: grpc.ServicerContext) -> v1.RefreshTokenResponse:
        self._enter("RefreshToken", context)
        self.before_answer()
        self.tokens += 1
        token = f"token-{self.tokens}"
        self.good.add(token)
        return v1.RefreshTokenResponse(
            device_token=token, expires_at=to_timestamp(Micros(NOW + self.lifetime))
        )

    def RegisterDevice(self, request: Any, context: grpc.ServicerContext) -> v1.RegisterDeviceResponse:
        self.good.add("sj_enrol_code")
        self._enter("RegisterDevice", context)
        return v1.RegisterDeviceResponse(
            device_id="d-1",
            client_id=request.display_name,
            device_token="token-1",
            expires_at=timestamp_pb2.Timestamp(seconds=5),
            agent_id="helper",
            scopes=["work", "home"],
            principal=request.installation_id[:8],
        )

    def Watch(self, request: Any, context: grpc.ServicerContext) -> Iterator[v1.WatchResponse]:
        self._enter("Watch", context)
        yield from self.responses
        if self.ending is not None:
            refuse(context, self.ending)
        while context.is_active() and not self.hold.wait(0.01):
            pass

    def Snapshot(self, request: Any, context: grpc.ServicerContext) -> Iterator[v1.SnapshotResponse]:
        self._enter("Snapshot", context)
        yield from self.responses

    @property
    def tokens_used(self) -> list[str]:
        return [token for rpc, token in self.calls if rpc != "RefreshToken"]

    @property
    def refreshes(self) -> int:
        return sum(rpc == "RefreshToken" for rpc, _ in self.calls)


def refuse(context: grpc.ServicerContext, error: ScrubjayError) -> None:
    """End the call as the server's door does, and keep gRPC from repeating it by itself."""
    status = to_status(error)
    context.set_trailing_metadata(
        (("grpc-status-details-bin", status.SerializeToString()), ("grpc-retry-pushback-ms", "-1"))
    )
    context.abort(next(each for each in grpc.StatusCode if each.value[0] == status.code), status.message)


@pytest.fixture
def server() -> Iterator[Server]:
    servicer = Server()
    with futures.ThreadPoolExecutor(12) as threads:
        running = grpc.server(threads)
        add_SyncServiceServicer_to_server(servicer, running)
        servicer.target = f"127.0.0.1:{running.add_insecure_port('127.0.0.1:0')}"
        running.start()
        yield servicer
        servicer.hold.set()
        running.stop(0).wait()


@pytest.fixture
def saved(server: Server, tmp_path: Path) -> DeviceCredentials:
    """Credentials with token-1, good for an hour."""
    return DeviceCredentials(
        target=server.target,
        device_id="d-1",
        client_id=ClientId("phone"),
        token="token-1",
        expires_at=Micros(NOW + HOUR),
        principal=b"p" * 8,
        subject=Subject("user", "ann"),
    ).save(tmp_path / "device.json")


@contextmanager
def opened(credentials: DeviceCredentials, **options: Any) -> Iterator[Remote]:
    with Remote(
        credentials.target, credentials, **({"wall": lambda: NOW, "jitter": lambda: 0.0} | options)
    ) as remote:
        yield remote


def on_disk(credentials: DeviceCredentials) -> DeviceCredentials:
    assert credentials.path is not None
    return DeviceCredentials.load(credentials.path)


# --- calls ---------------------------------------------------------------------------------------


def test_every_call_goes_out_with_the_token_and_a_deadline(server: Server, saved: DeviceCredentials) -> None:
    server.responses = [v1.SnapshotResponse(chunk=b"1"), v1.SnapshotResponse(chunk=b"2")]
    with opened(saved) as remote:
        assert remote.sync(v1.SyncRequest(last_sync_at="x")).last_sync_at == "after x"
        assert remote.reconcile(v1.ReconcileRequest()).behind
        assert remote.reoffer(v1.ReofferRequest()).taken_count == 3
        assert remote.vectors(v1.VectorsRequest()).space == "s-1/4"
        assert [part.chunk for part in remote.snapshot(v1.SnapshotRequest())] == [b"1", b"2"]
    assert set(server.tokens_used) == {"token-1"}
    assert server.refreshes == 0
    assert all(seconds < 35 for rpc, seconds in server.deadlines.items() if rpc != "Snapshot")
    assert 500 < server.deadlines["Snapshot"] < 700


def test_a_call_that_takes_too_long_is_an_error_and_not_repeated(
    server: Server, saved: DeviceCredentials
) -> None:
    server.before_answer = lambda: server.hold.wait(SECONDS)
    with opened(saved, deadline_seconds=0.2) as remote, pytest.raises(DeadlineExceeded):
        remote.sync(v1.SyncRequest())
    assert len(server.calls) == 1


@pytest.mark.parametrize("error", [StorageUnavailable(), ServerBusy("full"), Unavailable("away")])
def test_what_may_pass_is_tried_again(server: Server, saved: DeviceCredentials, error: ScrubjayError) -> None:
    error.retry_after_seconds = 0.01
    server.failures = [error, error]
    with opened(saved) as remote:
        assert remote.sync(v1.SyncRequest(last_sync_at="x")).last_sync_at == "after x"
    assert len(server.calls) == 3


@pytest.mark.parametrize("error", [InternalError("a fault"), InvalidField.of("x", "is bad"), DeviceRevoked()])
def test_what_will_not_pass_is_not_tried_again(
    server: Server, saved: DeviceCredentials, error: ScrubjayError
) -> None:
    server.failures = [error]
    with opened(saved) as remote, pytest.raises(type(error)) as raised:
        remote.sync(v1.SyncRequest())
    assert raised.value.message == error.message
    assert len(server.calls) == 1


def test_without_a_budget_a_call_is_tried_once(server: Server, saved: DeviceCredentials) -> None:
    server.failures = [Unavailable("away")] * 3
    with opened(saved, budget_seconds=0.0) as remote, pytest.raises(Unavailable, match="away"):
        remote.sync(v1.SyncRequest())
    assert len(server.calls) == 1


def test_the_budget_bounds_how_long_it_tries(server: Server, saved: DeviceCredentials) -> None:
    error = Unavailable("away")
    error.retry_after_seconds = 0.05
    server.failures = [error] * 1_000
    began = time.monotonic()
    with opened(saved, budget_seconds=0.3) as remote, pytest.raises(Unavailable):
        remote.sync(v1.SyncRequest())
    assert time.monotonic() - began < 2
    assert 2 <= len(server.calls) < 100


@pytest.mark.parametrize("end", [Remote.cancel, Remote.close])
@pytest.mark.parametrize("waits", [True, False])
def test_another_thread_ends_a_call_whether_it_waits_or_is_on_its_way(
    server: Server, saved: DeviceCredentials, end: Callable[[Remote], None], waits: bool
) -> None:
    error = Unavailable("away")
    error.retry_after_seconds = 50.0
    server.failures = [error] if waits else []
    server.before_answer = lambda: server.hold.wait(SECONDS)
    with opened(saved, budget_seconds=100.0) as remote, futures.ThreadPoolExecutor(1) as threads:
        call = threads.submit(remote.sync, v1.SyncRequest())
        eventually(lambda: server.calls)
        end(remote)
        with pytest.raises(ScrubjayError, match="ended on this side") as raised:
            call.result(SECONDS)
        assert raised.value.code == code_pb2.CANCELLED


def test_calls_after_a_cancel_are_taken_again(server: Server, saved: DeviceCredentials) -> None:
    with opened(saved) as remote:
        remote.cancel()
        assert remote.sync(v1.SyncRequest(last_sync_at="x")).last_sync_at == "after x"


eventually = patiently(SECONDS)


# --- the token -----------------------------------------------------------------------------------


def test_a_token_about_to_expire_is_replaced_before_the_call(
    server: Server, saved: DeviceCredentials
) -> None:
    almost = Micros(NOW + HOUR - EARLY_MICROS + 1)
    server.lifetime = 2 * HOUR
    with opened(saved, wall=lambda: almost) as remote:
        remote.sync(v1.SyncRequest())
        remote.sync(v1.SyncRequest())
    assert server.calls == [("RefreshToken", "token-1"), ("Sync", "token-2"), ("Sync", "token-2")]
    assert on_disk(saved) == replace(saved, token="token-2", expires_at=Micros(NOW + 2 * HOUR))


def test_a_refused_token_is_replaced_and_the_call_repeated(server: Server, saved: DeviceCredentials) -> None:
    server.good = set()
    with opened(saved) as remote:
        assert remote.sync(v1.SyncRequest(last_sync_at="x")).last_sync_at == "after x"
        assert remote.credentials.token == "token-2"
    assert server.calls == [("Sync", "token-1"), ("RefreshToken", "token-1"), ("Sync", "token-2")]
    assert on_disk(saved).token == "token-2"


def test_a_clock_that_is_ahead_does_not_replace_the_token_with_every_call(
    server: Server, saved: DeviceCredentials
) -> None:
    with opened(saved, wall=lambda: Micros(NOW + 1_000 * HOUR)) as remote:
        for _ in range(5):
            remote.sync(v1.SyncRequest())
    assert server.refreshes == 1


def test_many_threads_with_an_expired_token_replace_it_once(server: Server, saved: DeviceCredentials) -> None:
    server.good = set()
    with opened(saved) as remote, opened(saved) as other, futures.ThreadPoolExecutor(8) as threads:
        calls = [threads.submit((remote, other)[n % 2].sync, v1.SyncRequest()) for n in range(16)]
        assert len([call.result(SECONDS) for call in calls]) == 16
    assert server.refreshes == 1


def test_a_token_that_another_process_replaced_is_taken_from_the_file(
    server: Server, saved: DeviceCredentials
) -> None:
    server.good = {"token-9"}
    with opened(saved) as remote:
        assert saved.path is not None
        saved.refreshed("token-9", Micros(NOW + HOUR)).save(saved.path)
        remote.sync(v1.SyncRequest())
    assert server.calls == [("Sync", "token-1"), ("Sync", "token-9")]


def test_a_token_from_the_file_that_has_expired_too_is_replaced(
    server: Server, saved: DeviceCredentials
) -> None:
    server.good = set()
    late = Micros(NOW + HOUR)
    with opened(saved, wall=lambda: late) as remote:
        assert saved.path is not None
        saved.refreshed("token-9", Micros(NOW - HOUR)).save(saved.path)
        server.lifetime = 3 * HOUR
        remote.sync(v1.SyncRequest())
    assert server.calls == [("Sync", "token-9"), ("RefreshToken", "token-9"), ("Sync", "token-2")]


def test_a_token_that_could_not_be_saved_is_never_used(
    server: Server, saved: DeviceCredentials, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    server.good = set()
    with opened(saved) as remote:
        with monkeypatch.context() as context:
            context.setattr(os, "fsync", full)
            with pytest.raises(ReplicaUnwritable):
                remote.sync(v1.SyncRequest())
        server.good = set()
        remote.sync(v1.SyncRequest())
    assert server.calls == [
        ("Sync", "token-1"),
        ("RefreshToken", "token-1"),
        ("Sync", "token-1"),
        ("RefreshToken", "token-1"),
        ("Sync", "token-3"),
    ]
    assert on_disk(saved).token == "token-3"


def test_a_file_of_another_account_in_its_place_is_not_used(server: Server, saved: DeviceCredentials) -> None:
    server.good = set()
    with opened(saved) as remote:
        assert saved.path is not None
        replace(saved, token="token-of-bob", principal=b"q" * 8).save(saved.path)
        with pytest.raises(PrincipalMismatch):
            remote.sync(v1.SyncRequest())
    assert "token-of-bob" not in {token for _, token in server.calls}


def test_a_revoked_device_still_hears_what_the_server_wants_of_it(
    server: Server, saved: DeviceCredentials
) -> None:
    server.refusal = DeviceRevoked()
    with opened(saved, wall=lambda: Micros(NOW + HOUR)) as remote:
        assert remote.sync(v1.SyncRequest(last_sync_at="wipe?")).last_sync_at == "after wipe?"
        remote.sync(v1.SyncRequest())
    assert server.refreshes == 1


def test_an_expired_token_that_may_not_be_replaced_is_an_error(
    server: Server, saved: DeviceCredentials
) -> None:
    server.good, server.refusal = set(), DeviceRevoked()
    with opened(saved) as remote, pytest.raises(DeviceRevoked):
        remote.sync(v1.SyncRequest())
    assert server.calls == [("Sync", "token-1"), ("RefreshToken", "token-1")]
    assert on_disk(saved) == saved


def test_credentials_must_be_in_a_file(saved: DeviceCredentials) -> None:
    with pytest.raises(ValueError, match="save them first"):
        Remote(saved.target, replace(saved, path=None))


# --- streams -------------------------------------------------------------------------------------


def test_a_stream_gives_its_responses_and_then_its_error(server: Server, saved: DeviceCredentials) -> None:
    server.responses = [v1.WatchResponse(last_sync_at=text) for text in "abc"]
    server.ending = StorageUnavailable()
    with opened(saved) as remote:
        stream = remote.watch(v1.WatchRequest())
        assert [next(stream).last_sync_at for _ in range(3)] == ["a", "b", "c"]
        with pytest.raises(StorageUnavailable):
            next(stream)
    assert server.deadlines["Watch"] is None or server.deadlines["Watch"] > 1e6


def test_a_stream_with_an_expired_token_begins_again_with_the_next(
    server: Server, saved: DeviceCredentials
) -> None:
    server.good = set()
    server.responses = [v1.WatchResponse(last_sync_at="a")]
    with opened(saved) as remote:
        assert next(remote.watch(v1.WatchRequest())).last_sync_at == "a"
    assert server.calls == [("Watch", "token-1"), ("RefreshToken", "token-1"), ("Watch", "token-2")]


def test_a_token_that_expires_in_the_middle_of_a_stream_ends_it(
    server: Server, saved: DeviceCredentials
) -> None:
    server.responses = [v1.WatchResponse(last_sync_at="a")]
    server.ending = TokenExpired()
    with opened(saved) as remote:
        stream = remote.watch(v1.WatchRequest())
        next(stream)
        with pytest.raises(TokenExpired):
            next(stream)
    assert server.refreshes == 0


def test_another_thread_ends_a_stream_that_waits(server: Server, saved: DeviceCredentials) -> None:
    server.responses = [v1.WatchResponse(last_sync_at="a")]
    with opened(saved) as remote:
        stream = remote.watch(v1.WatchRequest())
        got: list[list[str]] = []
        thread = threading.Thread(target=lambda: got.append([each.last_sync_at for each in stream]))
        thread.start()
        eventually(lambda: server.calls)
        stream.close()
        thread.join(SECONDS)
        assert not thread.is_alive()
        stream.close()
        assert list(stream) == []
    assert got in ([["a"]], [[]])


def test_a_stream_that_was_closed_before_it_began_never_begins(
    server: Server, saved: DeviceCredentials
) -> None:
    with opened(saved) as remote:
        stream = remote.watch(v1.WatchRequest())
        stream.close()
        assert list(stream) == []
    assert server.calls == []


def test_closing_the_remote_ends_its_streams(server: Server, saved: DeviceCredentials) -> None:
    server.responses = [v1.WatchResponse(last_sync_at="a")]
    with opened(saved) as remote:
        stream = remote.watch(v1.WatchRequest())
        next(stream)
        remote.close()
        with pytest.raises(ScrubjayError):
            next(stream)


# --- coming in -----------------------------------------------------------------------------------


def test_registering_gives_the_credentials_of_the_device(server: Server) -> None:
    credentials = Remote.register(
        server.target, "sj_enrol_code", display_name="Telefon", installation_id=b"i" * 16
    )
    assert credentials == DeviceCredentials(
        target=server.target,
        device_id="d-1",
        client_id=ClientId("Telefon"),
        token="token-1",
        expires_at=Micros(5_000_000),
        principal=b"i" * 8,
        subject=Subject("agent", "helper"),
        scopes=("work", "home"),
    )
    assert server.calls == [("RegisterDevice", "sj_enrol_code")]


def test_a_code_that_is_refused_is_an_error(server: Server) -> None:
    server.failures = [CredentialInvalid()]
    with pytest.raises(CredentialInvalid):
        Remote.register(server.target, "sj_enrol_code", installation_id=b"i" * 16)
