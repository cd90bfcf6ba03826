"""Extracting: one call of the model for one piece of a conversation."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta

from scrubjay.memory import Memory, Micros, midnight, utc_day
from scrubjay.validity import MAX_TAG_BYTES
from server.ingest.chat.issues import Issue, IssueKind
from server.ingest.chat.pieces import Part, Piece
from server.ingest.chat.prompts import Prompt
from server.ingest.chat.reading import Answer, number, read, text_of, texts_of
from server.ingest.chat.shown import Shown
from server.ingest.rules.days import day_of, days_ahead, days_behind
from server.ingest.rules.fact import ASSISTANT, Said
from server.ingest.rules.reading import read as seen
from server.providers.chat import ChatModel

CATEGORIES = ("FACT", "PREFERENCE", "TASK", "EVENT")
MAX_TAGS = 3


@dataclass(frozen=True, slots=True)
class Told:
    """A fact that the model found at the place ``message``. Its category is empty where the model named none;
    ``supersedes`` and ``linked`` are memories that it was shown; ``item`` is all that it said."""

    text: str
    category: str
    tags: frozenset[str]
    message: int
    at: Micros
    valid_from: Micros | None
    valid_to: Micros | None
    supersedes: Sequence[Memory] = ()
    linked: Sequence[Memory] = ()
    item: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Extracted:
    """What one piece gave."""

    told: tuple[Told, ...]
    issues: tuple[Issue, ...]


def extract(chat: ChatModel, prompt: Prompt, piece: Piece, before: Iterable[Said], shown: Shown) -> Extracted:
    """What the model finds in a piece. ModelUnavailable and ModelMismatch as ``ChatModel.complete``."""
    asked = {
        "messages": [{"n": part.message, **_said(part.said)} for part in piece],
        "before": [_said(said) for said in before],
        "memories": shown.as_json(),
    }
    answer = read(chat.complete_json(prompt.text, json.dumps(asked, ensure_ascii=False)))
    told = [_told(item, text, piece, shown) for item in answer.items if (text := text_of(item))]
    empty = len(answer.items) - len(told)
    return Extracted(tuple(told), tuple(_issues(answer, empty, shown.invented, piece)))


def _said(said: Said) -> dict[str, str]:
    return {"role": said.role, "day": utc_day(said.at).isoformat(), "text": said.text}


def _told(item: Mapping[str, object], text: str, piece: Piece, shown: Shown) -> Told:
    part = _source(item, piece)
    category = str(item.get("category", "")).strip().upper()
    category = category if category in CATEGORIES else ""
    valid_from, valid_to = _days(item, text, category, part.said.at)
    tags = [tag for tag in texts_of(item, "tags") if len(tag.encode()) <= MAX_TAG_BYTES]
    return Told(
        text=text,
        category=category,
        tags=frozenset(tags[:MAX_TAGS]),
        message=part.message,
        at=part.said.at,
        valid_from=valid_from,
        valid_to=valid_to,
        supersedes=shown.named(item, "supersedes"),
        linked=shown.named(item, "linked"),
        item=item,
    )


def _source(item: Mapping[str, object], piece: Piece) -> Part:
    """Where it was said: the message that the item names, or else the last one that is a person's."""
    named = number(item.get("message"))
    for part in piece:
        if part.message == named:
            return part
    people = [part for part in piece if part.said.role.lower() != ASSISTANT]
    return (people or piece)[-1]


def _days(
    item: Mapping[str, object], text: str, category: str, at: Micros
) -> tuple[Micros | None, Micros | None]:
    """When it is true: as the model says, or as the text says, counted from when it was said."""
    first, last = _day(item.get("valid_from")), _day(item.get("valid_to"))
    if (first is not None or last is not None) and not (first and last and last < first):
        return (
            None if first is None else midnight(first),
            None if last is None else midnight(last + timedelta(days=1)),
        )
    said_on = day_of(at)
    days = days_ahead(seen(text), said_on) if category == "TASK" else None
    days = days_behind(seen(text), said_on) if category == "EVENT" else days
    return (None, None) if days is None else (days.valid_from, days.valid_to)


def _day(value: object) -> date | None:
    try:
        day = date.fromisoformat(str(value)[:10])
    except ValueError:
        return None
    return day if 2 <= day.year <= 9998 else None


def _issues(answer: Answer, empty: int, invented: int, piece: Piece) -> list[Issue]:
    place = piece[0].message
    found = []
    if not answer.found:
        what = "the model's answer holds no list of memories; nothing of this part is stored"
        found.append(Issue(IssueKind.UNREADABLE, what, place))
    if answer.cut and answer.found:
        what = "the model's answer breaks off; what is whole of it is stored"
        found.append(Issue(IssueKind.CUT, what, place))
    if unread := answer.unreadable + empty:
        what = f"{unread} of the items of the model's answer say nothing; they are left out"
        found.append(Issue(IssueKind.UNREADABLE, what, place))
    if invented:
        what = f"the model named {invented} memories that it was not shown; the names are dropped"
        found.append(Issue(IssueKind.INVENTED_ID, what, place))
    return found
