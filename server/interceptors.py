"""The door's checks, in one place: size, slot, credential, role, deadline, rate, errors.

A service's method is ``method(request, caller)``, of a call that may wait ``method(request, caller,
patience)``, and of a stream ``method(request, caller, ending)``, which yields responses. This turns every
call's bytes into its request, its credential into a Caller, and whatever is raised into one status with one
ErrorInfo. An RPC without a policy entry is denied.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn, Protocol

import grpc
from google.protobuf import descriptor, message_factory
from google.protobuf.message import DecodeError, Message

from scrubjay.channel import CLIENT_KEY, MAX_ANSWER_BYTES, MAX_MESSAGE_BYTES
from scrubjay.errors import (
    CredentialInvalid,
    DeadlineExceeded,
    DeviceRevoked,
    InternalError,
    InvalidField,
    MessageTooLarge,
    RoleNotAllowed,
    ScrubjayError,
    TenantDeleting,
    TenantSuspended,
    TokenExpired,
    Unavailable,
)
from scrubjay.memory import ClientId, Micros
from scrubjay.status import STATUS_KEY, to_status
from scrubjay.validity import name_violation
from server.ending import Ending
from server.passage import Passage
from server.patience import Patience
from server.rates import CallLimits
from server.slots import Slots
from server.store.fence import TenantMoving
from tenants.tenant import API_KEY_ROLES, Caller, Incarnation, Role, TenantState
from tenants.usage import UsageCounter

TRANSPORT_BYTES = MAX_ANSWER_BYTES
"""gRPC itself cuts off here, both ways, with a status that has no reason; a request between
MAX_MESSAGE_BYTES and this is answered with one."""

RECHECK_SECONDS = 30
"""How old a stream's last look at its credential may be when it sends. Streams send at least every 30
seconds, so one whose credential was revoked ends within a minute."""

OPENED_AGAIN = frozenset({"Watch"})
"""Streams without an end of their own, which clients open again where they end, and tell nobody."""

NOBODY = ""
"""Whose slots calls take to be authenticated, where their keys were not seen before."""
MAX_KNOWN_KEYS = 50_000
"""Some 10 MB. Then all are forgotten, and remembered as they call again."""

log = logging.getLogger("scrubjay.door")

Method = Callable[[Any, Caller], Message | bytes]
WaitingMethod = Callable[[Any, Caller, Patience], Message | bytes]
StreamingMethod = Callable[[Any, Caller, Ending], Iterable[Message]]
Handler = Callable[[bytes, grpc.ServicerContext], bytes]
StreamingHandler = Callable[[bytes, grpc.ServicerContext], Iterator[bytes]]


class Authenticator(Protocol):
    """Turns a key into the caller it stands for."""

    def authenticate(self, key: str, now: Micros) -> Caller:
        """The caller; CredentialInvalid where the key is unknown, revoked or expired."""

    def forget(self, incarnation: Incarnation) -> None:
        """Read again what the credentials of a tenant stand for."""


class Door:
    """Makes gRPC handlers of a service's methods. ``slots`` bounds the calls of all of them together.

    ``waiting`` are the RPCs whose methods may wait for work that takes long. ``limits`` says who calls too
    often, and ``usage`` counts what is called. ``passage`` is the way to tenants that move.
    """

    def __init__(
        self,
        authenticator: Authenticator,
        allowed: Mapping[str, frozenset[Role]],
        slots: Slots,
        waiting: Collection[str] = (),
        limits: CallLimits | None = None,
        usage: UsageCounter | None = None,
        passage: Passage | None = None,
    ) -> None:
        self._authenticator = authenticator
        self._allowed = allowed
        self._slots = slots
        self._waiting = frozenset(waiting)
        self._tenants = _Tenants()
        self._limits = limits or CallLimits()
        self._usage = usage or UsageCounter()
        self._passage = passage or Passage({}, lambda _: None)

    def handlers(
        self, service: descriptor.ServiceDescriptor, implementation: object
    ) -> grpc.GenericRpcHandler:
        """Handlers of every RPC of ``service``; the implementation has a snake_case method for each."""
        return grpc.method_handlers_generic_handler(
            service.full_name, {rpc.name: self._of(rpc, implementation) for rpc in service.methods}
        )

    def _of(
        self, rpc: descriptor.MethodDescriptor, implementation: object
    ) -> grpc.RpcMethodHandler[Any, Any]:
        path = f"/{rpc.containing_service.full_name}/{rpc.name}"
        request_type = message_factory.GetMessageClass(rpc.input_type)
        method = getattr(implementation, method_name(rpc.name))
        if rpc.server_streaming:
            return grpc.unary_stream_rpc_method_handler(self._streaming_handler(path, request_type, method))
        waits = path in self._waiting
        return grpc.unary_unary_rpc_method_handler(self._handler(path, request_type, method, waits))

    def _handler(
        self, path: str, request_type: type[Message], method: Method | WaitingMethod, waits: bool
    ) -> Handler:
        slots, tenants, count = self._slots.handler, self._tenants, self._usage.count_call
        rpc = path.rpartition("/")[2]
        call: Callable[..., Message | bytes] = method

        def handle(body: bytes, context: grpc.ServicerContext) -> bytes:
            caller: Caller | None = None
            try:
                metadata = _metadata(context)
                tenant = tenants.of(_key(metadata)) or self._introduced(path, context, metadata)
                slots.take(tenant)
                try:
                    caller = self._caller(path, context, metadata)
                    self._limits.admit(caller)
                    patience = Patience(self._slots, context, tenant)
                    further = (patience,) if waits else ()
                    look = partial(self._caller, path, context, metadata)
                    answer = self._carried_out(
                        lambda caller: call(_parse(request_type, body), caller, *further),
                        *(caller, look, patience),
                    )
                    encoded = answer if isinstance(answer, bytes) else answer.SerializeToString()
                    count(caller, rpc, len(body), len(encoded))
                    return encoded
                finally:
                    slots.give_back(tenant)
            except Exception as error:
                if caller is not None:
                    count(caller, rpc, len(body), 0, refused=1)
                _refuse(context, error, path)

        return handle

    def _carried_out(
        self,
        call: Callable[[Caller], Message | bytes],
        caller: Caller,
        look: Callable[[], Caller],
        patience: Patience,
    ) -> Message | bytes:
        """What the call answers; where its tenant moves meanwhile, what it answers once that has."""
        while True:
            try:
                with self._passage.crossing(caller.tenant):
                    return call(caller)
            except TenantMoving as error:
                caller = self._moved(error, look, patience)

    def _introduced(self, path: str, context: grpc.ServicerContext, metadata: Mapping[str, str]) -> str:
        """Whose key it is that calls for the first time, looked up in a slot of nobody's."""
        self._slots.handler.take(NOBODY)
        try:
            self._caller(path, context, metadata)
        finally:
            self._slots.handler.give_back(NOBODY)
        return self._tenants.of(_key(metadata))

    def _streaming_handler(
        self, path: str, request_type: type[Message], method: StreamingMethod
    ) -> StreamingHandler:
        count, rpc = self._usage.count_call, path.rpartition("/")[2]

        def handle(body: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
            ending = Ending()
            caller: Caller | None = None
            try:
                metadata = _metadata(context)
                tenant = self._tenants.of(_key(metadata)) or self._introduced(path, context, metadata)
                with self._slots.stream(tenant):
                    look = partial(self._looked_up, tenant, path, context, metadata)
                    caller = look()
                    count(caller, rpc, len(body), 0)
                    self._limits.admit(caller)
                    if not context.add_callback(ending.end):
                        return
                    patience = Patience(self._slots, context, caller.key_id)
                    with (
                        self._slots.living(caller.key_id, ending),
                        self._entered(caller, ending, look, patience) as entered,
                    ):
                        responses = method(_parse(request_type, body), entered, ending)
                        for response in self._checked(responses, ending, look, entered):
                            count(caller, rpc, 0, len(response), calls=0)
                            yield response
            except TenantMoving as error:
                if rpc not in OPENED_AGAIN:
                    _refuse(context, error, path)
            except Exception as error:
                if caller is not None:
                    count(caller, rpc, 0, 0, calls=0, refused=1)
                _refuse(context, error, path)

        return handle

    def _checked(
        self, responses: Iterable[Message], ending: Ending, look: Callable[[], Caller], caller: Caller
    ) -> Iterator[bytes]:
        """The encoded responses until the stream ends, its credential stands for something else, or its
        tenant moves."""
        looked = time.monotonic()
        try:
            for response in responses:
                if ending.over:
                    break
                if time.monotonic() - looked >= RECHECK_SECONDS:
                    before, caller = caller, look()
                    if before != caller:
                        raise Unavailable(
                            "this credential stands for something else by now; open the stream again"
                        )
                    looked = time.monotonic()
                self._check_here(caller)
                yield response.SerializeToString()
        except ScrubjayError:
            self._check_here(caller)  # what is read where a tenant left is wrong in any way
            raise
        if ending.error is not None:
            raise ending.error

    def _check_here(self, caller: Caller) -> None:
        if caller.tenant is not None:
            self._passage.check(caller.tenant)

    @contextmanager
    def _entered(
        self, caller: Caller, ending: Ending, look: Callable[[], Caller], patience: Patience
    ) -> Iterator[Caller]:
        """The caller of a stream, for the block, as it is once its tenant does not move."""
        with ExitStack() as stack:
            while True:
                try:
                    stack.enter_context(self._passage.crossing(caller.tenant, ending))
                    break
                except TenantMoving as error:
                    caller = self._moved(error, look, patience)
            yield caller

    def _moved(self, error: TenantMoving, look: Callable[[], Caller], patience: Patience) -> Caller:
        """The caller once its tenant has moved. ``error`` where that takes longer than the call may."""
        with self._slots.handler.aside():
            self._passage.wait(error.incarnation, patience.seconds)
        self._authenticator.forget(error.incarnation)
        return look()

    def _looked_up(
        self, tenant: str, path: str, context: grpc.ServicerContext, metadata: Mapping[str, str]
    ) -> Caller:
        """The caller of a stream of the tenant, looked up in its turn."""
        with self._slots.looking(tenant):
            return self._caller(path, context, metadata)

    def _caller(self, path: str, context: grpc.ServicerContext, metadata: Mapping[str, str]) -> Caller:
        key = _key(metadata)
        if not key:
            raise CredentialInvalid
        caller = self._authenticator.authenticate(key, Micros(time.time_ns() // 1000))
        self._tenants.remember(key, caller)
        if caller.role not in self._allowed.get(path, frozenset()):
            raise _not_allowed(caller.role, path)
        if caller.role is Role.REVOKED_DEVICE and not caller.wiped:
            raise DeviceRevoked
        _check_state(caller)
        remaining = context.time_remaining()
        if remaining is not None and remaining <= 0:
            raise DeadlineExceeded("the deadline passed before the call began; give it more time")
        return _named_client(caller, metadata.get(CLIENT_KEY, ""))


class _Tenants:
    """Whose slots a call takes, told by its key before anybody looks whether it still is a good one.

    A key never changes its tenant, so who was authenticated once is known.
    """

    def __init__(self) -> None:
        self._of: dict[int, str] = {}

    def of(self, key: str) -> str:
        """The tenant of a key that called before, or nobody."""
        return self._of.get(hash(key), NOBODY)

    def remember(self, key: str, caller: Caller) -> None:
        """Remember whose key it is; an admin of the platform has slots of its own."""
        digest = hash(key)
        if digest not in self._of:
            if len(self._of) >= MAX_KNOWN_KEYS:
                self._of.clear()
            self._of[digest] = caller.tenant.incarnation if caller.tenant else caller.key_id


def _metadata(context: grpc.ServicerContext) -> dict[str, str]:
    return {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}


def _key(metadata: Mapping[str, str]) -> str:
    """The credential that a call carries; empty where it has none."""
    scheme, _, key = metadata.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""


def method_name(rpc: str) -> str:
    """The method of an RPC: ``BatchGet`` -> ``batch_get``."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in rpc).lstrip("_")


def _not_allowed(role: Role, path: str) -> ScrubjayError:
    if role is Role.EXPIRED_DEVICE:
        return TokenExpired()
    if role is Role.REVOKED_DEVICE:
        return DeviceRevoked()
    return RoleNotAllowed(f"a key of role {role.name} may not call {path}")


def _check_state(caller: Caller) -> None:
    """A tenant's memories are for callers of an active tenant alone.

    Its own admin sees how it stands, and a device that is to delete what it holds is told so in any state.
    """
    if caller.tenant is None or caller.role in (Role.TENANT_ADMIN, Role.REVOKED_DEVICE):
        return
    if caller.tenant.state is TenantState.SUSPENDED:
        raise TenantSuspended
    if caller.tenant.state is not TenantState.ACTIVE:
        raise TenantDeleting


def _named_client(caller: Caller, client_id: str) -> Caller:
    """A service key may name the client it acts for; privacy is then judged by that client.

    A device is one client and can't name another.
    """
    if not client_id or caller.tenant is None or client_id == caller.client_id:
        return caller
    if caller.role not in API_KEY_ROLES:
        raise InvalidField.of(CLIENT_KEY, "names another client than this device's own; leave it out")
    if (wrong := name_violation(CLIENT_KEY, client_id)) is not None:
        raise InvalidField([wrong])
    return replace(caller, client_id=ClientId(client_id))


def _parse(request_type: type[Message], body: bytes) -> Message:
    if len(body) > MAX_MESSAGE_BYTES:
        raise MessageTooLarge(f"the message has {len(body)} bytes; at most {MAX_MESSAGE_BYTES} are allowed")
    try:
        return request_type.FromString(body)
    except DecodeError:
        raise InvalidField.of(
            "", f"the bytes are no {request_type.DESCRIPTOR.full_name}; texts must be valid UTF-8"
        ) from None


def _refuse(context: grpc.ServicerContext, error: Exception, path: str) -> NoReturn:
    """End the call with the status of whatever was raised."""
    if not isinstance(error, ScrubjayError):
        error = _internal(error, path)
    log.debug("refused", extra={"path": path, "reason": error.reason})
    status = to_status(error)
    context.set_trailing_metadata(((STATUS_KEY, status.SerializeToString()),))
    context.abort(_CODES[status.code], status.message)
    raise AssertionError("a refused call is aborted")


def _internal(error: Exception, path: str) -> InternalError:
    request_id = uuid.uuid4().hex
    log.error("internal error", exc_info=error, extra={"path": path, "request_id": request_id})
    return InternalError(
        "the server failed; its log has this request_id", metadata={"request_id": request_id}
    )


_CODES = {code.value[0]: code for code in grpc.StatusCode}
