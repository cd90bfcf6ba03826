"""One tenant floods the server from 64 callers; none of another one's calls is refused."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from itertools import islice

import grpc
import pytest

from rpc.conftest import Serving
from rpc.conftest import Tenant as Calling
from scrubjay import connect, v1
from scrubjay.channel import from_rpc_error
from scrubjay.errors import ServerBusy
from scrubjay.memory import ClientId, Micros, Subject
from server.config import Settings
from server.ending import Ending
from server.interceptors import Door
from server.services import sync_service
from server.slots import Slots
from tenants.tenant import Caller, DeviceBinding, Incarnation, Role, Tenant, TenantState

CALLERS = 64
CALLS = 20


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Few handlers and a short queue, so that the flood is more than the server takes."""
    return settings.model_copy(update={"handler_threads": 4, "queued_calls": 16})


class Flood:
    """What became of a flood's calls."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.begun = threading.Semaphore(0)
        self.answered = 0
        self.errors: list[Exception] = []
        self._lock = threading.Lock()

    def call(self, call: Callable[[], object]) -> None:
        """Call again and again until it is over."""
        while not self.over.is_set():
            try:
                call()
            except grpc.RpcError as error:
                self._count(from_rpc_error(error))
            else:
                self._count(None)

    def _count(self, error: Exception | None) -> None:
        with self._lock:
            if error is None:
                self.answered += 1
            else:
                self.errors.append(error)
        self.begun.release()


@contextmanager
def flood(call: Callable[[], object]) -> Iterator[Flood]:
    flood = Flood()
    with ThreadPoolExecutor(CALLERS) as pool:
        for _ in range(CALLERS):
            pool.submit(flood.call, call)
        try:
            for _ in range(CALLERS):
                assert flood.begun.acquire(timeout=20)
            yield flood
        finally:
            flood.over.set()


def calls_of(tenant: Calling) -> dict[str, Callable[[], object]]:
    return {
        "Add": lambda: tenant.add("bread, a letter and the garden"),
        "Search": lambda: tenant.memories.Search(v1.SearchRequest(user_id="alice", query="bread")),
    }


@pytest.mark.parametrize("kind", ["Add", "Search"])
def test_none_of_a_quiet_tenants_calls_is_refused_beside_a_flood(serving: Serving, kind: str) -> None:
    quiet = serving.tenant("quiet")
    calls = calls_of(quiet)
    calls["Add"]()
    with flood(calls_of(serving.dev)[kind]) as flooding:
        for _ in range(CALLS):
            calls["Add"]()
            calls["Search"]()
    assert flooding.answered + len(flooding.errors) >= CALLERS
    assert all(type(error) is ServerBusy for error in flooding.errors)
    assert all(error.retry_after_seconds for error in flooding.errors if isinstance(error, ServerBusy))


class Keys:
    """Every key is a device's of the tenant that it names before the dash."""

    def forget(self, _incarnation: Incarnation) -> None:
        """Nothing is kept."""

    def authenticate(self, key: str, _now: Micros) -> Caller:
        name = key.partition("-")[0]
        tenant = Tenant(name, "", Incarnation(name), TenantState.ACTIVE, "shard-0", "space", Micros(0))
        device = DeviceBinding(key, Subject("user", "alice"), ())
        return Caller(Role.DEVICE, key, ClientId("phone"), tenant, device)


class Slow:
    """A service whose calls end when they are let."""

    def __init__(self) -> None:
        self.go = threading.Event()

    def sync(self, _request: v1.SyncRequest, caller: Caller) -> v1.SyncResponse:
        if caller.key_id.startswith("flooding"):
            assert self.go.wait(20)
        return v1.SyncResponse()

    def __getattr__(self, name: str) -> Callable[..., object]:
        return lambda *_given: None


def served(stack: ExitStack, slots: Slots, service: object) -> str:
    """Where a server of that service serves, until the stack is closed."""
    pool = stack.enter_context(ThreadPoolExecutor(slots.threads))
    server = grpc.server(pool, maximum_concurrent_rpcs=slots.calls)
    descriptor = v1.sync_service_pb2.DESCRIPTOR.services_by_name["SyncService"]
    door = Door(Keys(), sync_service.ALLOWED, slots)
    server.add_generic_rpc_handlers((door.handlers(descriptor, service),))
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    stack.callback(lambda: server.stop(None).wait())
    return address


def test_slow_calls_of_one_tenant_leave_slots_to_others_and_are_refused_first() -> None:
    slots, slow = Slots(handlers=4, queued=16, streams=1), Slow()
    with ExitStack() as stack:
        address = served(stack, slots, slow)
        stack.callback(slow.go.set)

        def sync(key: str) -> v1.SyncResponse:
            with connect(address, key) as channel:
                return v1.SyncServiceStub(channel).Sync(v1.SyncRequest(), timeout=20)

        pool = stack.enter_context(ThreadPoolExecutor(CALLERS))
        flood = [pool.submit(sync, "flooding-0") for _ in range(4 + 16 + 10)]
        refused = list(islice(as_completed(flood, 20), 10))
        for _ in range(CALLS):
            sync("quiet-0")
        assert sum(call.done() for call in flood) == len(refused)
        slow.go.set()
        for call in refused:
            with pytest.raises(grpc.RpcError) as caught:
                call.result()
            error = from_rpc_error(caught.value)
            assert (type(error), error.retry_after_seconds) == (ServerBusy, ServerBusy.retry_after_seconds)
        assert all(call.result(20) == v1.SyncResponse() for call in {*flood} - {*refused})


class Watched:
    """A service whose streams send once and then go on until they are let."""

    def __init__(self) -> None:
        self.go = threading.Event()

    def watch(
        self, _request: v1.WatchRequest, _caller: Caller, _ending: Ending
    ) -> Iterator[v1.WatchResponse]:
        yield v1.WatchResponse()
        assert self.go.wait(20)

    def __getattr__(self, name: str) -> Callable[..., object]:
        return lambda *_given: None


def test_one_tenants_streams_leave_some_to_others() -> None:
    slots, watched = Slots(handlers=4, queued=4, streams=4), Watched()
    with ExitStack() as stack:
        address = served(stack, slots, watched)
        stack.callback(watched.go.set)

        def watch(key: str) -> Iterator[v1.WatchResponse]:
            channel = stack.enter_context(connect(address, key))
            stream: Iterator[v1.WatchResponse] = v1.SyncServiceStub(channel).Watch(
                v1.WatchRequest(), timeout=20
            )
            assert next(stream) == v1.WatchResponse()
            return stream

        streams = [watch(f"flooding-{number}") for number in range(4)]
        with pytest.raises(grpc.RpcError) as caught:
            watch("flooding-4")
        error = from_rpc_error(caught.value)
        assert (type(error), error.retry_after_seconds) == (ServerBusy, ServerBusy.retry_after_seconds)
        streams.append(watch("quiet-0"))
