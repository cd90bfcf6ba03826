"""What a replica sends up, as values, and whether it follows from what it sent before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from google.protobuf.message import DecodeError

from scrubjay import v1
from scrubjay.errors import CursorAhead, InvalidField
from scrubjay.memory import ClientId, Subject, id_text
from scrubjay.operation import (
    NO_CHAIN,
    Operation,
    OperationId,
    decode,
    derived_id,
    next_chain,
)
from scrubjay.stamp import ReplicaId
from server.ingest.entities.extraction import extract
from server.ingest.entities.linking import NONE_KNOWN, Known, named_in, text_of
from server.ingest.words import mark
from server.store.replicas import AccessTotal, ReplicaMark


@dataclass(frozen=True, slots=True)
class Upload:
    """Encoded operations in the order of their numbers, from ``first_number`` on, and grown totals.

    ``chain`` is the replica's chain before the first of them.
    """

    replica_id: ReplicaId
    first_number: int
    chain: bytes
    encoded: tuple[bytes, ...] = ()
    touches: tuple[AccessTotal, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether it brings nothing."""
        return not self.encoded and not self.touches


def answered_before(upload: Upload, mark: ReplicaMark | None, client_id: ClientId) -> int | None:
    """How many of the first operations were answered in an earlier call; None for a fork.

    A fork is a replica that went back in time, or one that two files use: its operations do not follow
    from those that were answered. CursorAhead where the replica was answered more than this server knows
    of: then it is the server that went back in time.
    """
    if mark is not None and mark.client_id == client_id and upload.first_number - 1 > mark.number:
        raise CursorAhead
    if mark is None:
        mark = ReplicaMark(client_id, 0, NO_CHAIN)
    count = mark.number - (upload.first_number - 1)
    if mark.client_id != client_id or not 0 <= count <= len(upload.encoded):
        return None
    return count if chained(upload.chain, upload.encoded[:count]) == mark.chain else None


def chained(chain: bytes, encoded: Sequence[bytes]) -> bytes:
    """The chain behind these operations."""
    for one in encoded:
        chain = next_chain(chain, one)
    return chain


@dataclass(frozen=True, slots=True)
class Arrived:
    """An operation as it arrived: what it is, or with ``refusal`` why it can be none.

    ``content`` is the one that it writes, if any, ``vector`` the encoded vector of that, and ``named`` what
    it names and says.
    """

    operation_id: OperationId
    operation: Operation | None
    refusal: str = ""
    content: str | None = None
    vector: bytes | None = None
    named: Known = field(default_factory=dict)

    def read(self, vector: bytes | None) -> Arrived:
        """The operation with the vector of its content, and what that names. Its mark is read too."""
        if self.content is not None:
            mark(self.content)
        return Arrived(self.operation_id, self.operation, self.refusal, self.content, vector, self._named())

    def _named(self) -> Known:
        if self.operation is not None and self.operation.memory is not None:
            memory = self.operation.memory
            return {text_of(memory): named_in(memory)}
        return NONE_KNOWN if self.content is None else {(self.content, ""): extract(self.content)}


def arrive(upload: Upload, client_id: ClientId, subject: Subject) -> list[Arrived]:
    """The operations of an upload, decoded; one that can't be is refused alone."""
    return [
        _arrive(encoded, upload.replica_id, number, client_id, subject)
        for number, encoded in enumerate(upload.encoded, upload.first_number)
    ]


def _arrive(
    encoded: bytes, replica_id: ReplicaId, number: int, client_id: ClientId, subject: Subject
) -> Arrived:
    try:
        operation = decode(encoded, replica_id, number, client_id, subject)
    except InvalidField as error:
        return Arrived(_id_of(encoded, replica_id, number), None, error.message)
    return Arrived(operation.operation_id, operation, content=operation.content)


def _id_of(encoded: bytes, replica_id: ReplicaId, number: int) -> OperationId:
    """The id under which an operation that can't be decoded is answered."""
    try:
        named = v1.Operation.FromString(encoded).operation_id
        return OperationId(id_text(named))
    except (DecodeError, ValueError):
        return derived_id(replica_id, number, encoded)
