"""Names in English sentences by their capital letters."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from server.ingest.entities.entity import EntityKind, Mention
from server.ingest.entities.placed import Placed, matches
from server.ingest.entities.words import BEGINNINGS, GIVEN_NAMES, NO_NAMES, PLACES

CAP = (
    r"(?:(?:Mc|Mac|O['’]|D['’])?[A-Z][a-zß-ÿ]+(?:[A-Z][a-z]+)*(?:-[A-Z][a-zß-ÿ]+)*|[A-Z]{2,}[a-z0-9+#]*"
    r"|[a-z]{1,2}[A-Z][A-Za-z]+|[A-Z]\.(?= [A-Z]))"
)
_JOINS = r"(?: (?:of the|of|de|van|von|der|da|del|&) | )"
_RUN = rf"(?<![\w@/.'’-]){CAP}(?:(?:{_JOINS}|-){CAP})*(?: \d+(?![\w:/.]))?(?![\w@/])"
NAME = rf"{CAP}(?:{_JOINS}{CAP}){{0,4}}(?![\w@])"
_RUNS = re.compile(_RUN)
_HIGH = re.compile(r"[A-Z](?:(?<=\b.)|(?<=\b[a-z].)(?P<second>)|(?<=\b[a-z]{2}.)(?P<third>))")
"""A capital letter that is the first, second or third of its word: so ``CAP`` begins, and all names do."""
_CAPITAL = re.compile("[A-Z]")
_ORGANISATION = re.compile(
    r"(?:\b(?:Inc|Ltd|LLC|GmbH|Corp|Corporation|Company|University|Institute|Bank|Hospital|Clinic|College|School"
    r"|Academy|Foundation|Labs|Airlines|Airways|Museum|Agency|Ministry|Association)$)|^(?:University|Bank"
    r"|Institute|Ministry|Bank) of "
)
_OWNS = re.compile(
    r"['’]s (?!an?\b|the\b|so\b|not\b|been\b|just\b|really\b|all\b|always\b|great|good|too\b|about\b"
    r"|like\b|my\b|your\b|our\b|in\b|on\b|to\b|never\b|such\b|what|why|how|full\b|\w+ing\b|\w+ed\b)[a-z]"
)
_MAX_KEPT_RUNS = 4096
"""Some 2 MB; the names of a conversation come again and again, and so does what begins sentences."""


def has_capital(text: str) -> bool:
    """Whether a name may be in the text."""
    return _CAPITAL.search(text) is not None


def starts_of_names(text: str) -> list[int]:
    """Where names can begin."""
    return [match.start() - (match.lastindex or 0) for match in _HIGH.finditer(text)]


def is_title_case(text: str, starts: Sequence[int]) -> bool:
    """Whether capitals say nothing here: a heading, or somebody who shouts. ``starts`` are those of names."""
    if text.isascii() and len(starts) < 4:  # of five words four are capitalised
        return False
    words = [word[0] for word in text.split() if word[0].isalpha()]
    return len(words) > 4 and len(list(filter(str.isupper, words))) > 0.7 * len(words)


def capitalised(text: str, starts: Sequence[int]) -> Iterator[Placed]:
    """The names that begin at some of ``starts``."""
    for match in matches(_RUNS, text, starts):
        run = _run(match[0], _begins(text, match.start()))
        start = match.start() + run.before
        end = start + len(run.mention.name)
        if start < end and (run.is_name or _OWNS.match(text, end) is not None):
            yield Placed(start, end, run.mention)


def _begins(text: str, start: int) -> bool:
    """Whether a sentence, a quotation or an item begins here, so that a capital says nothing."""
    before = text[:start].rstrip(" ")
    return not before or before[-1] in ".!?:;\"“‘'(—–-*•#>[…"


class _Run(NamedTuple):
    """Capitalised words: so many characters before the name, the name, and whether it is surely one."""

    before: int
    mention: Mention
    is_name: bool


@lru_cache(_MAX_KEPT_RUNS)
def _run(said: str, first: bool) -> _Run:
    """What is named by such words, which are the ``first`` of something or are not."""
    before, words = 0, said.split(" ")
    while words and _is_no_name(words[0], first):
        before += len(words[0]) + 1
        words, first = words[1:], False
    while words and (_is_no_name(words[-1], False) or words[-1] in ("of", "the", "de", "&")):
        words = words[:-1]
    name = " ".join(words)
    return _Run(before, Mention(name, kind_of(name)), not first or len(words) > 1 or _is_marked(name))


def _is_no_name(word: str, first: bool) -> bool:
    low = word.lower().replace("’", "'")
    return low in NO_NAMES or (low in BEGINNINGS and (first or low in ("i", "my", "the", "a")))


def _is_marked(name: str) -> bool:
    """Whether a single word at a beginning shows by itself that it is a name."""
    low = name.lower()
    return low in PLACES or low in GIVEN_NAMES or any(character.isupper() for character in name[1:])


def kind_of(name: str) -> EntityKind:
    """What has such a name, as far as that says."""
    if _ORGANISATION.search(name):
        return EntityKind.ORGANISATION
    if name.lower() in PLACES:
        return EntityKind.PLACE
    return EntityKind.PERSON if name.split(" ")[0].lower() in GIVEN_NAMES else EntityKind.NAME
