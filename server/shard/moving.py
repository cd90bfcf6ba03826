"""How a tenant leaves a shard and arrives in another one."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from scrubjay.errors import StorageUnavailable, Unavailable
from scrubjay.memory import Micros
from server.shard.parts import ShardParts
from server.store.fence import ELSEWHERE, MoveState, TenantMoving
from server.store.moved_rows import MOVED_TABLES, Key, key_of
from server.store.moving import Hold, MoveTaken
from server.store.transaction import Row
from tenants.tenant import Incarnation, Tenant

PAGE = 200
"""Rows that one transaction copies: writers of the other shard wait for some milliseconds."""
TOUCHED_AT_ONCE = 1000
"""Rows that one transaction copies again. The last ones are copied while the tenant's writers wait."""
DELETED_AT_ONCE = 1000
LOCK_WAITS_MILLIS = (*(50,) * 8, *(200,) * 4, 1000, 2000)
"""How long a change of a table's triggers waits for those that use the table, and others behind it."""
PAUSE_SECONDS = 0.1
"""Between attempts."""
TOUCHED = "touched"


class ShardMoving(ShardParts):
    """Reads all rows of a tenant that leaves, and takes those of one that arrives. Every step may be cut
    anywhere and done again, by another server too. MoveTaken where another server has the move."""

    @property
    def kind(self) -> str:
        """Of the database: ``sqlite`` or ``postgresql``."""
        return "sqlite" if self._store.exclusive else "postgresql"

    @property
    def exclusive(self) -> bool:
        """Whether this server alone reads and writes here."""
        return self._store.exclusive

    def check_here(self, tenant: Tenant) -> None:
        """Raise TenantMoving where the tenant is not to be read here, since it left or has not arrived.

        A server that is alone on the shard knows who moved; another asks, for tenants that may move.
        """
        if self._store.exclusive:
            if tenant.incarnation in self._elsewhere.now:
                raise TenantMoving(tenant.incarnation)
        elif tenant.moving and self.move_state(tenant.incarnation) in ELSEWHERE:
            raise TenantMoving(tenant.incarnation)

    def check_moved(self, incarnation: Incarnation) -> None:
        """The same where what is looked for is not found, which has long been elsewhere."""
        if self.move_state(incarnation) in ELSEWHERE:
            raise TenantMoving(incarnation)

    def is_open_for(self, incarnation: Incarnation) -> bool:
        """Whether the tenant may be written here, as far as moves go."""
        return self.move_state(incarnation) in (None, MoveState.LEAVING)

    def move_state(self, incarnation: Incarnation) -> MoveState | None:
        """How the tenant stands here; None where it does not move."""
        with self._store.reading_moves() as reading:
            return reading.state(incarnation)

    def gone_since(self, since: Micros) -> dict[Incarnation, Micros]:
        """The tenants that left later than ``since``, and when."""
        with self._store.reading_moves() as reading:
            return reading.gone_since(since)

    def stock_of_all(self) -> tuple[int, int]:
        """How many memories and bytes the shard has of all tenants. StorageUnavailable."""
        with self._store.reading_moves() as reading:
            return reading.stock()

    def go_on(self, hold: Hold) -> bool:
        """Take up what the move began here, under a new lease; whether there is anything."""
        with self._store.moving() as moving:
            return moving.take_again(hold)

    # --- leaving ----------------------------------------------------------------------------------

    def begin_leaving(self, hold: Hold, now: Micros) -> bool:
        """Have every write of the tenant noted; whether all were since the move began."""
        with self._store.moving() as moving:
            fresh = moving.take(hold, MoveState.LEAVING, now)
        with self._store.reading_moves() as reading:
            missing = [table for table in MOVED_TABLES if not reading.is_followed(hold.incarnation, table)]
        for tables in self._together(missing):
            self._patiently(partial(self._follow, hold, tables))
        return not fresh and not missing

    def _together(self, tables: Sequence[str]) -> list[Sequence[str]]:
        """Tables whose triggers change in one transaction: all of them where others wait for the file anyway,
        and read its schema again after each."""
        if self._store.exclusive:
            return [tables] if tables else []
        return [[table] for table in tables]

    def _follow(self, hold: Hold, tables: Sequence[str], patience_millis: int) -> None:
        with self._store.moving() as moving:
            moving.check(hold)
            for table in tables:
                moving.follow(hold.incarnation, table, patience_millis)

    def _unfollow(self, hold: Hold, tables: Sequence[str], patience_millis: int) -> None:
        with self._store.moving() as moving:
            moving.check(hold)
            for table in tables:
                moving.unfollow(hold.incarnation, table, patience_millis)

    @staticmethod
    def _patiently(step: Callable[[int], None]) -> None:
        """Do what waits for a lock: not for long, since others wait behind it, but again and again."""
        *first, last = LOCK_WAITS_MILLIS
        for patience_millis in first:
            try:
                step(patience_millis)
                return
            except MoveTaken:
                raise
            except StorageUnavailable:
                time.sleep(PAUSE_SECONDS)
        step(last)

    def count_rows(self, incarnation: Incarnation) -> int:
        """How many rows the tenant has."""
        with self._store.reading_moves() as reading:
            return sum(reading.count(incarnation, table) for table in MOVED_TABLES)

    def row_page(
        self, incarnation: Incarnation, table: str, after: Key | None
    ) -> tuple[list[Row], Key | None]:
        """The next whole rows of a table, and the key behind which others follow; None at the end."""
        with self._store.reading_moves() as reading:
            rows = reading.page(incarnation, table, after, PAGE)
        return rows, key_of(table, rows[-1]) if len(rows) == PAGE else None

    def pass_on_touched(self, hold: Hold, other: ShardMoving) -> int:
        """Copy rows again to the other shard that were written or deleted since; how many notes there were
        of such, of at most TOUCHED_AT_ONCE."""
        with self._store.reading_moves() as reading:
            entries = reading.touched(hold.incarnation, TOUCHED_AT_ONCE)
            keys: dict[str, set[Key]] = {}
            for table, key in entries.values():
                keys.setdefault(table, set()).add(key)
            found = {name: reading.rows(hold.incarnation, name, list(some)) for name, some in keys.items()}
        if entries:
            other.take_rows(hold, found, keys)
            with self._store.moving() as moving:
                moving.check(hold)
                moving.forget_touched(hold.incarnation, entries.keys())
        return len(entries)

    def close_to_writers(self, hold: Hold, now: Micros) -> None:
        """Let nobody write as the tenant any more; those who do have done so when this returns."""
        self.accesses.write()
        self._stand(hold, MoveState.CLOSED, now)

    def reopen(self, hold: Hold, now: Micros) -> None:
        """Let everyone write again."""
        self._stand(hold, MoveState.LEAVING, now)

    def end_reading(self, hold: Hold, now: Micros) -> None:
        """Let nobody read as the tenant any more: the truth is elsewhere from now on."""
        self._stand(hold, MoveState.GONE, now)
        self._elsewhere.add(hold.incarnation)

    def end_following(self, hold: Hold) -> None:
        """Note no writes any more, and forget those that were noted."""
        for tables in self._together(MOVED_TABLES):
            self._patiently(partial(self._unfollow, hold, tables))
        self._delete(hold, TOUCHED, lambda: None)

    def stay(self, hold: Hold) -> None:
        """The tenant does not leave after all."""
        with self._store.moving() as moving:
            moving.settle(hold)

    # --- arriving ---------------------------------------------------------------------------------

    def begin_arriving(self, hold: Hold, now: Micros) -> bool:
        """Let nobody but the move write and read as the tenant here; whether it was so before."""
        with self._store.moving() as moving:
            fresh = moving.take(hold, MoveState.ARRIVING, now)
        self._elsewhere.add(hold.incarnation)
        return not fresh

    def take_rows(
        self,
        hold: Hold,
        found: Mapping[str, Sequence[Row]],
        keys: Mapping[str, set[Key]] | None = None,
    ) -> None:
        """Write whole rows; those of ``keys`` that are not among them are deleted."""
        with self._store.moving() as moving:
            moving.hold(hold)
            for table, rows in found.items():
                moving.put(table, rows)
                there = {key_of(table, row) for row in rows}
                moving.delete(hold.incarnation, table, (keys or {}).get(table, set()) - there)

    def empty(self, hold: Hold, now: Micros, over: Callable[[], object]) -> None:
        """Delete what is here of an attempt that can't be gone on with."""
        self._stand(hold, MoveState.ARRIVING, now)
        self.delete_rows(hold, over)

    def settle(self, hold: Hold) -> None:
        """Let everyone read and write as the tenant here; again, nothing changes."""
        self._cache.discard_all(hold.incarnation)
        with self._store.moving() as moving:
            moving.settle(hold)
        self._elsewhere.remove(hold.incarnation)

    # --- what is left -----------------------------------------------------------------------------

    def give_up(self, hold: Hold, now: Micros) -> None:
        """Note that the tenant is not here: it does not arrive after all."""
        self._stand(hold, MoveState.GONE, now)

    def delete_rows(self, hold: Hold, over: Callable[[], object]) -> int:
        """Delete every row of a tenant that is not here; how many there were. ``over`` is called after each
        page, and may raise."""
        with self._store.reading_moves() as reading:
            held = [table for table in MOVED_TABLES if reading.page(hold.incarnation, table, None, 1)]
        count = sum(self._delete(hold, table, over) for table in held)
        self._cache.discard_all(hold.incarnation)
        return count

    def _delete(self, hold: Hold, table: str, over: Callable[[], object]) -> int:
        count, found = 0, DELETED_AT_ONCE
        while found == DELETED_AT_ONCE:
            with self._store.moving() as moving:
                moving.hold(hold)
                if table != TOUCHED and moving.state(hold.incarnation) not in ELSEWHERE:
                    raise Unavailable("the tenant is here, and its rows stay")
                found = moving.delete_some(hold.incarnation, table, DELETED_AT_ONCE)
            count += found
            over()
        return count

    def _stand(self, hold: Hold, state: MoveState, now: Micros) -> None:
        with self._store.moving() as moving:
            moving.stand(hold, state, now)
