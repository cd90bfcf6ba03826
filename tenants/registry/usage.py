"""Usage over SQL: what servers counted, added together in one row for a day, a credential and an RPC."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence

from sqlalchemy import Connection, Engine, delete, select, tuple_
from sqlalchemy.dialects import postgresql, sqlite

from scrubjay.errors import ScrubjayError
from scrubjay.memory import Micros
from tenants.registry.stocks import stock_of
from tenants.registry.tables import tenants, usage
from tenants.tenant import Incarnation, TenantState
from tenants.usage import KEPT_DAYS, Usage, UsageCounter, UsageKey

INTERVAL_SECONDS = 5.0
"""What a killed server loses of its counts, against one small transaction in so many seconds."""
ROWS_AT_ONCE = 1000
"""Rows that one transaction adds to."""

log = logging.getLogger(__name__)

Counted = tuple[UsageKey, Usage]


class UsageBook:
    """The usage of a catalogue's tenants, as its Registry opens it. What this server counts gathers in
    ``counter``, and ``write`` adds it."""

    def __init__(self, engine: Engine, counter: UsageCounter | None = None) -> None:
        self._engine = engine
        self._swept_on: int | None = None
        self.counter = counter or UsageCounter()

    def write(self, _ending: threading.Event | None = None) -> None:
        """Add what was counted, and once a day delete what is too old. What the catalogue does not take is
        kept for the next time."""
        for part in _parts(sorted(self.counter.take().items())):
            try:
                self._add(part)
            except ScrubjayError as error:
                log.warning("%d usage rows wait: %s", len(part), error.message)
                self.counter.give_back(dict(part))
        if self._swept_on != (today := self.counter.today()):
            self._delete_before(today - KEPT_DAYS)
            self._swept_on = today

    def list_usage(
        self,
        incarnation: Incarnation,
        days: tuple[int, int],
        limit: int,
        after: tuple[int, str, str] | None = None,
    ) -> list[Counted]:
        """At most ``limit`` rows of the days from the first to the last one, by day, credential and RPC,
        behind ``after``."""
        first, last = days
        place = tuple_(usage.c.day, usage.c.key_id, usage.c.rpc)
        found = select(usage).where(usage.c.incarnation == incarnation, usage.c.day.between(first, last))
        if after is not None:
            found = found.where(place > tuple_(*after))
        page = found.order_by(usage.c.day, usage.c.key_id, usage.c.rpc).limit(limit)
        with self._engine.begin() as connection:
            rows = connection.execute(page).mappings().all()
        return [
            (
                UsageKey(*(row[name] for name in UsageKey._fields)),
                Usage(*(row[name] for name in Usage._fields)),
            )
            for row in rows
        ]

    def stock(self, incarnation: Incarnation, now: Micros) -> dict[str, int]:
        """What the tenant has in the catalogue: ``devices`` and ``api_keys``."""
        with self._engine.begin() as connection:
            return stock_of(connection, incarnation, now)

    def _add(self, part: Sequence[Counted]) -> None:
        with self._engine.begin() as connection:
            living = _living(connection, {key.incarnation for key, _ in part})
            rows = [{**key._asdict(), **one._asdict()} for key, one in part if key.incarnation in living]
            if rows:
                connection.execute(_ADD[connection.dialect.name], rows)

    def _delete_before(self, day: int) -> None:
        with self._engine.begin() as connection:
            connection.execute(delete(usage).where(usage.c.day < day))


def _living(connection: Connection, incarnations: set[Incarnation]) -> set[str]:
    """Those that are not being purged, none of which begins to be before the transaction ends: else what is
    counted late would stay behind."""
    found = (
        select(tenants.c.incarnation)
        .where(
            tenants.c.incarnation.in_(incarnations),
            tenants.c.state != TenantState.PURGED,
            tenants.c.purge.is_(None),
        )
        .order_by(tenants.c.tenant_id)
        .with_for_update(read=True)
    )
    return set(connection.execute(found).scalars())


def _parts(counted: Sequence[Counted]) -> Iterator[Sequence[Counted]]:
    for at in range(0, len(counted), ROWS_AT_ONCE):
        yield counted[at : at + ROWS_AT_ONCE]


def _adding(insert: type[postgresql.Insert] | type[sqlite.Insert]) -> postgresql.Insert | sqlite.Insert:
    added = insert(usage)
    return added.on_conflict_do_update(
        index_elements=list(usage.primary_key),
        set_={name: usage.c[name] + added.excluded[name] for name in Usage._fields},
    )


_ADD = {"postgresql": _adding(postgresql.Insert), "sqlite": _adding(sqlite.Insert)}
"""By dialect."""
