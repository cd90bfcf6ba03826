"""How long what a tenant's past leaves behind is kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from scrubjay import v1
from scrubjay.errors import FieldViolation

MAX_HISTORY_DAYS = 36_500
"""A hundred years; whoever wants longer wants for ever, and says nothing."""
MAX_TOMBSTONE_DAYS = 3_650
"""As of the server's own setting."""


@dataclass(frozen=True, slots=True)
class Retention:
    """Days that History is kept, 0: for ever; and that deletions are told to devices, 0: as many as the
    server's setting says."""

    history_days: int = 0
    tombstone_days: int = 0


DEFAULT_RETENTION = Retention()
"""Of a tenant that never said how long."""


def violations(field_path: str, retention: Retention) -> Iterator[FieldViolation | None]:
    """What is wrong with the days, if anything."""
    for name, most in (("history_days", MAX_HISTORY_DAYS), ("tombstone_days", MAX_TOMBSTONE_DAYS)):
        days = getattr(retention, name)
        if not 0 <= days <= most:
            yield FieldViolation(f"{field_path}.{name}", f"is {days}; give 1 to {most}, or 0 for the default")


# --- as JSON text, and as a message -----------------------------------------------------------------


def to_text(retention: Retention) -> str | None:
    """The days as the catalogue keeps them: None for those of a tenant that never said."""
    return None if retention == DEFAULT_RETENTION else json.dumps(asdict(retention))


def from_text(text: str | None) -> Retention:
    """The inverse of ``to_text``."""
    return DEFAULT_RETENTION if text is None else Retention(**json.loads(text))


def to_message(retention: Retention) -> v1.Retention:
    """The days as their message."""
    return v1.Retention(**asdict(retention))


def from_message(message: v1.Retention) -> Retention:
    """The inverse of ``to_message``; nothing is validated here: see ``violations``."""
    return Retention(message.history_days, message.tombstone_days)
