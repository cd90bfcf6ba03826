"""Work that goes on after its call: acknowledging it, and telling what comes of it.

What is kept of an answer are the ids of its memories; they are read when they are asked for, so that nothing
deleted lives on in an answer. Only the client that asked for an operation knows of it.
"""

from __future__ import annotations

import os

from google.protobuf.message import Message

from scrubjay import v1
from scrubjay.errors import (
    InvalidField,
    NotFound,
    OperationCancelled,
    OperationEnded,
    OperationNotFound,
    QuotaViolation,
    ScrubjayError,
    ServerBusy,
    StorageUnavailable,
    check,
)
from scrubjay.memory import MemoryId, Subject, new_memory_id
from scrubjay.validity import request_id_violation
from scrubjay.wire import to_timestamp
from server.patience import Patience
from server.router import tenant_of
from server.services.entities import linked
from server.services.memory_door import MemoryDoor, token_purpose
from server.services.requests import DEFAULT_PAGE, MAX_PAGE, bounded, check_memory_id
from server.shard import Request, Shard
from server.store.jobs import Job, Progress
from server.store.memory_store import StreamKey, Writing
from tenants.operation import OperationState
from tenants.page_token import seal, unseal
from tenants.tenant import Caller
from tenants.validation import sole_subject, wait_seconds

MAX_OPEN = 1000
"""Operations of one tenant that have not ended: hours of work for a model."""
MAX_OPEN_BYTES = 64 * 1024 * 1024
"""What their requests may take of a disk; a tenth of that is a long queue of usual conversations."""
ADD = "Add"
"""The kind of an operation that makes memories of a conversation."""
_LAST = "ffffffff-ffff-ffff-ffff-ffffffffffff"


class Operations(MemoryDoor):
    """The RPCs that tell of long work, and what those that begin it are built on."""

    def get_operation(self, request: v1.GetOperationRequest, caller: Caller) -> v1.GetOperationResponse:
        """How an operation stands, and what came of it."""
        shard, job = self._job(request.id, caller)
        return v1.GetOperationResponse(
            operation=_operation(job), add_response=self._add_response(shard, job, caller)
        )

    def list_operations(self, request: v1.ListOperationsRequest, caller: Caller) -> v1.ListOperationsResponse:
        """The operations that the client asked for, newest first."""
        tenant = tenant_of(caller)
        named = request.user_id or request.agent_id or request.run_id
        stream = sole_subject(request).key if named else None
        states = [_state(n, state) for n, state in enumerate(request.states)] or list(OperationState)
        size = bounded("page_size", request.page_size, DEFAULT_PAGE, MAX_PAGE)
        purpose = f"{token_purpose(request, tenant.incarnation)}\0{caller.client_id}"
        before = _LAST
        if request.page_token:
            (before,) = unseal(self._secret, purpose, request.page_token, (str,))
        shard = self._router.shard(tenant)
        jobs = shard.jobs(tenant.incarnation, stream, caller.client_id, states, before, size + 1)
        token = seal(self._secret, purpose, [jobs[size - 1].id]) if len(jobs) > size else ""
        return v1.ListOperationsResponse(operations=map(_operation, jobs[:size]), next_page_token=token)

    def cancel_operation(
        self, request: v1.CancelOperationRequest, caller: Caller
    ) -> v1.CancelOperationResponse:
        """End an operation before it has written."""
        now, tenant = self._clock(), tenant_of(caller)
        check(request_id_violation(request.request_id))
        shard, job = self._job(request.id, caller)

        def unit(writing: Writing) -> v1.CancelOperationResponse:
            cancelled = writing.cancel_job(tenant.incarnation, job.id, now)
            found = writing.job(tenant.incarnation, job.id)
            if found is None:
                raise OperationNotFound(job.id)
            if not cancelled and found.state is not OperationState.CANCELLED:
                raise OperationEnded(job.id)
            writing.on_commit(lambda: shard.wake(job.key))
            return v1.CancelOperationResponse(operation=_operation(found))

        identity = Request.of(tenant.incarnation, request, request.request_id, now)
        return shard.write(identity, (), v1.CancelOperationResponse, unit)

    def wait_operation(
        self, request: v1.WaitOperationRequest, caller: Caller, patience: Patience
    ) -> v1.WaitOperationResponse:
        """How an operation ended, or stands when the time is over."""
        shard, job = self._job(request.id, caller)
        job = _waited(shard, job, wait_seconds(request, patience.seconds), patience)
        return v1.WaitOperationResponse(
            operation=_operation(job), add_response=self._add_response(shard, job, caller)
        )

    # --- for the RPCs that begin some ---------------------------------------------------------------

    def _begin(
        self, shard: Shard, identity: Request, request: v1.AddRequest, subject: Subject, caller: Caller
    ) -> v1.AddResponse:
        """Acknowledge the request durably, to be done soon; the answer names the operation."""
        private = request.template.privacy_level == v1.PRIVACY_LEVEL_PRIVATE
        job = Job(
            id=new_memory_id(identity.now // 1000, os.urandom(10)),
            key=StreamKey(identity.incarnation, subject.key),
            kind=ADD,
            client_id=caller.client_id,
            actor=caller.key_id,
            role=caller.role.name,
            request_id=identity.request_id,
            private_to=caller.client_id if private else "",
            created_at=identity.now,
            updated_at=identity.now,
            progress=Progress("", 0, len(request.messages)),
            request=request.SerializeToString(),
        )
        count, size = shard.open_jobs(identity.incarnation)
        if count >= MAX_OPEN or size + len(job.request) > MAX_OPEN_BYTES:
            raise ServerBusy(
                f"{count} operations of this tenant with {size} bytes have not ended; "
                f"at most {MAX_OPEN} and {MAX_OPEN_BYTES} bytes may be open; retry later"
            )
        answer = shard.begin_job(identity, job, v1.AddResponse(operation_id=job.id))
        self._jobs_added.set()
        return answer

    def _outcome(
        self, first: v1.AddResponse, shard: Shard, caller: Caller, patience: Patience
    ) -> v1.AddResponse:
        """What an Add that was acknowledged comes to, or its acknowledgement where that takes too long.

        Raises what it failed with, OperationCancelled.
        """
        _, job = self._job(first.operation_id, caller)
        job = _waited(shard, job, patience.seconds, patience)
        if job.state is OperationState.FAILED:
            raise _failure(job, tenant_of(caller).tenant_id)
        if job.state is OperationState.CANCELLED:
            raise OperationCancelled(job.id)
        return self._add_response(shard, job, caller) or first

    def _job(self, operation_id: str, caller: Caller) -> tuple[Shard, Job]:
        tenant = tenant_of(caller)
        check_memory_id("id", operation_id)
        shard = self._router.shard(tenant)
        job = shard.job(tenant.incarnation, operation_id)
        if job is None or job.client_id != caller.client_id:
            raise OperationNotFound(operation_id)
        return shard, job

    def _add_response(self, shard: Shard, job: Job, caller: Caller) -> v1.AddResponse | None:
        """The answer of an Add that succeeded, with its memories as they are now."""
        if job.kind != ADD or job.state is not OperationState.SUCCEEDED:
            return None
        answer = v1.AddResponse.FromString(job.answer)
        ids = [MemoryId(one.memory.id) for one in answer.results if one.HasField("memory")]
        found = shard.batch_get(job.key.incarnation, ids, caller.viewer, self._clock(), {})
        links = shard.links(job.key.incarnation, found)
        for one in answer.results:
            if not one.HasField("memory"):
                continue
            memory_id = MemoryId(one.memory.id)
            if memory_id not in found:
                one.error.CopyFrom(self._gone(shard, job, memory_id, caller))
                continue
            one.memory.MergeFromString(found[memory_id].message)
            if one.status == v1.ADD_STATUS_ADDED:
                entities, relations = linked(links[memory_id])
                one.entities.extend(entities)
                one.relations.extend(relations)
        return answer

    def _gone(self, shard: Shard, job: Job, memory_id: MemoryId, caller: Caller) -> v1.ItemError:
        """What a Get of a memory that the caller does not see any more is told."""
        try:
            shard.get(job.key.incarnation, memory_id, caller.viewer, self._clock(), {})
        except NotFound as error:
            return v1.ItemError(code=error.code, reason=error.reason, message=error.message)
        raise StorageUnavailable  # shown again between the two reads: the caller reads once more


def bare(answer: Message) -> bytes:
    """What is kept of an Add's answer: of its memories, the ids alone."""
    if not isinstance(answer, v1.AddResponse):
        raise TypeError(f"{type(answer).__name__} is no answer of an Add")
    kept = v1.AddResponse(revision=answer.revision, issues=answer.issues)
    for result in answer.results:
        one = kept.results.add(
            status=result.status,
            message_index=result.message_index,
            rule=result.rule,
            superseded_ids=result.superseded_ids,
        )
        if result.HasField("error"):
            one.error.CopyFrom(result.error)
        else:
            one.memory.id = result.memory.id
    return kept.SerializeToString()


def _waited(shard: Shard, job: Job, seconds: float, patience: Patience) -> Job:
    """The job once it has ended, or as it stands after so long."""
    if job.state.ended:
        return job
    with patience.waiting() as ending:
        found = shard.wait_for_job(job.key.incarnation, job.id, seconds, ending)
    if found is None:
        shard.check_moved(job.key.incarnation)
        raise OperationNotFound(job.id)
    return found


def _failure(job: Job, tenant_id: str) -> ScrubjayError:
    """What an operation failed with, as its own call would have."""
    said = v1.OperationError.FromString(job.error)
    used_up = said.reason == v1.ERROR_REASON_QUOTA_EXCEEDED
    return ScrubjayError.decoded(
        said.message,
        code=said.code,
        reason=said.reason,
        metadata={"operation_id": job.id},
        quota_violations=[QuotaViolation(f"tenants/{tenant_id}", said.message)] if used_up else (),
    )


def _state(place: int, number: v1.OperationState.ValueType) -> OperationState:
    try:
        return OperationState(number)
    except ValueError:
        known = ", ".join(f"{state.name} ({state.value})" for state in OperationState)
        raise InvalidField.of(f"states[{place}]", f"{number} is no state; give some of {known}") from None


def _operation(job: Job) -> v1.LongRunningOperation:
    kind, _, name = job.key.stream.partition(":")
    operation = v1.LongRunningOperation(
        id=job.id,
        kind=job.kind,
        state=v1.OperationState.ValueType(job.state),
        phase=job.progress.phase,
        done_count=job.progress.done,
        total_count=job.progress.total,
        request_id=job.request_id,
        created_at=to_timestamp(job.created_at),
        updated_at=to_timestamp(job.updated_at),
        ended_at=None if job.ended_at is None else to_timestamp(job.ended_at),
        error=v1.OperationError.FromString(job.error) if job.error else None,
        cancellable=not job.state.ended,
    )
    setattr(operation, f"{kind}_id", name)
    return operation
