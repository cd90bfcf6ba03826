"""What a channel adds to every call, and what a failed call comes back as."""

from __future__ import annotations

import base64
import inspect
import socket
import threading
import urllib.parse
import uuid
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, TypeVar

import grpc
import pytest
from google.rpc import code_pb2, error_details_pb2, status_pb2

import scrubjay
from scrubjay import errors, v1
from scrubjay.channel import MAX_ANSWER_BYTES, MAX_MESSAGE_BYTES, from_rpc_error
from scrubjay.errors import FieldViolation, ScrubjayError
from scrubjay.status import MAX_VIOLATIONS, from_status, to_status
from scrubjay.v1.memory_service_pb2_grpc import MemoryServiceServicer, add_MemoryServiceServicer_to_server

KEY = "sj_live_abc_secret"
_Response = TypeVar("_Response")


@dataclass
class Call:
    """One call as the server met it."""

    request: Any
    metadata: dict[str, str]
    remaining_seconds: float


@dataclass
class Server(MemoryServiceServicer):
    """Writes down what it is asked. ``refuse`` ends a call by raising through its context."""

    calls: list[Call] = field(default_factory=list)
    refuse: Callable[[grpc.ServicerContext], None] = lambda context: None
    answer_bytes: int = 0
    target: str = ""

    def Add(self, request: v1.AddRequest, context: grpc.ServicerContext) -> v1.AddResponse:
        return self._answer(request, context, v1.AddResponse(revision="r"))

    def Search(self, request: v1.SearchRequest, context: grpc.ServicerContext) -> v1.SearchResponse:
        return self._answer(request, context, v1.SearchResponse(recipe="x" * self.answer_bytes))

    def _answer(self, request: Any, context: grpc.ServicerContext, response: _Response) -> _Response:
        metadata = {key: str(value) for key, value in context.invocation_metadata()}
        self.calls.append(Call(request, metadata, context.time_remaining()))
        self.refuse(context)
        return response


@pytest.fixture
def server() -> Iterator[Server]:
    servicer = Server()
    running = grpc.server(futures.ThreadPoolExecutor(4))
    add_MemoryServiceServicer_to_server(servicer, running)
    servicer.target = f"127.0.0.1:{running.add_insecure_port('127.0.0.1:0')}"
    running.start()
    yield servicer
    running.stop(0).wait()


@contextmanager
def memories(server: Server, **options: Any) -> Iterator[v1.MemoryServiceStub]:
    with scrubjay.connect(server.target, KEY, **options) as channel:
        yield v1.MemoryServiceStub(channel)


def refuse_with(error: ScrubjayError, *, retry: bool = True) -> Callable[[grpc.ServicerContext], None]:
    """Ends a call as the server's door does; ``retry=False`` forbids gRPC to send it again."""

    def refuse(context: grpc.ServicerContext) -> None:
        status = to_status(error)
        trailers: list[tuple[str, str | bytes]] = [("grpc-status-details-bin", status.SerializeToString())]
        if not retry:
            trailers.append(("grpc-retry-pushback-ms", "-1"))
        context.set_trailing_metadata(tuple(trailers))
        abort(context, status.code, status.message)

    return refuse


def abort(context: grpc.ServicerContext, code: int, text: str) -> None:
    context.abort(next(each for each in grpc.StatusCode if each.value[0] == code), text)


def failure(stub: v1.MemoryServiceStub) -> ScrubjayError:
    with pytest.raises(grpc.RpcError) as raised:
        stub.Search(v1.SearchRequest(user_id="ann", query="tea"))
    return from_rpc_error(raised.value)


# --- metadata and deadlines ----------------------------------------------------------------------


def test_every_call_carries_the_key_and_the_client_it_acts_for(server: Server) -> None:
    with memories(server, client_id="phone-1") as stub:
        stub.Add(v1.AddRequest(), metadata=(("x-mine", "kept"),))
        stub.Search(v1.SearchRequest())
    for call in server.calls:
        assert call.metadata["authorization"] == f"Bearer {KEY}"
        assert call.metadata["scrubjay-client"] == "phone-1"
    assert server.calls[0].metadata["x-mine"] == "kept"


def test_a_key_that_is_replaced_is_asked_for_with_every_call(server: Server) -> None:
    keys = iter(("first", "second"))
    with scrubjay.connect(server.target, lambda: next(keys)) as channel:
        stub = v1.MemoryServiceStub(channel)
        stub.Add(v1.AddRequest())
        stub.Search(v1.SearchRequest())
    assert [call.metadata["authorization"] for call in server.calls] == ["Bearer first", "Bearer second"]


def test_no_client_is_named_where_none_is_given(server: Server) -> None:
    with memories(server) as stub:
        stub.Add(v1.AddRequest())
    assert "scrubjay-client" not in server.calls[0].metadata


def test_a_call_has_the_default_deadline_unless_it_brings_its_own(server: Server) -> None:
    with memories(server, deadline_seconds=7.0) as stub:
        stub.Add(v1.AddRequest())
        stub.Add(v1.AddRequest(), timeout=70.0)
    default, own = (call.remaining_seconds for call in server.calls)
    assert 5 < default < 8
    assert 60 < own < 80


def test_a_stream_of_responses_has_no_deadline_and_carries_the_key() -> None:
    seen: list[tuple[float | None, dict[str, Any]]] = []

    def watch(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        seen.append((context.time_remaining(), dict(context.invocation_metadata())))
        yield request

    running = grpc.server(futures.ThreadPoolExecutor(1))
    handler = grpc.unary_stream_rpc_method_handler(watch)
    running.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("some.Service", {"Watch": handler}),)
    )
    port = running.add_insecure_port("127.0.0.1:0")
    running.start()
    with scrubjay.connect(f"127.0.0.1:{port}", KEY) as channel:
        assert list(channel.unary_stream("/some.Service/Watch")(b"once")) == [b"once"]
    running.stop(0).wait()
    ((remaining, metadata),) = seen
    assert metadata["authorization"] == f"Bearer {KEY}"
    assert remaining is None or remaining > 1e6


# --- request ids and retries ---------------------------------------------------------------------


def test_an_empty_request_id_is_filled_in_the_message_that_is_sent(server: Server) -> None:
    request = v1.AddRequest(memories=[v1.Memory(user_id="ann", content="likes tea")])
    with memories(server) as stub:
        stub.Add(request)
        stub.Add(request)
    first, second = (call.request for call in server.calls)
    assert str(uuid.UUID(first.request_id)) == first.request_id != second.request_id
    assert first.memories == request.memories
    assert request.request_id == ""


def test_a_request_id_of_the_callers_own_is_kept(server: Server) -> None:
    with memories(server) as stub:
        stub.Add(v1.AddRequest(request_id="mine"))
    assert server.calls[0].request.request_id == "mine"


def test_every_rpc_that_writes_has_a_request_id() -> None:
    from scrubjay.v1 import memory_service_pb2, tenant_service_pb2

    services = [
        *memory_service_pb2.DESCRIPTOR.services_by_name.values(),
        *tenant_service_pb2.DESCRIPTOR.services_by_name.values(),
    ]
    without = {
        method.name
        for service in services
        for method in service.methods
        if "request_id" not in method.input_type.fields_by_name
    }
    reading = {
        *("Get", "BatchGet", "List", "Search", "ExplainMiss", "Context", "History", "Watch"),
        *("GetOperation", "ListOperations", "WaitOperation", "ListEntities", "ListRelations"),
        *("GetTenantOperation", "ListTenantOperations", "WaitTenantOperation"),
        *(
            "GetTenant",
            "GetUsage",
            "ListTenants",
            "ListApiKeys",
            "ListDevices",
            "ListShards",
            "ListAuditEvents",
            "VerifyAuditEvents",
        ),
        *("ExportSubject", "DownloadExport"),
    }
    assert without == reading | {"UploadImport"}  # which says where its part belongs


@pytest.mark.parametrize("content_bytes", [10, 1_000_000])
def test_an_unavailable_write_is_sent_again_with_the_same_request_id(
    server: Server, content_bytes: int
) -> None:
    def refuse_twice(context: grpc.ServicerContext) -> None:
        if len(server.calls) <= 2:
            refuse_with(errors.StorageUnavailable())(context)

    server.refuse = refuse_twice
    with memories(server) as stub:
        assert stub.Add(v1.AddRequest(memories=[v1.Memory(content="x" * content_bytes)])).revision == "r"
    assert len(server.calls) == 3
    assert len({call.request.request_id for call in server.calls}) == 1
    assert server.calls[0].request == server.calls[2].request


def test_a_call_gives_up_after_five_attempts(server: Server) -> None:
    server.refuse = refuse_with(errors.StorageUnavailable())
    with memories(server) as stub:
        assert isinstance(failure(stub), errors.StorageUnavailable)
    assert len(server.calls) == 5


def test_retries_end_while_nothing_succeeds(server: Server) -> None:
    server.refuse = refuse_with(errors.StorageUnavailable())
    with memories(server) as stub:
        started = [stub.Search.future(v1.SearchRequest()) for _ in range(8)]
        assert all(isinstance(call.exception(), grpc.RpcError) for call in started)
        before = len(server.calls)
        failure(stub)
    assert len(server.calls) - before == 1


@pytest.mark.parametrize(
    "error", [errors.InternalError("a fault"), errors.EtagMismatch("m"), errors.ServerBusy("b")]
)
def test_another_failure_is_not_sent_again(server: Server, error: ScrubjayError) -> None:
    server.refuse = refuse_with(error)
    with memories(server) as stub:
        failure(stub)
    assert len(server.calls) == 1


def test_a_stream_is_never_begun_again_by_grpc() -> None:
    """Its retries can leave a stream that neither ends nor can be cancelled."""
    begun: list[str] = []

    def refuse(path: str) -> Callable[[bytes, grpc.ServicerContext], Iterator[bytes]]:
        def stream(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
            begun.append(path)
            context.abort(grpc.StatusCode.UNAVAILABLE, "away")
            yield b""

        return stream

    files = [getattr(v1, name).DESCRIPTOR for name in dir(v1) if name.endswith("_service_pb2")]
    services = [service for file in files for service in file.services_by_name.values()]
    streams = {
        (service.full_name, method.name)
        for service in services
        for method in service.methods
        if method.server_streaming
    }
    running = grpc.server(futures.ThreadPoolExecutor(1))
    for service, method in streams:
        handler = grpc.unary_stream_rpc_method_handler(refuse(method))
        running.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
    port = running.add_insecure_port("127.0.0.1:0")
    running.start()
    with scrubjay.connect(f"127.0.0.1:{port}", KEY) as channel:
        for service, method in streams:
            with pytest.raises(grpc.RpcError):
                next(channel.unary_stream(f"/{service}/{method}")(b""))
    running.stop(0).wait()
    assert sorted(begun) == sorted(method for _, method in streams)


def test_a_client_finds_a_server_that_starts_after_its_first_call() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with scrubjay.connect(f"127.0.0.1:{port}", KEY) as channel:
        stub = v1.MemoryServiceStub(channel)
        assert isinstance(failure(stub), errors.Unavailable)
        running = grpc.server(futures.ThreadPoolExecutor(1))
        add_MemoryServiceServicer_to_server(Server(), running)
        running.add_insecure_port(f"127.0.0.1:{port}")
        running.start()
        assert stub.Search(v1.SearchRequest(), wait_for_ready=True, timeout=9) == v1.SearchResponse()
        running.stop(0).wait()


# --- what a failed call says ---------------------------------------------------------------------


def instance(kind: type[ScrubjayError]) -> ScrubjayError:
    """An error of a class, by the constructor it has."""
    if issubclass(kind, errors.InvalidField):
        return kind([FieldViolation("query", "is blank; give a text"), FieldViolation("top_k", "is 201")])
    if issubclass(kind, errors.RateLimited):
        return kind(1.5)
    if issubclass(kind, errors.QuotaExceeded):
        return kind("api_keys", 3, "acme")
    given = inspect.signature(kind).parameters.values()
    needed = [one for one in given if one.kind is one.POSITIONAL_OR_KEYWORD and one.default is one.empty]
    return kind(*["named-by-the-test"] * len(needed))


def kinds(parent: type[ScrubjayError]) -> list[type[ScrubjayError]]:
    """Every class below ``parent`` that this package declares."""
    children = [
        child for child in parent.__subclasses__() if child.__module__.startswith(f"{errors.__name__}.")
    ]
    return [*children, *(below for child in children for below in kinds(child))]


@pytest.mark.parametrize("kind", kinds(ScrubjayError))
def test_an_error_comes_back_over_the_wire_as_it_was_raised(
    server: Server, kind: type[ScrubjayError]
) -> None:
    raised = instance(kind)
    raised.metadata["request_id"] = "r-1"
    server.refuse = refuse_with(raised, retry=False)
    with memories(server) as stub:
        got = failure(stub)
    assert type(got) is kind
    assert (got.code, got.reason, got.message) == (raised.code, raised.reason, raised.message)
    assert str(got) == str(raised)
    assert got.metadata == raised.metadata
    assert got.field_violations == raised.field_violations
    assert got.quota_violations == raised.quota_violations
    assert got.retry_after_seconds == raised.retry_after_seconds


def test_every_reason_of_the_contract_has_one_class() -> None:
    reasons = [kind.reason for kind in kinds(ScrubjayError) if "reason" in vars(kind)]
    assert sorted(reasons) == sorted(set(v1.ErrorReason.values()) - {v1.ERROR_REASON_UNSPECIFIED})


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (code_pb2.INVALID_ARGUMENT, errors.InvalidField),
        (code_pb2.UNAUTHENTICATED, errors.CredentialInvalid),
        (code_pb2.PERMISSION_DENIED, errors.RoleNotAllowed),
        (code_pb2.NOT_FOUND, errors.NotFound),
        (code_pb2.DEADLINE_EXCEEDED, errors.DeadlineExceeded),
        (code_pb2.UNIMPLEMENTED, errors.UnknownMethod),
        (code_pb2.INTERNAL, errors.InternalError),
        (code_pb2.RESOURCE_EXHAUSTED, ScrubjayError),
        (code_pb2.DATA_LOSS, ScrubjayError),
    ],
)
def test_an_error_without_details_has_the_class_of_its_code(
    server: Server, code: int, kind: type[ScrubjayError]
) -> None:
    server.refuse = lambda context: abort(context, code, "said a proxy")
    with memories(server) as stub:
        got = failure(stub)
    assert type(got) is kind
    assert (got.code, got.reason, got.message) == (code, v1.ERROR_REASON_UNSPECIFIED, "said a proxy")


def test_damaged_details_leave_the_code_and_the_message(server: Server) -> None:
    def refuse(context: grpc.ServicerContext) -> None:
        context.set_trailing_metadata((("grpc-status-details-bin", b"\xff\xff"),))
        abort(context, code_pb2.NOT_FOUND, "gone")

    server.refuse = refuse
    with memories(server) as stub:
        got = failure(stub)
    assert (type(got), got.message) == (errors.NotFound, "gone")


@pytest.mark.parametrize(
    "info",
    [
        error_details_pb2.ErrorInfo(reason="MEMORY_NOT_FOUND", domain="example.com"),
        error_details_pb2.ErrorInfo(reason="A_REASON_OF_NEXT_YEAR", domain="scrubjay", metadata={"k": "v"}),
    ],
)
def test_an_unknown_reason_has_the_class_of_its_code(info: error_details_pb2.ErrorInfo) -> None:
    status = status_pb2.Status(code=code_pb2.NOT_FOUND, message="no")
    status.details.add().Pack(info)
    got = from_status(status)
    assert (type(got), got.reason) == (errors.NotFound, v1.ERROR_REASON_UNSPECIFIED)
    assert got.metadata == dict(info.metadata)


def test_no_server_is_an_unavailable_error_of_no_reason() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with scrubjay.connect(f"127.0.0.1:{port}", KEY) as channel:
        got = failure(v1.MemoryServiceStub(channel))
    assert (type(got), got.reason) == (errors.Unavailable, v1.ERROR_REASON_UNSPECIFIED)
    assert "127.0.0.1" in got.message


def test_a_passed_deadline_is_an_error_of_its_own(server: Server) -> None:
    ended = threading.Event()

    def refuse(context: grpc.ServicerContext) -> None:
        ended.wait(5)

    server.refuse = refuse
    with memories(server, deadline_seconds=0.1) as stub:
        assert isinstance(failure(stub), errors.DeadlineExceeded)
    ended.set()


def test_a_message_past_the_limit_is_refused_on_both_ways(server: Server) -> None:
    with memories(server) as stub:
        with pytest.raises(grpc.RpcError) as raised:
            stub.Add(v1.AddRequest(memories=[v1.Memory(content="x" * MAX_MESSAGE_BYTES)]))
        assert isinstance(from_rpc_error(raised.value), errors.MessageTooLarge)
        assert server.calls == []
        server.answer_bytes = MAX_ANSWER_BYTES
        assert isinstance(failure(stub), errors.MessageTooLarge)


# --- the bounds of a status ----------------------------------------------------------------------

WIDE = "界" * 5_000
LARGE_ERRORS = [
    errors.MemoryNotFound(WIDE),
    errors.InternalError(WIDE, metadata={f"key-{number}": WIDE for number in range(50)}),
    errors.InvalidField([FieldViolation(f"memories[{number}].{WIDE}", WIDE) for number in range(100)]),
    errors.InvalidField([FieldViolation(f"memories[{number}]", "is wrong") for number in range(100)]),
    errors.InternalError("\ud800"),
    errors.QuotaExceeded(WIDE, 3, WIDE),
]


@pytest.mark.parametrize("error", LARGE_ERRORS, ids=range(len(LARGE_ERRORS)))
def test_the_trailers_of_any_error_stay_below_8_kb(server: Server, error: ScrubjayError) -> None:
    status = to_status(error, {"request_id": "r" * 5_000})
    packed = status.SerializeToString()
    assert len(urllib.parse.quote(status.message)) + len(base64.b64encode(packed)) < 8_000
    server.refuse = refuse_with(error)
    with memories(server) as stub:
        got = failure(stub)
    assert type(got) is type(error)
    assert len(got.field_violations) <= MAX_VIOLATIONS


def test_a_long_text_is_cut_between_characters() -> None:
    status = to_status(errors.InternalError("a" + WIDE))
    assert status.message[0] == "a"
    assert set(status.message[1:-1]) == {"界"}
    assert status.message.endswith("…")


def test_many_violations_keep_the_first_ones(server: Server) -> None:
    got = from_status(to_status(LARGE_ERRORS[3]))
    assert [v.field for v in got.field_violations] == [
        f"memories[{number}]" for number in range(MAX_VIOLATIONS)
    ]


# --- arguments -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"target": ""}, "target is blank"),
        ({"target": " "}, "target is blank"),
        ({"target": "https://example.com"}, "without a scheme"),
        ({"target": "local host:1"}, "spaces"),
        ({"api_key": ""}, "api_key is blank"),
        ({"api_key": "\n"}, "api_key is blank"),
        ({"api_key": "secret secret"}, "api_key holds white space"),
        ({"api_key": "secret\n"}, "api_key holds white space"),
        ({"api_key": "sécret"}, "outside ASCII"),
        ({"client_id": ""}, "client_id is blank"),
        ({"client_id": "电话"}, "client_id holds"),
        ({"deadline_seconds": 0.0}, "above 0"),
        ({"deadline_seconds": float("nan")}, "above 0"),
        ({"deadline_seconds": float("inf")}, "above 0"),
        ({"tls": False, "root_certificates": b"pem"}, "is for TLS"),
        ({"client_key": b"pem"}, "go together"),
        ({"client_certificate": b"pem", "tls": True}, "go together"),
    ],
)
def test_a_wrong_argument_is_refused_by_name(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said) as raised:
        scrubjay.connect(**{"target": "localhost:7437", "api_key": KEY} | arguments)
    assert "secret" not in str(raised.value)


ROOTS = files("grpc").joinpath("_cython/_credentials/roots.pem").read_bytes()


@pytest.mark.parametrize(
    ("host", "options", "tls"),
    [
        ("127.0.0.1", {}, False),
        ("localhost", {}, False),
        ("0.0.0.0", {}, True),  # reaches this machine, and is no name of loopback
        ("0.0.0.0", {"tls": False}, False),
        ("127.0.0.1", {"tls": True}, True),
        ("127.0.0.1", {"root_certificates": ROOTS}, True),
    ],
)
def test_what_leaves_the_machine_is_encrypted(host: str, options: dict[str, Any], tls: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(10)
        target = f"{host}:{listener.getsockname()[1]}"
        with scrubjay.connect(target, KEY, **options) as channel:
            call = v1.MemoryServiceStub(channel).Search.future(v1.SearchRequest(), timeout=10)
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(10)
                first = connection.recv(3)
            call.cancel()
    assert first == (b"\x16\x03\x01" if tls else b"PRI")
