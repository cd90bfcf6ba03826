"""What an import leaves out, where it stands in the file, and why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from scrubjay.memory import JsonValue


class Reason(StrEnum):
    """Why something was not imported."""

    NOT_JSON = "not_json"
    NO_MEMORY = "no_memory"
    NO_CONVERSATION = "no_conversation"
    NO_TEXT = "no_text"
    TOO_LONG = "too_long"
    BAD_DATE = "bad_date"
    UNKNOWN_ROLE = "unknown_role"
    UNKNOWN_FIELD = "unknown_field"
    INVALID = "invalid"
    NOBODY = "nobody"
    OTHER_USER = "other_user"
    ID_TAKEN = "id_taken"
    REFUSED = "refused"
    MODEL = "model"
    MORE_PAGES = "more_pages"

    NOT_CHOSEN = "not_chosen"
    EXPIRED = "expired"
    EMPTY = "empty"
    SYSTEM = "system"
    TOOL = "tool"
    HIDDEN = "hidden"
    NOT_SPOKEN = "not_spoken"
    ATTACHMENT = "attachment"
    BRANCH = "branch"
    RELATION = "relation"


ON_PURPOSE = frozenset(
    {
        Reason.NOT_CHOSEN,
        Reason.EXPIRED,
        Reason.EMPTY,
        Reason.SYSTEM,
        Reason.TOOL,
        Reason.HIDDEN,
        Reason.NOT_SPOKEN,
        Reason.ATTACHMENT,
        Reason.BRANCH,
        Reason.RELATION,
    }
)
"""What no import would take. All else is a fault, which its user may want to mend."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands: a line from 1, or an element of a list from 1, of a file of an archive if it is
    one; of a conversation also the message's id. What does not apply is 0 or empty."""

    line: int = 0
    item: int = 0
    file: str = ""
    message: str = ""

    def to_json(self) -> dict[str, JsonValue]:
        """What applies, by name."""
        found: dict[str, JsonValue] = {
            "file": self.file,
            "line": self.line,
            "item": self.item,
            "message": self.message,
        }
        return {name: value for name, value in found.items() if value}

    def __str__(self) -> str:
        told = self.to_json().items()
        return ", ".join(f"{value}" if name == "file" else f"{name} {value}" for name, value in told)


@dataclass(frozen=True, slots=True)
class Skipped:
    """One thing that was not imported."""

    place: Place
    reason: Reason
    why: str

    def to_json(self) -> dict[str, JsonValue]:
        """A line of the report: it holds nothing of what was said."""
        return self.place.to_json() | {"reason": self.reason.value, "why": self.why}


def printable(text: str) -> str:
    """The text with what no UTF-8 can hold, lone surrogates, spelled out."""
    return text.encode(errors="backslashreplace").decode()


class Unfit(Exception):
    """Something of the file can't become what it should: the reason, and one sentence for a person."""

    def __init__(self, reason: Reason, why: str) -> None:
        self.reason = reason
        self.why = printable(why)
        super().__init__(self.why)

    def at(self, place: Place) -> Skipped:
        """What is skipped for it."""
        return Skipped(place, self.reason, self.why)


class Unreadable(Exception):
    """Nothing of the file can be imported. The message says what to do."""
