"""Conversations as memories: what a policy makes of messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from scrubjay.memory import DEFAULT_CATEGORY, Memory, MemoryId, Micros
from server.ingest.rules.extraction import extract
from server.ingest.rules.fact import Said

SYSTEM = "system"
"""The role of messages that are no part of what was said."""


class WritePolicy(IntEnum):
    """How messages become memories; the numbers are the contract's."""

    RAW = 1
    RULES = 2


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation. ``id`` is the writer's, or empty."""

    said: Said
    id: str = ""


@dataclass(frozen=True, slots=True)
class Learnt:
    """A memory that a conversation gave: of which message, by which rule, and what it ends."""

    memory: Memory
    message: int
    rule: str = ""
    replaces: str = ""


def learn(
    messages: Sequence[Message], policy: WritePolicy, template: Memory, new_id: Callable[[], MemoryId]
) -> list[Learnt]:
    """What the policy makes of the messages, in their order. ``template`` has what all of it shares.

    RAW: each message that is not the system's, as it is. RULES: what ``extract`` finds worth remembering; a
    category that the template names stands, and its tags are added to.
    """
    if policy is WritePolicy.RAW:
        return [
            Learnt(_raw(message, template, new_id()), n)
            for n, message in enumerate(messages)
            if message.said.role != SYSTEM and message.said.text.strip()
        ]
    return [
        Learnt(
            replace(
                _of(messages[fact.message], template),
                id=new_id(),
                content=fact.text,
                category=template.category or fact.category,
                tags=template.tags | fact.tags,
                valid_from=fact.valid_from,
                valid_to=fact.valid_to,
            ),
            fact.message,
            fact.rule,
            fact.replaces,
        )
        for fact in extract([message.said for message in messages])
    ]


def _raw(message: Message, template: Memory, memory_id: MemoryId) -> Memory:
    category = template.category or DEFAULT_CATEGORY
    return replace(_of(message, template), id=memory_id, content=message.said.text, category=category)


def _of(message: Message, template: Memory) -> Memory:
    """The template as said in this message."""
    ids = (message.id,) if message.id else ()
    source = replace(template.source, message_ids=ids, role=message.said.role)
    return replace(template, created_at=Micros(message.said.at), source=source)
