"""Operations: edits made on a device, maybe long before a server hears of them.

An operation creates a memory, sets registers of one, or deletes one, under one stamp. A replica numbers
its operations when it first sends them, and chains their bytes, so that a server notices two files that
use one number for different edits. ``replay`` is what an operation does to a memory, on every side.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NewType

from google.protobuf.message import DecodeError

from scrubjay import v1
from scrubjay.errors import FieldViolation, InvalidField, check
from scrubjay.memory import (
    ClientId,
    JsonValue,
    Memory,
    MemoryId,
    Micros,
    PrivacyLevel,
    Subject,
    hashed_id,
    id_bytes,
    id_text,
    subject_of,
)
from scrubjay.merge import Outcome, State, Write, WriteResult, apply, create, get
from scrubjay.stamp import ReplicaId, Stamp, pack_field_stamps, unpack_field_stamps
from scrubjay.validity import edit_violations, local_violation, text_violation, violations
from scrubjay.wire import from_message, keyed_value, to_draft, to_values

OperationId = NewType("OperationId", str)
"""A UUID in canonical text form."""

NO_ID = OperationId("")
"""Of an operation that was never sent."""
MAX_FIELDS = 128
"""Every register of a memory: 10 fields, 32 tags and 32 metadata keys, with room for replacing them."""
MAX_OPERATION_BYTES = 64 * 1024
"""A memory of the largest content, metadata, tags and source, with its names and stamps."""
NO_CHAIN = b""
"""The chain before a replica's first operation."""

_CHAIN_BYTES = 16


class OperationKind(IntEnum):
    """What an operation does; the numbers are the contract's."""

    CREATE = 1
    SET = 2
    DELETE = 3


@dataclass(frozen=True, slots=True)
class Operation:
    """One edit. ``memory`` is a CREATE's, ``writes`` are a SET's, all under ``stamp``.

    ``operation_id`` is empty until it is first sent: see ``derived_id``.
    """

    operation_id: OperationId
    memory_id: MemoryId
    kind: OperationKind
    stamp: Stamp
    memory: Memory | None = None
    writes: tuple[Write, ...] = ()

    @property
    def content(self) -> str | None:
        """The content that it writes, if any."""
        if self.memory is not None:
            return self.memory.content
        return next((str(write.value) for write in self.writes if write.field == "content"), None)


def derived_id(sender: ReplicaId, number: int, encoded: bytes) -> OperationId:
    """The id of an operation that names none: of its sender, its number and its bytes, so that two files
    that share a replica never give two edits one id."""
    return OperationId(hashed_id(sender + number.to_bytes(8, "big") + encoded))


def next_chain(chain: bytes, encoded: bytes) -> bytes:
    """A replica's chain behind an operation, 16 bytes, from the chain before it and its encoded bytes."""
    return hashlib.sha256(chain + encoded).digest()[:_CHAIN_BYTES]


def encode(operation: Operation, sender: ReplicaId) -> bytes:
    """The bytes of an operation that ``sender`` sends; one without an id has ``derived_id``."""
    message = v1.Operation(
        memory_id=id_bytes(operation.memory_id),
        kind=v1.OperationKind.ValueType(operation.kind),
        time=operation.stamp.time,
    )
    if operation.operation_id:
        message.operation_id = id_bytes(operation.operation_id)
    if operation.stamp.replica != sender:
        message.replica_id = operation.stamp.replica
    if operation.memory is not None:
        message.memory.CopyFrom(to_draft(operation.memory))
    if operation.writes:
        message.memory.CopyFrom(to_values({write.field: write.value for write in operation.writes}))
        message.fields.extend(write.field for write in operation.writes)
        bases = {write.field: write.base for write in operation.writes if write.base is not None}
        if bases:
            message.base_stamps = pack_field_stamps(bases)
    message.memory.source.ClearField("client_id")  # the receiver knows who sends
    if not message.memory.source.ByteSize():
        message.memory.ClearField("source")
    if not message.memory.ByteSize():
        message.ClearField("memory")
    return message.SerializeToString(deterministic=True)


def decode(
    encoded: bytes, sender: ReplicaId, number: int, client_id: ClientId, subject: Subject
) -> Operation:
    """The inverse of ``encode``, for operations of the client ``client_id`` on memories of ``subject``.

    InvalidField names what no operation can have; whether the memory is valid once it is edited is seen
    when it is replayed.
    """
    operation = reread(
        encoded, sender, client_id, subject, unnamed=lambda: derived_id(sender, number, encoded)
    )
    if operation.memory is not None:
        _check_created(operation.memory, subject)
    elif operation.writes:
        _check_written({write.field: write.value for write in operation.writes})
    return operation


def reread(
    encoded: bytes,
    sender: ReplicaId,
    client_id: ClientId,
    subject: Subject,
    *,
    unnamed: Callable[[], OperationId] = lambda: NO_ID,
) -> Operation:
    """``decode`` for bytes that this side made itself: the values in them are not checked again. ``unnamed``
    gives the id of an operation that names none."""
    message = _parse(encoded)
    memory_id = MemoryId(id_text(_sized("memory_id", message.memory_id, 16)))
    replica = ReplicaId(_sized("replica_id", message.replica_id, 16)) if message.replica_id else sender
    try:
        kind, stamp = OperationKind(message.kind), Stamp(message.time, replica)
    except ValueError as error:
        raise InvalidField.of("kind" if "OperationKind" in str(error) else "time", str(error)) from None
    if message.operation_id:
        operation_id = OperationId(id_text(_sized("operation_id", message.operation_id, 16)))
    else:
        operation_id = unnamed()
    if kind is OperationKind.DELETE:
        return Operation(operation_id, memory_id, kind, stamp)
    message.memory.id = memory_id
    setattr(message.memory, f"{subject.kind}_id", subject.name)
    fields = _fields(message) if kind is OperationKind.SET else ()
    made_at = Micros(stamp.millis * 1000)
    whole: Memory | None = None
    try:
        if fields and all("." in field for field in fields):  # else a tag would cost a whole memory
            values = [keyed_value(message.memory, field) for field in fields]
        else:
            whole = from_message(message.memory, memory_id=memory_id, owner=client_id, now=made_at)
            values = [get(whole, field) for field in fields]
    except InvalidField as error:
        raise InvalidField(violation.under("memory") for violation in error.field_violations) from None
    except KeyError as error:
        raise InvalidField.of("fields", f"{error.args[0]!r} is no register") from None
    if kind is OperationKind.CREATE:
        return Operation(operation_id, memory_id, kind, stamp, memory=whole)
    return Operation(operation_id, memory_id, kind, stamp, writes=_writes(message, fields, values, stamp))


def _parse(encoded: bytes) -> v1.Operation:
    if len(encoded) > MAX_OPERATION_BYTES:
        raise InvalidField.of("", f"has {len(encoded)} bytes; at most {MAX_OPERATION_BYTES} are allowed")
    try:
        return v1.Operation.FromString(encoded)
    except DecodeError:
        raise InvalidField.of("", "is no encoded scrubjay.v1.Operation") from None


def _sized(field: str, value: bytes, size: int) -> bytes:
    if len(value) != size:
        raise InvalidField.of(field, f"has {len(value)} bytes; it must have {size}")
    return value


def _check_created(memory: Memory, subject: Subject) -> None:
    if subject_of(memory.user_id, memory.agent_id, memory.run_id) != subject:
        raise InvalidField.of("memory.user_id", f"names another subject than this device's, {subject.key!r}")
    wrong = violations(memory)
    if (local := local_violation("privacy_level", memory.privacy_level)) is not None:
        wrong.append(local)
    if wrong:
        check(*(violation.under("memory") for violation in wrong))


def _check_written(values: Mapping[str, JsonValue]) -> None:
    wrong: list[FieldViolation | None] = []
    if "content" in values:
        wrong.append(text_violation("memory.content", str(values["content"])))
    if "privacy_level" in values:
        level = PrivacyLevel(values["privacy_level"])  # type: ignore[arg-type]  # as get gives it
        wrong.append(local_violation("memory.privacy_level", level))
    check(*wrong)


def _fields(message: v1.Operation) -> tuple[str, ...]:
    fields = tuple(dict.fromkeys(message.fields))
    if not 1 <= len(fields) <= MAX_FIELDS:
        raise InvalidField.of("fields", f"has {len(fields)} registers; give 1 to {MAX_FIELDS}")
    return fields


def _writes(
    message: v1.Operation, fields: Sequence[str], values: Sequence[JsonValue], stamp: Stamp
) -> tuple[Write, ...]:
    try:
        bases = unpack_field_stamps(message.base_stamps) if message.base_stamps else {}
        return tuple(
            Write(field, value, stamp, bases.get(field)) for field, value in zip(fields, values, strict=True)
        )
    except ValueError as error:
        raise InvalidField.of("base_stamps", str(error)) from None


def replay(
    state: State | None, operation: Operation, author: ClientId
) -> tuple[State | None, tuple[WriteResult, ...]]:
    """What an operation of the client ``author`` makes of a memory, None where there is none.

    A CREATE of a memory that is there is joined register by register. A SET of one that is not there
    makes nothing. InvalidField where the edited memory would break a rule: then nothing was made.
    """
    edited, results = overlay(state, operation, author)
    if edited is not None and state is not None:
        wrote = [r.write.field for r in results if r.outcome is not Outcome.SUPERSEDED]
        check(*(violation.under("memory") for violation in edit_violations(edited.memory, wrote)))
    return edited, results


def overlay(
    state: State | None, operation: Operation, author: ClientId
) -> tuple[State | None, tuple[WriteResult, ...]]:
    """``replay`` without a look at the rules: what a device shows until the server has refused it."""
    if operation.kind is OperationKind.DELETE:
        return None, ()
    if operation.kind is OperationKind.CREATE and operation.memory is not None:
        made = create(operation.memory, operation.stamp)
        if state is None:
            return made, ()
        writes: Iterable[Write] = (
            Write(field, get(made.memory, field), stamp, None) for field, stamp in made.stamps.items()
        )
    elif state is None:
        return None, ()
    else:
        writes = operation.writes
    return apply(state, writes, author)
