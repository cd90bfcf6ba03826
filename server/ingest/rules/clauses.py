"""Clauses: what a sentence is made of, and which sentences belong together."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from server.ingest.rules.reading import read
from server.ingest.rules.sentences import MAX_SENTENCE, Span
from server.ingest.rules.talk import asks

MAX_JOINED = 3 * MAX_SENTENCE
"""Characters of sentences that are kept together; in UTF-8 at most 12 KB."""

_REASON = re.compile(r"(?:because|since|the reason|that's why|it's because|因为|由于|原因是|毕竟)")
_GOES_ON = re.compile(
    r"(?:and |but |plus |also )?(?:(?:it|they|he|she|there)(?:'s|'re|'ve|'d|'ll)?|(?:this"
    r"|that|these|those)(?:'s| is| was| are| were))\b"
    r"|(?:他|她|它|其中|那里|这里|那儿|这是|那是|里面)"
)
_NOW = re.compile(
    r"(?:(?:i|we)(?:'m| am|'ve| have)? (?:now|use|switched|moved)\b|now\b|instead\b"
    r"|(?:我|我们)?(?:现在|改|换|如今))"
)
_ENDED = re.compile(
    r"\bno longer\b|\bany ?(?:more|longer)\b|\bstopped\b|\bused to\b|以前|不再|再也不|不.{1,30}了"
)
_CLAUSE = re.compile(
    r"(?:[,;] (?:and |but )?|,? and |,? but )(?=(?:i|we|my|our|please)\b)"
    r"|(?: - | – | — |—)(?=(?:i|we)\b)"
    r"|(?:, ?| - | – |— ?)(?=(?:and |but )?(?:what|how|do|does|did|can|could|would|will|is"
    r"|are|have|any|when|where|who|which"
    r"|should|don't|isn't|right|you)\b)"
    r"|[，,；;] ?(?:但是?|不过|而且|另外|还有|然后|同时)?"
    r"(?=我|俺|咱|你|您|很高兴|请|谢|有什么|有没有|怎么|对吗|是吗|是不是|能不能|可以|该)"
)
_DEPENDENT = re.compile(
    r"(?:because|since|as|when|while|although|though|after|before|whenever|once|every time"
    r"|from now on|going forward|in future"
    r"|因为|由于|虽然|尽管|当|自从|既然|每当|比起|相比)"
)
_LEAD = re.compile(
    r"(?:hi|hello|hey|oh|ah|wow|well|yes|yeah|yep|no|ok|okay|sure|thanks|thank you|haha|lol"
    r"|hmm|great|by the way"
    r"|btw|anyway|so|and|but|also|you know|good morning|good evening)(?: there"
    r"| \w{2,12}(?=[,!]))?[,!. ]{1,3}"
    r"|(?:你好|您好|嗨|哈喽|好的|好啊|嗯|哦|对了|是的|没错|对啊|当然可以|当然|可以|呃|哈哈"
    r"|早上好|晚上好|但是?|不过|而且|所以|另外|还有|那|哇|唉|对"
    r"|谢谢[^，,我]{0,8})(?:呀|啊|了|的)?[，,！!。 ]{1,3}"
)
_MAX_LEADS = 4


def joined(text: str, spans: Sequence[Span]) -> Iterator[Span]:
    """The sentences, each with the next ones where they give its reason or say what holds instead."""
    held: Span | None = None
    for span in spans:
        if held is not None and _follows(text, held, span):
            held = Span(held.start, span.end)
            continue
        if held is not None:
            yield held
        held = span
    if held is not None:
        yield held


def _follows(text: str, held: Span, span: Span) -> bool:
    if span.end - held.start > MAX_JOINED or "\n" in text[held.end : span.start]:
        return False
    seen = read(text[span.start : span.end])
    gives_reason = _REASON.match(seen) is not None
    if not gives_reason and _NOW.match(seen) is None:
        return False
    return not asks(seen) and (gives_reason or _ENDED.search(read(text[held.start : held.end])) is not None)


def goes_on(seen: str) -> bool:
    """Whether a sentence speaks of what the one before it named, so that alone it would say little."""
    return _GOES_ON.match(seen) is not None


def without_lead(seen: str) -> int:
    """Where a sentence, as ``read`` gives it, begins to say something."""
    start = 0
    for _ in range(_MAX_LEADS):
        lead = _LEAD.match(seen, start)
        if lead is None or lead.end() == len(seen):
            break
        start = lead.end()
    return start


def clauses(seen: str) -> list[Span]:
    """The clauses of a sentence that have a subject of their own; one that depends keeps what follows it."""
    starts = [0]
    found: list[Span] = []
    for mark in _CLAUSE.finditer(seen):
        if mark.start() > starts[-1] and _DEPENDENT.match(seen, starts[-1]) is None:
            found.append(Span(starts[-1], mark.start()))
            starts.append(mark.end())
    return [*found, Span(starts[-1], len(seen))]
