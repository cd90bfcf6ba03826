"""One write of the app, within one durable transaction: stamped, checked, queued and shown at once."""

from __future__ import annotations

import sqlite3

from client_sync import journal
from client_sync.copies import LOCAL, Copies, Copy
from client_sync.identity import Identity
from client_sync.outbox import Outbox
from client_sync.replica_file import get_meta, is_recovering, set_meta
from scrubjay.errors import MemoryDeleted, MemoryNotFound
from scrubjay.memory import MemoryId, Micros, PrivacyLevel, expired, id_bytes
from scrubjay.merge import State
from scrubjay.operation import Operation
from scrubjay.stamp import Clock, Stamp
from scrubjay.validity import is_memory_id


class LocalWriting:
    """What one write may do to the replica; ``now`` is the device's best guess of the server's time."""

    def __init__(self, sql: sqlite3.Connection, identity: Identity, now: Micros) -> None:
        self._sql = sql
        self._now = now
        self._outbox = Outbox(sql, identity)
        self._clock = Clock(self._outbox.replica, int(get_meta(sql, "clock_time", 0)))
        self.copies = Copies(sql, identity, self._outbox)

    def living(self, memory_id: str) -> State:
        """What is shown of a memory. MemoryDeleted, MemoryNotFound."""
        if not is_memory_id(memory_id):
            raise MemoryNotFound(memory_id)
        state = self.copies.shown_state(MemoryId(memory_id))
        if state is None and self.copies.deleted(MemoryId(memory_id)):
            raise MemoryDeleted(memory_id)
        if state is None or expired(state.memory, self._now):
            raise MemoryNotFound(memory_id)
        return state

    def stamp(self, state: State | None) -> Stamp:
        """A stamp later than every one made here and every one of ``state``."""
        latest = None if state is None else state.latest()
        if latest is not None:
            self._clock.observe(latest)
        made = self._clock.tick(self._now // 1000)
        set_meta(self._sql, clock_time=self._clock.last)
        return made

    def queue(self, operation: Operation, after: State | None) -> State:
        """Queue an operation that makes its memory ``after``, and show the memory with it."""
        before = self.copies.shown_state(operation.memory_id)
        self.copies.touch(operation.memory_id)
        # Where the server has the memory, a create would write again what others wrote.
        known = self.copies.get(operation.memory_id) is not None
        self._outbox.add(operation, None if after is None or known else after.memory)
        self.copies.settle()
        shown = self.copies.shown_state(operation.memory_id)
        assert shown is not None
        self._record(operation.memory_id, before, shown)
        return shown

    def delete(self, operation: Operation, before: State) -> None:
        """Queue a delete and show the memory no more; a LOCAL_ONLY one is just gone."""
        memory_id = operation.memory_id
        self.copies.touch(memory_id)
        if before.memory.privacy_level is PrivacyLevel.LOCAL_ONLY:
            self.copies.forget(memory_id)
        else:
            self._outbox.add(operation, None)
        self.copies.settle()
        self._record(memory_id, before, None)

    def keep_local(self, state: State) -> State:
        """Store a memory that never leaves this device."""
        before = self.copies.shown_state(state.memory.id)
        copy = Copy.of(state, LOCAL)
        self._sql.execute(
            "INSERT OR REPLACE INTO rows VALUES (?, ?, ?, ?, ?, NULL)",
            (
                id_bytes(state.memory.id),
                LOCAL,
                state.memory.created_at,
                copy.message,
                copy.field_stamps,
            ),
        )
        self._record(state.memory.id, before, state)
        return state

    def number(self) -> None:
        """Number a single operation where it can be sent now: then that costs no write of its own."""
        if get_meta(self._sql, "cursor") is not None and not is_recovering(self._sql):
            self._outbox.number_single()

    def _record(self, memory_id: MemoryId, before: State | None, after: State | None) -> None:
        journal.record(self._sql, memory_id, self._now, before=before, after=after, origin="here")
