"""Merging: what each operation of a batch does to its memory, and how it is answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from scrubjay import v1
from scrubjay.errors import InvalidField
from scrubjay.memory import ClientId, Memory, Micros, Viewer, id_bytes
from scrubjay.merge import Outcome
from scrubjay.operation import Operation, OperationKind, decode, encode, replay
from scrubjay.stamp import CommitStamp
from server.ingest.author import Author, attempted, first_values, last_text, outcome_of, written
from server.ingest.batch import MOST_AHEAD_MILLIS, Batch, Sender
from server.ingest.duplicates import Repeat, repeat_of
from server.ingest.repeating import SAID_AGAIN, said_again
from server.ingest.results import duplicate, outside, rejected, result_of
from server.ingest.uploads import Arrived
from server.store.replicas import WaitingOperation
from server.store.rows import Grave, StoredMemory, StreamKey, private_to
from server.store.writing import Writing

DECIDING = frozenset(("content", "scope", "privacy_level", "superseded_by"))
"""Registers by which memories that say the same are looked up."""
CLOCK = "clock"
"""Why an operation must come again: its stamp lies ahead of the server's clock."""
MODEL = "model"
"""Why an operation must come again: the embedding model does not answer."""


class Merging(Batch):
    """A batch that takes operations."""

    @classmethod
    def of_operations(
        cls,
        writing: Writing,
        key: StreamKey,
        space: str,
        sender: Sender,
        arrived: Sequence[Arrived],
        now_millis: int,
    ) -> Merging:
        """The working set of operations."""
        ids = dict.fromkeys(one.operation.memory_id for one in arrived if one.operation is not None)
        made = [one.operation.memory for one in arrived if one.operation is not None]
        texts = [memory.content for memory in made if memory is not None]
        known = [one.operation_id for one in arrived]
        return cls(writing, key, space, sender, list(ids), known, now_millis, texts)

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
        self._writes.named.update(one.named)
        first = self._writes.results.get(one.operation_id)
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
            self._writes.results[one.operation_id] = commit_stamp, result
            self.answers.append(result)

    def forgotten(self, one: Arrived) -> v1.OperationResult:
        """How an operation ended whose result lies behind the horizon: nothing, where its memory lives."""
        operation = one.operation
        if operation is None or operation.kind is OperationKind.DELETE:
            return v1.OperationResult()
        memory_id = operation.memory_id
        if memory_id in self._taken_back:
            return v1.OperationResult(status=v1.OPERATION_STATUS_NOT_VISIBLE)
        if self._heard(memory_id) is not None:
            return v1.OperationResult(status=v1.OPERATION_STATUS_GONE)
        return v1.OperationResult()

    def _merge(self, one: Arrived, commit_stamp: CommitStamp) -> v1.OperationResult:
        operation = one.operation
        if operation is None:
            return rejected(one.refusal)
        redirected = operation.kind is OperationKind.SET and operation.memory_id in self._merged
        if redirected:
            operation = replace(operation, memory_id=self._merged[operation.memory_id])
        memory_id = operation.memory_id
        stored = self._visible(memory_id, self._sender)
        if stored is not None and operation.kind is OperationKind.DELETE:
            return self._delete(operation, stored, commit_stamp)
        if stored is not None:
            # Its sender is to be told of a create that came second, and of what it wrote to another memory.
            if operation.kind is OperationKind.SET and not redirected:
                self._own_stamps.setdefault(memory_id, set()).add(commit_stamp)
            return self._edit(operation, stored, commit_stamp, self._sender, one.vector)
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
    ) -> v1.OperationResult:
        """Join an operation into a memory."""
        author = sender.author
        try:
            state, results = replay(stored.state, operation, author.client_id)
            assert state is not None  # only a DELETE leaves none
        except InvalidField as error:
            return rejected(error.message)
        if not sender.viewer.may_enter(state.memory.scope):
            return outside(state.memory.scope)
        wrote = {r.write.field for r in results if r.outcome is not Outcome.SUPERSEDED}
        if wrote:
            self._put(stored.edited(state, commit_stamp))
        if vector is not None and "content" in wrote:
            self._writes.vectors[operation.memory_id] = operation.stamp, vector
        if not wrote.isdisjoint(DECIDING):
            self._texts.note(state.memory)
        # The values before are told too: what was private stays its owner's when it is shared.
        owner = private_to(stored.memory) or private_to(state.memory)
        self._record(author, operation, written(results), commit_stamp, owner)
        return result_of(results)

    def _delete(
        self, operation: Operation, stored: StoredMemory, commit_stamp: CommitStamp
    ) -> v1.OperationResult:
        memory = stored.memory
        self._bury(Grave.of(memory, commit_stamp, operation.stamp))
        changes = last_text(stored.state, operation.stamp)
        author, deleted = self._sender.author, stored.message
        self._record(author, operation, changes, commit_stamp, private_to(memory), deleted=deleted)
        self._owners[memory.id] = memory.owner_client_id
        return v1.OperationResult(status=v1.OPERATION_STATUS_APPLIED)

    def _gone(self, operation: Operation, grave: Grave, commit_stamp: CommitStamp) -> v1.OperationResult:
        changes = attempted(operation, Outcome.GONE)
        owner = grave.private_to or self._secret_of(operation)
        self._record(self._sender.author, operation, changes, commit_stamp, owner, Outcome.GONE)
        return v1.OperationResult(status=v1.OPERATION_STATUS_GONE)

    def _secret_of(self, operation: Operation) -> ClientId:
        """Whose secret it may be what an operation wanted to write to a dead memory that all may hear of.

        Its owner may have made it private before; nobody else can have.
        """
        if operation.memory is not None:
            return private_to(operation.memory)
        author, memory_id = self._sender.author.client_id, operation.memory_id
        if memory_id not in self._owners:
            self._owners[memory_id] = self._writing.owner_of_dead(self._key.incarnation, memory_id)
        return author if self._owners[memory_id] in (None, author) else ClientId("")

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
        changes = attempted(operation, Outcome.SUPERSEDED)
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
        self._writes.waiting[operation.operation_id] = waiting
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
            space=self._space,
        )

    def _create(self, one: Arrived, operation: Operation, commit_stamp: CommitStamp) -> v1.OperationResult:
        state, _ = replay(None, operation, self._sender.author.client_id)
        assert state is not None
        memory = state.memory
        if not self._sender.viewer.may_enter(memory.scope):
            return outside(memory.scope)
        if (repeat := self._repeat_of(memory)) is not None:
            return self._merge_into(repeat, operation, memory, commit_stamp)
        self._put(StoredMemory.of(state, commit_stamp))
        self._texts.note(memory)
        self._own_stamps[memory.id] = {commit_stamp}
        if one.vector is not None:
            self._writes.vectors[memory.id] = operation.stamp, one.vector
        changes = first_values(memory, operation.stamp)
        author, owner = self._sender.author, private_to(memory)
        self._record(author, operation, changes, commit_stamp, owner, Outcome.APPLIED)
        for waiting in self._waiting.pop(memory.id, ()):
            self._end_wait(waiting)
        return v1.OperationResult(status=v1.OPERATION_STATUS_APPLIED)

    def _repeat_of(self, memory: Memory) -> Repeat | None:
        """What says already what a new memory says, that its sender sees; None where others wait for it."""
        if memory.superseded_by is not None or memory.id in self._waiting:
            return None
        found, written = self._texts.stored(memory), self._texts.written(memory)
        if not found and not written:
            return None
        for stored in found:
            if stored.memory.id not in self._before:
                self._before[stored.memory.id] = self._living[stored.memory.id] = stored
        ids = {*(stored.memory.id for stored in found), *written}
        seen = (self._visible(memory_id, self._sender) for memory_id in ids)
        known = [stored.memory for stored in seen if stored is not None]
        return repeat_of(memory, known, self._sender.author.client_id, Micros(self._now_millis * 1000))

    def _merge_into(
        self, repeat: Repeat, operation: Operation, memory: Memory, commit_stamp: CommitStamp
    ) -> v1.OperationResult:
        """Let a stored memory stand for a new one, whose id is buried: what comes of it later is answered."""
        author, stored = self._sender.author, self._living[repeat.of]
        state, changes = said_again(stored, memory, operation.stamp, author.client_id)
        if state is not stored.state:
            self._put(stored.edited(state, commit_stamp))
        if changes:
            row = author.record(
                operation.operation_id,
                repeat.of,
                OperationKind.SET,
                changes,
                operation.stamp,
                commit_stamp,
                private_to(stored.memory),
                outcome_of(changes),
            )
            self._writes.history.append(row._replace(reason=SAID_AGAIN))
        grave = Grave(memory.id, self._commit_stamp(), operation.stamp, author.client_id, scope="")
        self._bury(grave)
        self._merged[memory.id] = repeat.of
        return v1.OperationResult(status=v1.OPERATION_STATUS_MERGED_INTO, merged_into=id_bytes(repeat.of))

    def end_waits(self) -> None:
        """Take the operations whose memories were made elsewhere in this unit."""
        for memory_id in [i for i in self._waiting if i in self._living]:
            for waiting in self._waiting.pop(memory_id):
                self._end_wait(waiting)

    def _end_wait(self, waiting: WaitingOperation) -> None:
        """Take an operation whose memory has come."""
        commit_stamp = self._commit_stamp()
        author = Author(waiting.client_id, waiting.replica_id, waiting.actor, waiting.role, waiting.spell)
        sender = Sender(
            Viewer(waiting.client_id, waiting.scopes), author, waiting.replica_id, self._sender.subject
        )
        operation = decode(waiting.operation, waiting.replica_id, 0, waiting.client_id, sender.subject)
        stored = self._visible(waiting.memory_id, sender)
        if stored is None:
            result = self._not_visible(operation, commit_stamp, author)
        else:
            # A vector of another space is of no use here: the memory gets one like any that has none.
            vector = waiting.vector if waiting.space == self._space else None
            result = self._edit(operation, stored, commit_stamp, sender, vector)
        result.commit_stamp = commit_stamp
        if self._writes.waiting.pop(waiting.operation_id, None) is None:
            self._writes.resolved[waiting.operation_id] = commit_stamp, result
            self._writes.no_longer_waiting.add(waiting.memory_id)
        else:  # it came in this batch, and has its answer already
            self._own_stamps[waiting.memory_id].add(commit_stamp)
            _, answer = self._writes.results[waiting.operation_id]
            answer.CopyFrom(result)
