"""The server's copy of each memory, and what the app is shown: the copy with this device's own operations
on top, joined by the same law as on the server.

``rows`` is what is shown. Where a memory has operations in the outbox, ``beneath`` keeps the server's copy
of it; elsewhere the row is the copy.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import replace

from client_sync import journal
from client_sync.dead_letters import refuse
from client_sync.errors import UNREADABLE, ReplicaError, unreadable
from client_sync.identity import Identity
from client_sync.outbox import Entry, Outbox, applied_state
from client_sync.replica_file import must_forget, rows_among
from scrubjay import v1
from scrubjay.feed import joined, read_state, stored_message
from scrubjay.memory import MemoryId, Micros, hashed_id, id_bytes, id_text
from scrubjay.merge import State, join
from scrubjay.operation import Operation, OperationKind, overlay
from scrubjay.stamp import CommitStamp, pack_field_stamps
from scrubjay.wire import commit_micros, from_timestamp, to_message

LOCAL = -1
"""The commit stamp of a row that never leaves this device."""
UNSENT = 0
"""The commit stamp of a row that the server does not have yet."""


_WAS_HERE = (
    v1.OPERATION_STATUS_APPLIED,
    v1.OPERATION_STATUS_APPLIED_CONCURRENT,
    v1.OPERATION_STATUS_SUPERSEDED,
    v1.OPERATION_STATUS_NOT_VISIBLE,
)
"""Answers that say that the memory was there, and seen."""
_ALL_TAKEN = v1.OperationResult(status=v1.OPERATION_STATUS_APPLIED)
FORGOTTEN = "the server does not have it, and its answer was lost for so long that it is not known any more"
"""Why an operation is a dead letter of which nobody knows how it ended."""


class CopyLost(ReplicaError):
    """The server sent a part of a memory that is not here: the replica must be loaded anew."""


class Copy:
    """A memory as the server has it, decoded and encoded when first asked for."""

    __slots__ = ("_message", "_state", "commit_stamp", "field_stamps")

    def __init__(
        self, commit_stamp: int, message: bytes | None, field_stamps: bytes, state: State | None = None
    ) -> None:
        self.commit_stamp = commit_stamp
        self.field_stamps = field_stamps
        self._message = message
        self._state = state

    @classmethod
    def of(cls, state: State, commit_stamp: int) -> Copy:
        """The copy of a state."""
        return cls(commit_stamp, None, pack_field_stamps(state.stamps), state)

    @property
    def message(self) -> bytes:
        """Its encoded ``v1.Memory``."""
        if self._message is None:
            stamp = CommitStamp(max(self.commit_stamp, 0))
            self._message = to_message(self.state.memory, stamp).SerializeToString()
        return self._message

    @property
    def state(self) -> State:
        """Its value."""
        if self._state is None:
            try:
                self._state = read_state(self.message, self.field_stamps)
            except UNREADABLE as error:
                raise unreadable("a memory", error) from error
        return self._state


class Copies:
    """Copies and shown rows within one transaction. Changes are shown once ``settle`` ran."""

    def __init__(self, sql: sqlite3.Connection, identity: Identity, outbox: Outbox) -> None:
        self._sql = sql
        self._identity = identity
        self._outbox = outbox
        self._changed: dict[MemoryId, Copy | None] = {}
        self.retracted: set[MemoryId] = set()
        """The memories that were taken back."""
        self.refused = 0
        """How many operations went to the dead letters."""
        self.shown: set[MemoryId] = set()
        """The memories whose shown row changed."""

    # --- the copies -------------------------------------------------------------------------------

    def get(self, memory_id: MemoryId) -> Copy | None:
        """The server's copy, with the changes made here."""
        if memory_id in self._changed:
            return self._changed[memory_id]
        key = id_bytes(memory_id)
        row = self._sql.execute(
            "SELECT commit_stamp, message, field_stamps FROM beneath WHERE id = ?", (key,)
        ).fetchone()
        if row is None:
            row = self._sql.execute(
                "SELECT commit_stamp, message, field_stamps FROM rows WHERE id = ? AND commit_stamp > 0",
                (key,),
            ).fetchone()
        return None if row is None or row[1] is None else Copy(*row)

    def touch(self, memory_id: MemoryId) -> None:
        """Show the memory anew: its operations changed."""
        self._changed.setdefault(memory_id, self.get(memory_id))

    def apply_page(self, changes: Sequence[tuple[MemoryId, CommitStamp, v1.Change]]) -> None:
        """Take changes of the feed into the copies."""
        known = self._known([id_bytes(memory_id) for memory_id, _, _ in changes])
        fresh = []
        for memory_id, commit_stamp, change in changes:
            plain = change.kind == v1.CHANGE_KIND_WHOLE and memory_id not in self._changed
            if plain and change.memory_id not in known:
                fresh.append(self._fresh_row(memory_id, commit_stamp, change))
                self.shown.add(memory_id)
            else:
                self._take(memory_id, commit_stamp, change)
        self._sql.executemany("INSERT INTO rows VALUES (?, ?, ?, ?, ?, NULL)", fresh)
        # A server that was restored may have what was known as dead here.
        living = [(each.memory_id,) for _, _, each in changes if each.kind == v1.CHANGE_KIND_WHOLE]
        self._sql.executemany("DELETE FROM graves WHERE id = ?", living)

    def _known(self, ids: list[bytes]) -> set[bytes]:
        """Those that have a row or operations here."""
        return rows_among(self._sql, "SELECT id FROM rows WHERE id IN", ids) | self._outbox.among(ids)

    def _fresh_row(
        self, memory_id: MemoryId, commit_stamp: CommitStamp, change: v1.Change
    ) -> tuple[bytes, int, int, bytes, bytes]:
        created_at = from_timestamp(change.memory.created_at)
        message = stored_message(change.memory, memory_id, self._identity.subject)
        return change.memory_id, commit_stamp, created_at, message, change.field_stamps

    def _take(self, memory_id: MemoryId, commit_stamp: CommitStamp, change: v1.Change) -> None:
        keep_apart(self._sql, change.memory_id)
        old = self.get(memory_id)
        if change.kind == v1.CHANGE_KIND_WHOLE:
            message = stored_message(change.memory, memory_id, self._identity.subject)
            copy = Copy(commit_stamp, message, change.field_stamps)
            if old is None or old.commit_stamp <= commit_stamp:
                self._changed[memory_id] = copy
        elif change.kind == v1.CHANGE_KIND_PART:
            if old is None:
                raise CopyLost(f"memory {memory_id} changed on the server and is not here")
            stamp = max(old.commit_stamp, commit_stamp)
            self._changed[memory_id] = Copy.of(joined(old.state, change), stamp)
        elif change.kind == v1.CHANGE_KIND_DELETED:
            self.bury(memory_id)
        elif change.kind == v1.CHANGE_KIND_RETRACTED:
            self.retract(memory_id)

    def bury(self, memory_id: MemoryId) -> None:
        """The memory is deleted for ever."""
        self._changed[memory_id] = None
        self._sql.execute("INSERT OR IGNORE INTO graves VALUES (?)", (id_bytes(memory_id),))

    def forget(self, memory_id: MemoryId) -> None:
        """The memory is not here any more; its id is not dead."""
        self._changed[memory_id] = None

    def retract(self, memory_id: MemoryId) -> None:
        """This client may not see the memory any more: everything about it goes, pending operations too."""
        self._changed[memory_id] = None
        self._outbox.drop(self._outbox.of(memory_id))
        self._forget(memory_id)

    def _forget(self, memory_id: MemoryId) -> None:
        self.retracted.add(memory_id)
        must_forget(self._sql)
        key = id_bytes(memory_id)
        for table in ("vectors", "touches", "counts"):
            self._sql.execute(f"DELETE FROM {table} WHERE id = ?", (key,))  # noqa: S608 - fixed names
        self._sql.execute("DELETE FROM dead_letters WHERE memory_id = ?", (key,))
        journal.forget(self._sql, [key])

    def take_applied(self, commit_stamp: int, at: Micros, *, more: bool) -> None:
        """Join what the server took of own operations into the copies, up to a place in the feed that was
        heard of ``at`` a time; ``more`` says whether the pull that came there goes on.

        What a duplicate did is in the pages, unless it is gone since; but maybe in a later one, so that
        the operation stays on top until the last has come.
        """
        ended = []
        for entry in self._outbox.passed(commit_stamp):
            assert entry.result is not None
            operation, result = entry.operation, entry.result
            if more and result.status == v1.OPERATION_STATUS_DUPLICATE:
                continue
            if is_forgotten(result):
                self.end_forgotten(entry, at)
                continue
            status = result.first_status or result.status
            memory_id = operation.memory_id
            copy = self.get(memory_id)
            ended.append(entry)
            self._changed[memory_id] = copy
            if is_burial(entry):
                self.bury(memory_id)
            elif result.status == v1.OPERATION_STATUS_DUPLICATE:
                if copy is None and not self.buried(memory_id) and status in _WAS_HERE:
                    self._forget(memory_id)  # a pull from the beginning tells of no end
            elif (state := applied_state(operation, result)) is not None:
                self._join_own(memory_id, copy, state, operation.kind, result.commit_stamp)
        self._outbox.drop(ended)

    def end_forgotten(self, entry: Entry, at: Micros) -> None:
        """End an operation of which the server does not know any more how it ended, once the copies are the
        server's: what the copy has of it was taken, what stands there later stands over it, and else it was
        refused. A memory that is not here any more needs no edits."""
        memory_id = entry.operation.memory_id
        copy = self.get(memory_id)
        if self._lacks(copy, entry.operation):
            self.refused += refuse(self._sql, self._outbox, entry, FORGOTTEN, at)
        self._outbox.drop([entry])
        self._changed[memory_id] = copy

    def _lacks(self, copy: Copy | None, operation: Operation) -> bool:
        """Whether older values stand in a copy than an operation wrote."""
        wrote = applied_state(operation, _ALL_TAKEN)
        if copy is None or wrote is None:
            return operation.kind is OperationKind.CREATE and not self.buried(operation.memory_id)
        standing = copy.state.stamps
        mine = copy.state.memory.owner_client_id == self._identity.client_id
        return any(
            name not in standing or standing[name] < stamp
            for name, stamp in wrote.stamps.items()
            if mine or name != "privacy_level"
        )

    def _join_own(
        self, memory_id: MemoryId, copy: Copy | None, state: State, kind: OperationKind, commit_stamp: int
    ) -> None:
        if copy is not None:
            stamp = max(copy.commit_stamp, commit_stamp)
            self._changed[memory_id] = Copy.of(join(copy.state, state), stamp)
        elif kind is OperationKind.CREATE and not self.buried(memory_id):
            self._changed[memory_id] = Copy.of(state, commit_stamp)

    def buried(self, memory_id: MemoryId) -> bool:
        """Whether the server has deleted the memory, as far as is known here."""
        row = self._sql.execute("SELECT 1 FROM graves WHERE id = ?", (id_bytes(memory_id),)).fetchone()
        return row is not None

    def deleted(self, memory_id: MemoryId) -> bool:
        """Whether the memory was deleted, on the server or here."""
        here = any(e.operation.kind is OperationKind.DELETE for e in self._outbox.of(memory_id))
        return here or self.buried(memory_id)

    # --- what is shown ----------------------------------------------------------------------------

    def shown_state(self, memory_id: MemoryId) -> State | None:
        """What the app is shown of a memory now."""
        row = self._sql.execute(
            "SELECT message, field_stamps FROM rows WHERE id = ?", (id_bytes(memory_id),)
        ).fetchone()
        return None if row is None else read_state(*row)

    def settle(self, at: Micros | None = None) -> None:
        """Show every memory that changed: its copy with its operations on top. The journal notes what
        others did, where ``at`` says when it was heard of."""
        queued = self._outbox.among([id_bytes(memory_id) for memory_id in self._changed])
        bare, renewed = [], []
        for memory_id, copy in self._changed.items():
            key = id_bytes(memory_id)
            if key not in queued:
                bare.append((key,))
            before = self._row(key)
            after = self._overlaid(memory_id, key, copy) if key in queued else copy
            if before is not None and after is not None and before.field_stamps == after.field_stamps:
                renewed.append((after.commit_stamp, after.message, key))
                continue
            self._show(key, after)
            if before is None and after is None:
                continue
            self.shown.add(memory_id)
            if at is not None and memory_id not in self.retracted:
                old, new = (None if one is None else one.state for one in (before, after))
                journal.record(self._sql, memory_id, at, before=old, after=new, origin="elsewhere")
        self._sql.executemany("DELETE FROM beneath WHERE id = ?", bare)
        self._sql.executemany("UPDATE rows SET commit_stamp = ?, message = ? WHERE id = ?", renewed)
        self._changed.clear()

    def _row(self, key: bytes) -> Copy | None:
        row = self._sql.execute(
            "SELECT commit_stamp, message, field_stamps FROM rows WHERE id = ?", (key,)
        ).fetchone()
        return None if row is None else Copy(*row)

    def _overlaid(self, memory_id: MemoryId, key: bytes, copy: Copy | None) -> Copy | None:
        """What is to be shown of a memory that has operations; what lies beneath is written."""
        stamp = UNSENT if copy is None else copy.commit_stamp
        beneath = (key, stamp, None, None) if copy is None else (key, stamp, copy.message, copy.field_stamps)
        self._sql.execute("INSERT OR REPLACE INTO beneath VALUES (?, ?, ?, ?)", beneath)
        if copy is None and self.buried(memory_id):
            return None  # an answered create may still wait for its page, which the deletion overtook
        state = None if copy is None else copy.state
        for entry in self._outbox.of(memory_id):
            state, _ = overlay(state, entry.operation, self._identity.client_id)
        return None if state is None else Copy.of(state, stamp)

    def _show(self, key: bytes, copy: Copy | None) -> None:
        if copy is None:
            for table in ("rows", "vectors"):
                self._sql.execute(f"DELETE FROM {table} WHERE id = ?", (key,))  # noqa: S608 - fixed names
            return
        content_stamp = copy.state.stamps["content"].pack()
        self._sql.execute("DELETE FROM vectors WHERE id = ? AND content_stamp <> ?", (key, content_stamp))
        values = (copy.commit_stamp, copy.state.memory.created_at, copy.message, copy.field_stamps, key)
        updated = self._sql.execute(
            "UPDATE rows SET commit_stamp = ?, created_at = ?, message = ?, field_stamps = ?, terms = NULL"
            " WHERE id = ?",
            values,
        )
        if updated.rowcount == 0:
            self._sql.execute("INSERT INTO rows VALUES (?, ?, ?, ?, ?, NULL)", (key, *values[:4]))


def is_burial(entry: Entry) -> bool:
    """Whether an answered operation deleted its memory for ever."""
    assert entry.result is not None
    status = entry.result.first_status or entry.result.status
    return entry.operation.kind is OperationKind.DELETE and status == v1.OPERATION_STATUS_APPLIED


def is_forgotten(result: v1.OperationResult) -> bool:
    """Whether an answer says that nobody knows any more how its operation ended."""
    return result.status == v1.OPERATION_STATUS_DUPLICATE and not result.first_status


def keep_apart(sql: sqlite3.Connection, key: bytes) -> None:
    """Keep a memory of this device alone under an id of its own, since the server has one of its id: a copy
    of this file has shared it. What was written here neither leaves nor is lost."""
    local = (LOCAL, key)
    row = sql.execute("SELECT message, field_stamps FROM rows WHERE commit_stamp = ? AND id = ?", local)
    found = row.fetchone()
    if found is None:
        return
    state = Copy(LOCAL, *found).state
    memory = replace(state.memory, id=apart_id(state.memory.id))
    copy = Copy.of(State(memory, state.stamps), LOCAL)
    sql.execute("DELETE FROM rows WHERE commit_stamp = ? AND id = ?", local)
    sql.execute(
        "INSERT OR REPLACE INTO rows VALUES (?, ?, ?, ?, ?, NULL)",
        (id_bytes(memory.id), LOCAL, memory.created_at, copy.message, copy.field_stamps),
    )


def apart_id(memory_id: MemoryId) -> MemoryId:
    """The id of a memory that is kept apart from the server's one of the same id."""
    return MemoryId(hashed_id(b"apart" + id_bytes(memory_id)))


def copy_rows(sql: sqlite3.Connection) -> Iterable[tuple[bytes, CommitStamp]]:
    """Every copy as (id, commit stamp): what digests are taken of."""
    yield from sql.execute(
        "SELECT id, commit_stamp FROM rows WHERE commit_stamp > 0 AND id NOT IN (SELECT id FROM beneath)"
    )
    yield from sql.execute("SELECT id, commit_stamp FROM beneath WHERE message IS NOT NULL")


def updated_at(commit_stamp: int, state: State) -> Micros:
    """When a memory last changed: on the server, or here where it has it not yet."""
    if commit_stamp > 0:
        return commit_micros(CommitStamp(commit_stamp))
    latest = state.latest()
    return Micros(0 if latest is None else latest.millis * 1000)


def memory_id_of(key: bytes) -> MemoryId:
    """A row's id as text."""
    return MemoryId(id_text(key))
