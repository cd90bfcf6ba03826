"""What a tenant's credentials did: counted in memory beside the calls, written to the catalogue together.

A row is one day's, in UTC, of one credential and one RPC. What was stored is a row of its own, whose RPC is
empty: it is counted where it is committed, be it in a call, or by work that goes on after it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from datetime import date, timedelta
from typing import NamedTuple

from tenants.tenant import Caller, Incarnation, Role

KEPT_DAYS = 400
"""A year, and a month to settle the bill of its last one."""
DEFAULT_DAYS = 30
"""What is told where nobody says which: about a month, today included."""
STORING = ""
"""What stands for the RPC in a row that counts memories."""
MAX_ROWS = 100_000
"""Rows that wait while the catalogue does not answer: some 40 MB. What would be one more is not counted."""

_DAY_NANOS = 24 * 3600 * 1_000_000_000
_EPOCH = date(1970, 1, 1)

log = logging.getLogger(__name__)


class UsageKey(NamedTuple):
    """Which row: ``day`` counts from 1970, ``key_id`` is a key's, a device's or an enrolment's."""

    incarnation: Incarnation
    day: int
    key_id: str
    rpc: str


class Usage(NamedTuple):
    """What a row counts. ``calls`` are all, ``refused`` those of them that ended with an error."""

    calls: int = 0
    refused: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    memories: int = 0


class UsageCounter:
    """What was not written yet; safe for many threads. ``clock`` gives nanoseconds since 1970."""

    def __init__(self, clock: Callable[[], int] = time.time_ns) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._rows: dict[tuple[Incarnation, int, str, str], list[int]] = {}
        self._lost = 0

    def count_call(
        self, caller: Caller, rpc: str, bytes_in: int, bytes_out: int, *, calls: int = 1, refused: int = 0
    ) -> None:
        """Count a call on a tenant's memories, or with no ``calls`` what more a stream sent. Admins' own
        calls are not counted."""
        tenant = caller.tenant
        if tenant is None or caller.role is Role.TENANT_ADMIN:
            return
        key = (tenant.incarnation, self.today(), caller.key_id, rpc)
        with self._lock:
            row = self._rows.get(key) or self._new_row(key)
            row[0] += calls
            row[1] += refused
            row[2] += bytes_in
            row[3] += bytes_out

    def count_memories(self, incarnation: Incarnation, key_id: str, memories: int) -> None:
        """Count memories that were stored for a credential."""
        key = (incarnation, self.today(), key_id, STORING)
        with self._lock:
            row = self._rows.get(key) or self._new_row(key)
            row[4] += memories

    def today(self) -> int:
        """The day that is counted in now."""
        return self._clock() // _DAY_NANOS

    def take(self) -> dict[UsageKey, Usage]:
        """All that was counted since the last time."""
        with self._lock:
            rows, self._rows = self._rows, {}
            lost, self._lost = self._lost, 0
        if lost:
            log.warning("%d calls are in no usage row: the catalogue has not answered for long", lost)
        return {UsageKey(*key): Usage(*row) for key, row in rows.items()}

    def give_back(self, counted: Mapping[UsageKey, Usage]) -> None:
        """What could not be written is there again."""
        with self._lock:
            for key, usage in counted.items():
                row = self._rows.get(key) or self._new_row(key)
                for at, amount in enumerate(usage):
                    row[at] += amount

    def _new_row(self, key: tuple[Incarnation, int, str, str]) -> list[int]:
        row = [0] * len(Usage._fields)
        if len(self._rows) < MAX_ROWS:
            self._rows[key] = row
        else:
            self._lost += 1
        return row


# --- days -----------------------------------------------------------------------------------------


def day_of(micros: int) -> int:
    """The day of a time in microseconds since 1970, in UTC."""
    return micros * 1000 // _DAY_NANOS


def day_text(day: int) -> str:
    """A day as people write it: ``2026-11-30``."""
    return (_EPOCH + timedelta(days=day)).isoformat()


def parse_day(text: str) -> int:
    """The inverse of ``day_text``. ValueError for anything else."""
    parsed = date.fromisoformat(text)
    if parsed.isoformat() != text:
        raise ValueError(f"{text!r} is not written like 2026-11-30")
    return (parsed - _EPOCH).days
