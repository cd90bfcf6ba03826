"""Template: a form that a sentence may have, and what it says of it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class When(Enum):
    """Which days a template's sentences speak of, and whether one must be named for it to fit."""

    NEVER = "never"
    BEHIND = "behind"
    BEHIND_NAMED = "behind, named"
    AHEAD = "ahead"
    AHEAD_NAMED = "ahead, named"

    @property
    def is_ahead(self) -> bool:
        """Whether what is spoken of is still to come."""
        return self in (When.AHEAD, When.AHEAD_NAMED)

    @property
    def needs_day(self) -> bool:
        """Whether the template fits only where a day is named."""
        return self in (When.BEHIND_NAMED, When.AHEAD_NAMED)


@dataclass(frozen=True, slots=True)
class Template:
    """``pattern`` is searched for in a text as ``read`` gives it, and ``but`` must not be there.

    ``name`` is ``<language>.<family>.<form>``. A pattern's group ``old`` is what a correction replaces.
    """

    name: str
    category: str
    pattern: re.Pattern[str]
    but: re.Pattern[str] | None = None
    when: When = When.NEVER

    @property
    def family(self) -> str:
        """What sort of thing it finds: preference, self, name, task, event, correction, promise."""
        return self.name.split(".")[1]

    def match(self, seen: str) -> re.Match[str] | None:
        """Where the pattern fits, if it does and nothing speaks against it."""
        found = self.pattern.search(seen)
        if found is None or (self.but is not None and self.but.search(seen) is not None):
            return None
        return found


def template(name: str, category: str, pattern: str, but: str = "", when: When = When.NEVER) -> Template:
    """A template of pattern texts."""
    return Template(name, category, re.compile(pattern), re.compile(but) if but else None, when)


def first(templates: Iterable[Template], seen: str) -> tuple[Template, re.Match[str]] | None:
    """The first template that fits, and where."""
    for one in templates:
        if (match := one.match(seen)) is not None:
            return one, match
    return None
