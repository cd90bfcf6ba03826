"""Fact: what a message says that is worth remembering."""

from __future__ import annotations

from dataclasses import dataclass

from scrubjay.memory import Micros

USER, ASSISTANT = "user", "assistant"
CORRECTION, NEGATION = "correction", "negation"
"""The tags: the fact says what holds no more; the fact says what is not so."""


@dataclass(frozen=True, slots=True)
class Said:
    """One message: ``role`` is ``user``, ``assistant`` or a speaker's name; ``at`` is when it was said."""

    text: str
    role: str
    at: Micros


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing worth remembering: a run of characters of the message at index ``message``, at most 12 KB.

    ``valid_from`` and ``valid_to`` are set for tasks and events whose days are named, counted from the
    message's own day; a deadline has no ``valid_from``. ``replaces`` is what a correction says holds no
    more, in the speaker's words but without an article, else empty. ``rule`` names the template that decided.
    """

    text: str
    category: str
    tags: frozenset[str]
    message: int
    valid_from: Micros | None
    valid_to: Micros | None
    replaces: str
    rule: str
