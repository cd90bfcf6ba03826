"""The messages of an Add: what they must be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from scrubjay import v1
from scrubjay.errors import FieldViolation, InvalidField, check
from scrubjay.memory import DEFAULT_CATEGORY, MAX_MICROS, MIN_MICROS, Memory, MemoryId, Micros, new_memory_id
from scrubjay.validity import local_violation, name_violation, violations
from scrubjay.wire import from_message, from_timestamp
from server.ingest.author import outside_violation
from server.ingest.conversations import Conversation, Message, WritePolicy
from server.ingest.rules.cleaning import without_context
from server.ingest.rules.fact import Said
from server.services.requests import MAX_BATCH
from tenants.tenant import Caller

MAX_MESSAGE_BYTES = 64 * 1024
"""Of one message: what people paste, and far from what makes one call hold a thread."""
_OWN = ("id", "content", "created_at", "valid_from", "valid_to", "superseded_by")
"""What each memory that is learnt has of its own."""


def read_conversation(request: v1.AddRequest, caller: Caller, default: int, now: Micros) -> Conversation:
    """The request's messages and what is to become of them: by its policy, or else the tenant's ``default``,
    or else RULES. InvalidField names what is wrong."""
    if request.memories:
        raise InvalidField.of("messages", "is set beside memories; give one of them")
    if len(request.messages) > MAX_BATCH:
        raise InvalidField.of("messages", f"has {len(request.messages)}; give 1 to {MAX_BATCH}")
    policy = _policy(request.policy or default)
    messages = [_message(n, message, now) for n, message in enumerate(request.messages)]
    if not any(message.said.text.strip() for message in messages):
        raise InvalidField.of("messages", "all are blank; give at least one text")
    return Conversation(tuple(map(_own, messages)), policy, _template(request.template, caller))


def _own(message: Message) -> Message:
    """The message without what came from this store."""
    return replace(message, said=replace(message.said, text=without_context(message.said.text)))


def _policy(number: int) -> WritePolicy:
    try:
        return WritePolicy(number or WritePolicy.RULES)
    except ValueError:
        known = ", ".join(f"{policy.name} ({policy})" for policy in WritePolicy)
        raise InvalidField.of("policy", f"{number} is no policy; give one of {known}") from None


def _message(place: int, message: v1.ConversationMessage, now: Micros) -> Message:
    path = f"messages[{place}]"
    # A microsecond apart, so that a list keeps their order.
    at = Micros(now // 1000 * 1000 - MAX_BATCH + place)
    if message.HasField("time"):
        at = from_timestamp(message.time)
    check(
        name_violation(f"{path}.role", message.role),
        name_violation(f"{path}.id", message.id),
        *_violations(message, at, path),
    )
    return Message(Said(message.content, message.role, at), message.id)


def _violations(message: v1.ConversationMessage, at: Micros, path: str) -> Iterator[FieldViolation]:
    if not message.role:
        yield FieldViolation(f"{path}.role", 'is empty; give "user", "assistant" or a name')
    if not MIN_MICROS <= at <= MAX_MICROS:
        yield FieldViolation(f"{path}.time", "lies outside the years 1 to 9999")
    if "\0" in message.content:
        yield FieldViolation(f"{path}.content", "holds a NUL character; remove it")
    size = len(message.content.encode())
    if size > MAX_MESSAGE_BYTES:
        yield FieldViolation(f"{path}.content", f"has {size} bytes; at most {MAX_MESSAGE_BYTES} are allowed")


def _template(message: v1.Memory, caller: Caller) -> Memory:
    """What all memories share; an empty category leaves it to the policy."""
    given = {field.name for field, _ in message.ListFields()}
    own = [name for name in _OWN if name in given]
    check(*(FieldViolation(f"template.{name}", "is each memory's own; leave it out") for name in own))
    try:
        read = from_message(message, memory_id=MemoryId(""), owner=caller.client_id, now=Micros(0))
    except InvalidField as error:
        raise InvalidField(violation.under("template") for violation in error.field_violations) from None
    sample = replace(read, id=new_memory_id(0, bytes(10)), content=DEFAULT_CATEGORY)
    check(
        local_violation("template.privacy_level", read.privacy_level),
        outside_violation("template.scope", read.scope, caller.viewer),
        *(violation.under("template") for violation in violations(sample)),
    )
    return replace(read, category=message.category)
