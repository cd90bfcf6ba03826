"""What a batch is about to write, gathered while it is taken and written at once."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field

from scrubjay import v1
from scrubjay.memory import MemoryId
from scrubjay.operation import OperationId
from scrubjay.stamp import CommitStamp, Stamp
from server.ingest.entities.entity import Named
from server.ingest.entities.linking import link, relink, says_other
from server.store.history import HistoryRow
from server.store.replicas import SavedOperation, WaitingOperation
from server.store.rows import Grave, StoredMemory, StreamKey
from server.store.writing import Writing

Results = dict[OperationId, tuple[CommitStamp, v1.OperationResult]]


@dataclass(frozen=True, slots=True)
class BatchWrites:
    """``results`` are those of new operations, ``resolved`` of ones that waited in the store; ``changed``
    has the last state of every memory that was made or edited, also of one that was then deleted; ``named``
    what was read of texts before the lock, see ``server.ingest.entities.linking``."""

    changed: dict[MemoryId, StoredMemory] = field(default_factory=dict)
    graves: list[Grave] = field(default_factory=list)
    vectors: dict[MemoryId, tuple[Stamp, bytes]] = field(default_factory=dict)
    history: list[HistoryRow] = field(default_factory=list)
    results: Results = field(default_factory=dict)
    resolved: Results = field(default_factory=dict)
    waiting: dict[OperationId, WaitingOperation] = field(default_factory=dict)
    no_longer_waiting: set[MemoryId] = field(default_factory=set)
    named: dict[tuple[str, str], Named] = field(default_factory=dict)

    def write(
        self,
        writing: Writing,
        key: StreamKey,
        space: str,
        before: Mapping[MemoryId, StoredMemory],
        living: Container[MemoryId],
    ) -> None:
        """Write it, where ``before`` is what the store has and ``living`` what shall live."""
        new = [one for i, one in self.changed.items() if i not in before and i in living]
        writing.insert(key, new)
        # Also what was then deleted: who may not hear of its grave has to take it back.
        edited = [(before[i], one) for i, one in self.changed.items() if i in before]
        writing.replace_many(key, edited)
        writing.bury(key, self.graves)
        link(writing, key, new, self.named)
        said = [one for old, one in edited if one.memory.id in living and says_other(old.memory, one.memory)]
        relink(writing, key, said, self.named)
        writing.put_vectors(key, space, [(i, stamp, vector) for i, (stamp, vector) in self.vectors.items()])
        writing.add_history(key, self.history)
        writing.save_operations(key, _saved(self.results))
        writing.resolve_operations(key, _saved(self.resolved))
        writing.wait(key, list(self.waiting.values()))
        writing.end_waiting(key, self.no_longer_waiting)


def _saved(results: Results) -> list[SavedOperation]:
    return [
        SavedOperation(operation_id, commit_stamp, result.status, result.SerializeToString())
        for operation_id, (commit_stamp, result) in results.items()
    ]
