"""A channel to a Scrubjay server: credentials, a deadline and retries on every call.

``connect`` gives a plain ``grpc.Channel`` for the stubs of ``scrubjay.v1``. A call that fails raises
``grpc.RpcError`` as gRPC's calls do; ``from_rpc_error`` gives the error of ``scrubjay.errors`` it stands for.
"""

from __future__ import annotations

import json
import math
import re
import uuid
from collections.abc import Callable, Iterator
from typing import TypeVar

import grpc
from google.protobuf.message import DecodeError, Message
from google.rpc import code_pb2, status_pb2

from scrubjay.errors import MessageTooLarge, ScrubjayError, ServerBusy
from scrubjay.status import STATUS_KEY, from_status
from scrubjay.tls import handshake_failure

CLIENT_KEY = "scrubjay-client"
"""The metadata key that names the client a service key acts for."""

MAX_MESSAGE_BYTES = 4 * 1024 * 1024
"""What a server takes in one message: 100 of the largest memories fit."""
MAX_ANSWER_BYTES = 16 * 1024 * 1024
"""What it may give: 200 hits of the largest memories have 9 MB; pages are cut long before."""

_LOOPBACK = re.compile(r"(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d+)?|unix(-abstract)?:.+")
_PRINTABLE = re.compile(r"[!-~]+")

_RETRIES = {
    "methodConfig": [
        {
            "name": [{}],
            "retryPolicy": {
                "maxAttempts": 5,
                "initialBackoff": "0.1s",
                "maxBackoff": "1s",
                "backoffMultiplier": 2,
                # CANCELLED: gRPC's server had not begun the call when it stopped taking any.
                "retryableStatusCodes": ["UNAVAILABLE", "CANCELLED"],
            },
        },
        # No retries: where a server stops at the wrong moment, gRPC's leave a stream that never ends, not
        # even when it is cancelled (seen with grpcio 1.85). Who reads one begins it again.
        {
            "name": [
                {"service": "scrubjay.v1.MemoryService", "method": "Watch"},
                {"service": "scrubjay.v1.SyncService", "method": "Snapshot"},
                {"service": "scrubjay.v1.SyncService", "method": "Watch"},
                {"service": "scrubjay.v1.TenantAdminService", "method": "ExportSubject"},
                {"service": "scrubjay.v1.TenantAdminService", "method": "DownloadExport"},
            ]
        },
    ],
    # Retries stop while more than about one call in ten fails, so that they never double an overload.
    "retryThrottling": {"maxTokens": 50, "tokenRatio": 0.1},
}
_OPTIONS = (
    ("grpc.service_config", json.dumps(_RETRIES)),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_ANSWER_BYTES),
    # gRPC retries a call only while it holds the whole request; its own bound is 256 KB.
    ("grpc.per_rpc_retry_buffer_size", 2 * MAX_MESSAGE_BYTES),
    # A server that restarts is met again soon; gRPC's own bound is two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 5_000),
    # A dead peer is noticed in 80 seconds while a call waits for it; an idle channel is silent.
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
)

_Request = TypeVar("_Request")
_Answer = TypeVar("_Answer")


def connect(
    target: str,
    api_key: str | Callable[[], str],
    *,
    client_id: str | None = None,
    deadline_seconds: float = 10.0,
    tls: bool | None = None,
    root_certificates: bytes | None = None,
    client_certificate: bytes | None = None,
    client_key: bytes | None = None,
) -> grpc.Channel:
    """A channel to the server at ``target``, such as ``memory.example.com:443``; close it after use.

    Every call carries the key, and ``client_id`` where a service acts for that client. A key that is
    replaced now and then is given as a function, which every call asks for it. A call without a timeout
    gets ``deadline_seconds``; a stream of responses has none, and is never begun again. Another call that
    the server ends UNAVAILABLE or CANCELLED is retried, 5 attempts in all within its deadline. That is safe
    for writes too: a request whose ``request_id`` is empty is sent with a new UUID there, the same in each
    attempt; the caller's own message is left as it is. To repeat a write yourself, give it a ``request_id``
    of your own.

    ``tls=None`` speaks plain text to localhost, 127.0.0.1, [::1] and unix sockets, and TLS to all else.
    ``root_certificates``, in PEM, stand in for the system's, and mean TLS; so do ``client_certificate`` and
    its ``client_key``, for a server that asks its clients for one. Connects on the first call. ValueError
    says which argument is wrong.
    """
    _check_target(target)
    if isinstance(api_key, str):
        _check_printable("api_key", api_key)
    if client_id is not None:
        _check_printable("client_id", client_id)
    if not 0 < deadline_seconds < math.inf:
        raise ValueError(f"deadline_seconds is {deadline_seconds}; give a number of seconds above 0")
    given = _check_certificates(tls, root_certificates, client_certificate, client_key)
    client = () if client_id is None else ((CLIENT_KEY, client_id),)
    if tls or (tls is None and (given or not _LOOPBACK.fullmatch(target))):
        credentials = grpc.ssl_channel_credentials(root_certificates, client_key, client_certificate)
        channel = grpc.secure_channel(target, credentials, options=_OPTIONS)
    else:
        channel = grpc.insecure_channel(target, options=_OPTIONS)
    return grpc.intercept_channel(channel, _Caller(api_key, client, deadline_seconds))


def _check_certificates(tls: bool | None, roots: bytes | None, cert: bytes | None, key: bytes | None) -> bool:
    """Whether any is given."""
    named = {"root_certificates": roots, "client_certificate": cert, "client_key": key}
    given = [name for name, pem in named.items() if pem is not None]
    if given and tls is False:
        raise ValueError(f"{given[0]} is for TLS; leave tls as it is, or give none")
    if (cert is None) != (key is None):
        raise ValueError("client_certificate and client_key go together; give both or neither")
    return bool(given)


def _check_target(target: str) -> None:
    if not target.strip():
        raise ValueError("target is blank; give host:port, such as localhost:7437")
    if re.match(r"https?://", target) or re.search(r"\s", target):
        raise ValueError(f"target is {target!r}; give host:port without a scheme or spaces")


def _check_printable(name: str, value: str) -> None:
    """Headers carry printable ASCII. The value itself is never in the message: it may be a secret."""
    if not value.strip():
        raise ValueError(f"{name} is blank")
    if not _PRINTABLE.fullmatch(value):
        raise ValueError(f"{name} holds white space or a character outside ASCII; give it as it was issued")


class _CallDetails(grpc.ClientCallDetails):
    """Another call's details with more metadata and a timeout of its own."""

    def __init__(
        self, given: grpc.ClientCallDetails, metadata: tuple[tuple[str, str], ...], timeout: float | None
    ) -> None:
        self.method = given.method
        self.timeout = timeout
        self.metadata = (*(given.metadata or ()), *metadata)
        self.credentials = given.credentials
        self.wait_for_ready = given.wait_for_ready
        self.compression = given.compression


class _Caller(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    """What every call of the channel has in common."""

    def __init__(
        self, api_key: str | Callable[[], str], client: tuple[tuple[str, str], ...], deadline_seconds: float
    ) -> None:
        self._api_key = api_key
        self._client = client
        self._deadline_seconds = deadline_seconds

    def intercept_unary_unary(
        self,
        continuation: Callable[[grpc.ClientCallDetails, _Request], _Answer],
        client_call_details: grpc.ClientCallDetails,
        request: _Request,
    ) -> _Answer:
        return continuation(self._with_deadline(client_call_details), _with_request_id(request))

    def intercept_unary_stream(
        self,
        continuation: Callable[[grpc.ClientCallDetails, _Request], _Answer],
        client_call_details: grpc.ClientCallDetails,
        request: _Request,
    ) -> _Answer:
        return continuation(self._open_ended(client_call_details), _with_request_id(request))

    def intercept_stream_unary(
        self,
        continuation: Callable[[grpc.ClientCallDetails, Iterator[_Request]], _Answer],
        client_call_details: grpc.ClientCallDetails,
        request_iterator: Iterator[_Request],
    ) -> _Answer:
        return continuation(self._with_deadline(client_call_details), request_iterator)

    def intercept_stream_stream(
        self,
        continuation: Callable[[grpc.ClientCallDetails, Iterator[_Request]], _Answer],
        client_call_details: grpc.ClientCallDetails,
        request_iterator: Iterator[_Request],
    ) -> _Answer:
        return continuation(self._open_ended(client_call_details), request_iterator)

    def _with_deadline(self, given: grpc.ClientCallDetails) -> _CallDetails:
        timeout = self._deadline_seconds if given.timeout is None else given.timeout
        return _CallDetails(given, self._metadata(), timeout)

    def _open_ended(self, given: grpc.ClientCallDetails) -> _CallDetails:
        return _CallDetails(given, self._metadata(), given.timeout)

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        api_key = self._api_key if isinstance(self._api_key, str) else self._api_key()
        return (("authorization", f"Bearer {api_key}"), *self._client)


def _with_request_id(request: _Request) -> _Request:
    """The request with a ``request_id``, where its message has that field and it is empty.

    A copy is filled: the same message sent twice by a caller is two requests, not a repeat.
    """
    if not isinstance(request, Message) or getattr(request, "request_id", None) != "":
        return request
    filled = type(request)()
    filled.MergeFrom(request)
    filled.request_id = str(uuid.uuid4())  # type: ignore[attr-defined]  # a field of this message
    return filled


def from_rpc_error(error: grpc.RpcError) -> ScrubjayError:
    """What a failed call says, as an error of ``scrubjay.errors``: raise it ``from`` the other.

    An error that gRPC or a proxy made, such as no connection, has the class of its code where there
    is one, and the reason UNSPECIFIED. HandshakeFailed says what TLS lacks.
    """
    if not isinstance(error, grpc.Call):
        return ScrubjayError(str(error))
    code, text = error.code().value[0], error.details() or ""
    if code == code_pb2.UNAVAILABLE and (failed := handshake_failure(text)) is not None:
        return failed
    if code == code_pb2.RESOURCE_EXHAUSTED and "message larger than max" in text:
        return MessageTooLarge(text)
    if code == code_pb2.RESOURCE_EXHAUSTED and "oncurrent RPC limit" in text:
        return ServerBusy("more calls at once than the server takes; retry shortly")
    plain = status_pb2.Status(code=code, message=text)
    for item in error.trailing_metadata() or ():
        if item.key == STATUS_KEY:
            return _decoded(item.value) or from_status(plain)
    return from_status(plain)


def _decoded(packed: bytes) -> ScrubjayError | None:
    try:
        return from_status(status_pb2.Status.FromString(packed))
    except DecodeError:
        return None
