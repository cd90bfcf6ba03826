"""Where in a text something was found."""

from __future__ import annotations

import re
from collections.abc import Iterator
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
        self._words = tuple({word for one in forms for word in one.words})

    def within(self, text: str) -> Iterator[Form]:
        """Those that the text has a word of."""
        said = {word for word in self._words if word in text}
        return (one for one in self._forms if not said.isdisjoint(one.words)) if said else iter(())
