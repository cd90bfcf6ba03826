"""What the demo says and promises, read from ``conversation.json``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).with_name("conversation.json")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a conversation. What the user says is remembered."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and the line that must be found first."""

    text: str
    answer: str


@dataclass(frozen=True, slots=True)
class Conversation:
    """One user of one tenant talks, and is asked about later."""

    tenant_id: str
    user_id: str
    id: str
    lines: tuple[Line, ...]
    questions: tuple[Question, ...]

    @property
    def remembered(self) -> list[str]:
        """What is added: the user's own lines, in order."""
        return [line.text for line in self.lines if line.role == "user"]


@dataclass(frozen=True, slots=True)
class Change:
    """An update of a memory, and the question that finds it before and after."""

    question: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Removal:
    """A memory that is deleted, and the question that found it before."""

    question: str
    text: str


@dataclass(frozen=True, slots=True)
class TwoDevices:
    """What a phone and the web do to the first user's memories.

    The web writes ``new_text`` over ``edited`` while the phone, offline, tags it ``tag``; the web deletes
    ``deleted`` while the phone edits it to ``late``; the phone keeps ``secret`` to itself, and shares
    ``taken_back`` before it takes it back.
    """

    edited: str
    new_text: str
    tag: str
    deleted: str
    late: str
    secret: str
    taken_back: str


@dataclass(frozen=True, slots=True)
class Script:
    """The whole demo: two conversations of two tenants; the first one's memories are changed."""

    conversations: tuple[Conversation, Conversation]
    update: Change
    delete: Removal
    devices: TwoDevices


def read_script() -> Script:
    """The script of this repository."""
    data = json.loads(FILE.read_text(encoding="utf-8"))
    first, second = (
        Conversation(
            each["tenant_id"],
            each["user_id"],
            each["id"],
            tuple(Line(**line) for line in each["lines"]),
            tuple(Question(**question) for question in each["questions"]),
        )
        for each in data["conversations"]
    )
    return Script(
        (first, second), Change(**data["update"]), Removal(**data["delete"]), TwoDevices(**data["devices"])
    )
