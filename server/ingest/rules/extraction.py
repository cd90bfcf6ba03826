"""Extraction: the facts of a conversation, each in its speaker's words.

A fact is a run of a message's own characters: a sentence or clause, with the sentence that gives its reason
or says what holds instead, and without greetings, nods and questions around it. So both parts of a
correction and every negation stay as they were said.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date

from server.ingest.rules import asked, chinese, english, names, promises
from server.ingest.rules.clauses import clauses, goes_on, joined, without_lead
from server.ingest.rules.cleaning import UNREAD_ROLES, clean
from server.ingest.rules.corrections import correction
from server.ingest.rules.days import Days, day_of, days_ahead, days_behind
from server.ingest.rules.fact import ASSISTANT, CORRECTION, NEGATION, Fact, Said
from server.ingest.rules.reading import read
from server.ingest.rules.sentences import Span, sentences
from server.ingest.rules.talk import asks, asks_back, is_small, requests, supposes
from server.ingest.rules.template import Template, When

MAX_TOLD = 600
"""Characters of a fact that further sentences are added to: what is longer is found by few questions."""

_APART = frozenset({"task", "correction", "name"})
"""Families that stand alone, whatever they begin with."""
_HAN = re.compile("[\u3400-\u9fff]")
_LATIN = re.compile("[a-z]{2}")
_NEGATED = re.compile(r"\b(?:not|never|no|nothing|nobody|without|cannot)\b|n't\b|[不没未别无]")
_ASKING = re.compile(r"(?:，?(?:好吗|可以吗|行吗)|吗|, please|, okay|, ok)?\s?[?？]+\s*$")
_KEPT = ("en.remember.asked", "zh.remember.asked")
_REMEMBER = re.compile(
    r"(?:please |also |and |just |can you |could you ){0,4}"
    r"(?:(?:remember|note|keep in mind|make a note|bear in mind|don't forget)(?: that |: ?"
    r"| this: ?|,? (?=(?:my|our|i|we)\b))"
    r"|(?:fyi|for the record)[:,]? )"
    r"|(?P<zh>(?:请|帮我|你要|你|麻烦|能不能|能|可以){0,4}(?:记住|记一下|记下来?|备注一下"
    r"|记着)[:：，, ]{0,2})"
)


@dataclass(frozen=True, slots=True)
class _Finding:
    """What a clause, or a run of them, says."""

    span: Span
    name: str
    category: str
    when: When = When.NEVER
    replaces: str = ""

    @property
    def family(self) -> str:
        return self.name.split(".")[1]


_REFUSED = _Finding(Span(0, 0), "no.memory.refused", "")
"""The verdict on a clause that is no memory; None is the one on a clause that no rule knows."""


def extract(messages: Sequence[Said]) -> list[Fact]:
    """The facts of a conversation, in its order; system and tool messages have none. Never raises."""
    return [fact for index, said in enumerate(messages) for fact in _of_message(index, said)]


def undecided(messages: Sequence[Said]) -> list[int]:
    """Indexes of people's messages without a fact that say something which no rule knows: a model might."""
    without = set(range(len(messages))) - {fact.message for fact in extract(messages)}
    return [index for index in sorted(without) if _is_undecided(messages[index])]


def _is_undecided(said: Said) -> bool:
    if said.role.lower() in (*UNREAD_ROLES, ASSISTANT):
        return False
    text, today = clean(said.text), day_of(said.at)
    for span in sentences(text):
        seen = read(text[span.start : span.end])
        seen = seen[without_lead(seen) :]
        if any(_verdict(seen[part.start : part.end], today) is None for part in _telling(seen, today)):
            return True
    return False


def _of_message(index: int, said: Said) -> Iterator[Fact]:
    if said.role.lower() in UNREAD_ROLES:
        return
    text, today = clean(said.text), day_of(said.at)
    for finding in _told(text, said.role.lower() == ASSISTANT, today):
        yield _fact(text, index, finding, today)


def _told(text: str, by_assistant: bool, today: date) -> list[_Finding]:
    """What a message says; a sentence about what the one before it named stays with that."""
    told: list[_Finding] = []
    before = -1
    for span in joined(text, sentences(text)):
        sentence = text[span.start : span.end]
        findings = _findings(sentence, by_assistant, today)
        is_next = bool(told) and told[-1].span.end == before and "\n" not in text[before : span.start]
        if is_next and _goes_with(told[-1].span, span, sentence, findings):
            told[-1] = _extended(told[-1], span.end)
        else:
            told += [_moved(finding, span.start) for finding in findings]
        before = span.end
    return told


def _goes_with(fact: Span, span: Span, sentence: str, findings: Sequence[_Finding]) -> bool:
    """Whether a sentence belongs to the fact that ends where it begins."""
    seen = read(sentence)
    if span.end - fact.start > MAX_TOLD or not goes_on(seen) or len(findings) > 1:
        return False
    if findings:
        return findings[0].family not in _APART
    return not (is_small(seen) or asks(seen) or requests(seen) or supposes(seen))


def _fact(text: str, index: int, finding: _Finding, today: date) -> Fact:
    said = text[finding.span.start : finding.span.end].rstrip(" ,，、;；")
    seen = read(said)
    days = _days(finding.when, seen, today)
    tags = {CORRECTION} if finding.family == CORRECTION else set()
    if _NEGATED.search(seen) is not None:
        tags.add(NEGATION)
    return Fact(
        text=said,
        category=finding.category,
        tags=frozenset(tags),
        message=index,
        valid_from=None if days is None else days.valid_from,
        valid_to=None if days is None else days.valid_to,
        replaces=finding.replaces,
        rule=finding.name,
    )


def _findings(sentence: str, by_assistant: bool, today: date) -> list[_Finding]:
    """What one sentence says: a correction as a whole, else clause by clause."""
    seen = read(sentence)
    start = without_lead(seen)
    seen = seen[start:]
    if by_assistant:
        found = (
            None if asks(seen) else _decided(_speaking(seen, promises.ENGLISH, promises.CHINESE), seen, today)
        )
        return [] if found is None else [_moved(found, start)]
    parts = _telling(seen, today)
    if not parts:
        return []
    corrected = _corrected(sentence, start, seen[: parts[-1].end])
    if corrected is not None:
        return [corrected]
    verdicts = [(part, _verdict(seen[part.start : part.end], today)) for part in parts]
    return [_moved(finding, start) for finding in _grouped(verdicts)]


def _telling(seen: str, today: date) -> list[Span]:
    """The clauses of a sentence without the questions at its end; none where the whole is only asked."""
    parts = clauses(seen)
    while (
        parts and asks(seen[parts[-1].start : parts[-1].end]) and not _is_kept(seen[parts[-1].start :], today)
    ):
        last = parts.pop()
        if asks_back(seen[last.start : last.end]):
            return []
    return [] if supposes(seen) else parts


def _moved(finding: _Finding, by: int) -> _Finding:
    return replace(finding, span=Span(finding.span.start + by, finding.span.end + by))


def _speaking(
    seen: str, in_english: Sequence[Template], in_chinese: Sequence[Template]
) -> Iterator[Template]:
    """The templates of the languages that the text is in."""
    if _HAN.search(seen) is not None:
        yield from in_chinese
    if _LATIN.search(seen) is not None or len(seen) < 2:
        yield from in_english


def _decided(templates: Iterable[Template], seen: str, today: date) -> _Finding | None:
    """What the first template that fits says, if one does."""
    for one in templates:
        if one.match(seen) is None or (one.when.needs_day and _days(one.when, seen, today) is None):
            continue
        return _Finding(Span(0, len(seen)), one.name, one.category, one.when)
    return None


def _days(when: When, seen: str, today: date) -> Days | None:
    if when is When.NEVER:
        return None
    return days_ahead(seen, today) if when.is_ahead else days_behind(seen, today)


def _is_kept(seen: str, today: date) -> bool:
    """Whether it asks the assistant to keep something in mind."""
    if _REMEMBER.match(seen) is not None:
        return True
    return requests(seen) and _decided(_speaking(seen, asked.ENGLISH, asked.CHINESE), seen, today) is not None


def _corrected(sentence: str, start: int, seen: str) -> _Finding | None:
    found = correction(seen)
    if found is None:
        return None
    old = sentence[start + found.old[0] : start + found.old[1]]
    return _Finding(Span(start, start + len(seen)), found.name, found.category, replaces=old)


def _verdict(seen: str, today: date) -> _Finding | None:
    """What one clause says: a finding, ``_REFUSED``, or None where no rule knows."""
    told = _decided(_speaking(seen, asked.ENGLISH, asked.CHINESE), seen, today)
    if told is not None:
        return told
    if (kept := _REMEMBER.match(seen)) is not None and not is_small(seen[kept.end() :]):
        return _Finding(Span(kept.end(), len(_ASKING.sub("", seen))), _KEPT[kept["zh"] is not None], "FACT")
    if asks(seen) or is_small(seen) or supposes(seen):
        return _REFUSED
    named = _decided(_speaking(seen, names.ENGLISH, names.CHINESE), seen, today)
    if named is not None:
        return named
    if requests(seen):
        return _REFUSED
    return _decided(_speaking(seen, english.PERSONAL, chinese.PERSONAL), seen, today)


def _grouped(verdicts: Sequence[tuple[Span, _Finding | None]]) -> list[_Finding]:
    """Clauses of one family as one finding; what no rule knows stays with what stands beside it."""
    found: list[_Finding] = []
    unknown: int | None = None
    is_open = False
    for part, verdict in verdicts:
        if verdict is _REFUSED:
            is_open, unknown = False, None
        elif verdict is None and is_open:
            found[-1] = _extended(found[-1], part.end)
        elif verdict is None:
            unknown = part.start if unknown is None else unknown
        elif is_open and found[-1].family == verdict.family:
            found[-1] = _extended(found[-1], part.end)
        else:
            start = part.start + verdict.span.start if unknown is None else unknown
            end = part.start + verdict.span.end
            found.append(replace(verdict, span=Span(start, end)))
            is_open, unknown = True, None
    return found


def _extended(finding: _Finding, end: int) -> _Finding:
    return replace(finding, span=Span(finding.span.start, end))
