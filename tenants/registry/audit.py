"""The audit log over SQL."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass
from itertools import takewhile
from typing import Any

from sqlalchemy import Connection, Engine, RowMapping, delete, insert, select, update

from scrubjay.errors import ScrubjayError
from scrubjay.memory import DAY_MICROS, Micros
from tenants.audit import (
    NO_DIGEST,
    NO_TAIL,
    Act,
    AuditEvent,
    Head,
    Place,
    Tail,
    chained,
    cut_behind,
    end_faults,
    faults,
    is_own,
    sealed,
)
from tenants.credentials import derive_secret
from tenants.registry.tables import audit_events, audit_head, audit_tail
from tenants.tenant import Incarnation

INTERVAL_SECONDS = 3600
"""How often a server that keeps events for days looks for old ones."""
CUT_AT_ONCE = 5_000
"""Events that one transaction checks and deletes: some 0.1 s for which others wait."""

log = logging.getLogger("scrubjay.audit")


@dataclass(frozen=True, slots=True)
class Verified:
    """What a look at a part of the log found; ``last`` is the number to go on behind, unless it was the last
    part: ``at_end``. The events up to ``cut`` were deleted for their age."""

    count: int
    faults: tuple[str, ...]
    last: int
    digest: bytes
    at_end: bool
    cut: int


class AuditLog:
    """The log of a catalogue, as its Registry opens it. It is only added to, and cut off where it is old."""

    def __init__(self, engine: Engine, *, pepper: bytes) -> None:
        self._engine = engine
        self._key = derive_secret(pepper, b"", "key of the audit log")

    def append(self, connection: Connection, act: Act) -> None:
        """Add an act to the log, in its own transaction; the last thing that this does, for others wait."""
        head = _head(connection.execute(select(audit_head).with_for_update()).mappings().first())
        event = chained(self._key, head.digest, head.number + 1, act)
        row = {"number": event.number, **asdict(act), "digest": event.digest}
        connection.execute(insert(audit_events).values(row))
        connection.execute(update(audit_head).values(asdict(sealed(self._key, event))))

    def refuse(self, act: Act) -> None:
        """Add what was refused. A log that does not take it is no second refusal."""
        try:
            with self._engine.begin() as connection:
                self.append(connection, act)
        except ScrubjayError as error:
            log.warning("a refusal is not in the audit log: %s", error.message)

    def list_events(
        self,
        limit: int,
        before: int | None = None,
        *,
        tenant_id: str = "",
        incarnation: Incarnation | None = None,
    ) -> list[AuditEvent]:
        """At most ``limit`` events, newest first, with numbers below ``before``; those of one tenant, or of
        one life of a tenant, where it is named."""
        found = select(audit_events).order_by(audit_events.c.number.desc()).limit(limit)
        if before is not None:
            found = found.where(audit_events.c.number < before)
        if tenant_id:
            found = found.where(audit_events.c.tenant_id == tenant_id)
        if incarnation is not None:
            found = found.where(audit_events.c.incarnation == incarnation)
        with self._engine.begin() as connection:
            return [_event(row) for row in connection.execute(found).mappings()]

    def verify(self, after: int, limit: int) -> Verified:
        """Whether the ``limit`` events behind the number ``after`` are as they were written."""
        with self._moment().begin() as connection:
            head = _head(connection.execute(select(audit_head)).mappings().first())
            tail = self._tail(connection)
            own = is_own(self._key, tail)
            after = max(after, tail.number) if own else after
            before: Place = tail if own and 0 < after == tail.number else self._at(connection, after)
            run = self._run(connection, after, limit)
        at_end = len(run) < limit
        found = list(faults(self._key, before, run)) if before or not after else [f"event {after} is missing"]
        if not own and not after:
            found.insert(0, f"the log was cut off behind event {tail.number}, and not by a server")
        last = run[-1] if run else before
        if at_end:
            found += end_faults(self._key, head, last)
        number, digest = (after, b"") if last is None else (last.number, last.digest)
        return Verified(len(run), tuple(found), number, digest, at_end, tail.number if own else 0)

    def cut(self, keep_days: int, *, now: Micros) -> int:
        """Delete events that are more than ``keep_days`` old, once there is a day's worth of them, and note
        that as one more; how many. A log that somebody changed there is not cut."""
        until, count = now - keep_days * DAY_MICROS, 0
        with self._engine.begin() as connection:
            oldest = self._run(connection, self._tail(connection).number, 1)
        if oldest and oldest[0].act.at < until - DAY_MICROS:
            while gone := self._cut_some(until, now):
                count += gone
        return count

    def _cut_some(self, until: int, now: Micros) -> int:
        with self._engine.begin() as connection:
            connection.execute(select(audit_head).with_for_update())  # nobody else adds or cuts
            tail = self._tail(connection)
            run = self._run(connection, tail.number, CUT_AT_ONCE)
            old = list(takewhile(lambda event: event.act.at < until, run))
            if not old:
                return 0
            if not is_own(self._key, tail) or any(faults(self._key, tail, old)):
                log.error("the audit log was changed: nothing is cut off; see VerifyAuditEvents")
                return 0
            last = old[-1]
            connection.execute(delete(audit_events).where(audit_events.c.number <= last.number))
            connection.execute(delete(audit_tail))
            connection.execute(insert(audit_tail).values(asdict(cut_behind(self._key, last))))
            self.append(connection, _cutting(tail.number + 1, last.number, now))
        return len(old)

    def _moment(self) -> Engine:
        """For reads of one moment; SQLite knows no others."""
        if self._engine.dialect.name == "sqlite":
            return self._engine
        return self._engine.execution_options(isolation_level="REPEATABLE READ")

    @staticmethod
    def _tail(connection: Connection) -> Tail:
        row = connection.execute(select(audit_tail)).mappings().first()
        return NO_TAIL if row is None else Tail(row["number"], row["digest"], row["seal"])

    @staticmethod
    def _at(connection: Connection, number: int) -> AuditEvent | None:
        row = (
            connection.execute(select(audit_events).where(audit_events.c.number == number)).mappings().first()
        )
        return None if row is None else _event(row)

    @staticmethod
    def _run(connection: Connection, after: int, limit: int) -> list[AuditEvent]:
        run = select(audit_events).where(audit_events.c.number > after)
        rows = connection.execute(run.order_by(audit_events.c.number).limit(limit)).mappings()
        return [_event(row) for row in rows]


def _event(row: RowMapping) -> AuditEvent:
    act: dict[str, Any] = {name: row[name] for name in Act.__slots__}
    return AuditEvent(row["number"], Act(**act), row["digest"])


def _cutting(first: int, last: int, now: Micros) -> Act:
    return Act.of_server(now, "CutAuditLog", detail=f"events {first} to {last}")


def _head(row: RowMapping | None) -> Head:
    if row is None:
        return Head(0, NO_DIGEST, b"")
    return Head(row["number"], row["digest"], row["seal"])
