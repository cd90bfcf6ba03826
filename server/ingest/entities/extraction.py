"""Extraction: whom and what a memory's text names, and what it says of them.

Precision comes before recall: what no rule is sure of is left to the words and the meaning of the text, by
which it is found anyway. What is asked, supposed or only wished says nothing of anybody, and neither does
what stands in quotation marks. Who is named as the speaker is mentioned too: what somebody says is about that
one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from server.ingest.entities import chinese, english
from server.ingest.entities.entity import NOTHING, SUBJECT, Claim, EntityKind, Mention, Named
from server.ingest.entities.placed import Placed, Told
from server.ingest.rules.cleaning import UNREAD_ROLES
from server.ingest.rules.fact import ASSISTANT, USER
from server.ingest.rules.sentences import quoted, sentences
from server.ingest.simplified import simplified

MOST_MENTIONS = 32
MOST_CLAIMS = 16
"""Of one memory: more is a list, and names nobody in particular."""
MOST_NAME = 60
"""Characters of a name."""

_MACHINES = frozenset((ASSISTANT, *UNREAD_ROLES, "ai", "bot", "agent", "model"))
_NARROW = {code: code - 0xFEE0 for a, z in ("０９", "ＡＺ", "ａｚ") for code in range(ord(a), ord(z) + 1)}
_NARROW[ord("\u3000")] = ord(" ")
"""Wide letters, digits and spaces as narrow ones."""
_HAN = re.compile("[\u3400-\u9fff]")
_LATIN = re.compile("[A-Za-z]{2}")
_ASKS = re.compile(r"[?？]\W*$|[吗呢]\W*$")
_LABEL = re.compile(r"(?P<name>[^\s:：][^:：\n]{0,40})[:：] ")
_ADDRESS = re.compile(
    r"(?P<mail>[\w.+-]+@[\w-]+(?:\.[\w-]+)+)|(?P<url>(?:https?://|www\.)[^\s<>\"'，。）)】]+)"
    r"|(?<![\w@/.])(?P<handle>@[A-Za-z_]\w{1,29})"
)


def extract(text: str, role: str = "") -> Named:
    """What ``text``, said by ``role``, names and says. A pure function, which never raises."""
    text = text if text.isascii() else text.translate(_NARROW)
    speaker, start = _speaker(text, role)
    found: list[Placed] = list(_addresses(text)) if "@" in text or "://" in text or "www." in text else []
    told: list[Told] = []
    for span in sentences(text[start:]):
        sentence = text[start + span.start : start + span.end]
        places, claims = _of_sentence(sentence, speaker)
        found += (
            Placed(one.start + start + span.start, one.end + start + span.start, one.mention)
            for one in places
        )
        told += (Told(one.start + start + span.start, one.claim) for one in claims)
    if speaker is not None and speaker != SUBJECT:
        found.append(Placed(-1, -1, speaker))
    found += (Placed(one.start, one.start + len(one.claim.object.name), one.claim.object) for one in told)
    return _joined(found, told) if found else NOTHING


def _speaker(text: str, role: str) -> tuple[Mention | None, int]:
    """Whom "I" is, None where that is no person, and where what was said begins: behind "Anna: "."""
    label, said_by = _LABEL.match(text), role.casefold()
    start = label.end() if label is not None and label["name"].casefold() == said_by != "" else 0
    if said_by in _MACHINES:
        return None, start
    if said_by in ("", USER):
        return SUBJECT, start
    return Mention(role[:MOST_NAME], EntityKind.PERSON), start


def _addresses(text: str) -> Iterator[Placed]:
    for match in _ADDRESS.finditer(text):
        name = match[0].rstrip(".,;:!?")[:MOST_NAME]
        yield Placed(match.start(), match.start() + len(name), Mention(name, EntityKind.ADDRESS))


def _of_sentence(text: str, speaker: Mention | None) -> tuple[list[Placed], list[Told]]:
    is_chinese = not text.isascii() and _HAN.search(text) is not None
    places: list[Placed] = []
    told: list[Told] = []
    asks = (is_chinese or "?" in text or "？" in text) and _ASKS.search(text) is not None
    if is_chinese:
        seen = simplified(text)
        places += chinese.entities(seen, text)
        told += () if asks else chinese.claims(seen, text)
    if _LATIN.search(text) is not None:
        places += english.entities(text)
        told += () if asks or is_chinese else english.claims(text)
    if told and (inner := quoted(text)):
        told = [one for one in told if not any(span.start < one.start < span.end for span in inner)]
    return places, [_by(one, speaker) for one in told if speaker is not None or one.claim.subject != SUBJECT]


def _by(told: Told, speaker: Mention | None) -> Told:
    """The claim of the one who says "I"."""
    claim = told.claim
    if speaker is None or speaker == SUBJECT or claim.subject != SUBJECT:
        return told
    return Told(told.start, Claim(speaker, claim.relation, claim.object, claim.ended))


def _joined(found: Iterable[Placed], told: Iterable[Told]) -> Named:
    """Each entity once, under its longest name and surest kind; each claim once."""
    claims = list(dict.fromkeys(one.claim for one in sorted(told, key=lambda one: one.start)))[:MOST_CLAIMS]
    placed = sorted(found, key=lambda one: (one.start, -one.end))
    mentions: dict[str, Mention] = {}
    end = -2
    for one in placed:
        if one.end <= end and one.mention.normal not in mentions:
            continue  # a part of the name before
        end = max(end, one.end)
        if len(one.mention.name) <= MOST_NAME:
            _note(mentions, one.mention)
    said = [mention for claim in claims for mention in (claim.subject, claim.object)]
    for mention in said:
        _note(mentions, mention)
    kept = dict(list(mentions.items())[:MOST_MENTIONS])
    return Named(
        tuple(kept.values()),
        tuple(
            Claim(kept[one.subject.normal], one.relation, kept[one.object.normal], one.ended)
            for one in claims
            if one.subject.normal in kept and one.object.normal in kept
        ),
    )


def _note(mentions: dict[str, Mention], mention: Mention) -> None:
    known = mentions.get(mention.normal)
    if known is None:
        if mention.normal or mention == SUBJECT:
            mentions[mention.normal] = mention
    elif mention.kind < known.kind:
        mentions[mention.normal] = Mention(known.name, mention.kind)
