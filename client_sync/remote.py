"""A server as one device calls it, over gRPC."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Generic, Protocol, Self, TypeVar

import grpc
from google.rpc import code_pb2

from client_sync.backoff import full_jitter
from client_sync.credentials import DeviceCredentials
from client_sync.device_clock import wall_micros
from client_sync.errors import TransferBroken
from client_sync.file_lock import locked
from scrubjay import v1
from scrubjay.channel import connect, from_rpc_error
from scrubjay.errors import (
    DeviceRevoked,
    InternalError,
    InvalidField,
    PrincipalMismatch,
    ScrubjayError,
    ServerBusy,
    TokenExpired,
    Unavailable,
)
from scrubjay.feed import unpack
from scrubjay.memory import ClientId, Micros, subject_of
from scrubjay.wire import from_timestamp

if TYPE_CHECKING:
    from scrubjay.v1.sync_service_pb2_grpc import SyncServiceStub

DEADLINE_SECONDS = 30.0
"""Of one call: 512 KiB down at 200 kbit/s, or 1 000 new memories that a model must read first."""
SNAPSHOT_SECONDS = 600.0
"""Of one stream of a snapshot; the next goes on where it ended."""
BUDGET_SECONDS = 10.0
"""How long a call is tried again while the server does not take it: as long as one needs to restart."""
EARLY_MICROS = 300 * 1_000_000
"""A token is replaced this long before it expires, which saves a refused call."""

_FIRST_SECONDS, _LONGEST_SECONDS = 0.5, 5.0

_Request = TypeVar("_Request")
_Response = TypeVar("_Response")
_Given = TypeVar("_Given", covariant=True)


class _Call:
    """One call, in as many attempts as it takes. ``end`` ends it from another thread."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._cancel: Callable[[], object] = lambda: None

    def end(self) -> None:
        """End it; may come at any moment."""
        self._ended.set()
        self._cancel()

    def attempt(
        self, method: grpc.UnaryUnaryMultiCallable[_Request, _Response], request: _Request, timeout: float
    ) -> _Response:
        """The response; ScrubjayError where there is none."""
        attempt = method.future(request, timeout=timeout)
        self._cancel = attempt.cancel
        if self._ended.is_set():  # before there was anything to cancel
            attempt.cancel()
        try:
            return attempt.result()
        except grpc.FutureCancelledError:
            raise _ended_here() from None
        except grpc.RpcError as error:
            raise _ended_here() if self._ended.is_set() else from_rpc_error(error) from error

    def wait(self, seconds: float) -> None:
        """Wait for the next attempt; ScrubjayError where the call ends before."""
        if self._ended.wait(seconds):
            raise _ended_here()


def _ended_here() -> ScrubjayError:
    return ScrubjayError.decoded(
        "the call was ended on this side", code=code_pb2.CANCELLED, reason=v1.ERROR_REASON_UNSPECIFIED
    )


class _Calls:
    """Calls with a deadline each, tried again within a budget while the server does not take them."""

    def __init__(self, deadline_seconds: float, budget_seconds: float, jitter: Callable[[], float]) -> None:
        self._deadline_seconds = deadline_seconds
        self._budget_seconds = budget_seconds
        self._jitter = jitter
        self._lock = threading.Lock()
        self._going_on: set[_Call] = set()

    def call(self, method: grpc.UnaryUnaryMultiCallable[_Request, _Response], request: _Request) -> _Response:
        """The method's response, or the ScrubjayError of its last attempt."""
        call = _Call()
        with self._lock:
            self._going_on.add(call)
        try:
            return self._persist(call, method, request)
        finally:
            with self._lock:
                self._going_on.discard(call)

    def _persist(
        self, call: _Call, method: grpc.UnaryUnaryMultiCallable[_Request, _Response], request: _Request
    ) -> _Response:
        ends_at = time.monotonic() + self._budget_seconds
        attempt = 0
        while True:
            try:
                return call.attempt(method, request, self._deadline_seconds)
            except (Unavailable, ServerBusy) as error:
                delay = full_jitter(attempt, _FIRST_SECONDS, _LONGEST_SECONDS, self._jitter)
                delay += error.retry_after_seconds or 0.0
                if time.monotonic() + delay > ends_at:
                    raise
            call.wait(delay)
            attempt += 1

    def cancel(self) -> None:
        """End those that go on now."""
        with self._lock:
            going_on = tuple(self._going_on)
        for call in going_on:
            call.end()


class Remote:
    """SyncService with one device's token, which it replaces by itself; a ``RemoteSync``.

    Safe for many threads; other processes may use the same credentials' file at once. Connects on the first
    call, and is closed by its owner. Each call gets ``deadline_seconds``, and is tried again for
    ``budget_seconds`` while the server does not take it. ``jitter`` gives 0 to 1. ValueError where the target
    or the credentials cannot be right.
    """

    def __init__(
        self,
        target: str,
        credentials: DeviceCredentials,
        *,
        tls: bool | None = None,
        root_certificates: bytes | None = None,
        client_certificate: bytes | None = None,
        client_key: bytes | None = None,
        deadline_seconds: float = DEADLINE_SECONDS,
        budget_seconds: float = BUDGET_SECONDS,
        wall: Callable[[], Micros] = wall_micros,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        if credentials.path is None:
            raise ValueError(
                "the credentials are in no file yet; save them first: a lost token ends the device"
            )
        self._path = credentials.path
        self._credentials = credentials
        self._wall = wall
        self._refreshing = threading.Lock()
        self._early = True
        self._calls = _Calls(deadline_seconds, budget_seconds, jitter)
        self._channel = connect(
            target,
            lambda: self._credentials.token,
            tls=tls,
            root_certificates=root_certificates,
            client_certificate=client_certificate,
            client_key=client_key,
        )
        self._stub: SyncServiceStub = v1.SyncServiceStub(self._channel)

    @staticmethod
    def register(
        target: str,
        enrolment_code: str,
        *,
        display_name: str = "",
        installation_id: bytes,
        tls: bool | None = None,
        root_certificates: bytes | None = None,
        client_certificate: bytes | None = None,
        client_key: bytes | None = None,
    ) -> DeviceCredentials:
        """Turn an enrolment code into this device's credentials, to be saved at once.

        ``installation_id`` is 16 random bytes, kept until the credentials are saved: with it a repeat gives
        the same device. Raises CredentialInvalid, DeviceRevoked and others of ScrubjayError.
        """
        request = v1.RegisterDeviceRequest(installation_id=installation_id, display_name=display_name)
        with connect(
            target,
            enrolment_code,
            tls=tls,
            root_certificates=root_certificates,
            client_certificate=client_certificate,
            client_key=client_key,
        ) as channel:
            stub: SyncServiceStub = v1.SyncServiceStub(channel)
            calls = _Calls(DEADLINE_SECONDS, BUDGET_SECONDS, random.random)
            response = calls.call(stub.RegisterDevice, request)
        return _credentials(target, response)

    @property
    def credentials(self) -> DeviceCredentials:
        """The newest that are known here."""
        return self._credentials

    def close(self) -> None:
        """End every call that is still going on. May be called again; nothing may be called after it."""
        self.cancel()
        self._channel.close()

    def cancel(self) -> None:
        """End the calls, of any thread, that go on now; streams go on."""
        self._calls.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- RemoteSync -------------------------------------------------------------------------------

    def sync(self, request: v1.SyncRequest) -> v1.SyncResponse:
        """See RemoteSync."""
        request.accept_packed_results = True
        response = self._call(self._stub.Sync, request)
        if response.packed_results:
            response.results.extend(_unpacked(response.packed_results))
        return response

    def reconcile(self, request: v1.ReconcileRequest) -> v1.ReconcileResponse:
        """See RemoteSync."""
        return self._call(self._stub.Reconcile, request)

    def reoffer(self, request: v1.ReofferRequest) -> v1.ReofferResponse:
        """See RemoteSync."""
        return self._call(self._stub.Reoffer, request)

    def vectors(self, request: v1.VectorsRequest) -> v1.VectorsResponse:
        """See RemoteSync."""
        return self._call(self._stub.Vectors, request)

    def snapshot(self, request: v1.SnapshotRequest) -> Stream[v1.SnapshotResponse]:
        """See RemoteSync."""
        return Stream(self, lambda: self._stub.Snapshot(request, timeout=SNAPSHOT_SECONDS))

    def watch(self, request: v1.WatchRequest) -> Stream[v1.WatchResponse]:
        """See RemoteSync."""
        return Stream(self, lambda: self._stub.Watch(request))

    def _call(
        self, method: grpc.UnaryUnaryMultiCallable[_Request, _Response], request: _Request
    ) -> _Response:
        used = self.fresh_token()
        try:
            return self._calls.call(method, request)
        except TokenExpired:
            self.replace_token(used)
            return self._calls.call(method, request)

    # --- the token --------------------------------------------------------------------------------

    def fresh_token(self) -> str:
        """The token that the next call uses, replaced where it is about to expire."""
        if self._early and self._credentials.expires_at - self._wall() < EARLY_MICROS:
            try:
                self.replace_token(self._credentials.token)
            except DeviceRevoked:
                self._early = False  # what the server wants of this device, its answer to the call says
        return self._credentials.token

    def replace_token(self, used: str) -> None:
        """Go on from the token ``used`` to the next one, once over all threads and processes."""
        with self._refreshing, locked(self._path):
            newest = DeviceCredentials.load(self._path)
            if newest.principal != self._credentials.principal:
                raise PrincipalMismatch
            if newest.token == used:
                newest = self._refresh(newest)
            self._credentials = newest
            # A clock that is ahead sees every token expire at once: then refused calls say when.
            self._early = newest.expires_at - self._wall() >= EARLY_MICROS

    def _refresh(self, credentials: DeviceCredentials) -> DeviceCredentials:
        """The credentials with their next token, which is on disk before any call can use it."""
        self._credentials = credentials
        response = self._calls.call(self._stub.RefreshToken, v1.RefreshTokenRequest())
        return credentials.refreshed(response.device_token, from_timestamp(response.expires_at)).save(
            self._path
        )


def _unpacked(packed_results: bytes) -> Sequence[v1.OperationResult]:
    try:
        return unpack(v1.Results, "packed_results", packed_results).results
    except InvalidField as error:
        raise TransferBroken(
            f"the server's results can't be read ({error}); they are asked for again"
        ) from error


class _Responses(Protocol[_Given]):
    """What grpc gives for a call that streams."""

    def __next__(self) -> _Given: ...

    def cancel(self) -> object: ...


class Stream(Generic[_Response]):
    """The responses of one call as they come. A failure is a ScrubjayError; ``close`` ends it in silence.

    ``close`` may be called from another thread while this one waits for the next response.
    """

    def __init__(self, remote: Remote, begin: Callable[[], _Responses[_Response]]) -> None:
        self._remote = remote
        self._begin = begin
        self._lock = threading.Lock()
        self._closed = False
        self._call: _Responses[_Response] | None = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> _Response:
        if self._call is not None:
            return self._next(self._call)
        used = self._remote.fresh_token()
        try:
            return self._next(self._begun())
        except TokenExpired:
            self._remote.replace_token(used)
            return self._next(self._begun())

    def _begun(self) -> _Responses[_Response]:
        with self._lock:
            if self._closed:
                raise StopIteration
            self._call = self._begin()
            return self._call

    def _next(self, call: _Responses[_Response]) -> _Response:
        try:
            return next(call)
        except grpc.RpcError as error:
            if self._closed:
                raise StopIteration from None
            raise from_rpc_error(error) from error

    def close(self) -> None:
        """End the stream. May be called again."""
        with self._lock:
            self._closed = True
            if self._call is not None:
                self._call.cancel()


def _credentials(target: str, response: v1.RegisterDeviceResponse) -> DeviceCredentials:
    subject = subject_of(response.user_id, response.agent_id, response.run_id)
    if subject is None:
        raise InternalError("the server registered this device for nobody; enrol it again")
    return DeviceCredentials(
        target=target,
        device_id=response.device_id,
        client_id=ClientId(response.client_id),
        token=response.device_token,
        expires_at=from_timestamp(response.expires_at),
        principal=response.principal,
        subject=subject,
        scopes=tuple(response.scopes),
    )
