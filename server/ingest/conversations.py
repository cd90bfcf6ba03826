"""Conversations as memories: what a policy makes of messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum

from scrubjay.memory import DEFAULT_CATEGORY, Memory, MemoryId, Micros
from server.ingest.entities.entity import NOTHING, Named
from server.ingest.rules.extraction import extract
from server.ingest.rules.fact import Said

SYSTEM = "system"
"""The role of messages that are no part of what was said."""


class WritePolicy(IntEnum):
    """How messages become memories; the numbers are the contract's."""

    RAW = 1
    RULES = 2
    APPEND = 3
    RECONCILE = 4

    @property
    def needs_model(self) -> bool:
        """Whether nothing can be made of messages without a chat model."""
        return self in (WritePolicy.APPEND, WritePolicy.RECONCILE)


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation. ``id`` is the writer's, or empty."""

    said: Said
    id: str = ""


@dataclass(frozen=True, slots=True)
class Conversation:
    """Valid messages, oldest first and without what came from this store, and what is to become of them.

    ``template`` has what all memories of it share; an empty category leaves that to the policy.
    """

    messages: tuple[Message, ...]
    policy: WritePolicy
    template: Memory

    @property
    def said(self) -> list[Said]:
        """What was said."""
        return [message.said for message in self.messages]


@dataclass(frozen=True, slots=True)
class Learnt:
    """A memory that a conversation gave: of which message, by which rule, and what it ends.

    ``replaces`` are a correction's words for what holds no more, ``supersedes`` the memories that a model
    named, ``told`` whom and what it said that the memory names. ``reason`` is for History.
    """

    memory: Memory
    message: int
    rule: str = ""
    replaces: str = ""
    supersedes: tuple[MemoryId, ...] = ()
    reason: str = ""
    told: Named = NOTHING


def kept(conversation: Conversation, new_id: Callable[[], MemoryId]) -> list[Learnt]:
    """RAW: each message that is not the system's, as it is."""
    template = conversation.template
    category = template.category or DEFAULT_CATEGORY
    return [
        Learnt(
            replace(said_in(message, template), id=new_id(), content=message.said.text, category=category), n
        )
        for n, message in enumerate(conversation.messages)
        if message.said.role != SYSTEM and message.said.text.strip()
    ]


def found_by_rules(conversation: Conversation, new_id: Callable[[], MemoryId]) -> list[Learnt]:
    """RULES: what ``extract`` finds worth remembering; a category that the template names stands, and its
    tags are added to."""
    template = conversation.template
    return [
        Learnt(
            replace(
                said_in(conversation.messages[fact.message], template),
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
            reason=f"rule: {fact.rule}",
        )
        for fact in extract(conversation.said)
    ]


def said_in(message: Message, template: Memory) -> Memory:
    """The template as said in this message."""
    ids = (message.id,) if message.id else ()
    source = replace(template.source, message_ids=ids, role=message.said.role)
    return replace(template, created_at=Micros(message.said.at), source=source)
