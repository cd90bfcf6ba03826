"""Sentences of a text in Chinese and English, as spans, in linear time.

They end at 。！？；… .!?; and at line ends, but not inside of brackets and quotation marks, after
abbreviations, in numbers, versions, addresses and file names. A longer one than ``MAX_SENTENCE`` is cut at
a comma or a space.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

MAX_SENTENCE = 1_000
"""Characters. Three of them, the most that make one fact, stay below what a memory holds."""

_PAIRS = {
    "(": ")",
    "（": "）",
    "[": "]",
    "【": "】",
    "「": "」",
    "『": "』",
    "“": "”",
    "《": "》",
    "〈": "〉",
}
_CLOSERS = {closer: opener for opener, closer in _PAIRS.items()}
_QUOTES = '"「『“'
_WRAP = re.compile("[" + re.escape('"' + "".join(_PAIRS) + "".join(_CLOSERS)) + "]")
_MARKS, _EMOJI = "。！？；…!?;", "\u2600-\u27bf\U0001f300-\U0001faff"
_END = re.compile(
    rf"[.{_MARKS}{_EMOJI}](?:(?<=\.)\.*|(?<=[{_MARKS}])[{_MARKS}]*|(?<=[{_EMOJI}])[\ufe0f\u200d]?(?=\s+[A-Z]))"
)
"""Full stops, or other marks, or an emoji before a capital letter. What each begins with comes first, so that
all the rest of a text is passed over at once."""
_AFTER = re.compile("[\"”」』’')\\]）】]*")
_ABBREVIATION = re.compile(
    r"(?i)(?:^|[\s(\[\"“])(?:mr|mrs|ms|dr|prof|st|vs|e\.g|i\.e|approx|fig|dept|est|mt|gen|col|sgt|rev|[a-z])$"
)
_SOFT_ABBREVIATION = re.compile(
    r"(?i)(?:\b[a-z]\.[a-z]|\betc|\binc|\bltd|\bjr|\bsr|\bco|\bno"
    r"|\bjan|\bfeb|\bmar|\bapr|\bjun|\bjul|\baug|\bsept?|\boct|\bnov|\bdec)$"
)
_BEGINNING = re.compile(r"\s*(?:$|(?!I\b)[A-Z])")
_ITEM = re.compile(r"^\s*(?:\d{1,3}|[a-zA-Z])$")
_BULLET = re.compile(r"[ \t]*(?:[-*•·–—]+[ \t]+|\d{1,3}[.)、][ \t]*|#{1,6}[ \t]+)?")
_SOFT = re.compile(r"[,，、:：\s]")


class Span(NamedTuple):
    """Part of a text, from ``start`` to before ``end``."""

    start: int
    end: int


def sentences(text: str) -> list[Span]:
    """The sentences of ``text`` in its order, without white space and list marks around them."""
    found: list[Span] = []
    start = 0
    for line in text.splitlines(keepends=True):
        for begin, end in _of_line(line.rstrip()):
            found += _cut(text, start + begin, start + end)
        start += len(line)
    return found


def quoted(text: str) -> list[Span]:
    """What stands inside of quotation marks, the outermost ones only."""
    return [Span(span.start + 1, span.end - 1) for span in _wrapped(text) if text[span.start] in _QUOTES]


def _of_line(line: str) -> Iterator[tuple[int, int]]:
    bullet = _BULLET.match(line)
    start = 0 if bullet is None else bullet.end()
    ends = [end for end in _END.finditer(line, start) if end.end() < len(line)]
    wrapped = _wrapped(line)[::-1] if ends else []
    for end in ends:
        while wrapped and wrapped[-1].end <= end.start():
            wrapped.pop()
        if (wrapped and wrapped[-1].start < end.start()) or not _ends(line, start, end):
            continue
        after = _AFTER.match(line, end.end())
        stop = end.end() if after is None else after.end()
        yield start, stop
        start = stop
    if start < len(line):
        yield start, len(line)


def _ends(line: str, start: int, end: re.Match[str]) -> bool:
    """Whether a sentence that began at ``start`` ends with this mark."""
    mark, rest = end[0], line[end.end() : end.end() + 12]
    if mark[0] not in ".…!?;":
        return True
    bare = rest.lstrip("\"”」』’')]）】")
    if bare and bare[0].isascii() and not bare[0].isspace() and mark[0] != "…":
        return False
    if mark[0] in ".…" and bare.lstrip()[:1].islower() and (len(mark) > 1 or mark == "…"):
        return False
    if mark != ".":
        return True
    before = line[max(start, end.start() - 12) : end.start()]
    abbreviates, may_abbreviate = _abbreviates(before.rsplit(None, 1)[-1] if before[-1:].strip() else "")
    if abbreviates or (end.start() - start < 6 and _ITEM.match(line[start : end.start()])):
        return False
    return not may_abbreviate or _BEGINNING.match(bare) is not None


@lru_cache(4096)
def _abbreviates(word: str) -> tuple[bool, bool]:
    """Whether a word before a full stop is an abbreviation, and whether it is one or the end of a sentence.
    Remembered are few words of at most 12 characters."""
    return _ABBREVIATION.search(word) is not None, _SOFT_ABBREVIATION.search(word) is not None


def _wrapped(line: str) -> list[Span]:
    """Outermost pairs of brackets or quotation marks, marks included; a mark without a partner is none."""
    found: list[Span] = []
    open_marks: list[tuple[str, int]] = []
    places: dict[str, int] = {}
    for mark in _WRAP.finditer(line):
        character = mark[0]
        opener = character if character == '"' and places.get('"') else _CLOSERS.get(character)
        if opener is None:
            open_marks.append((character, mark.start()))
            places[character] = places.get(character, 0) + 1
        elif places.get(opener):
            _close(found, open_marks, places, opener, mark.end())
    return found


def _close(
    found: list[Span], open_marks: list[tuple[str, int]], places: dict[str, int], opener: str, end: int
) -> None:
    """Note the pair that ends here; what was opened inside of it and not closed is dropped."""
    while True:
        character, start = open_marks.pop()
        places[character] -= 1
        if character == opener:
            break
    while found and found[-1].start > start:
        found.pop()
    found.append(Span(start, end))


def _cut(text: str, start: int, end: int) -> list[Span]:
    """The span, in pieces where it is too long, without white space around it."""
    found: list[Span] = []
    while end - start > MAX_SENTENCE:
        soft = next(
            (
                place
                for place in range(start + MAX_SENTENCE, start + MAX_SENTENCE // 2, -1)
                if _SOFT.match(text[place - 1])
            ),
            start + MAX_SENTENCE,
        )
        found += _trimmed(text, start, soft)
        start = soft
    return found + _trimmed(text, start, end)


def _trimmed(text: str, start: int, end: int) -> list[Span]:
    piece = text[start:end].lstrip()
    start = end - len(piece)
    end = start + len(piece.rstrip())
    return [Span(start, end)] if start < end else []
