"""How much each tenant has in a shard: a row for each, written with what it counts.

``memories`` are those that live. ``bytes`` are those of all that was written of them and their history, which
deleting does not take back and a purge does. A transaction adds to the rows once, at its end, so that writers
of one tenant in several processes wait for each other no longer than a commit takes. Only the rows of tenants
with a limit are held from the beginning, in one order for every process, so that no two pass it together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from sqlalchemy import Insert, Table, bindparam, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.dml import ReturningInsert

from scrubjay.errors import QuotaExceeded
from server.store.tables import stocks
from server.store.transaction import Transaction
from tenants.quotas import Allowance
from tenants.tenant import Incarnation


class Stock(NamedTuple):
    """An amount of memories and of bytes, or a change of it."""

    memories: int = 0
    bytes: int = 0

    def plus(self, other: Stock) -> Stock:
        """Both together."""
        return Stock(self.memories + other.memories, self.bytes + other.bytes)


NOTHING = Stock()
Limits = Callable[[Incarnation], Allowance]
"""The limits of a tenant, known without a wait or after a short one."""


class StockKeeping:
    """The stocks of one transaction."""

    def __init__(self, transaction: Transaction, limits: Limits, touched: Iterable[Incarnation]) -> None:
        """Hold the rows of those of the ``touched`` tenants that have a limit."""
        self._transaction = transaction
        self._statements = _STATEMENTS[transaction.dialect_name]
        self._changes: dict[Incarnation, Stock] = {}
        self._limits: dict[Incarnation, Allowance] = {}
        self._before: dict[Incarnation, Stock] = {}
        for incarnation in sorted(set(touched)):
            allowance = limits(incarnation)
            if allowance.quotas.memories or allowance.quotas.bytes:
                self._limits[incarnation] = allowance
                values = {"incarnation": incarnation, "memories": 0, "bytes": 0}
                row = transaction.first(self._statements.hold, values)
                self._before[incarnation] = NOTHING if row is None else Stock(*row)

    def check(self, changes: Mapping[Incarnation, Stock]) -> None:
        """Raise QuotaExceeded where a change would take a tenant past a limit.

        One that takes more memories away than it adds passes none: who has its fill of bytes may delete,
        though History tells of it.
        """
        for incarnation, change in changes.items():
            allowance = self._limits.get(incarnation)
            if allowance is not None and change.memories >= 0:
                after = self._before[incarnation].plus(self._changed(incarnation)).plus(change)
                for stock in Stock._fields:
                    limit = getattr(allowance.quotas, stock)
                    if limit and getattr(change, stock) > 0 and getattr(after, stock) > limit:
                        raise QuotaExceeded(stock, limit, allowance.tenant_id)

    def add(self, changes: Mapping[Incarnation, Stock]) -> None:
        """Count a change, which is written at the end."""
        for incarnation, change in changes.items():
            self._changes[incarnation] = self._changed(incarnation).plus(change)

    def save(self) -> None:
        """Write what changed."""
        rows = [
            {"incarnation": incarnation, "memories": change.memories, "bytes": change.bytes}
            for incarnation, change in sorted(self._changes.items())
            if change != NOTHING
        ]
        if rows:
            self._transaction.run_many(self._statements.add, rows)

    def _changed(self, incarnation: Incarnation) -> Stock:
        return self._changes.get(incarnation, NOTHING)


def stock_of(transaction: Transaction, incarnation: Incarnation) -> Stock:
    """What a tenant has in this shard."""
    row = transaction.first(_STOCK, {"incarnation": incarnation})
    return NOTHING if row is None else Stock(*row)


_STOCK = select(stocks.c.memories, stocks.c.bytes).where(stocks.c.incarnation == bindparam("incarnation"))


class _Statements:
    def __init__(self, insert: Callable[[Table], Any]) -> None:
        added = insert(stocks)
        self.add: Insert = added.on_conflict_do_update(
            index_elements=list(stocks.primary_key),
            set_={name: stocks.c[name] + added.excluded[name] for name in Stock._fields},
        )
        # Writing what is there holds the row, or makes it, in one statement.
        self.hold: ReturningInsert[Any] = (
            insert(stocks)
            .on_conflict_do_update(
                index_elements=list(stocks.primary_key), set_={"memories": stocks.c.memories}
            )
            .returning(stocks.c.memories, stocks.c.bytes)
        )


_STATEMENTS = {"postgresql": _Statements(postgresql.insert), "sqlite": _Statements(sqlite.insert)}
