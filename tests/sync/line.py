"""The line between a device and the server, in process: it carries messages as bytes, and breaks.

It loses requests and answers, repeats and delays them, garbles them, and lets others act between a request
and its answer. What passes is shown to the world, which judges it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from google.protobuf.message import Message

from scrubjay import v1
from scrubjay.errors import InternalError, Unavailable
from tenants.tenant import Caller
from tests.sync.crash import Crash

if TYPE_CHECKING:
    from tests.sync.device import Device
    from tests.sync.world import World

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)

OK = "ok"
REQUEST_LOST = "request lost"
REQUEST_DELAYED = "request delayed"
ANSWER_LOST = "answer lost"
ANSWER_GARBLED = "answer garbled"
REPEATED = "request repeated"
SERVER_FAILS = "server fails to commit"
SERVER_DIES = "server dies after commit"
DEVICE_DIES = "device dies before the answer"
OTHERS_WRITE = "others write meanwhile"
APP_WRITES = "the app writes meanwhile"
ANOTHER_PROCESS = "another process synchronizes meanwhile"

FAULTS = (
    OK,
    REQUEST_LOST,
    REQUEST_DELAYED,
    ANSWER_LOST,
    ANSWER_GARBLED,
    REPEATED,
    SERVER_FAILS,
    SERVER_DIES,
    DEVICE_DIES,
    OTHERS_WRITE,
    APP_WRITES,
    ANOTHER_PROCESS,
)

MAX_EXCHANGES = 200
"""No device needs as many for the few memories here: a synchronize that goes on is one that does not end."""


class NeverEnds(AssertionError):
    """A device keeps calling without getting anywhere."""


@dataclass(slots=True)
class Line:
    """One device's line. ``plan`` are the faults of the next exchanges; behind it all is well."""

    world: World
    device: Device
    plan: deque[str] = field(default_factory=deque)
    exchanges: int = 0

    # --- RemoteSync -------------------------------------------------------------------------------

    def sync(self, request: v1.SyncRequest) -> v1.SyncResponse:
        """See RemoteSync."""
        return self._exchange("Sync", request, self.world.serve_sync)

    def reconcile(self, request: v1.ReconcileRequest) -> v1.ReconcileResponse:
        """See RemoteSync."""
        return self._exchange("Reconcile", request, self.world.serve_reconcile)

    def reoffer(self, request: v1.ReofferRequest) -> v1.ReofferResponse:
        """See RemoteSync."""
        return self._exchange("Reoffer", request, self.world.serve_reoffer)

    def vectors(self, request: v1.VectorsRequest) -> v1.VectorsResponse:
        """See RemoteSync."""
        return self._exchange("Vectors", request, self.world.serve_vectors)

    def snapshot(self, request: v1.SnapshotRequest) -> Iterator[v1.SnapshotResponse]:
        """See RemoteSync."""
        yield from self._stream("Snapshot", request, self.world.serve_snapshot)

    def watch(self, request: v1.WatchRequest) -> Generator[v1.WatchResponse, None, None]:
        """See RemoteSync."""
        yield from self._stream("Watch", request, self.world.serve_watch)

    # --- how it breaks ----------------------------------------------------------------------------

    def _next(self) -> str:
        self.exchanges += 1
        if self.exchanges > MAX_EXCHANGES:
            raise NeverEnds(f"{self.device.name} made {MAX_EXCHANGES} calls in one synchronize")
        fault = self.plan.popleft() if self.plan else OK
        self.world.events[fault] += 1
        return fault

    def _exchange(
        self, rpc: str, request: Request, serve: Callable[[Device, Caller, Request], Response]
    ) -> Response:
        caller = self.device.caller
        sent = _copied(request)
        self.world.request_leaves(self.device, rpc, sent)
        fault = self._next()
        if fault == REQUEST_LOST:
            raise Unavailable("the request was lost")
        if fault == REQUEST_DELAYED:
            if isinstance(sent, v1.SyncRequest):
                self.world.delayed.append((self.device, caller, sent))
            raise Unavailable("the request is late")
        if fault == SERVER_FAILS:
            with self.world.server.failing_commits():
                serve(self.device, caller, sent)
            raise Unavailable("nothing was committed")  # where there was nothing to commit
        if fault == OTHERS_WRITE:
            self.world.others_write(self.device)
        answer = serve(self.device, caller, sent)
        if fault == REPEATED:
            answer = serve(self.device, caller, _copied(request))
        if fault == SERVER_DIES:
            self.world.server.crash()
            raise Unavailable("the server died")
        if fault == ANSWER_LOST:
            raise Unavailable("the answer was lost")
        if fault == ANSWER_GARBLED:
            raise InternalError("the answer can't be read")
        if fault == DEVICE_DIES:
            self.device.disk.crash(power=False)
            raise Crash
        if fault == APP_WRITES:
            self.world.app_writes(self.device)
        if fault == ANOTHER_PROCESS:
            self.world.another_process(self.device)
        return _copied(answer)

    def _stream(
        self, rpc: str, request: Request, serve: Callable[[Device, Caller, Request], Iterable[Response]]
    ) -> Iterator[Response]:
        caller = self.device.caller
        sent = _copied(request)
        self.world.request_leaves(self.device, rpc, sent)
        fault = self._next()
        if fault in (REQUEST_LOST, REQUEST_DELAYED, SERVER_FAILS):
            raise Unavailable("the request was lost")
        for number, answer in enumerate(serve(self.device, caller, sent)):
            if fault == ANSWER_LOST or (number == 1 and fault == ANSWER_GARBLED):
                raise Unavailable("the stream was cut")
            if fault == SERVER_DIES:
                self.world.server.crash()
                raise Unavailable("the server died")
            if fault == DEVICE_DIES and number == 1:
                self.device.disk.crash(power=False)
                raise Crash
            if fault == OTHERS_WRITE and number == 0:
                self.world.others_write(self.device)
            if fault == APP_WRITES and number == 0:
                self.world.app_writes(self.device)
            yield _copied(answer)


def _copied(message: Request) -> Request:
    """The message as it comes out of its bytes."""
    return type(message).FromString(message.SerializeToString())
