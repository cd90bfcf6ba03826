"""Streams through the door: bounded, ended promptly from both ends, and only for who still may."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from rpc.refusal import refused
from scrubjay import connect, v1
from scrubjay.errors import CredentialInvalid, CursorAhead, InternalError, ServerBusy, Unavailable
from scrubjay.memory import ClientId, Micros, Subject
from server import interceptors
from server.ending import Ending
from server.interceptors import Door
from server.services import sync_service
from server.slots import STREAMS_PER_KEY, Slots
from tenants.tenant import Caller, DeviceBinding, Incarnation, Role, Tenant, TenantState

PATIENCE = 20
TENANT = Tenant("acme", "", Incarnation("1" * 36), TenantState.ACTIVE, "shard-0", "space", Micros(0))
ALICE = Subject("user", "alice")


class Devices:
    """Every key is a device's, until it is revoked."""

    def __init__(self) -> None:
        self.revoked: set[str] = set()
        self.scopes: tuple[str, ...] = ()
        self.looks = 0

    def forget(self, _incarnation: Incarnation) -> None:
        """Nothing is kept."""

    def authenticate(self, key: str, _now: Micros) -> Caller:
        self.looks += 1
        if key in self.revoked:
            raise CredentialInvalid
        return Caller(Role.DEVICE, key, ClientId("phone"), TENANT, DeviceBinding(key, ALICE, self.scopes))


class Service:
    """A Watch that says what its test lets it, and a Sync that waits."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.open = 0
        self.waiting = 0
        self.go = threading.Event()
        self.says: Callable[[Ending], Iterator[v1.WatchResponse]] = self.until_it_ends

    def watch(self, request: v1.WatchRequest, _caller: Caller, ending: Ending) -> Iterator[v1.WatchResponse]:
        self._count(1)
        try:
            yield v1.WatchResponse(last_sync_at=request.last_sync_at)
            yield from self.says(ending)
        finally:
            self._count(-1)

    def _count(self, more: int) -> None:
        with self.changed:
            self.open += more
            self.changed.notify_all()

    def are_open(self, count: int) -> None:
        """Wait until so many streams are open."""
        with self.changed:
            assert self.changed.wait_for(lambda: self.open == count, PATIENCE), self.open

    @staticmethod
    def until_it_ends(ending: Ending) -> Iterator[v1.WatchResponse]:
        over = threading.Event()
        ending.on_end(over.set)
        assert over.wait(PATIENCE)
        yield from ()

    def sync(self, _request: v1.SyncRequest, _caller: Caller) -> v1.SyncResponse:
        with self.changed:
            self.waiting += 1
            self.changed.notify_all()
        assert self.go.wait(PATIENCE)
        return v1.SyncResponse(commit_stamp=7)

    def __getattr__(self, name: str) -> Callable[..., object]:
        return lambda *_given: None


class Running:
    """A real server of that service."""

    def __init__(self, stack: ExitStack, **slots: int) -> None:
        self._stack = stack
        self.devices, self.service = Devices(), Service()
        self.slots = Slots(**{"handlers": 2, "queued": 2, "streams": 3, **slots})
        door = Door(self.devices, sync_service.ALLOWED, self.slots)
        pool = stack.enter_context(ThreadPoolExecutor(self.slots.threads))
        self.server = grpc.server(pool, maximum_concurrent_rpcs=self.slots.calls)
        descriptor = v1.sync_service_pb2.DESCRIPTOR.services_by_name["SyncService"]
        self.server.add_generic_rpc_handlers((door.handlers(descriptor, self.service),))
        self.address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.server.start()
        stack.callback(lambda: self.server.stop(None).wait())
        stack.callback(self.service.go.set)
        self.calls = stack.enter_context(ThreadPoolExecutor(16))

    def device(self, key: str = "device") -> v1.SyncServiceStub:
        return v1.SyncServiceStub(self._stack.enter_context(connect(self.address, key)))

    def watch(self, key: str = "device") -> Any:
        """A stream that has begun."""
        stream = self.device(key).Watch(v1.WatchRequest(last_sync_at=key))
        assert next(stream).last_sync_at == key
        return stream

    def sync(self, key: str = "device") -> Future[v1.SyncResponse]:
        """A Sync under way."""
        stub = self.device(key)
        return self.calls.submit(lambda: stub.Sync(v1.SyncRequest(), timeout=PATIENCE))

    def are_waiting(self, count: int) -> None:
        """Wait until so many Syncs are in the service."""
        with self.service.changed:
            assert self.service.changed.wait_for(lambda: self.service.waiting == count, PATIENCE)


@pytest.fixture
def running() -> Iterator[Running]:
    with ExitStack() as stack:
        yield Running(stack)


def test_a_stream_sends_what_its_method_yields_and_ends_with_it(running: Running) -> None:
    running.service.says = lambda _ending: iter([v1.WatchResponse(commit_stamp=n) for n in range(3)])
    assert [one.commit_stamp for one in running.watch()] == [0, 1, 2]
    running.service.are_open(0)


def test_what_a_stream_raises_becomes_one_status(running: Running) -> None:
    def ahead(_ending: Ending) -> Iterator[v1.WatchResponse]:
        yield v1.WatchResponse(commit_stamp=1)
        raise CursorAhead

    running.service.says = ahead
    stream = running.watch()
    assert next(stream).commit_stamp == 1
    with refused() as answer:
        next(stream)
    assert (answer.code, type(answer.error)) == (grpc.StatusCode.FAILED_PRECONDITION, CursorAhead)


def test_a_fault_tells_its_request_id_alone(running: Running) -> None:
    def broken(_ending: Ending) -> Iterator[v1.WatchResponse]:
        raise ZeroDivisionError("secret")
        yield

    running.service.says = broken
    stream = running.watch()
    with refused() as answer:
        next(stream)
    assert (answer.code, type(answer.error)) == (grpc.StatusCode.INTERNAL, InternalError)
    assert b"secret" not in answer.details
    assert answer.error.metadata["request_id"]


def test_a_stream_that_its_reader_leaves_ends_at_once(running: Running) -> None:
    stream = running.watch()
    running.service.are_open(1)
    began = time.monotonic()
    stream.cancel()
    running.service.are_open(0)
    assert time.monotonic() - began < 5


def test_streams_beyond_their_slots_are_refused_and_leave_unary_calls_their_threads(
    running: Running,
) -> None:
    streams = [running.watch(f"device-{n}") for n in range(3)]
    with refused() as answer:
        next(running.device("another").Watch(v1.WatchRequest()))
    assert (answer.code, type(answer.error)) == (grpc.StatusCode.RESOURCE_EXHAUSTED, ServerBusy)
    assert answer.error.retry_after_seconds == ServerBusy.retry_after_seconds
    running.service.go.set()
    assert [running.sync().result(PATIENCE).commit_stamp for _ in range(4)] == [7] * 4
    streams[0].cancel()
    running.service.are_open(2)
    assert running.watch("another") is not None


def test_unary_calls_beyond_their_slots_wait_and_then_are_refused(running: Running) -> None:
    running.watch()
    calls = [running.sync(f"device-{n}") for n in range(5)]
    (refusal,) = wait(calls, PATIENCE, FIRST_COMPLETED).done
    with refused() as answer:
        refusal.result()
    assert (answer.code, type(answer.error)) == (grpc.StatusCode.RESOURCE_EXHAUSTED, ServerBusy)
    running.are_waiting(2)
    running.service.go.set()
    assert [call.result(PATIENCE).commit_stamp for call in calls if call is not refusal] == [7] * 4


def test_a_stream_ends_once_its_credential_is_revoked(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interceptors, "RECHECK_SECONDS", 0)
    running.service.says = _signs_of_life
    stream = running.watch()
    assert next(stream).commit_stamp == 1
    running.devices.revoked.add("device")
    with refused() as answer:
        list(stream)
    assert (answer.code, type(answer.error)) == (grpc.StatusCode.UNAUTHENTICATED, CredentialInvalid)
    running.service.are_open(0)


def test_a_stream_ends_once_its_credential_stands_for_something_else(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interceptors, "RECHECK_SECONDS", 0)
    running.service.says = _signs_of_life
    stream = running.watch()
    running.devices.scopes = ("work",)
    with refused() as answer:
        list(stream)
    assert (answer.code, type(answer.error)) == (grpc.StatusCode.UNAVAILABLE, Unavailable)


def test_a_credential_is_looked_at_now_and_then_and_not_with_every_response(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = itertools.count()
    clock = SimpleNamespace(monotonic=lambda: next(seconds), time_ns=time.time_ns)
    monkeypatch.setattr(interceptors, "time", clock)
    running.service.says = lambda _ending: iter([v1.WatchResponse()] * 100)
    assert len(list(running.watch())) == 100
    assert running.devices.looks == 2 + 3, "a new key is looked at twice: first for whose it is"


def _signs_of_life(ending: Ending) -> Iterator[v1.WatchResponse]:
    while not ending.over:
        yield v1.WatchResponse(commit_stamp=1)


def test_a_credential_with_too_many_streams_loses_its_oldest() -> None:
    with ExitStack() as stack:
        running = Running(stack, streams=STREAMS_PER_KEY + 2)
        other = running.watch("other")
        streams = [running.watch() for _ in range(STREAMS_PER_KEY + 1)]
        with refused() as answer:
            next(streams[0])
        assert (answer.code, type(answer.error)) == (grpc.StatusCode.RESOURCE_EXHAUSTED, ServerBusy)
        running.service.are_open(STREAMS_PER_KEY + 1)
        for stream in (other, *streams[1:]):
            stream.cancel()
        running.service.are_open(0)
        assert running.slots._living == {}


def test_streams_end_at_once_when_the_server_stops_and_calls_finish(running: Running) -> None:
    stream, call = running.watch(), running.sync()
    running.are_waiting(1)
    began = time.monotonic()
    running.slots.stop()
    with refused() as answer:
        next(stream)
    assert (answer.code, type(answer.error)) == (grpc.StatusCode.UNAVAILABLE, Unavailable)
    with refused() as late:
        next(running.device().Watch(v1.WatchRequest(), timeout=PATIENCE))
    assert late.code is grpc.StatusCode.UNAVAILABLE
    stopped = running.server.stop(PATIENCE)
    running.service.go.set()
    assert call.result(PATIENCE).commit_stamp == 7
    assert stopped.wait(PATIENCE)
    assert time.monotonic() - began < 5
