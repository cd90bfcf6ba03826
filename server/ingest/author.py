"""Who writes: what History records of every operation."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass

from scrubjay.memory import ClientId, Memory, Micros, PrivacyLevel, new_memory_id
from scrubjay.merge import Outcome
from scrubjay.operation import OperationKind
from scrubjay.stamp import CommitStamp, ReplicaId, Stamp
from server.store.history import HistoryChange, HistoryRow
from tenants.tenant import Incarnation


def server_replica(incarnation: Incarnation) -> ReplicaId:
    """The replica of the edits that servers stamp for a tenant.

    All servers share it: a stamp made under the stream's head lock is unique among them.
    """
    return ReplicaId(hashlib.sha256(f"server\0{incarnation}".encode()).digest()[:16])


@dataclass(frozen=True, slots=True)
class Author:
    """The client a write comes from, the clock that stamps it, and the key and role that vouch for it."""

    client_id: ClientId
    replica: ReplicaId
    actor: str
    role: str

    def history_row(
        self,
        memory: Memory,
        kind: OperationKind,
        changes: Sequence[HistoryChange],
        stamp: Stamp,
        commit_stamp: CommitStamp,
    ) -> HistoryRow:
        """The operation as History keeps it. ``memory`` is its state after, or before a delete."""
        private = memory.privacy_level is PrivacyLevel.PRIVATE
        superseded = bool(changes) and all(change.outcome is Outcome.SUPERSEDED for change in changes)
        concurrent = any(change.outcome is not Outcome.APPLIED for change in changes)
        return HistoryRow(
            operation_id=new_memory_id(stamp.millis, os.urandom(10)),
            memory_id=memory.id,
            commit_stamp=commit_stamp,
            kind=kind,
            changes=tuple(changes),
            client_id=self.client_id,
            replica_id=stamp.replica,
            actor=self.actor,
            role=self.role,
            outcome=Outcome.SUPERSEDED
            if superseded
            else Outcome.APPLIED_CONCURRENT
            if concurrent
            else Outcome.APPLIED,
            claimed_at=Micros(stamp.millis * 1000),
            private_to=memory.owner_client_id if private else ClientId(""),
        )
