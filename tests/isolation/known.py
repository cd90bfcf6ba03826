"""What a tenant's callers were given in one life: ids, tokens, names, and a word of its own."""

from __future__ import annotations

import os
import secrets
import uuid
from collections import defaultdict
from dataclasses import dataclass, field

from scrubjay import v1
from scrubjay.feed import pack, seal_page
from scrubjay.memory import ClientId, Memory, MemoryId, Micros, new_memory_id
from scrubjay.merge import Write
from scrubjay.operation import NO_ID, Operation, OperationKind, encode
from scrubjay.stamp import CommitStamp, ReplicaId, Stamp
from tests.isolation.fields import Kind

Value = str | bytes


@dataclass
class Known:
    """A life of a tenant, as its callers know it.

    ``values`` are by kind, page tokens by RPC; ``canary`` is in all that its callers wrote. ``keys`` are its
    credentials by what they are. ``alive``: its memories are still there.
    """

    name: str
    tenant_id: str
    canary: str
    alive: bool = True
    values: dict[Kind, list[Value]] = field(default_factory=lambda: defaultdict(list))
    page_tokens: dict[str, str] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)

    def of(self, kind: Kind, rpc: str) -> list[Value]:
        """What a field of the kind takes that is this tenant's, in a request of the RPC."""
        if kind is Kind.PAGE_TOKEN:
            own = self.page_tokens.get(rpc)
            return [own] if own else list(self.page_tokens.values())[:1]
        if kind is Kind.REQUEST:
            return [request_id(self.name, rpc)]
        if kind is Kind.OPERATIONS:
            return [set_operation(str(self.values[Kind.MEMORY][0]))]
        if kind is Kind.PACKED_BATCH:
            return [pack(v1.Batch(operations=[set_operation(str(self.values[Kind.MEMORY][0]))]))]
        if kind is Kind.PACKED_PAGE:
            return [page_of(str(self.values[Kind.MEMORY][0]))]
        return self.values[kind]

    def marks(self) -> set[bytes]:
        """What may be in nobody else's answer."""
        long = {
            value.encode() if isinstance(value, str) else value
            for kind, values in self.values.items()
            if kind not in ALIKE
            for value in values
        }
        tokens = {token.encode() for token in self.page_tokens.values()}
        return long | tokens | {self.canary.encode()} | {key.encode() for key in self.keys.values()}


ALIKE = {Kind.TENANT, Kind.ETAG, Kind.STAMP, Kind.DIGEST}
"""What two tenants may have alike, one after the other or by chance."""


def request_id(name: str, rpc: str) -> str:
    """The request id that a life's callers used, to be tried with this RPC: each is good for one call."""
    return f"{rpc}-of-{name}"


def stranger(kind: Kind, value: Value) -> Value:
    """What never was anybody's, in the form of this value."""
    match kind:
        case Kind.OPERATIONS:
            return set_operation(str(uuid.uuid4()))
        case Kind.PACKED_BATCH:
            return pack(v1.Batch(operations=[set_operation(str(uuid.uuid4()))]))
        case Kind.PACKED_PAGE:
            return page_of(str(uuid.uuid4()))
        case Kind.CURSOR | Kind.PAGE_TOKEN | Kind.REVISION | Kind.WATCH_TOKEN | Kind.SNAPSHOT_TOKEN:
            assert isinstance(value, str)
            return _unsealed(value)
        case Kind.ETAG | Kind.STAMP:
            assert isinstance(value, str)
            return f"2025{value[4:]}"  # of the year before
    if isinstance(value, bytes):
        return os.urandom(len(value))
    if _is_uuid(value):
        return str(uuid.uuid4())
    return "n" + "".join(secrets.choice("abcdefghjkmnpqrstvwxyz") for _ in value[1:])


def _unsealed(token: str) -> str:
    """A token of the same length with another seal."""
    if token[4:5] == "-":  # a cursor begins with its time and ends with its seal
        return token[:-22] + secrets.token_urlsafe(16)
    return secrets.token_urlsafe(len(token))[: len(token) - 1] + "A"


def _is_uuid(text: str) -> bool:
    return len(text) == 36 and text.count("-") == 4


def set_operation(memory_id: str) -> bytes:
    """A device's edit of this memory, under a stamp of its own."""
    replica = ReplicaId(os.urandom(16))
    stamp = Stamp(1_700_000_000_000 << 16, replica)
    write = Write("pinned", True, stamp, None)
    return encode(
        Operation(NO_ID, MemoryId(memory_id), OperationKind.SET, stamp, None, (write,)), ReplicaId(bytes(16))
    )


def create_operation(memory_id: str, content: str) -> bytes:
    """A device's create of this memory of alice, under a stamp of its own."""
    replica = ReplicaId(os.urandom(16))
    stamp = Stamp(1_700_000_000_000 << 16, replica)
    memory = Memory(
        MemoryId(memory_id),
        content,
        Micros(1_700_000_000_000_000),
        user_id="alice",
        owner_client_id=ClientId("phone"),
    )
    operation = Operation(NO_ID, memory.id, OperationKind.CREATE, stamp, memory)
    return encode(operation, ReplicaId(bytes(16)))


def page_of(memory_id: str) -> bytes:
    """A page that says the memory is deleted."""
    return pack(seal_page([(MemoryId(memory_id), CommitStamp(1), v1.Change(kind=v1.CHANGE_KIND_DELETED))]))


def fresh_id() -> str:
    """An id for a new memory."""
    return new_memory_id(Micros(1_700_000_000_000), os.urandom(10))
