"""Issues: what of a model's work could not be used, for the caller to see."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

MAX_ISSUES = 100


class IssueKind(IntEnum):
    """The numbers are the contract's."""

    UNREADABLE = 1
    INVENTED_ID = 2
    CUT = 3
    REFUSED = 4
    UNAVAILABLE = 5
    TOO_MANY = 6


@dataclass(frozen=True, slots=True)
class Issue:
    """One of them, in a sentence; ``message`` is the place of the first message that it is about."""

    kind: IssueKind
    sentence: str
    message: int | None = None
