"""A tenant's rows on their way to another shard: read page by page, followed while they change, written.

While a tenant leaves, triggers that the database has for it alone note every row that is written or deleted,
whoever does it. So what has changed since a row was copied is known for every table, and a copy that was cut
goes on where it was. Each transaction in the shard that the tenant goes to holds its row there, under the
number of the operation's lease: what an earlier holder still writes is refused.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Text, and_, any_, bindparam, delete, func, or_, select, text, update
from sqlalchemy.dialects import postgresql, sqlite

from scrubjay.errors import Unavailable
from scrubjay.memory import Micros
from scrubjay.stamp import CommitStamp
from server.store.fence import ELSEWHERE, MoveState
from server.store.lookups import AMONG, ids_value
from server.store.moved_rows import (
    COUNTS,
    DELETES,
    FIRST_PAGES,
    NEXT_PAGES,
    ROW_STATEMENTS,
    Key,
    key_from_json,
    key_values,
    row_values,
    trigger_names,
)
from server.store.purging import DELETIONS
from server.store.tables import moves, stocks, streams, touched
from server.store.transaction import Row, Transaction
from tenants.tenant import Incarnation

STAND_TIMEOUT_MILLIS = 200
"""How long a move waits for writers that are under way; on PostgreSQL."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Whose move it is: the operation's, under the number of its lease."""

    incarnation: Incarnation
    operation_id: str
    fence: int


class MoveTaken(Unavailable):
    """The move is carried out elsewhere by now: nothing was written here."""

    def __init__(self) -> None:
        super().__init__("another server carries this move out")


class MoveReading:
    """What a move reads of a shard, in one transaction."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._statements = ROW_STATEMENTS[transaction.dialect_name]

    def state(self, incarnation: Incarnation) -> MoveState | None:
        """How a tenant stands here; None where it does not move."""
        row = self._transaction.first(_STATE, {"incarnation": incarnation})
        return None if row is None else MoveState(row[0])

    def elsewhere(self) -> frozenset[Incarnation]:
        """The tenants that are not to be read here."""
        states = {f"state_{n}": state for n, state in enumerate(ELSEWHERE)}
        return frozenset(Incarnation(row[0]) for row in self._transaction.all(_ELSEWHERE, states))

    def gone_since(self, since: Micros) -> dict[Incarnation, Micros]:
        """The tenants that left later than ``since``, and when."""
        return dict(self._transaction.all(_GONE_SINCE, {"gone": MoveState.GONE, "since": since}))

    def highest(self) -> CommitStamp:
        """How high the streams stood of tenants that left."""
        return CommitStamp(self._transaction.all(_HIGHEST, {})[0][0] or 0)

    def is_followed(self, incarnation: Incarnation, table: str) -> bool:
        """Whether every write to the tenant's rows of a table is noted."""
        return self._triggers().issuperset(trigger_names(incarnation, table))

    def _triggers(self) -> set[str]:
        return {row[0] for row in self._transaction.all(_TRIGGERS[self._transaction.dialect_name], {})}

    def count(self, incarnation: Incarnation, table: str) -> int:
        """How many rows a table has of the tenant."""
        return int(self._transaction.all(COUNTS[table], {"incarnation": incarnation})[0][0])

    def page(self, incarnation: Incarnation, table: str, after: Key | None, limit: int) -> list[Row]:
        """At most ``limit`` whole rows of a table by primary key, behind ``after``."""
        values: dict[str, Any] = {"incarnation": incarnation, "limit": limit}
        if after is None:
            return self._transaction.all(FIRST_PAGES[table], values)
        following = NEXT_PAGES[table]
        if following is None:
            return []
        return self._transaction.all(following, values | key_values(table, after))

    def rows(self, incarnation: Incarnation, table: str, keys: Sequence[Key]) -> list[Row]:
        """The whole rows of those keys that there are."""
        values = {"incarnation": incarnation, **self._statements.keys_value(table, keys)}
        return self._transaction.all(self._statements.rows[table], values)

    def touched(self, incarnation: Incarnation, limit: int) -> dict[str, tuple[str, Key]]:
        """At most ``limit`` notes: of which table and key each one is."""
        found = self._transaction.all(_TOUCHED, {"incarnation": incarnation, "limit": limit})
        return {entry: (table, key_from_json(table, json.loads(key))) for entry, table, key in found}

    def stock(self) -> tuple[int, int]:
        """How many memories and bytes the shard has of all tenants."""
        memories, size = self._transaction.all(_STOCK, {})[0]
        return int(memories or 0), int(size or 0)


class MoveWriting(MoveReading):
    """What a move writes to a shard, in one transaction."""

    def take(self, hold: Hold, begin: MoveState, now: Micros) -> bool:
        """Take the tenant's row for the move; whether it begins here, in the state ``begin``. MoveTaken.

        Whatever the tenant was here in an earlier move is over.
        """
        row = {
            "incarnation": hold.incarnation,
            "state": begin,
            "operation_id": hold.operation_id,
            "fence": hold.fence,
            "highest": 0,
            "changed_at": now,
        }
        insert = _INSERT[self._transaction.dialect_name]
        if self._transaction.run(insert, row):
            return True
        taken = {"of": hold.incarnation, "by": hold.operation_id, "new_fence": hold.fence}
        if self._transaction.run(_TAKE, taken):
            return False
        if self._transaction.run(_BEGIN, {**taken, "new_state": begin, "now": now}):
            return True
        raise MoveTaken

    def take_again(self, hold: Hold) -> bool:
        """Take the tenant's row where it is this move's; whether it is."""
        taken = {"of": hold.incarnation, "by": hold.operation_id, "new_fence": hold.fence}
        return bool(self._transaction.run(_TAKE, taken))

    def hold(self, hold: Hold) -> None:
        """Hold the row to the end of the transaction. MoveTaken where it is another's."""
        if not self._transaction.run(_HOLD, _held(hold)):
            raise MoveTaken

    def check(self, hold: Hold) -> None:
        """Raise MoveTaken where the row is another's, and let writers have it, who look at it meanwhile."""
        if self._transaction.first(_IS_TAKEN, _held(hold)) is None:
            raise MoveTaken

    def stand(self, hold: Hold, state: MoveState, now: Micros) -> None:
        """Note how the tenant stands from now on, and how high its streams do. MoveTaken.

        On PostgreSQL, it waits shortly for writers that are under way.
        """
        self._wait_shortly(STAND_TIMEOUT_MILLIS)
        self._keep_highest(hold)
        if not self._transaction.run(_STAND, {**_held(hold), "new_state": state, "now": now}):
            raise MoveTaken

    def _keep_highest(self, hold: Hold) -> None:
        """A database that stands lower than it did counts as restored."""
        row = self._transaction.first(_HIGHEST_OF, {"incarnation": hold.incarnation})
        if row and row[0]:
            self._transaction.run(_RAISE, {"of": hold.incarnation, "new_highest": row[0]})

    def settle(self, hold: Hold) -> None:
        """Forget the row: the tenant is here, like any other."""
        self._transaction.run(_SETTLE, _held(hold))

    def follow(self, incarnation: Incarnation, table: str, patience_millis: int) -> None:
        """Note every write to a table's rows of the tenant from now on.

        On PostgreSQL, it waits so long at most for those that write to the table, and others wait behind it:
        so one table in a transaction.
        """
        self._wait_shortly(patience_millis)
        there = self._triggers()
        for name, made in self._statements.triggers(incarnation, table).items():
            if name not in there:
                self._transaction.command(made)

    def unfollow(self, incarnation: Incarnation, table: str, patience_millis: int) -> None:
        """Note nothing of the table any more. On PostgreSQL, readers and writers wait, as for ``follow``."""
        self._wait_shortly(patience_millis)
        on = f" ON {table}" if self._transaction.dialect_name == "postgresql" else ""
        for name in self._triggers().intersection(trigger_names(incarnation, table)):
            self._transaction.command(f"DROP TRIGGER {name}{on}")

    def _wait_shortly(self, millis: int) -> None:
        if self._transaction.dialect_name == "postgresql":
            self._transaction.command(f"SET LOCAL lock_timeout = '{millis}ms'")

    def put(self, table: str, rows: Sequence[Row]) -> None:
        """Write whole rows, over those that are there of the same keys."""
        if rows:
            self._transaction.run_many(self._statements.puts[table], [row_values(table, row) for row in rows])

    def delete(self, incarnation: Incarnation, table: str, keys: Collection[Key]) -> None:
        """Delete the rows of these keys."""
        if keys:
            of = [{"incarnation": incarnation, **key_values(table, key)} for key in keys]
            self._transaction.run_many(DELETES[table], of)

    def forget_touched(self, incarnation: Incarnation, entries: Collection[str]) -> None:
        """Forget notes whose rows were copied."""
        if entries:
            dialect = self._transaction.dialect_name
            values = {"of": incarnation, "ids": ids_value(dialect, sorted(entries))}
            self._transaction.run(_FORGET[dialect], values)

    def delete_some(self, incarnation: Incarnation, table: str, limit: int) -> int:
        """Delete at most ``limit`` rows of a table; how many there were."""
        deletion = DELETIONS[self._transaction.dialect_name][table]
        return self._transaction.run(deletion, {"incarnation": incarnation, "limit": limit})


def _held(hold: Hold) -> dict[str, Any]:
    return {"of": hold.incarnation, "by": hold.operation_id, "at": hold.fence}


def _of_tenant(table: Any) -> Any:
    return table.c.incarnation == bindparam("incarnation")


_STATE = select(moves.c.state).where(_of_tenant(moves))
_ELSEWHERE = select(moves.c.incarnation).where(
    or_(*(moves.c.state == bindparam(f"state_{n}") for n, _ in enumerate(ELSEWHERE)))
)
_GONE_SINCE = select(moves.c.incarnation, moves.c.changed_at).where(
    moves.c.state == bindparam("gone"), moves.c.changed_at > bindparam("since")
)
_HIGHEST = select(func.max(moves.c.highest))
_HIGHEST_OF = select(func.max(streams.c.head)).where(_of_tenant(streams))
_STOCK = select(func.sum(stocks.c.memories), func.sum(stocks.c.bytes))
_TOUCHED = (
    select(touched.c.entry, touched.c.table_name, touched.c.key)
    .where(_of_tenant(touched))
    .limit(bindparam("limit"))
)
_FORGET = {
    "sqlite": delete(touched).where(
        touched.c.incarnation == bindparam("of"), AMONG["sqlite"](touched.c.entry)
    ),
    "postgresql": delete(touched).where(
        touched.c.incarnation == bindparam("of"),
        touched.c.entry == any_(bindparam("ids", type_=postgresql.ARRAY(Text))),
    ),
}
_TRIGGERS = {
    "sqlite": text("SELECT name FROM sqlite_master WHERE type = 'trigger'"),
    "postgresql": text("SELECT tgname FROM pg_trigger WHERE NOT tgisinternal"),
}
_INSERT = {
    name: insert(moves).on_conflict_do_nothing()
    for name, insert in (("sqlite", sqlite.insert), ("postgresql", postgresql.insert))
}
_IS_MINE = and_(moves.c.incarnation == bindparam("of"), moves.c.operation_id == bindparam("by"))
_IS_HELD = and_(_IS_MINE, moves.c.fence == bindparam("at"))
_TAKE = (
    update(moves)
    .where(_IS_MINE, moves.c.fence <= bindparam("new_fence"))
    .values(fence=bindparam("new_fence"))
)
_BEGIN = (
    update(moves)
    .where(moves.c.incarnation == bindparam("of"), moves.c.operation_id != bindparam("by"))
    .values(
        state=bindparam("new_state"),
        operation_id=bindparam("by"),
        fence=bindparam("new_fence"),
        changed_at=bindparam("now"),
    )
)
_IS_TAKEN = select(moves.c.fence).where(_IS_HELD)
_HOLD = update(moves).where(_IS_HELD).values(fence=moves.c.fence)
_STAND = update(moves).where(_IS_HELD).values(state=bindparam("new_state"), changed_at=bindparam("now"))
_RAISE = (
    update(moves)
    .where(moves.c.incarnation == bindparam("of"), moves.c.highest < bindparam("new_highest"))
    .values(highest=bindparam("new_highest"))
)
_SETTLE = delete(moves).where(_IS_HELD)
