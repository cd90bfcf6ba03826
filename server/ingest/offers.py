"""Joining what a replica gives back after the server lost it, inside one unit."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from scrubjay.memory import MemoryId, new_memory_id
from scrubjay.merge import Outcome, State, get, join
from scrubjay.operation import Operation, OperationId, OperationKind
from scrubjay.stamp import Stamp
from scrubjay.validity import violations
from server.ingest.batch import Sender
from server.ingest.merging import Merging
from server.store.history import HistoryChange
from server.store.rows import Grave, StoredMemory, StreamKey, private_to
from server.store.writing import Writing


@dataclass(frozen=True, slots=True)
class Offered:
    """What a replica gives back of a memory: its state, or None where it is dead.

    ``vector`` is the encoded vector of its content, where the server does not have it so.
    """

    memory_id: MemoryId
    state: State | None
    vector: bytes | None = None


def take_offered(
    writing: Writing,
    key: StreamKey,
    space: str,
    sender: Sender,
    offered: Sequence[Offered],
    now_millis: int,
) -> int:
    """Join what a replica gives back after the server lost it; how much of it was news."""
    batch = _Offers(writing, key, space, sender, [one.memory_id for one in offered], [], now_millis)
    taken = sum(batch.offer(one) for one in offered)
    batch.write()
    return taken


class _Offers(Merging):
    """A working set that takes states and dead ids."""

    def offer(self, offered: Offered) -> bool:
        """Join what a replica still holds of a memory; whether that was news. Nothing overrides a grave."""
        memory_id = offered.memory_id
        stored = self._visible(memory_id, self._sender)
        if memory_id in self._graves or (stored is None and memory_id in self._living):
            return False
        if offered.state is None:
            return self._offer_dead(memory_id, stored)
        if not self._sender.viewer.sees(offered.state.memory):
            return False
        return self._offer_living(offered.state, stored, offered.vector)

    def _offer_dead(self, memory_id: MemoryId, stored: StoredMemory | None) -> bool:
        author, commit_stamp = self._sender.author, self._commit_stamp()
        stamp = Stamp(commit_stamp, self._sender.replica_id)
        operation = Operation(_new_id(stamp), memory_id, OperationKind.DELETE, stamp)
        if stored is not None:
            self._delete(operation, stored, commit_stamp)
            return True
        self._bury(Grave(memory_id, commit_stamp, stamp, author.client_id, scope=""))
        self._record(author, operation, [], commit_stamp, author.client_id)
        return True

    def _offer_living(self, state: State, stored: StoredMemory | None, vector: bytes | None) -> bool:
        joined = state if stored is None else join(stored.state, state)
        known = {} if stored is None else stored.state.stamps
        news = [field for field, stamp in joined.stamps.items() if known.get(field) != stamp]
        if not news or violations(joined.memory) or not self._sender.viewer.sees(joined.memory):
            return False
        commit_stamp = self._commit_stamp()
        after = (
            StoredMemory.of(joined, commit_stamp) if stored is None else stored.edited(joined, commit_stamp)
        )
        self._put(after)
        memory, stamp = joined.memory, max(joined.stamps[field] for field in news)
        if vector is not None and "content" in news:
            self._writes.vectors[memory.id] = joined.stamps["content"], vector
        kind = OperationKind.CREATE if stored is None else OperationKind.SET
        operation = Operation(_new_id(stamp), memory.id, kind, stamp)
        changes = [
            HistoryChange(
                field,
                None if stored is None else get(stored.memory, field),
                get(memory, field),
                joined.stamps[field],
                None,
                Outcome.APPLIED,
            )
            for field in sorted(news)
        ]
        owner = (stored and private_to(stored.memory)) or private_to(memory)
        self._record(self._sender.author, operation, changes, commit_stamp, owner)
        for waiting in self._waiting.pop(memory.id, ()):
            self._end_wait(waiting)
        return True


def _new_id(stamp: Stamp) -> OperationId:
    return OperationId(new_memory_id(stamp.millis, os.urandom(10)))
