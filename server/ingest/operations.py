"""Merging a batch of operations into a stream, inside one unit.

Everything that the batch touches is read once, carried in dicts while the operations are taken in their
order, and written once. Each operation takes a commit stamp of its own and ends with a result that is
kept, so that a repeat is answered as the first time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from scrubjay import v1
from scrubjay.errors import InvalidField
from scrubjay.memory import ClientId, JsonValue, MemoryId, Subject, Viewer
from scrubjay.merge import Outcome, registers
from scrubjay.operation import Operation, OperationId, OperationKind, decode, encode, replay
from scrubjay.stamp import CommitStamp, ReplicaId, Stamp
from server.ingest.author import Author, first_values, last_text, outcome_of, written
from server.ingest.results import duplicate, outside, rejected, result_of
from server.ingest.uploads import Arrived
from server.store.history import HistoryChange, HistoryRow
from server.store.replicas import SavedOperation, WaitingOperation
from server.store.rows import Grave, StoredMemory, StreamKey, may_hear, private_to
from server.store.writing import Writing

MOST_AHEAD_MILLIS = 60_000
"""How far a stamp may lie ahead of the server's clock: behind it one wrong clock would win for ever."""
CLOCK = "clock"
"""Why an operation must come again: its stamp lies ahead of the server's clock."""
MODEL = "model"
"""Why an operation must come again: the embedding model does not answer."""


@dataclass(frozen=True, slots=True)
class Sender:
    """Whose operations they are: who looks, who is recorded, and which replica sent them."""

    viewer: Viewer
    author: Author
    replica_id: ReplicaId
    subject: Subject


@dataclass(frozen=True, slots=True)
class Merged:
    """A result for each operation, in order; how many were taken; and what the batch itself wrote."""

    results: list[v1.OperationResult]
    taken: int
    own: Mapping[MemoryId, Mapping[str, Stamp]]


def merge_batch(
    writing: Writing,
    key: StreamKey,
    space: str,
    sender: Sender,
    arrived: Sequence[Arrived],
    now_millis: int,
) -> Merged:
    """Take the operations in order, up to the first that must come again later."""
    batch = _Batch(writing, key, sender, arrived, now_millis)
    hindrance = ""
    for one in arrived:
        hindrance = batch.hindrance(one)
        if hindrance:
            break
        batch.take(one)
    taken = len(batch.answers)
    batch.write(space)
    later = v1.OperationResult(status=v1.OPERATION_STATUS_RETRY_LATER, reason=hindrance)
    return Merged(batch.answers + [later] * (len(arrived) - taken), taken, batch.own)


def first_results(writing: Writing, key: StreamKey, arrived: Sequence[Arrived]) -> list[v1.OperationResult]:
    """The first results of operations that were answered in an earlier call; empty where forgotten."""
    known = writing.operation_results(key.incarnation, [one.operation_id for one in arrived])
    nothing = (key.stream, b"")
    return [
        duplicate(v1.OperationResult.FromString(known.get(one.operation_id, nothing)[1])) for one in arrived
    ]


class _Batch:
    """The working set of a batch."""

    def __init__(
        self,
        writing: Writing,
        key: StreamKey,
        sender: Sender,
        arrived: Sequence[Arrived],
        now_millis: int,
    ) -> None:
        self.answers: list[v1.OperationResult] = []
        self.own: dict[MemoryId, dict[str, Stamp]] = {}
        self._writing = writing
        self._key = key
        self._sender = sender
        self._now_millis = now_millis
        ids = list({one.operation.memory_id for one in arrived if one.operation is not None})
        self._known = writing.operation_results(key.incarnation, [one.operation_id for one in arrived])
        self._before = writing.get_many(key.incarnation, ids)
        self._living = dict(self._before)
        self._graves = writing.graves(key.incarnation, ids)
        self._waiting: dict[MemoryId, list[WaitingOperation]] = {}
        for waiting in writing.waiting(key, ids):
            self._waiting.setdefault(waiting.memory_id, []).append(waiting)
        self._taken_back = self._find_taken_back(ids)
        self._outcome = _Outcome()

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
        if stored is None or stored.memory.subject.key != self._key.stream:
            return None
        return stored if sender.viewer.sees(stored.memory) else None

    def _heard(self, memory_id: MemoryId) -> Grave | None:
        """The memory's grave in the stream, where the sender may hear of it."""
        stream, grave = self._graves.get(memory_id, ("", None))
        if grave is None or stream != self._key.stream:
            return None
        return grave if may_hear(self._sender.viewer, grave.private_to, grave.scope) else None

    # --- one operation ----------------------------------------------------------------------------

    def hindrance(self, one: Arrived) -> str:
        """Why an operation can't be taken now, if anything."""
        operation = one.operation
        if operation is None or one.operation_id in self._known:
            return ""
        if operation.stamp.millis > self._now_millis + MOST_AHEAD_MILLIS:
            return CLOCK
        return MODEL if one.content is not None and one.vector is None else ""

    def take(self, one: Arrived) -> None:
        """Take an operation and append its answer."""
        first = self._outcome.results.get(one.operation_id)
        stream, encoded = self._known.get(one.operation_id, ("", b""))
        if first is not None:
            self.answers.append(duplicate(first[1]))
        elif stream == self._key.stream:
            self.answers.append(duplicate(v1.OperationResult.FromString(encoded)))
        elif stream:
            self.answers.append(rejected("operation_id: is taken; give the operation another one"))
        else:
            commit_stamp = self._commit_stamp()
            result = self._merge(one, commit_stamp)
            result.commit_stamp = commit_stamp
            self._outcome.results[one.operation_id] = commit_stamp, result
            self.answers.append(result)

    def _commit_stamp(self) -> CommitStamp:
        return self._writing.stamps(self._key, 1, self._now_millis)[0]

    def _merge(self, one: Arrived, commit_stamp: CommitStamp) -> v1.OperationResult:
        operation = one.operation
        if operation is None:
            return rejected(one.refusal)
        memory_id = operation.memory_id
        stored = self._visible(memory_id, self._sender)
        if stored is not None and operation.kind is OperationKind.DELETE:
            return self._delete(operation, stored, commit_stamp)
        if stored is not None:
            result, written = self._edit(operation, stored, commit_stamp, self._sender, one.vector)
            self.own.setdefault(memory_id, {}).update(written)
            return result
        grave = self._heard(memory_id)
        if grave is not None:
            return self._gone(operation, grave, commit_stamp)
        if memory_id in self._living or memory_id in self._graves:
            return self._hidden(operation, commit_stamp)
        return self._unknown(one, operation, commit_stamp)

    def _edit(
        self,
        operation: Operation,
        stored: StoredMemory,
        commit_stamp: CommitStamp,
        sender: Sender,
        vector: bytes | None,
    ) -> tuple[v1.OperationResult, dict[str, Stamp]]:
        """Join an operation into a memory; its result, and the registers that it wrote."""
        author = sender.author
        try:
            state, results = replay(stored.state, operation, author.client_id)
            assert state is not None  # only a DELETE leaves none
        except InvalidField as error:
            return rejected(error.message), {}
        if not sender.viewer.may_enter(state.memory.scope):
            return outside(state.memory.scope), {}
        wrote = {r.write.field: r.write.stamp for r in results if r.outcome is not Outcome.SUPERSEDED}
        if wrote:
            self._put(stored.edited(state, commit_stamp))
        if vector is not None and "content" in wrote:
            self._outcome.vectors[operation.memory_id] = operation.stamp, vector
        self._record(author, operation, written(results), commit_stamp, private_to(state.memory))
        return result_of(results), wrote

    def _put(self, stored: StoredMemory) -> None:
        self._living[stored.memory.id] = stored
        self._outcome.changed[stored.memory.id] = stored

    def _delete(
        self, operation: Operation, stored: StoredMemory, commit_stamp: CommitStamp
    ) -> v1.OperationResult:
        memory = stored.memory
        self._bury(Grave.of(memory, commit_stamp, operation.stamp))
        changes = last_text(stored.state, operation.stamp)
        self._record(self._sender.author, operation, changes, commit_stamp, private_to(memory))
        return v1.OperationResult(status=v1.OPERATION_STATUS_APPLIED)

    def _bury(self, grave: Grave) -> None:
        memory_id = grave.memory_id
        self._living.pop(memory_id, None)
        self._graves[memory_id] = self._key.stream, grave
        self._outcome.graves.append(grave)
        self._outcome.vectors.pop(memory_id, None)
        for waiting in self._waiting.pop(memory_id, ()):
            self._outcome.waiting.pop(waiting.operation_id, None)

    def _gone(self, operation: Operation, grave: Grave, commit_stamp: CommitStamp) -> v1.OperationResult:
        changes = _attempted(operation, Outcome.GONE)
        self._record(self._sender.author, operation, changes, commit_stamp, grave.private_to, Outcome.GONE)
        return v1.OperationResult(status=v1.OPERATION_STATUS_GONE)

    def _hidden(self, operation: Operation, commit_stamp: CommitStamp) -> v1.OperationResult:
        """Answers as for an unknown id, where the sender was never shown the memory."""
        if operation.memory_id in self._taken_back:
            return self._not_visible(operation, commit_stamp, self._sender.author)
        if operation.kind is OperationKind.CREATE:
            return rejected("memory_id: is taken; give the memory another one")
        if operation.kind is OperationKind.DELETE:
            return v1.OperationResult(status=v1.OPERATION_STATUS_APPLIED)
        return v1.OperationResult(status=v1.OPERATION_STATUS_PENDING_CREATE)

    def _not_visible(
        self, operation: Operation, commit_stamp: CommitStamp, author: Author
    ) -> v1.OperationResult:
        changes = _attempted(operation, Outcome.SUPERSEDED)
        self._record(author, operation, changes, commit_stamp, author.client_id, Outcome.SUPERSEDED)
        return v1.OperationResult(status=v1.OPERATION_STATUS_NOT_VISIBLE)

    def _unknown(self, one: Arrived, operation: Operation, commit_stamp: CommitStamp) -> v1.OperationResult:
        author = self._sender.author
        if operation.kind is OperationKind.CREATE:
            return self._create(one, operation, commit_stamp)
        if operation.kind is OperationKind.DELETE:
            self._bury(Grave(operation.memory_id, commit_stamp, operation.stamp, author.client_id, scope=""))
            self._record(author, operation, [], commit_stamp, author.client_id)
            return v1.OperationResult(status=v1.OPERATION_STATUS_APPLIED)
        waiting = self._wait(one, operation, commit_stamp)
        self._waiting.setdefault(operation.memory_id, []).append(waiting)
        self._outcome.waiting[operation.operation_id] = waiting
        return v1.OperationResult(status=v1.OPERATION_STATUS_PENDING_CREATE)

    def _wait(self, one: Arrived, operation: Operation, commit_stamp: CommitStamp) -> WaitingOperation:
        author = self._sender.author
        return WaitingOperation(
            memory_id=operation.memory_id,
            operation_id=operation.operation_id,
            commit_stamp=commit_stamp,
            client_id=author.client_id,
            scopes=self._sender.viewer.scopes,
            actor=author.actor,
            role=author.role,
            replica_id=self._sender.replica_id,
            spell=author.spell,
            operation=encode(operation, self._sender.replica_id),
            vector=one.vector,
        )

    def _create(self, one: Arrived, operation: Operation, commit_stamp: CommitStamp) -> v1.OperationResult:
        state, _ = replay(None, operation, self._sender.author.client_id)
        assert state is not None
        memory = state.memory
        if not self._sender.viewer.may_enter(memory.scope):
            return outside(memory.scope)
        self._put(StoredMemory.of(state, commit_stamp))
        self.own[memory.id] = dict(state.stamps)
        if one.vector is not None:
            self._outcome.vectors[memory.id] = operation.stamp, one.vector
        changes = first_values(memory, operation.stamp)
        self._record(self._sender.author, operation, changes, commit_stamp, private_to(memory))
        for waiting in self._waiting.pop(memory.id, ()):
            self._end_wait(waiting)
        return v1.OperationResult(status=v1.OPERATION_STATUS_APPLIED)

    def _end_wait(self, waiting: WaitingOperation) -> None:
        """Take an operation whose memory has come."""
        commit_stamp = self._commit_stamp()
        author = Author(waiting.client_id, waiting.replica_id, waiting.actor, waiting.role, waiting.spell)
        sender = Sender(
            Viewer(waiting.client_id, waiting.scopes), author, waiting.replica_id, self._sender.subject
        )
        operation = decode(waiting.operation, waiting.replica_id, 0, waiting.client_id, sender.subject)
        stored = self._visible(waiting.memory_id, sender)
        wrote: dict[str, Stamp] = {}
        if stored is None:
            result = self._not_visible(operation, commit_stamp, author)
        else:
            result, wrote = self._edit(operation, stored, commit_stamp, sender, waiting.vector)
        result.commit_stamp = commit_stamp
        if self._outcome.waiting.pop(waiting.operation_id, None) is None:
            self._outcome.resolved[waiting.operation_id] = commit_stamp, result
            self._outcome.no_longer_waiting.add(waiting.memory_id)
        else:  # it came in this batch, and has its answer already
            self.own[waiting.memory_id].update(wrote)
            _, answer = self._outcome.results[waiting.operation_id]
            answer.CopyFrom(result)

    def _record(
        self,
        author: Author,
        operation: Operation,
        changes: Sequence[HistoryChange],
        commit_stamp: CommitStamp,
        private_to: ClientId,
        outcome: Outcome | None = None,
    ) -> None:
        self._outcome.history.append(
            author.record(
                operation.operation_id,
                operation.memory_id,
                operation.kind,
                changes,
                operation.stamp,
                commit_stamp,
                private_to,
                outcome or outcome_of(changes),
            )
        )

    # --- the end ----------------------------------------------------------------------------------

    def write(self, space: str) -> None:
        """Write what the operations made."""
        writing, key, made = self._writing, self._key, self._outcome
        writing.insert(
            key, [one for i, one in made.changed.items() if i not in self._before and i in self._living]
        )
        # Also what was then deleted: who is not told of the grave may have to take the memory back.
        writing.replace_many(
            key, [(self._before[i], one) for i, one in made.changed.items() if i in self._before]
        )
        writing.bury(key, made.graves)
        writing.put_vectors(key, space, [(i, stamp, vector) for i, (stamp, vector) in made.vectors.items()])
        writing.add_history(key, made.history)
        writing.save_operations(key, _saved(made.results))
        writing.resolve_operations(key, _saved(made.resolved))
        writing.wait(key, list(made.waiting.values()))
        writing.end_waiting(key, made.no_longer_waiting)


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What a batch is about to write."""

    changed: dict[MemoryId, StoredMemory] = field(default_factory=dict)
    graves: list[Grave] = field(default_factory=list)
    vectors: dict[MemoryId, tuple[Stamp, bytes]] = field(default_factory=dict)
    history: list[HistoryRow] = field(default_factory=list)
    results: dict[OperationId, tuple[CommitStamp, v1.OperationResult]] = field(default_factory=dict)
    resolved: dict[OperationId, tuple[CommitStamp, v1.OperationResult]] = field(default_factory=dict)
    waiting: dict[OperationId, WaitingOperation] = field(default_factory=dict)
    no_longer_waiting: set[MemoryId] = field(default_factory=set)


def _attempted(operation: Operation, outcome: Outcome) -> list[HistoryChange]:
    """The values of an operation that was not stored, as History keeps them."""
    values: list[tuple[str, JsonValue, Stamp | None]]
    if operation.memory is not None:
        values = [(name, value, None) for name, value in registers(operation.memory)]
    else:
        values = [(write.field, write.value, write.base) for write in operation.writes]
    return [HistoryChange(name, None, value, operation.stamp, base, outcome) for name, value, base in values]


def _saved(
    results: Mapping[OperationId, tuple[CommitStamp, v1.OperationResult]],
) -> list[SavedOperation]:
    return [
        SavedOperation(operation_id, commit_stamp, result.status, result.SerializeToString())
        for operation_id, (commit_stamp, result) in results.items()
    ]
