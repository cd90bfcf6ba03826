"""Linking: what memories name and say becomes rows, in the same unit as the memories."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from scrubjay.memory import Memory
from server.ingest.entities.entity import NOTHING, SUBJECT, Claim, Mention, Named, entity_id
from server.ingest.entities.extraction import MOST_CLAIMS, MOST_MENTIONS, extract
from server.ingest.rules.fact import USER
from server.store.entities import Links, MentionRow, RelationRow
from server.store.rows import StoredMemory, StreamKey
from server.store.writing import Writing

Known = Mapping[tuple[str, str], Named]
"""What was read of texts before the lock, by ``text_of``."""
NONE_KNOWN: Known = MappingProxyType({})


def text_of(memory: Memory) -> tuple[str, str]:
    """What is read of a memory: its content, and who says it where that is not the user."""
    role = memory.source.role
    return memory.content, "" if role == USER else role


def named_in(memory: Memory, told: Named = NOTHING) -> Named:
    """What a memory names and says, and what else of it a model told."""
    read = extract(memory.content, memory.source.role)
    if told == NOTHING:
        return read
    return read.joined(told, mentions=MOST_MENTIONS, claims=MOST_CLAIMS)


def names_in(memory: Memory) -> tuple[str, ...]:
    """The normal names of what a memory mentions, but for its subject."""
    return tuple(mention.normal for mention in named_in(memory).mentions if mention != SUBJECT)


def links_of(key: StreamKey, memory: Memory, named: Named) -> Links:
    """The rows of a memory of the stream that names and says this."""
    ids = {mention.normal: entity_id(key, mention) for mention in named.mentions}
    return Links(
        tuple(_mention(memory, mention, ids) for mention in named.mentions),
        tuple(_relation(memory, number, claim, ids) for number, claim in enumerate(named.claims)),
    )


def _mention(memory: Memory, mention: Mention, ids: Mapping[str, str]) -> MentionRow:
    name = memory.subject.name if mention == SUBJECT else mention.name
    return MentionRow(memory.id, ids[mention.normal], mention.normal, name, int(mention.kind))


def _relation(memory: Memory, number: int, claim: Claim, ids: Mapping[str, str]) -> RelationRow:
    since = memory.created_at if memory.valid_from is None else memory.valid_from
    return RelationRow(
        memory.id,
        number,
        ids[claim.subject.normal],
        claim.relation,
        ids[claim.object.normal],
        None if claim.ended else since,
        since if claim.ended else memory.valid_to,
    )


def link(
    writing: Writing,
    key: StreamKey,
    stored: Iterable[StoredMemory],
    known: Known = NONE_KNOWN,
) -> list[Links]:
    """Store the links of memories that have none yet; which they are, memory by memory."""
    found = [links_in(key, one.memory, known) for one in stored]
    writing.link(
        key,
        Links(
            tuple(row for links in found for row in links.mentions),
            tuple(row for links in found for row in links.relations),
        ),
    )
    return found


def relink(
    writing: Writing,
    key: StreamKey,
    stored: Iterable[StoredMemory],
    known: Known = NONE_KNOWN,
) -> None:
    """Store the links of memories in place of those that they have."""
    every = list(stored)
    writing.unlink(key, [one.memory.id for one in every])
    link(writing, key, every, known)


def links_in(key: StreamKey, memory: Memory, known: Known) -> Links:
    """The rows of a memory of the stream; its text is read where it is not ``known``."""
    named = known.get(text_of(memory))
    return links_of(key, memory, named_in(memory) if named is None else named)


def says_other(before: Memory, after: Memory) -> bool:
    """Whether the links of a memory may have changed with it."""
    return (
        text_of(before) != text_of(after)
        or before.valid_from != after.valid_from
        or before.valid_to != after.valid_to
    )
