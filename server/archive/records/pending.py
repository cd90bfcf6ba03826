"""The lines of what is not done yet: edits that wait, requests, and what the next model is told."""

from __future__ import annotations

from scrubjay import v1
from scrubjay.errors import InvalidField
from scrubjay.memory import Subject, subject_of
from scrubjay.operation import OperationId, OperationKind, decode
from server.archive import values
from server.archive.records.frame import Stream
from server.archive.values import Fault, Line
from server.services.learning import MAX_MESSAGE_BYTES
from server.services.operations import ADD
from server.store.exporting import RecentMessages, Unread
from server.store.recent_messages import KEPT, RecentMessage
from server.store.replicas import WaitingOperation
from tenants.tenant import Role
from tenants.validation import MAX_SCOPES


def read_waiting(line: Line, stream: Stream) -> WaitingOperation:
    """An edit that waits for its memory, without the vector of its content."""
    encoded = values.message_of(line, "operation", v1.Operation).SerializeToString(deterministic=True)
    replica_id, client_id = values.replica(line, "replica_id"), values.client(line, "client_id")
    try:
        operation = decode(encoded, replica_id, 0, client_id, stream.subject)
    except (InvalidField, ValueError) as error:
        raise Fault(f"operation: {error}"[:300]) from None
    named = values.uuid(line, "memory_id"), OperationId(values.uuid(line, "operation_id"))
    if operation.kind is not OperationKind.SET or (operation.memory_id, operation.operation_id) != named:
        raise Fault("operation is no edit of memory_id under operation_id")
    if operation.stamp.time > stream.latest:
        raise Fault(f"operation: {operation.stamp} lies in the future")
    scopes = values.listed(line, "scopes", MAX_SCOPES)
    return WaitingOperation(
        *named,
        values.commit_stamp(line.get("commit_stamp"), "commit_stamp", stream.head),
        client_id,
        tuple(values.named({"scopes": one}, "scopes") for one in scopes),
        values.text(line, "actor"),
        values.text(line, "role"),
        replica_id,
        values.text(line, "spell_id"),
        encoded,
        None,
    )


def content_of(waiting: WaitingOperation, subject: Subject) -> str | None:
    """The content that a waiting edit writes, if any."""
    return decode(waiting.operation, waiting.replica_id, 0, waiting.client_id, subject).content


def read_recent_messages(line: Line) -> RecentMessages:
    """The last messages of a scope."""
    messages = [_recent(values.item(one, "messages")) for one in values.listed(line, "messages", KEPT)]
    return RecentMessages(values.named(line, "scope"), values.client(line, "client_id"), tuple(messages))


def _recent(line: Line) -> RecentMessage:
    text = values.text(line, "text", MAX_MESSAGE_BYTES)
    role, private = values.named(line, "role"), values.flag(line, "private")
    return RecentMessage(role, text, values.time(line, "at"), private)


def read_request(line: Line, stream: Stream) -> Unread:
    """A request that is acknowledged and not done."""
    request = values.message_of(line, "request", v1.AddRequest)
    template = request.template
    if subject_of(template.user_id, template.agent_id, template.run_id) != stream.subject:
        raise Fault("request is of another subject than the lines it is among")
    if values.text(line, "rpc") != ADD or not request.messages:
        raise Fault(f"request is no {ADD} of messages, which alone is done later")
    role = values.text(line, "role")
    if role not in Role.__members__:
        raise Fault(f"role {role[:64]!r} is no role")
    return Unread(
        job_id=values.uuid(line, "operation_id"),
        kind=ADD,
        client_id=values.client(line, "client_id"),
        actor=values.text(line, "actor"),
        role=role,
        request_id=values.named(line, "request_id"),
        private_to=values.client(line, "private_to"),
        created_at=values.time(line, "created_at"),
        request=request.SerializeToString(deterministic=True),
    )
