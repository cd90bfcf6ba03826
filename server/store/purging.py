"""The end of a tenant's life in a shard: nothing is written under its incarnation any more, all rows go.

A life that ended has a row of its own, which stays. Streams go first: who writes to one that is gone has to
make it anew, and is refused there. So a write that was under way is either before the rows go, and goes with
them, or nowhere.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import Delete, Insert, Table, bindparam, delete, func, select, update
from sqlalchemy.dialects import postgresql, sqlite

from scrubjay.memory import Micros
from scrubjay.stamp import CommitStamp
from server.store.lookups import AMONG, as_one, ids_value
from server.store.tables import metadata, purges, streams
from server.store.transaction import Transaction
from tenants.tenant import Incarnation

PURGED_TABLES = ("streams", *sorted(set(metadata.tables) - {"streams", "purges"}))
"""Every table that holds anything of a tenant, in the order in which it goes."""


class PurgeReading:
    """What can be read of lives that ended, in one transaction."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def ended_since(self, began_at: Micros) -> dict[Incarnation, Micros]:
        """The lives that ended later than ``began_at``, and when."""
        return dict(self._transaction.all(_ENDED_SINCE, {"since": began_at}))

    def swept(self, incarnation: Incarnation) -> dict[str, int]:
        """What was counted of a life that ended, by place."""
        row = self._transaction.first(_SWEPT, {"incarnation": incarnation})
        counts: dict[str, int] = json.loads(row[0]) if row else {}
        return counts

    def holds(self, incarnation: Incarnation, table: str) -> bool:
        """Whether the table has a row of the tenant's."""
        row = self._transaction.first(HOLDS[table], {"incarnation": incarnation, "limit": 1})
        return row is not None

    def highest(self) -> CommitStamp:
        """How high the streams of the lives that ended stood."""
        return CommitStamp(self._transaction.all(_HIGHEST_PURGED, {})[0][0] or 0)


class PurgeWriting(PurgeReading):
    """What ends a life, in one transaction."""

    def end_life(self, incarnation: Incarnation, now: Micros) -> None:
        """Let nothing be written under the incarnation any more; again, nothing changes."""
        row = {"incarnation": incarnation, "began_at": now, "highest": 0, "swept": "{}"}
        self._transaction.run(_BEGIN[self._transaction.dialect_name], row)

    def purge_rows(self, incarnation: Incarnation, table: str, limit: int) -> int:
        """Delete at most ``limit`` rows of a life that ended, and count them with it; how many there were."""
        if table == streams.name:
            self._keep_highest(incarnation)
        deletion = DELETIONS[self._transaction.dialect_name][table]
        count = self._transaction.run(deletion, {"incarnation": incarnation, "limit": limit})
        swept = self.swept(incarnation)
        self._count(incarnation, {table: swept.get(table, 0) + count})
        return count

    def note_swept(self, incarnation: Incarnation, counts: Mapping[str, int]) -> None:
        """Note what lies outside of the database, before it is deleted: what is seen again counts once."""
        swept = self.swept(incarnation)
        self._count(incarnation, {place: max(n, swept.get(place, 0)) for place, n in counts.items()})

    def _count(self, incarnation: Incarnation, counts: Mapping[str, int]) -> None:
        swept = json.dumps({**self.swept(incarnation), **counts})
        self._transaction.run(_COUNT, {"of": incarnation, "new_swept": swept})

    def _keep_highest(self, incarnation: Incarnation) -> None:
        """How high its streams stood: a database that stands lower than it did counts as restored."""
        row = self._transaction.first(_HIGHEST, {"incarnation": incarnation})
        if row and row[0]:
            self._transaction.run(_RAISE, {"of": incarnation, "new_highest": row[0]})


def ended_among(transaction: Transaction, incarnations: Collection[Incarnation]) -> frozenset[Incarnation]:
    """Those of the lives that ended."""
    if not incarnations:
        return frozenset()
    dialect = transaction.dialect_name
    rows = transaction.all(_ENDED[dialect], {"ids": ids_value(dialect, sorted(incarnations))})
    return frozenset(row[0] for row in rows)


def _of_life(table: Table) -> Any:
    return table.c.incarnation == bindparam("incarnation")


def deletion(table: Table, dialect_name: str) -> Delete:
    """Deletes at most ``limit`` rows of an incarnation."""
    rest = [column for column in table.primary_key if column.name != "incarnation"]
    if not rest:
        return delete(table).where(_of_life(table))
    some = select(*rest).where(_of_life(table)).limit(bindparam("limit"))
    if dialect_name == "postgresql":
        # Chosen once, however the plan joins; rows that another server is deleting are its own.
        some = select(*some.with_for_update(skip_locked=True).cte("chosen").c)
    return delete(table).where(_of_life(table), as_one(rest).in_(some))


def _beginning(insert: Any) -> Insert:
    begin: Insert = insert(purges).on_conflict_do_nothing()
    return begin


_TABLES = {name: metadata.tables[name] for name in PURGED_TABLES}
DELETIONS = {
    dialect: {name: deletion(table, dialect) for name, table in _TABLES.items()}
    for dialect in ("postgresql", "sqlite")
}
HOLDS = {
    name: select(table.c.incarnation).where(_of_life(table)).limit(bindparam("limit"))
    for name, table in _TABLES.items()
}
_BEGIN = {"postgresql": _beginning(postgresql.insert), "sqlite": _beginning(sqlite.insert)}
_ENDED_SINCE = select(purges.c.incarnation, purges.c.began_at).where(purges.c.began_at > bindparam("since"))
_ENDED = {
    dialect: select(purges.c.incarnation).where(among(purges.c.incarnation))
    for dialect, among in AMONG.items()
}
_SWEPT = select(purges.c.swept).where(_of_life(purges))
_COUNT = update(purges).where(purges.c.incarnation == bindparam("of")).values(swept=bindparam("new_swept"))
_HIGHEST = select(func.max(streams.c.head)).where(_of_life(streams))
_RAISE = (
    update(purges)
    .where(purges.c.incarnation == bindparam("of"), purges.c.highest < bindparam("new_highest"))
    .values(highest=bindparam("new_highest"))
)
_HIGHEST_PURGED = select(func.max(purges.c.highest))
