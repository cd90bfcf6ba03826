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
class Script:
    """The whole demo: two conversations of two tenants; the first one's memories are changed."""

    conversations: tuple[Conversation, Conversation]
    update: Change
    delete: Removal


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
    return Script((first, second), Change(**data["update"]), Removal(**data["delete"]))
