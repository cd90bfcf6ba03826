"""Moving a tenant to another shard while it serves.

    copy      the other shard lets nobody in; every row goes there, page by page. What is written meanwhile is
              noted, by whichever server it was
    follow    what was noted goes there again, round by round, until a round is short
    close     nobody writes any more: calls that would, wait. What the last of them wrote goes there
    switch    nobody reads here any more; the other shard lets everybody in; the catalogue names it. Calls
              that waited go on there. From here on nothing is taken back
    settle    calls that read here when it switched are over
    sweep     the rows that are left here go, and so does what the index keeps of them; a SQLite file is
              rewritten, so that no byte of them stays in it

A server may be killed anywhere, and another one goes on. Until the switch the tenant is where it was, and a
move that is cancelled or fails leaves nothing in the other shard.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from scrubjay import v1
from scrubjay.errors import InvalidField, ScrubjayError
from scrubjay.memory import JsonValue, Micros
from server.operations.conductor import Later, Phase, Plan, Task
from server.passage import Crossing, Passage
from server.shard import Shard
from server.shard.moving import TOUCHED_AT_ONCE
from server.store.moved_rows import MOVED_TABLES, Key, key_from_json, key_to_json
from server.store.moving import Hold
from tenants.registry.placing import Placing
from tenants.tenant import Incarnation, Tenant

INTERVAL_SECONDS = 60
"""How often a server looks what others moved."""
CLOCKS_MICROS = 3600 * 1_000_000
"""How far apart the clocks of two servers may be."""
SMALL = 64
"""Rows that were written since the round before: to copy them, writers wait for some milliseconds."""
SHORT_SECONDS = 0.1
"""A round that took no longer is a short one, too: the next one, without writers, takes less."""
MOST_ROUNDS = 200
"""Where a tenant is written to as fast as it is copied, its writers wait a little longer in the end."""
MOST_REST_SECONDS = 0.1
"""A copy rests behind each page for as long as that took, and no longer than this, so that calls have the
processor and the disks, too."""
NOTE_SECONDS = 1.0
"""How often the place of a copy is kept, which one that was cut goes on from."""
KNOWN_SECONDS = 35.0
"""How long other servers may not know that a tenant moves: some more than they know a credential."""
SETTLED_SECONDS = 60.0
"""How long calls of other servers may read where they began to."""
ALONE_SETTLED_SECONDS = 1.0
"""Of this one it is known when they are over, but for those of the platform's admins."""

SWITCHED = frozenset({"settle", "sweep"})
"""The phases in which the tenant is in its new place."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Waits:
    """How long a move waits for servers that it does not hear of."""

    known_seconds: float = KNOWN_SECONDS
    settled_seconds: float = SETTLED_SECONDS
    alone_settled_seconds: float = ALONE_SETTLED_SECONDS


WAITS = Waits()


@dataclass(frozen=True, slots=True)
class _Move:
    """A move under way: what it is about, and from where to where."""

    task: Task
    hold: Hold
    source: Shard
    target: Shard


class Mover:
    """Moves tenants between ``shards``, one phase at a time. ``clock`` gives microseconds since 1970."""

    def __init__(
        self,
        shards: Mapping[str, Shard],
        placing: Placing,
        living: Callable[[Incarnation], Tenant | None],
        passage: Passage,
        clock: Callable[[], Micros],
        waits: Waits | None = None,
    ) -> None:
        self._shards = dict(shards)
        self._placing = placing
        self._living = living
        self._passage = passage
        self._clock = clock
        self._waits = waits or WAITS
        self._reading: dict[str, frozenset[Crossing]] = {}
        self._closed_at: dict[str, float] = {}
        self._followed: dict[str, dict[Incarnation, Micros]] = {name: {} for name in self._shards}
        self._heard = dict.fromkeys(self._shards, Micros(0))

    def plan(self) -> Plan:
        """The phases of MoveTenant, and how it is taken back."""
        return Plan(
            (
                Phase("copy", self._copy),
                Phase("follow", self._follow),
                Phase("close", self._close),
                Phase("switch", self._switch, cancellable=False),
                Phase("settle", self._settle, cancellable=False),
                Phase("sweep", self._sweep, cancellable=False),
            ),
            self._roll_back,
        )

    def _move(self, task: Task) -> _Move:
        """The move of an operation; where it leads from is kept when it begins."""
        if _note(task, "source") is None:
            tenant = task.tenant
            asked = task.operation.asked["shard"] or self._placing.target(tenant.incarnation, (tenant.shard,))
            if not asked or asked == tenant.shard:
                raise InvalidField.of("shard", f"{tenant.shard} is where it is, and no other one was found")
            task.note(source=tenant.shard, target=asked)
        return _Move(
            task, _hold(task), self._shard(_note(task, "source")), self._shard(_note(task, "target"))
        )

    def _shard(self, name: JsonValue) -> Shard:
        shard = self._shards.get(str(name))
        if shard is None:
            raise InvalidField.of("shard", f"this server has no shard {name!r} any more")
        return shard

    def follow(self, ending: threading.Event) -> None:
        """Let go of what this server keeps of tenants that another one moved, until ``ending``."""
        for shard in self._shards.values():
            if ending.is_set():
                return
            try:
                self._follow_shard(shard)
            except ScrubjayError as error:
                log.warning("what moved away from %s is let go of later: %s", shard.name, error.message)

    def _follow_shard(self, shard: Shard) -> None:
        gone = shard.gone_since(Micros(self._heard[shard.name] - CLOCKS_MICROS))
        before = self._followed[shard.name]
        for incarnation, changed_at in gone.items():
            if before.get(incarnation) != changed_at:
                shard.discard_index(incarnation)
            tenant = self._living(incarnation)
            if tenant is not None and tenant.shard != shard.name:
                shard.accesses.hand_over(incarnation, self._shards[tenant.shard].accesses)
        self._followed[shard.name] = gone
        self._heard[shard.name] = max([self._heard[shard.name], *gone.values()])

    # --- what can be taken back -------------------------------------------------------------------

    def _copy(self, task: Task) -> None:
        move = self._move(task)
        if _note(task, "known_at") is None:
            self._placing.note_moving(move.hold.incarnation, moving=True)
            task.note(known_at=task.operation.asked.get("known_at", self._clock()))
        self._copy_all(move)

    def _copy_all(self, move: _Move) -> None:
        """Copy every row, from the place that was noted last; from the first where not all was followed."""
        hold, task = move.hold, move.task
        whole = move.source.begin_leaving(hold, self._clock())
        whole = move.target.begin_arriving(hold, self._clock()) and whole
        if not whole:
            task.note(place=None)
            move.target.empty(hold, self._clock(), lambda: task.report(0))
        _Copying(move).run()

    def _follow(self, task: Task) -> None:
        move = self._move(task)
        self._go_on_whole(move)
        known_at = _note_of_time(task, "known_at")
        wait = 0.0 if move.source.exclusive else self._waits.known_seconds
        rounds = done = 0
        while True:
            began = time.monotonic()
            found = move.source.pass_on_touched(move.hold, move.target)
            quick = found < SMALL or (found < TOUCHED_AT_ONCE and time.monotonic() - began < SHORT_SECONDS)
            rounds, done = rounds + 1, done + found
            task.report(done)
            if self._clock() < known_at + wait * 1_000_000:
                if quick:
                    raise Later
            elif quick or rounds >= MOST_ROUNDS:
                return

    def _go_on_whole(self, move: _Move) -> None:
        """Copy all again where this move, which was cut, finds that what was written since is not known."""
        followed = move.source.begin_leaving(move.hold, self._clock())
        if not (move.target.begin_arriving(move.hold, self._clock()) and followed):
            self._copy_all(move)

    def _close(self, task: Task) -> None:
        move = self._move(task)
        self._follow(task)
        try:
            self._closed_at[move.hold.operation_id] = time.monotonic()
            move.source.close_to_writers(move.hold, self._clock())
            while move.source.pass_on_touched(move.hold, move.target) == TOUCHED_AT_ONCE:
                pass
        except Exception:
            self._reopen(move)
            raise

    def _reopen(self, move: _Move) -> None:
        """Let writers in again, as far as that can be done now; the next attempt closes anew."""
        try:
            move.source.reopen(move.hold, self._clock())
        except ScrubjayError as error:
            log.warning("writers of %s wait: %s", move.task.operation.tenant_id, error.message)
        self._passage.opened()

    def _roll_back(self, task: Task) -> None:
        hold = _hold(task)
        source = self._shards.get(str(_note(task, "source")))
        target = self._shards.get(str(_note(task, "target")))
        leaving = source is not None and source.go_on(hold)
        if source is not None and leaving:
            source.reopen(hold, self._clock())
            self._passage.opened()
        if target is not None and target.go_on(hold):
            target.give_up(hold, self._clock())
            target.delete_rows(hold, lambda: None)
            target.compact()
        if source is not None and leaving:
            source.end_following(hold)
            source.stay(hold)
        self._placing.note_moving(hold.incarnation, moving=False)

    # --- what can't -------------------------------------------------------------------------------

    def _switch(self, task: Task) -> None:
        move = self._move(task)
        source, target, hold = move.source, move.target, move.hold
        source.go_on(hold)
        target.go_on(hold)
        source.end_reading(hold, self._clock())
        self._reading[hold.operation_id] = self._passage.under_way(hold.incarnation)
        target.settle(hold)
        self._placing.assign(hold.incarnation, target.name)
        self._passage.opened()
        self._note_pause(task)
        self._passage.end_streams(hold.incarnation)
        source.accesses.hand_over(hold.incarnation, target.accesses)

    def _note_pause(self, task: Task) -> None:
        """Where this server closed and switched, it knows how long writers waited."""
        closed_at = self._closed_at.pop(task.operation.operation_id, None)
        if closed_at is not None:
            task.note(pause_millis=round((time.monotonic() - closed_at) * 1000))

    def _settle(self, task: Task) -> None:
        move = self._move(task)
        if _note(task, "switched_at") is None:
            task.note(switched_at=self._clock())
        alone = move.source.exclusive
        wait = self._waits.alone_settled_seconds if alone else self._waits.settled_seconds
        due = _note_of_time(task, "switched_at") + wait * 1_000_000
        reading = self._reading.get(move.hold.operation_id, frozenset())
        if self._clock() < due or not self._passage.are_over(reading):
            task.report(0)
            raise Later
        self._reading.pop(move.hold.operation_id, None)

    def _sweep(self, task: Task) -> None:
        move = self._move(task)
        source, hold = move.source, move.hold
        source.go_on(hold)
        source.accesses.hand_over(hold.incarnation, move.target.accesses)
        source.end_following(hold)
        count = source.delete_rows(hold, lambda: task.report(0))
        if task.operation.asked.get("compact", True):
            source.compact()
        self._placing.note_moving(hold.incarnation, moving=False)
        result = v1.MoveTenantResult(
            from_shard=source.name,
            to_shard=move.target.name,
            row_count=count,
            write_pause_millis=int(str(_note(task, "pause_millis") or 0)),
        )
        task.answer(v1.TenantOperationResult(move_tenant=result))


class _Copying:
    """The copy of every row, which goes on from the place that was noted last."""

    def __init__(self, move: _Move) -> None:
        self._move = move
        self._total = move.source.count_rows(move.hold.incarnation)
        self._done = 0
        self._noted = time.monotonic()

    def run(self) -> None:
        """Copy what is left."""
        tables, after = list(MOVED_TABLES), None
        place = _note(self._move.task, "place")
        if isinstance(place, dict):
            tables = tables[tables.index(str(place["table"])) :]
            after = key_from_json(tables[0], list(place["key"]))
            self._done = int(str(place["done"]))
        for table in tables:
            self._copy_table(table, after)
            after = None

    def _copy_table(self, table: str, after: Key | None) -> None:
        move = self._move
        while True:
            began = time.monotonic()
            rows, after = move.source.row_page(move.hold.incarnation, table, after)
            if rows:
                move.target.take_rows(move.hold, {table: rows})
            self._done += len(rows)
            move.task.report(self._done, max(self._total, self._done))
            if after is None:
                return
            self._note_place(table, after)
            time.sleep(min(time.monotonic() - began, MOST_REST_SECONDS))

    def _note_place(self, table: str, after: Key) -> None:
        if time.monotonic() - self._noted >= NOTE_SECONDS:
            place: dict[str, JsonValue] = {"table": table, "key": key_to_json(after), "done": self._done}
            self._move.task.note(place=place)
            self._noted = time.monotonic()


def _hold(task: Task) -> Hold:
    operation = task.operation
    return Hold(operation.incarnation, operation.operation_id, operation.fence)


def _note(task: Task, name: str) -> JsonValue:
    return (task.operation.notes or {}).get(name)


def _note_of_time(task: Task, name: str) -> Micros:
    return Micros(int(str(_note(task, name))))
