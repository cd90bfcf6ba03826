"""Reading a model's answer: whatever it is, what can be used of it is used, and the rest is counted."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from server.ingest.chat.lenient_json import Json, parse

MAX_ANSWER = 400_000
"""Characters of an answer that are read: a hundred memories of the longest kind that make sense."""
TEXT_KEYS = ("text", "memory", "memories", "content", "fact", "facts", "statement", "data")
"""By which models name what they say."""
LIST_KEYS = ("memories", "memory", "facts", "decisions", "results", "items", "data", "events", "actions")

_THOUGHT = re.compile(r"<(think|thinking|reasoning)>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE)
_THOUGHT_END = re.compile(r"</(?:think|thinking|reasoning)>", re.IGNORECASE)
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Answer:
    """The items of an answer, in its order. ``found`` says whether there was a list of any kind, ``cut``
    that it ends too early; ``unreadable`` counts what in it is no item."""

    items: tuple[Mapping[str, object], ...] = ()
    found: bool = True
    cut: bool = False
    unreadable: int = 0


def read(answer: str) -> Answer:
    """The items of an answer: objects, where a text alone is an object of a ``text``. Never raises."""
    text = _without_thoughts(answer)
    found = parse(text[:MAX_ANSWER])
    loose = _Elements([one.value for one in found.values if _item(one.value) is not None], found.broken > 0)
    lists = [
        _Elements(elements, not one.whole)
        for one in found.values
        if (elements := _list(one.value)) is not None
    ]
    if not lists and not loose.items:
        return Answer(found=False, cut=any(not one.whole for one in found.values))
    # Where a model gives several lists, the later is what it thought better of.
    best = max(reversed([loose, *lists]), key=lambda one: len(one.items))
    return Answer(
        tuple(best.items),
        cut=best.cut or len(text) > MAX_ANSWER,
        unreadable=len(best.elements) - len(best.items),
    )


class _Elements:
    """What may be the items of an answer."""

    def __init__(self, elements: Sequence[object], cut: bool) -> None:
        self.elements = elements
        self.items = [item for element in elements if (item := _item(element)) is not None]
        self.cut = cut


def text_of(item: Mapping[str, object]) -> str:
    """What an item says, empty where it says nothing."""
    for key in TEXT_KEYS:
        if isinstance(value := item.get(key), str) and value.strip():
            return storable(value).strip()
    return ""


def texts_of(item: Mapping[str, object], key: str) -> list[str]:
    """A list of texts in an item, or the one text that stands for it."""
    value = item.get(key)
    elements = value if isinstance(value, list) else [value]
    return [storable(one).strip() for one in elements if isinstance(one, str) and one.strip()]


def numbers_of(item: Mapping[str, object], *keys: str) -> Iterator[int | None]:
    """What an item names by numbers under any of the keys; None for each that is no number."""
    for key in keys:
        value = item.get(key)
        for one in value if isinstance(value, list) else [value]:
            if one is not None and one != "":
                yield number(one)


def number(value: object) -> int | None:
    """A whole number, also one that is written as a text; None for anything else."""
    if isinstance(value, str) and re.fullmatch(r"\s*#?\d{1,9}\s*", value, re.ASCII):
        return int(value.strip().lstrip("#"))
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def storable(text: str) -> str:
    """The text without what no database holds."""
    return _UNSTORABLE.sub(" ", text)


def _without_thoughts(answer: str) -> str:
    """The text behind what the model thought aloud; some servers leave out where that begins."""
    text = _THOUGHT.sub(" ", answer)
    ends = list(_THOUGHT_END.finditer(text))
    return text[ends[-1].end() :] if ends else text


def _list(value: Json | object) -> Sequence[object] | None:
    """The items that a value stands for, if it stands for any."""
    if isinstance(value, list):
        return value
    if not isinstance(value, dict):
        return None
    for key in LIST_KEYS:
        inner = value.get(key)
        if isinstance(inner, list):
            return inner
        if isinstance(inner, dict):
            return [inner] if _item(inner) is not None else list(inner.values())
    if _item(value) is not None:
        return [value]
    lists = [inner for inner in value.values() if isinstance(inner, list)]
    if len(lists) == 1:
        return lists[0]
    return None if value else []


def _item(element: object) -> Mapping[str, object] | None:
    if isinstance(element, str):
        return {"text": element} if element.strip() else None
    if not isinstance(element, dict):
        return None
    named = any(key in element for key in ("action", "event", "decision"))
    return element if named or text_of(element) else None
