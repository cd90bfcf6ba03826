"""Naming: whom and what a model says that a memory names, as far as the memory's text bears it out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from server.ingest.chat.reading import storable
from server.ingest.entities.entity import SUBJECT, Claim, EntityKind, Mention, Named, normal
from server.ingest.entities.extraction import MOST_NAME

SELF = frozenset(("self", "user", "the user", "agent", "i", "me", "我", "自己", "用户"))
"""By which models name the one whose memories they are."""

_KINDS = {kind.name: kind for kind in EntityKind if kind is not EntityKind.SUBJECT}
_RELATION = re.compile("[a-z][a-z_]{1,39}")


def named(item: Mapping[str, object], text: str) -> Named:
    """What an item says that ``text``, the memory it became, names and says of that. A name that is not in
    the text is dropped, and with it what is said of it. Never raises."""
    plain = normal(text)
    kinds = dict(_kinds(item))
    mentions = {
        mention.normal: mention
        for name, kind in kinds.items()
        if (mention := _mention(name, kind, plain)) is not None
    }
    claims = [claim for told in _dicts(item, "relations") if (claim := _claim(told, mentions, plain))]
    for claim in claims:
        for mention in (claim.subject, claim.object):
            mentions.setdefault(mention.normal, mention)
    return Named(tuple(mentions.values()), tuple(dict.fromkeys(claims)))


def _kinds(item: Mapping[str, object]) -> Iterator[tuple[str, EntityKind]]:
    entities = item.get("entities")
    for one in entities if isinstance(entities, list) else ():
        told = {"name": one} if isinstance(one, str) else one
        if isinstance(told, dict) and isinstance(name := told.get("name"), str):
            kind = _KINDS.get(str(told.get("kind", "")).strip().upper(), EntityKind.NAME)
            yield storable(name).strip(), kind


def _dicts(item: Mapping[str, object], key: str) -> Iterator[Mapping[str, object]]:
    value = item.get(key)
    for one in value if isinstance(value, list) else ():
        if isinstance(one, dict):
            yield one


def _mention(name: str, kind: EntityKind, plain: str) -> Mention | None:
    """The entity of this name, where the text, in its normal form, names it as a word or words of its own."""
    wanted = normal(name)
    if not wanted or len(name) > MOST_NAME:
        return None
    stands = re.search(rf"(?<![a-z0-9]){re.escape(wanted)}(?![a-z0-9])", plain)
    return None if stands is None else Mention(name, kind)


def _claim(told: Mapping[str, object], known: Mapping[str, Mention], plain: str) -> Claim | None:
    subject, thing = _party(told.get("subject"), known, plain), _party(told.get("object"), known, plain)
    relation = _relation(told.get("relation"))
    if subject is None or thing is None or subject == thing or not relation:
        return None
    return Claim(subject, relation, thing, ended=str(told.get("ended", "")).strip().lower() == "true")


def _relation(told: object) -> str:
    """A verb as rules write it, such as ``works_at``; empty where it is none."""
    verb = re.sub(r"[\s-]+", "_", told.strip().lower()) if isinstance(told, str) else ""
    return verb if _RELATION.fullmatch(verb) else ""


def _party(name: object, known: Mapping[str, Mention], plain: str) -> Mention | None:
    if not isinstance(name, str):
        return None
    name = storable(name).strip()
    if name.lower() in SELF:
        return SUBJECT
    return known.get(normal(name)) or _mention(name, EntityKind.THING, plain)
