"""Times as other programs write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from client_sync.importing.skipping import Reason, Unfit
from scrubjay.memory import Micros

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def instant(value: object) -> Micros:
    """ISO 8601 text, of UTC where it names no zone, or seconds since 1970. Unfit."""
    try:
        if isinstance(value, str):
            at = datetime.fromisoformat(value.strip())
            return _micros(at if at.tzinfo else at.replace(tzinfo=UTC))
        if isinstance(value, int | float) and not isinstance(value, bool):
            return _micros(_EPOCH + timedelta(seconds=value))
    except (ValueError, OverflowError) as error:
        raise Unfit(Reason.BAD_DATE, f"{str(value)[:60]!r} is no time ({error})") from error
    raise Unfit(Reason.BAD_DATE, f"{str(value)[:60]!r} is no time; write it like 2026-11-30T08:00:00Z")


def _micros(at: datetime) -> Micros:
    return Micros((at - _EPOCH) // timedelta(microseconds=1))
