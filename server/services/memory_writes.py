"""Writing memories through a server: add, update, delete."""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import NDArray

from scrubjay import v1
from scrubjay.errors import InvalidField, ScrubjayError, check
from scrubjay.memory import (
    Memory,
    MemoryId,
    Micros,
    local_violation,
    new_memory_id,
    request_id_violation,
    violations,
)
from scrubjay.wire import from_message
from server.index.columns import View
from server.ingest.conversations import Learnt
from server.ingest.correcting import CANDIDATES, corrected, corrected_within, supersede
from server.ingest.edits import delete, delete_all, update
from server.ingest.raw import Draft, add
from server.providers.embedder import TextKind
from server.recall.query import Query
from server.recall.recipes import RECIPES
from server.router import tenant_of
from server.services.learning import learnt
from server.services.masks import edit_of
from server.services.memory_door import MemoryDoor, author_of, field_results
from server.services.requests import (
    MAX_BATCH,
    check_memory_id,
    sole_subject,
)
from server.shard import Request
from server.store.memory_store import StoredMemory, StreamKey, Writing
from tenants.tenant import Caller


class MemoryWrites(MemoryDoor):
    """The RPCs that write memories."""

    def add(self, request: v1.AddRequest, caller: Caller) -> v1.AddResponse:
        """Store memories as they are, each with a result of its own."""
        now, tenant = self._clock(), tenant_of(caller)
        check(request_id_violation(request.request_id))
        shard = self._router.shard(tenant)
        identity = Request.of(tenant.incarnation, request, request.request_id, now)
        if (first := shard.answered(identity, v1.AddResponse)) is not None:
            return first
        if request.messages:
            return self._learn(request, caller, identity)
        if not 1 <= len(request.memories) <= MAX_BATCH:
            raise InvalidField.of("memories", f"has {len(request.memories)}; give 1 to {MAX_BATCH}")
        # A microsecond apart, so that a list keeps the order of the batch, and none after its commit's
        # millisecond, so that no memory is created after it was updated.
        first_micros = now // 1000 * 1000 - len(request.memories)
        read = [
            _readable(message, caller, Micros(first_micros + n)) for n, message in enumerate(request.memories)
        ]
        memories = [memory for memory in read if isinstance(memory, Memory)]
        if not memories:
            raise InvalidField(
                violation.under(f"memories[{n}]")
                for n, error in enumerate(read)
                if isinstance(error, InvalidField)
                for violation in error.field_violations
            )
        vectors = self._embedder.embed([memory.content for memory in memories], TextKind.DOCUMENT)
        named = {message.id for message in request.memories}
        drafts = [
            Draft(memory, vector, memory.id in named)
            for memory, vector in zip(memories, vectors, strict=True)
        ]
        keys = {StreamKey(tenant.incarnation, memory.subject.key) for memory in memories}

        def unit(writing: Writing) -> v1.AddResponse:
            stored = iter(
                add(writing, tenant.incarnation, tenant.space, drafts, author_of(caller), now // 1000)
            )
            results = [next(stored) if isinstance(one, Memory) else one for one in read]
            if not any(isinstance(result, StoredMemory) for result in results):
                raise next(result for result in results if isinstance(result, ScrubjayError))
            return v1.AddResponse(
                results=[_add_result(result, n) for n, result in enumerate(results)],
                revision=self._revision(writing, keys),
            )

        return shard.write(identity, keys, v1.AddResponse, unit)

    def _learn(self, request: v1.AddRequest, caller: Caller, identity: Request) -> v1.AddResponse:
        """Store what the messages say, and put under it what it says is true no more."""
        tenant, now = tenant_of(caller), identity.now
        found = learnt(request, caller, now)
        if not found:
            return v1.AddResponse()
        shard, key = self._router.shard(tenant), StreamKey(tenant.incarnation, found[0].memory.subject.key)
        vectors = self._embedder.embed([one.memory.content for one in found], TextKind.DOCUMENT)
        found = corrected_within(found, vectors)
        older = [
            corrected(shard.search(key, _correction_query(one, vector, caller, now), {}), one)
            if one.replaces
            else []
            for one, vector in zip(found, vectors, strict=True)
        ]
        drafts = [
            Draft(one.memory, vector, reason=f"rule: {one.rule}" if one.rule else "")
            for one, vector in zip(found, vectors, strict=True)
        ]
        author = author_of(caller)

        def unit(writing: Writing) -> v1.AddResponse:
            stored = add(writing, tenant.incarnation, tenant.space, drafts, author, now // 1000)
            results = [_add_result(result, n) for n, result in enumerate(stored)]
            for one, result, ids in zip(found, results, older, strict=True):
                result.message_index, result.rule = one.message, one.rule
                result.superseded_ids.extend(
                    supersede(writing, key, tenant.space, ids, one.memory.id, author, now)
                )
            return v1.AddResponse(results=results, revision=self._revision(writing, [key]))

        return shard.write(identity, [key], v1.AddResponse, unit)

    def update(self, request: v1.UpdateRequest, caller: Caller) -> v1.UpdateResponse:
        """Change the fields that the mask names."""
        now, tenant = self._clock(), tenant_of(caller)
        check(request_id_violation(request.request_id))
        check_memory_id("memory.id", request.memory.id)
        shard = self._router.shard(tenant)
        identity = Request.of(tenant.incarnation, request, request.request_id, now)
        if (first := shard.answered(identity, v1.UpdateResponse)) is not None:
            return first
        edit = edit_of(request, caller.client_id, now)
        key = shard.stream_of(tenant.incarnation, edit.memory_id)
        if "content" in edit.fields:
            edit = edit.embedded(self._embedder.embed([edit.values.content], TextKind.DOCUMENT)[0])

        def unit(writing: Writing) -> v1.UpdateResponse:
            stored, results = update(writing, key, tenant.space, edit, author_of(caller), now)
            return v1.UpdateResponse(
                memory=v1.Memory.FromString(stored.message),
                results=field_results(results),
                revision=self._revision(writing, [key]),
            )

        return shard.write(identity, [key], v1.UpdateResponse, unit)

    def delete(self, request: v1.DeleteRequest, caller: Caller) -> v1.DeleteResponse:
        """Delete one memory for ever."""
        now, tenant = self._clock(), tenant_of(caller)
        check(request_id_violation(request.request_id))
        check_memory_id("id", request.id)
        shard, memory_id = self._router.shard(tenant), MemoryId(request.id)
        key = shard.stream_of(tenant.incarnation, memory_id)

        def unit(writing: Writing) -> v1.DeleteResponse:
            delete(writing, key, memory_id, request.etag, author_of(caller), now)
            return v1.DeleteResponse(revision=self._revision(writing, [key]))

        identity = Request.of(tenant.incarnation, request, request.request_id, now)
        return shard.write(identity, [key], v1.DeleteResponse, unit)

    def delete_all(self, request: v1.DeleteAllRequest, caller: Caller) -> v1.DeleteAllResponse:
        """Delete every memory of one subject for ever."""
        now, tenant = self._clock(), tenant_of(caller)
        check(request_id_violation(request.request_id))
        key = StreamKey(tenant.incarnation, sole_subject(request).key)

        def unit(writing: Writing) -> v1.DeleteAllResponse:
            count = delete_all(writing, key, author_of(caller), now)
            return v1.DeleteAllResponse(deleted_count=count, revision=self._revision(writing, [key]))

        identity = Request.of(tenant.incarnation, request, request.request_id, now)
        return self._router.shard(tenant).write(identity, [key], v1.DeleteAllResponse, unit)


def _correction_query(one: Learnt, vector: NDArray[np.float32], caller: Caller, now: Micros) -> Query:
    """What finds the memories that a correction may replace: of its scope, agent and run."""
    memory = one.memory
    by_user = memory.subject.kind == "user"
    view = View(caller.client_id, now, (memory.scope,), memory.agent_id if by_user else "", memory.run_id)
    return Query(one.replaces, vector, RECIPES["default"], view, CANDIDATES)


def _readable(message: v1.Memory, caller: Caller, now: Micros) -> Memory | InvalidField:
    """A memory to add as a value, or what is wrong with it."""
    try:
        memory = from_message(
            message,
            memory_id=new_memory_id(now // 1000, os.urandom(10)),
            owner=caller.client_id,
            now=now,
        )
    except InvalidField as error:
        return error
    wrong = violations(memory)
    if (local := local_violation("privacy_level", memory.privacy_level)) is not None:
        wrong.append(local)
    return InvalidField(wrong) if wrong else memory


def _add_result(result: StoredMemory | ScrubjayError, position: int) -> v1.AddResult:
    if isinstance(result, StoredMemory):
        return v1.AddResult(memory=v1.Memory.FromString(result.message))
    return v1.AddResult(
        error=v1.ItemError(
            code=result.code,
            reason=result.reason,
            message=result.message,
            field_violations=[
                v1.FieldViolation(field=violation.field, description=violation.description)
                for violation in (v.under(f"memories[{position}]") for v in result.field_violations)
            ],
        )
    )
