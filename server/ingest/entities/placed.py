"""Where in a text something was found."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from server.ingest.entities.entity import Claim, EntityKind, Mention


class Placed(NamedTuple):
    """An entity that is named from ``start`` to before ``end``."""

    start: int
    end: int
    mention: Mention


class Told(NamedTuple):
    """A claim, and where its object is named."""

    start: int
    claim: Claim


class Form(NamedTuple):
    """A way to say that something stands in ``relation`` to a ``kind`` of thing. It is looked for where a
    text has one of the ``words``."""

    relation: str
    kind: EntityKind
    words: tuple[str, ...]
    pattern: re.Pattern[str]
    ended: bool = False


def form(
    relation: str, kind: EntityKind, words: str, *patterns: str, ended: bool = False
) -> tuple[Form, ...]:
    """A form for each pattern; ``words`` are apart by spaces."""
    return tuple(
        Form(relation, kind, tuple(words.split()), re.compile(pattern), ended) for pattern in patterns
    )


class Forms:
    """Ways to say things, in the order in which they are looked for."""

    def __init__(self, *forms: Form) -> None:
        self._forms = forms
        self._places: dict[str, list[int]] = {}
        self._beginnings: dict[str, set[str]] = {}
        for place, one in enumerate(forms):
            for word in one.words:
                self._places.setdefault(word, []).append(place)
                self._beginnings.setdefault(word[0], set()).add(word)

    def within(self, text: str) -> list[Form]:
        """Those that the text has a word of, if within another one."""
        begun = self._beginnings.keys() & text
        return self.among([word for first in begun for word in self._beginnings[first] if word in text])

    def among(self, said: Iterable[str]) -> list[Form]:
        """Those that have one of these words."""
        places = {place for word in self._places.keys() & said for place in self._places[word]}
        return [self._forms[place] for place in sorted(places)]


def matches(pattern: re.Pattern[str], text: str, starts: Iterable[int]) -> Iterator[re.Match[str]]:
    """What ``pattern.finditer`` finds, where a match can only begin at one of ``starts``, in their order."""
    end = 0
    for start in starts:
        if start >= end and (match := pattern.match(text, start)) is not None:
            end = match.end()
            yield match
