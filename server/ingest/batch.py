"""The working set of a batch of edits of one stream, inside one unit.

Everything that the batch touches is read once, carried in dicts while the edits are taken in their order,
and written once. Each takes a commit stamp of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scrubjay import v1
from scrubjay.memory import ClientId, MemoryId, Subject, Viewer
from scrubjay.merge import Outcome
from scrubjay.operation import Operation, OperationId
from scrubjay.stamp import CommitStamp, ReplicaId, next_commit_stamp
from server.feed import OwnWrite
from server.ingest.author import Author, outcome_of
from server.ingest.batch_texts import BatchTexts
from server.ingest.batch_writes import BatchWrites
from server.store.history import HistoryChange
from server.store.replicas import WaitingOperation
from server.store.rows import Grave, StoredMemory, StreamKey, may_hear
from server.store.writing import Writing

MOST_AHEAD_MILLIS = 60_000
"""How far a stamp may lie ahead of the server's clock: behind it one wrong clock would win for ever."""


@dataclass(frozen=True, slots=True)
class Sender:
    """Whose operations they are: who looks, who is recorded, and which replica sent them."""

    viewer: Viewer
    author: Author
    replica_id: ReplicaId
    subject: Subject


class Batch:
    """What is known of the memories ``ids`` and the operations ``operation_ids``, and what becomes of them.
    ``new_texts`` are those of memories that are to be made; all vectors are of the ``space``.

    ``answers`` are those of the operations taken, see ``server.ingest.merging``.
    """

    def __init__(
        self,
        writing: Writing,
        key: StreamKey,
        space: str,
        sender: Sender,
        ids: Sequence[MemoryId],
        operation_ids: Sequence[OperationId],
        now_millis: int,
        new_texts: Sequence[str] = (),
    ) -> None:
        self.answers: list[v1.OperationResult] = []
        self._writing = writing
        self._key = key
        self._space = space
        self._sender = sender
        self._now_millis = now_millis
        self._known = writing.operation_results(key.incarnation, operation_ids)
        self._before = writing.get_many(key.incarnation, ids)
        self._living = dict(self._before)
        self._foreign = {i for i, stored in self._before.items() if stored.memory.subject.key != key.stream}
        self._graves = writing.graves(key.incarnation, ids)
        self._waiting: dict[MemoryId, list[WaitingOperation]] = {}
        for waiting in writing.waiting(key, ids):
            self._waiting.setdefault(waiting.memory_id, []).append(waiting)
        self._owners: dict[MemoryId, ClientId | None] = {}
        self._taken_back = self._find_taken_back(ids)
        self._writes = BatchWrites()
        self._own_stamps: dict[MemoryId, set[CommitStamp]] = {}
        self._texts = BatchTexts(writing, key, new_texts)
        self._merged: dict[MemoryId, MemoryId] = {}
        head = writing.head(key)
        self._newest = head.head if head else CommitStamp(0)
        self._stamped = 0

    def _find_taken_back(self, ids: Sequence[MemoryId]) -> set[MemoryId]:
        known = [i for i in ids if i in self._graves or i in self._living]
        hidden = [i for i in known if self._visible(i, self._sender) is None and self._heard(i) is None]
        viewer = self._sender.viewer
        return {
            one.memory_id
            for one in (self._writing.retractions_of(self._key, hidden) if hidden else ())
            if may_hear(viewer, one.private_to, one.scope)
        }

    def _visible(self, memory_id: MemoryId, sender: Sender) -> StoredMemory | None:
        """The living memory of the stream, where the sender sees it."""
        stored = self._living.get(memory_id)
        if stored is None or memory_id in self._foreign:
            return None
        return stored if sender.viewer.sees(stored.memory) else None

    def _heard(self, memory_id: MemoryId) -> Grave | None:
        """The memory's grave in the stream, where the sender may hear of it."""
        stream, grave = self._graves.get(memory_id, ("", None))
        if grave is None or stream != self._key.stream:
            return None
        return grave if may_hear(self._sender.viewer, grave.private_to, grave.scope) else None

    def _commit_stamp(self) -> CommitStamp:
        """The next one of the run that ``write`` takes."""
        self._newest = next_commit_stamp(self._newest, self._now_millis)
        self._stamped += 1
        return self._newest

    def _put(self, stored: StoredMemory) -> None:
        self._living[stored.memory.id] = stored
        self._writes.changed[stored.memory.id] = stored

    def _bury(self, grave: Grave) -> None:
        memory_id = grave.memory_id
        self._living.pop(memory_id, None)
        self._graves[memory_id] = self._key.stream, grave
        self._writes.graves.append(grave)
        self._writes.vectors.pop(memory_id, None)
        for waiting in self._waiting.pop(memory_id, ()):
            self._writes.waiting.pop(waiting.operation_id, None)

    def _record(
        self,
        author: Author,
        operation: Operation,
        changes: Sequence[HistoryChange],
        commit_stamp: CommitStamp,
        private_to: ClientId,
        outcome: Outcome | None = None,
        deleted: bytes = b"",
    ) -> None:
        self._writes.history.append(
            author.record(
                operation.operation_id,
                operation.memory_id,
                operation.kind,
                changes,
                operation.stamp,
                commit_stamp,
                private_to,
                outcome or outcome_of(changes),
                deleted,
            )
        )

    def own(self) -> dict[MemoryId, OwnWrite]:
        """What its operations left as they wrote it."""
        return {
            memory_id: OwnWrite(stored.commit_stamp, stored.newest_but(stamps))
            for memory_id, stamps in self._own_stamps.items()
            if (stored := self._living.get(memory_id)) is not None
        }

    def write(self) -> None:
        """Write what became of everything."""
        self._writing.stamps(self._key, self._stamped, self._now_millis)
        self._writes.write(self._writing, self._key, self._space, self._before, self._living)
