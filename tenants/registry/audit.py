"""The audit log over SQL."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection, Engine, RowMapping, insert, select, update

from scrubjay.errors import ScrubjayError
from tenants.audit import NO_DIGEST, Act, AuditEvent, Head, chained, end_faults, faults, sealed
from tenants.credentials import derive_secret
from tenants.registry.tables import audit_events, audit_head
from tenants.tenant import Incarnation

log = logging.getLogger("scrubjay.audit")


@dataclass(frozen=True, slots=True)
class Verified:
    """What a look at a part of the log found; ``last`` is the number to go on behind, unless it was the last
    part: ``at_end``."""

    count: int
    faults: tuple[str, ...]
    last: int
    digest: bytes
    at_end: bool


class AuditLog:
    """The log of a catalogue, as its Registry opens it. It is only ever added to."""

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
            before = self._at(connection, after)
            run = self._run(connection, after, limit)
        at_end = len(run) < limit
        found = list(faults(self._key, before, run)) if before or not after else [f"event {after} is missing"]
        last = run[-1] if run else before
        if at_end:
            found += end_faults(self._key, head, last)
        number, digest = (after, b"") if last is None else (last.number, last.digest)
        return Verified(len(run), tuple(found), number, digest, at_end)

    def _moment(self) -> Engine:
        """For reads of one moment; SQLite knows no others."""
        if self._engine.dialect.name == "sqlite":
            return self._engine
        return self._engine.execution_options(isolation_level="REPEATABLE READ")

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


def _head(row: RowMapping | None) -> Head:
    if row is None:
        return Head(0, NO_DIGEST, b"")
    return Head(row["number"], row["digest"], row["seal"])
