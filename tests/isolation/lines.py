"""Calls as they go over the wire: bytes, a credential, and what came back."""

from __future__ import annotations

from dataclasses import dataclass

import grpc
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

from scrubjay.status import STATUS_KEY
from scrubjay.v1 import memory_service_pb2, sync_service_pb2, tenant_service_pb2

PATIENCE = 30
"""Seconds for any answer."""
SERVICES = (
    memory_service_pb2.DESCRIPTOR.services_by_name["MemoryService"],
    sync_service_pb2.DESCRIPTOR.services_by_name["SyncService"],
    tenant_service_pb2.DESCRIPTOR.services_by_name["TenantAdminService"],
)
RPCS = {f"{rpc.containing_service.name}/{rpc.name}": rpc for one in SERVICES for rpc in one.methods}
"""By service and name, as ``SyncService/Watch``."""
_ENDLESS = {"MemoryService/Watch", "SyncService/Watch"}


@dataclass(frozen=True)
class Came:
    """What came of a call: its responses, or its status and the bytes of the status's details."""

    code: grpc.StatusCode
    message: str
    details: bytes
    responses: tuple[Message, ...]

    @property
    def ok(self) -> bool:
        """Whether it was answered."""
        return self.code is grpc.StatusCode.OK

    @property
    def whole(self) -> bytes:
        """All bytes that came."""
        return b"".join(
            (self.message.encode(), self.details, *(one.SerializeToString() for one in self.responses))
        )

    def only(self) -> Message:
        """The response; AssertionError where the call was refused."""
        assert self.ok, f"{self.code}: {self.message}"
        return self.responses[0]


def call(
    channel: grpc.Channel, credential: str, rpc: MethodDescriptor, request: Message, client_id: str = ""
) -> Came:
    """Call the RPC; a stream that ends is read to its end, of another the first message."""
    path = f"/{rpc.containing_service.full_name}/{rpc.name}"
    metadata = [("authorization", f"Bearer {credential}")]
    if client_id:
        metadata.append(("scrubjay-client", client_id))
    kind = message_factory.GetMessageClass(rpc.output_type)
    given = {"timeout": PATIENCE, "metadata": metadata}
    body = request.SerializeToString()
    try:
        if not rpc.server_streaming:
            found = [channel.unary_unary(path)(body, **given)]
        else:
            stream = channel.unary_stream(path)(body, **given)
            if f"{rpc.containing_service.name}/{rpc.name}" in _ENDLESS:
                found = [next(stream)]
                stream.cancel()
            else:
                found = list(stream)
    except grpc.RpcError as error:
        return _refused(error)
    return Came(grpc.StatusCode.OK, "", b"", tuple(kind.FromString(one) for one in found))


def _refused(error: grpc.RpcError) -> Came:
    assert isinstance(error, grpc.Call)
    details = dict(error.trailing_metadata() or ()).get(STATUS_KEY, b"")
    raw = details if isinstance(details, bytes) else details.encode()
    return Came(error.code(), error.details() or "", raw, ())
