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
from server.ingest.rules.sentences import MAX_SENTENCE, quoted, sentences
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
_WIDE = re.compile("[０-９Ａ-Ｚａ-ｚ\u3000]")
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
    if not text.isascii() and _WIDE.search(text) is not None:
        text = text.translate(_NARROW)
    speaker, start = _speaker(text, role)
    found: list[Placed] = list(_addresses(text)) if "@" in text or "://" in text or "www." in text else []
    told: list[Told] = []
    read = _sentences(text, start)
    is_latin = read and _LATIN.search(text) is not None
    reader = english.Reader(" ".join([sentence for _, sentence in read])) if is_latin else None
    for begin, sentence in read:
        places, claims = _of_sentence(sentence, speaker, reader)
        found += [Placed(begin + one.start, begin + one.end, one.mention) for one in places]
        told += [Told(begin + one.start, one.claim) for one in claims]
    if speaker is not None and speaker != SUBJECT:
        found.append(Placed(-1, -1, speaker))
    found += (Placed(one.start, one.start + len(one.claim.object.name), one.claim.object) for one in told)
    return _joined(found, told) if found else NOTHING


def _sentences(text: str, start: int) -> list[tuple[int, str]]:
    """The sentences from ``start`` with their places; none where no rule can find anything. A longer text may
    be cut within a word, so that a word begins there."""
    is_chinese = not text.isascii() and _HAN.search(text) is not None
    if not is_chinese and len(text) <= MAX_SENTENCE and english.names_nothing(text):
        return []
    return [(start + begin, text[start + begin : start + end]) for begin, end in sentences(text[start:])]


def _speaker(text: str, role: str) -> tuple[Mention | None, int]:
    """Whom "I" is, None where that is no person, and where what was said begins: behind "Anna: "."""
    said_by = role.casefold()
    label = _LABEL.match(text) if said_by else None
    start = label.end() if label is not None and label["name"].casefold() == said_by else 0
    if said_by in _MACHINES:
        return None, start
    if said_by in ("", USER):
        return SUBJECT, start
    return Mention(role[:MOST_NAME], EntityKind.PERSON), start


def _addresses(text: str) -> Iterator[Placed]:
    for match in _ADDRESS.finditer(text):
        name = match[0].rstrip(".,;:!?")[:MOST_NAME]
        yield Placed(match.start(), match.start() + len(name), Mention(name, EntityKind.ADDRESS))


def _of_sentence(
    text: str, speaker: Mention | None, reader: english.Reader | None
) -> tuple[list[Placed], list[Told]]:
    is_chinese = not text.isascii() and _HAN.search(text) is not None
    places: list[Placed] = []
    told: list[Told] = []
    asks = (is_chinese or "?" in text or "？" in text) and _ASKS.search(text) is not None
    if is_chinese:
        seen = simplified(text)
        places += chinese.entities(seen, text)
        told += () if asks else chinese.claims(seen, text)
    if reader is not None and _LATIN.search(text) is not None:
        named, said = reader.read(text, tells=not (asks or is_chinese))
        places, told = places + named, told + said
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
    for claim in claims:
        _note(mentions, claim.subject)
        _note(mentions, claim.object)
    kept = dict(list(mentions.items())[:MOST_MENTIONS])
    pairs = [(one, kept.get(one.subject.normal), kept.get(one.object.normal)) for one in claims]
    return Named(
        tuple(kept.values()),
        tuple(
            Claim(subject, one.relation, thing, one.ended)
            for one, subject, thing in pairs
            if subject is not None and thing is not None
        ),
    )


def _note(mentions: dict[str, Mention], mention: Mention) -> None:
    normal = mention.normal
    known = mentions.get(normal)
    if known is None:
        if normal or mention == SUBJECT:
            mentions[normal] = mention
    elif mention.kind < known.kind:
        mentions[normal] = Mention(known.name, mention.kind)
