"""Entities: what a text names, and what it says of them."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

from scrubjay.text import fold
from server.ingest.simplified import simplified
from server.store.rows import StreamKey


class EntityKind(IntEnum):
    """What an entity is, as far as the text says; the numbers are the contract's. Of two kinds that one text
    or several give one name, the lower number stands."""

    SUBJECT = 1
    PERSON = 2
    ORGANISATION = 3
    PLACE = 4
    PRODUCT = 5
    ADDRESS = 6
    NAME = 7
    THING = 8


@dataclass(frozen=True, slots=True)
class Mention:
    """An entity as a text names it; the subject whose memory it is has no name here."""

    name: str
    kind: EntityKind

    @property
    def normal(self) -> str:
        """What names of one entity share; empty for the subject."""
        return normal(self.name)


SUBJECT = Mention("", EntityKind.SUBJECT)


@dataclass(frozen=True, slots=True)
class Claim:
    """What a text says of two entities: ``relation`` is a verb such as ``works_at`` or a word of kinship.
    ``ended`` says that it is so no more."""

    subject: Mention
    relation: str
    object: Mention
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Named:
    """What a text names, in its order, each once, and what it says of that; the claims' entities are among
    the mentions."""

    mentions: tuple[Mention, ...] = ()
    claims: tuple[Claim, ...] = ()

    def joined(self, more: Named, *, mentions: int, claims: int) -> Named:
        """With what ``more`` says beyond it, up to so many of each. Of one entity the surer kind stands."""
        known = {mention.normal: mention for mention in self.mentions}
        for mention in more.mentions:
            stands = known.get(mention.normal)
            if stands is None or mention.kind < stands.kind:
                known[mention.normal] = mention if stands is None else Mention(stands.name, mention.kind)
        kept = dict(list(known.items())[:mentions])
        said: dict[tuple[str, str, str, bool], Claim] = {}
        for claim in (*self.claims, *more.claims):
            subject, thing = claim.subject.normal, claim.object.normal
            if subject in kept and thing in kept:
                joined = Claim(kept[subject], claim.relation, kept[thing], claim.ended)
                said.setdefault((subject, claim.relation, thing, claim.ended), joined)
        return Named(tuple(kept.values()), tuple(said.values())[:claims])


NOTHING = Named()

_TITLES = ("dr. ", "dr ", "prof. ", "prof ", "professor ", "mr. ", "mr ", "mrs. ", "mrs ", "ms. ", "ms ")
_QUOTES = str.maketrans("", "", "\"“”「」『』《》'‘’")
_MAX_CACHED_NAMES = 4096
"""Some 1 MB; the names of a conversation come again and again."""


@lru_cache(_MAX_CACHED_NAMES)
def normal(name: str) -> str:
    """What names of one entity share: without case, width, traditional forms, titles and quotation marks,
    and white space only between words."""
    plain = " ".join(simplified(fold(name)).translate(_QUOTES).split())
    for title in _TITLES:
        plain = plain.removeprefix(title)
    return plain.removeprefix("https://").removeprefix("http://").removeprefix("www.").rstrip("/")


def entity_id(key: StreamKey, mention: Mention) -> str:
    """The id of what is named so in a stream: always the same, in every process."""
    return named_id(key, mention.normal)


def named_id(key: StreamKey, normal_name: str) -> str:
    """The id of what has this normal name in a stream."""
    return str(uuid.uuid5(uuid.UUID(key.incarnation), f"{key.stream}\0{normal_name}"))
