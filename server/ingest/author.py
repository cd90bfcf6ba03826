"""Who writes: what History records of every operation."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass

from scrubjay.errors import FieldViolation
from scrubjay.memory import ClientId, JsonValue, Memory, MemoryId, Micros, Viewer, new_memory_id
from scrubjay.merge import Outcome, State, WriteResult, registers
from scrubjay.operation import Operation, OperationKind
from scrubjay.stamp import CommitStamp, ReplicaId, Stamp
from server.store.history import HistoryChange, HistoryRow
from server.store.rows import private_to
from tenants.tenant import Incarnation


def server_replica(incarnation: Incarnation) -> ReplicaId:
    """The replica of the edits that servers stamp for a tenant.

    All servers share it: a stamp made under the stream's head lock is unique among them.
    """
    return ReplicaId(hashlib.sha256(f"server\0{incarnation}".encode()).digest()[:16])


@dataclass(frozen=True, slots=True)
class Author:
    """The client a write comes from, the clock that stamps it, and the key and role that vouch for it.

    ``spell`` names the time offline that a device's edits were made in; empty for others. Without ``scopes``
    the key reaches all memories.
    """

    client_id: ClientId
    replica: ReplicaId
    actor: str
    role: str
    spell: str = ""
    scopes: tuple[str, ...] = ()

    @property
    def viewer(self) -> Viewer:
        """For whom memories exist that it may write."""
        return Viewer(self.client_id, self.scopes)

    def history_row(
        self,
        memory: Memory,
        kind: OperationKind,
        changes: Sequence[HistoryChange],
        stamp: Stamp,
        commit_stamp: CommitStamp,
    ) -> HistoryRow:
        """The operation as History keeps it. ``memory`` is its state after, or before where it was private
        then or is no more."""
        operation_id = new_memory_id(stamp.millis, os.urandom(10))
        return self.record(
            operation_id,
            memory.id,
            kind,
            changes,
            stamp,
            commit_stamp,
            private_to(memory),
            outcome_of(changes),
        )

    def record(
        self,
        operation_id: str,
        memory_id: MemoryId,
        kind: OperationKind,
        changes: Sequence[HistoryChange],
        stamp: Stamp,
        commit_stamp: CommitStamp,
        private_to: ClientId,
        outcome: Outcome,
        deleted: bytes = b"",
    ) -> HistoryRow:
        """An operation that ended as ``outcome``, and the only client that may see it, if not all may.

        ``deleted`` is the encoded memory that it took away, if any.
        """
        return HistoryRow(
            operation_id=operation_id,
            memory_id=memory_id,
            commit_stamp=commit_stamp,
            kind=kind,
            changes=tuple(changes),
            client_id=self.client_id,
            replica_id=stamp.replica,
            actor=self.actor,
            role=self.role,
            outcome=outcome,
            claimed_at=Micros(stamp.millis * 1000),
            private_to=private_to,
            spell=self.spell,
            deleted=deleted,
        )


def outside_violation(field_path: str, scope: str, viewer: Viewer) -> FieldViolation | None:
    """What is wrong with the scope that somebody writes a memory into, if anything."""
    if viewer.may_enter(scope):
        return None
    reached = ", ".join(viewer.scopes)
    return FieldViolation(field_path, f"{scope!r} lies outside of this key's scopes: {reached}")


def outcome_of(changes: Sequence[HistoryChange]) -> Outcome:
    """How an operation ended whose registers ended so."""
    if changes and all(change.outcome is Outcome.SUPERSEDED for change in changes):
        return Outcome.SUPERSEDED
    if any(change.outcome is not Outcome.APPLIED for change in changes):
        return Outcome.APPLIED_CONCURRENT
    return Outcome.APPLIED


def first_values(memory: Memory, stamp: Stamp) -> list[HistoryChange]:
    """A create's registers as History keeps them."""
    return [
        HistoryChange(field, None, value, stamp, None, Outcome.APPLIED) for field, value in registers(memory)
    ]


def last_text(state: State, stamp: Stamp) -> list[HistoryChange]:
    """What History keeps of a memory that was deleted: its last text."""
    base = state.stamps.get("content")
    return [HistoryChange("content", state.memory.content, None, stamp, base, Outcome.APPLIED)]


def written(results: Sequence[WriteResult]) -> list[HistoryChange]:
    """The writes of an edit as History keeps them."""
    return [
        HistoryChange(r.write.field, r.old_value, r.write.value, r.write.stamp, r.write.base, r.outcome)
        for r in results
    ]


def attempted(operation: Operation, outcome: Outcome) -> list[HistoryChange]:
    """The values of an operation that was not stored, as History keeps them."""
    values: list[tuple[str, JsonValue, Stamp | None]]
    if operation.memory is not None:
        values = [(name, value, None) for name, value in registers(operation.memory)]
    else:
        values = [(write.field, write.value, write.base) for write in operation.writes]
    return [HistoryChange(name, None, value, operation.stamp, base, outcome) for name, value, base in values]
