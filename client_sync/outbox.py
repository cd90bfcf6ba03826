"""The outbox: operations made here, until the server has them and this replica has come past them.

An operation has no number until it is first sent, or written where it is sent at once. From then on it
keeps its number, its bytes and its batch until it is answered. An answered one stays until the cursor passes
its place in the feed, so that what the app shows never flickers back.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from client_sync.errors import UNREADABLE, unreadable
from client_sync.identity import Identity
from client_sync.replica_file import get_meta, rows_among, set_meta
from scrubjay import v1
from scrubjay.feed import MAX_BATCH_BYTES, MAX_OPERATIONS
from scrubjay.memory import Memory, MemoryId, Micros, id_bytes, id_text
from scrubjay.merge import State, Write, create, put, registers
from scrubjay.operation import (
    NO_CHAIN,
    NO_ID,
    Operation,
    OperationId,
    OperationKind,
    derived_id,
    encode,
    next_chain,
    reread,
)
from scrubjay.stamp import Clock, ReplicaId, Stamp


@dataclass(frozen=True, slots=True)
class Entry:
    """An operation in the outbox. ``number`` is 0 until it is first sent; ``result`` is its answer."""

    position: int
    number: int
    operation: Operation
    body: bytes
    result: v1.OperationResult | None


@dataclass(frozen=True, slots=True)
class Sent:
    """An operation of the batch that waits for its answer, as it is stored: ``key`` is its memory's id."""

    position: int
    number: int
    operation_id: bytes
    body: bytes
    key: bytes
    kind: int


@dataclass(frozen=True, slots=True)
class Batch:
    """What to send: bodies numbered from ``first_number``, behind the chain ``chain``."""

    first_number: int
    chain: bytes
    bodies: tuple[bytes, ...]


_COLUMNS = "position, number, operation_id, body, result"
_WAITING = """
SELECT position, number, operation_id, body, memory_id, kind FROM outbox
WHERE result IS NULL ORDER BY position
"""


class Outbox:
    """The outbox within one transaction."""

    def __init__(self, sql: sqlite3.Connection, identity: Identity) -> None:
        self._sql = sql
        self._identity = identity
        self.replica = ReplicaId(get_meta(sql, "replica_id"))
        self._decoded: dict[int, tuple[bytes, OperationId, Operation]] = {}

    # --- reading ----------------------------------------------------------------------------------

    def of(self, memory_id: MemoryId) -> list[Entry]:
        """The operations on a memory, in their order."""
        return self._entries("memory_id = ?", id_bytes(memory_id))

    def among(self, ids: Sequence[bytes]) -> set[bytes]:
        """Those of the memories that have operations here, all as 16 bytes."""
        return rows_among(self._sql, "SELECT memory_id FROM outbox WHERE memory_id IN", ids)

    def memory_ids(self) -> set[MemoryId]:
        """The memories that have operations here."""
        return {
            MemoryId(id_text(row[0])) for row in self._sql.execute("SELECT DISTINCT memory_id FROM outbox")
        }

    def unanswered(self) -> list[Entry]:
        """The operations that no answer came for, in their order."""
        return self._entries("result IS NULL")

    def unanswered_count(self) -> int:
        """How many operations no answer came for."""
        (count,) = self._sql.execute("SELECT count(*) FROM outbox WHERE result IS NULL").fetchone()
        return int(count)

    def waits(self) -> bool:
        """Whether there is an operation that no answer came for."""
        return self._sql.execute("SELECT 1 FROM outbox WHERE result IS NULL LIMIT 1").fetchone() is not None

    def passed(self, commit_stamp: int) -> list[Entry]:
        """The answered operations whose place in the feed is at or before ``commit_stamp``."""
        return self._entries("result IS NOT NULL AND commit_stamp <= ?", commit_stamp)

    def read(self, body: bytes) -> Operation:
        """An operation that is not in the outbox any more, from its bytes."""
        return reread(body, self.replica, self._identity.client_id, self._identity.subject)

    def _read(self, body: bytes, name: OperationId) -> Operation:
        """An operation under the id that is kept beside its bytes, which rarely hold it."""
        operation = reread(
            body, self.replica, self._identity.client_id, self._identity.subject, unnamed=lambda: name
        )
        return operation if operation.operation_id == name else replace(operation, operation_id=name)

    def _entries(self, where: str, *values: object) -> list[Entry]:
        query = f"SELECT {_COLUMNS} FROM outbox WHERE {where} ORDER BY position"  # noqa: S608 - fixed texts
        return [self._entry(row) for row in self._sql.execute(query, values)]

    def _entry(self, row: Sequence[object]) -> Entry:
        position, number, operation_id, body, result = row
        if not isinstance(position, int) or not isinstance(body, bytes):
            raise unreadable("an operation")
        name = OperationId(id_text(operation_id)) if isinstance(operation_id, bytes) else NO_ID
        known = self._decoded.get(position)
        if known is not None and known[:2] == (body, name):
            operation = known[2]
        else:
            try:
                operation = self._read(body, name)
            except UNREADABLE as error:
                raise unreadable("an operation", error) from error
            self._decoded[position] = (body, name, operation)
        answer = v1.OperationResult.FromString(result) if isinstance(result, bytes) else None
        return Entry(position, number if isinstance(number, int) else 0, operation, body, answer)

    # --- writing ----------------------------------------------------------------------------------

    def add(self, operation: Operation, after: Memory | None) -> None:
        """Queue an operation that makes a memory ``after``, or None where no create is to take it in.

        Operations that were never sent are folded where the result is the same for everybody. A delete is
        sent even where nothing is known to be there: a copy of this file may have sent what it deletes.
        """
        fresh = [
            entry
            for entry in self.of(operation.memory_id)
            if entry.number == 0 and not entry.operation.operation_id
        ]
        if operation.kind is OperationKind.DELETE:
            self.drop(fresh)
        elif operation.kind is OperationKind.SET and fresh:
            created = fresh[-1].operation
            if created.memory is not None and after is not None and _keeps(created.memory, after):
                self._rewrite(fresh[-1], replace(created, stamp=operation.stamp, memory=after))
                return
            operation = self._covering(fresh[-1], operation)
        self._sql.execute(
            "INSERT INTO outbox (memory_id, kind, body) VALUES (?, ?, ?)",
            (id_bytes(operation.memory_id), int(operation.kind), encode(operation, self.replica)),
        )

    def _covering(self, last: Entry, operation: Operation) -> Operation:
        """The operation over the one before it, which goes where every register of it is written again."""
        old = {write.field: write for write in last.operation.writes}
        if last.operation.kind is not OperationKind.SET or not old.keys() <= {
            w.field for w in operation.writes
        }:
            return operation
        self.drop([last])
        writes = tuple(
            replace(write, base=old[write.field].base) if write.field in old else write
            for write in operation.writes
        )
        return replace(operation, writes=writes)

    def _rewrite(self, entry: Entry, operation: Operation) -> None:
        body = encode(operation, self.replica)
        self._sql.execute("UPDATE outbox SET body = ? WHERE position = ?", (body, entry.position))

    def drop(self, entries: Iterable[Entry | Sent]) -> None:
        """Take operations out."""
        self._sql.executemany("DELETE FROM outbox WHERE position = ?", [(e.position,) for e in entries])

    def next_batch(self, *, new: bool) -> Batch:
        """What to send next: the batch that was sent and not answered, else a ``new`` one, or none."""
        answered = int(get_meta(self._sql, "answered", 0))
        chain = bytes(get_meta(self._sql, "chain", NO_CHAIN))
        bodies = self.sent_bodies() or (self._number(answered + 1) if new else [])
        return Batch(answered + 1, chain, tuple(bodies))

    def sent(self) -> list[Sent]:
        """The batch that waits for its answer, in the order of its numbers: the oldest of what waits."""
        rows = self._sql.execute(_WAITING)
        return [Sent(*row) for row in takewhile(lambda row: row[1] is not None, rows)]

    def sent_bodies(self) -> list[bytes]:
        """The operations of the batch that waits for its answer, as they were sent."""
        return [each.body for each in self.sent()]

    def entry(self, sent: Sent) -> Entry:
        """A sent operation, read."""
        return self._entry((sent.position, sent.number, sent.operation_id, sent.body, None))

    def number_single(self) -> None:
        """Number the operation that waits, where it is the only one, as the next batch."""
        waiting = self._sql.execute("SELECT number FROM outbox WHERE result IS NULL LIMIT 2").fetchall()
        if waiting == [(None,)]:
            self._number(int(get_meta(self._sql, "answered", 0)) + 1)

    def _number(self, first: int) -> list[bytes]:
        bodies: list[bytes] = []
        numbered, size = [], 0
        rows = self._sql.execute(
            "SELECT position, body, operation_id FROM outbox WHERE result IS NULL ORDER BY position LIMIT ?",
            (MAX_OPERATIONS,),
        )
        for position, body, operation_id in rows:
            size += len(body)
            if bodies and size > MAX_BATCH_BYTES:
                break
            number = first + len(bodies)
            name = operation_id or id_bytes(derived_id(self.replica, number, body))
            numbered.append((number, name, position))
            bodies.append(body)
        self._sql.executemany("UPDATE outbox SET number = ?, operation_id = ? WHERE position = ?", numbered)
        return bodies

    def answer(self, answered: Sequence[Sent]) -> None:
        """Note that the first operations that were sent were answered, in the order of their numbers."""
        if not answered:
            return
        chain = bytes(get_meta(self._sql, "chain", NO_CHAIN))
        for each in answered:
            chain = next_chain(chain, each.body)
        accepted = max(int(get_meta(self._sql, "accepted_time", 0)), *map(_time, answered))
        set_meta(self._sql, answered=answered[-1].number, chain=chain, accepted_time=accepted)

    def unnumber(self) -> None:
        """Take the numbers back of what the server did not take: it is batched anew."""
        self._sql.execute(
            "UPDATE outbox SET number = NULL, operation_id = NULL WHERE number IS NOT NULL AND result IS NULL"
        )

    def keep_answers(self, answered: Iterable[tuple[Entry | Sent, v1.OperationResult]]) -> None:
        """Keep operations with their answers until the cursor passes them."""
        self._sql.executemany(
            "UPDATE outbox SET result = ?, commit_stamp = ? WHERE position = ?",
            [(result.SerializeToString(), result.commit_stamp, e.position) for e, result in answered],
        )

    def redirect(self, memory_id: MemoryId, other: MemoryId) -> None:
        """Move the unanswered edits of one memory to another, which stands for both; a deletion was of the
        one alone."""
        for entry in self.of(memory_id):
            if entry.result is None and entry.operation.kind is OperationKind.SET:
                operation = replace(entry.operation, memory_id=other)
                self._rewrite(entry, operation)
                self._sql.execute(
                    "UPDATE outbox SET memory_id = ? WHERE position = ?", (id_bytes(other), entry.position)
                )

    # --- beginning anew ---------------------------------------------------------------------------

    def take_replica(self, replica: ReplicaId, *, keep_ids: bool) -> None:
        """Number anew as another replica. Operations keep their stamps, and those that were sent their ids.

        With ``keep_ids`` answered ones are to be sent again too: the server that answered is lost.
        """
        entries = self._entries("1") if keep_ids else self.unanswered()
        for entry in entries:
            body = encode(entry.operation, replica)
            self._sql.execute(
                "UPDATE outbox SET body = ?, number = NULL, result = NULL, commit_stamp = NULL,"
                " operation_id = ? WHERE position = ?",
                (body, id_bytes(entry.operation.operation_id) or None, entry.position),
            )
        self._reencode_answered(replica)
        set_meta(self._sql, replica_id=replica, answered=0, chain=None)
        # The new replica's totals begin with what the old one had not told yet.
        self._sql.execute("UPDATE touches SET total = total - sent, sent = 0")
        self.replica = replica

    def _reencode_answered(self, replica: ReplicaId) -> None:
        for entry in self._entries("result IS NOT NULL"):
            self._sql.execute(
                "UPDATE outbox SET body = ? WHERE position = ?",
                (encode(entry.operation, replica), entry.position),
            )

    def restamp(self, now_millis: int) -> set[MemoryId]:
        """Give every unanswered operation a new stamp and no number, since none of them is stored anywhere;
        the memories they are on."""
        clock = Clock(self.replica, int(get_meta(self._sql, "accepted_time", 0)))
        renamed: dict[Stamp, Stamp] = {}
        touched = set()
        for entry in self.unanswered():
            bases = [renamed.get(write.base, write.base) for write in entry.operation.writes if write.base]
            for base in bases:
                clock.observe(base)
            stamp = clock.tick(now_millis)
            renamed[entry.operation.stamp] = stamp
            operation = _stamped(replace(entry.operation, operation_id=NO_ID), stamp, renamed)
            self._sql.execute(
                "UPDATE outbox SET body = ?, number = NULL, operation_id = NULL WHERE position = ?",
                (encode(operation, self.replica), entry.position),
            )
            touched.add(operation.memory_id)
        set_meta(self._sql, clock_time=clock.last)
        return touched


def _time(sent: Sent) -> int:
    try:
        return v1.Operation.FromString(sent.body).time
    except UNREADABLE as error:
        raise unreadable("an operation", error) from error


def _keeps(created: Memory, after: Memory) -> bool:
    """Whether no register was cleared since. A create says nothing of absent ones: where a copy of this file
    has sent it, they would stay."""
    return {field for field, _ in registers(created)} <= {field for field, _ in registers(after)}


def _stamped(operation: Operation, stamp: Stamp, renamed: dict[Stamp, Stamp]) -> Operation:
    """The operation under another stamp, with bases that were renamed before it."""
    writes = tuple(
        Write(write.field, write.value, stamp, write.base and renamed.get(write.base, write.base))
        for write in operation.writes
    )
    return replace(operation, stamp=stamp, writes=writes)


def applied_state(operation: Operation, result: v1.OperationResult) -> State | None:
    """What the server took of an operation, as a state to be joined; None where it took nothing."""
    status = result.first_status or result.status
    taken = status in (v1.OPERATION_STATUS_APPLIED, v1.OPERATION_STATUS_APPLIED_CONCURRENT)
    other = {each.field: each.outcome for each in result.registers}
    good = (v1.OUTCOME_APPLIED, v1.OUTCOME_APPLIED_CONCURRENT)
    if operation.memory is not None:
        whole = create(operation.memory, operation.stamp)
    elif operation.writes:
        whole = _of_writes(operation)
    else:
        return None
    stamps = {
        field: stamp
        for field, stamp in whole.stamps.items()
        if (other[field] in good if field in other else taken)
    }
    return State(whole.memory, stamps) if stamps else None


def _of_writes(operation: Operation) -> State:
    blank = Memory(id=operation.memory_id, content="", created_at=Micros(0))
    values = {write.field: write.value for write in operation.writes}
    return State(put(blank, values), {write.field: write.stamp for write in operation.writes})
