"""Adding memories, and what conversations say."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from scrubjay import v1
from scrubjay.errors import FieldViolation, InvalidField, MemoryExists, ScrubjayError, check
from scrubjay.memory import Memory, Micros, new_memory_id
from scrubjay.validity import local_violation, request_id_violation, violations
from scrubjay.wire import from_message, to_timestamp
from server.ingest.adding import Added, Draft, add
from server.ingest.author import outside_violation
from server.ingest.chat.issues import Issue
from server.ingest.conversations import Conversation
from server.operations.workers import Report
from server.patience import Patience
from server.router import tenant_of
from server.services.entities import linked
from server.services.learning import read_conversation
from server.services.memory_door import author_of
from server.services.operations import Operations, bare
from server.services.policies import NOTHING_MADE, Made
from server.services.requests import MAX_BATCH
from server.shard import Request, Shard
from server.store.jobs import Job, Progress
from server.store.memory_store import StreamKey, Writing
from tenants.tenant import Caller, Role, Tenant


class Adding(Operations):
    """The RPC that makes memories."""

    def add(self, request: v1.AddRequest, caller: Caller, patience: Patience | None = None) -> v1.AddResponse:
        """Store memories as they are, or what a policy makes of messages; each with a result of its own.

        What asks a model is acknowledged and goes on after the call, which waits for it where that is asked
        for and it has patience.
        """
        now, tenant = self._clock(), tenant_of(caller)
        check(request_id_violation(request.request_id), _dedup_violation(request.dedup))
        shard = self._router.shard(tenant)
        asked = _without_wait(request)
        identity = Request.of(tenant.incarnation, asked, asked.request_id, now)
        answer = shard.answered(identity, v1.AddResponse) or self._add(asked, caller, shard, identity)
        if answer.operation_id and request.wait and patience is not None:
            return self._outcome(answer, shard, caller, patience)
        return answer

    def carry_out(self, job: Job, tenant: Tenant, report: Report) -> None:
        """Do what an Add that was acknowledged asks for, and end it. LeaseLost where it may not."""
        total = job.progress.total

        def progress(done: int) -> None:
            report(Progress("asking the model", done, total))

        progress(0)
        caller = Caller(Role[job.role], job.actor, job.client_id, tenant)
        shard = self._router.shard(tenant)
        errand = shard.errand(job, bare, self._clock)
        answer = self._learn(v1.AddRequest.FromString(job.request), caller, shard, errand, progress)
        found = shard.job(tenant.incarnation, job.id)
        if found is not None and not found.state.ended:  # nothing was to be stored
            shard.write(errand, [job.key], v1.AddResponse, lambda _writing: answer)

    def _add(self, request: v1.AddRequest, caller: Caller, shard: Shard, identity: Request) -> v1.AddResponse:
        if request.messages:
            settings = self._current(tenant_of(caller)).write_settings
            conversation = read_conversation(request, caller, settings.policy, identity.now)
            self._policies.check(conversation)
            if self._policies.asks_model(conversation):
                subject = conversation.template.subject
                return self._begin(shard, identity, _standing(request, conversation), subject, caller)
            return self._learn(request, caller, shard, identity)
        if not 1 <= len(request.memories) <= MAX_BATCH:
            raise InvalidField.of("memories", f"has {len(request.memories)}; give 1 to {MAX_BATCH}")
        return self._keep(request, caller, shard, identity)

    def _keep(
        self, request: v1.AddRequest, caller: Caller, shard: Shard, identity: Request
    ) -> v1.AddResponse:
        """Store the given memories."""
        # A microsecond apart, so that a list keeps the order of the batch, and none after its commit's
        # millisecond, so that no memory is created after it was updated.
        first_micros = identity.now // 1000 * 1000 - len(request.memories)
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
        vectors = self._embed(tenant_of(caller), [memory.content for memory in memories])
        named = {message.id for message in request.memories}
        drafts = [
            Draft(memory, vector, memory.id in named)
            for memory, vector in zip(memories, vectors, strict=True)
        ]

        def results(added: Sequence[Added | MemoryExists]) -> Iterable[v1.AddResult]:
            following = iter(added)
            every = [next(following) if isinstance(one, Memory) else one for one in read]
            if not any(isinstance(one, Added) for one in every):
                raise next(one for one in every if isinstance(one, ScrubjayError))
            return (_result(one, n) for n, one in enumerate(every))

        return self._store(request.dedup, caller, shard, identity, drafts, results)

    def _learn(
        self,
        request: v1.AddRequest,
        caller: Caller,
        shard: Shard,
        identity: Request,
        progress: Callable[[int], None] = lambda _done: None,
    ) -> v1.AddResponse:
        """Store what the messages say, and put under it what it says is true no more."""
        # As it is now: the job may be older than the space of the tenant's vectors.
        tenant, now = self._current(tenant_of(caller)), identity.now
        caller = replace(caller, tenant=tenant)
        conversation = read_conversation(request, caller, tenant.write_settings.policy, now)
        made = self._policies.make(conversation, tenant, caller, shard, now, progress)
        if not made.drafts and made.recent is None:
            return v1.AddResponse(issues=map(_issue, made.issues))

        def results(added: Sequence[Added | MemoryExists]) -> Iterable[v1.AddResult]:
            for n, (one, result) in enumerate(zip(made.learnt, added, strict=True)):
                message = _result(result, n)
                message.message_index, message.rule = one.message, one.rule
                yield message

        return self._store(request.dedup, caller, shard, identity, made.drafts, results, made)

    def _store(
        self,
        dedup: v1.Dedup.ValueType,
        caller: Caller,
        shard: Shard,
        identity: Request,
        drafts: Sequence[Draft],
        results: Callable[[Sequence[Added | MemoryExists]], Iterable[v1.AddResult]],
        made: Made = NOTHING_MADE,
    ) -> v1.AddResponse:
        """Store the drafts once for the request; ``results`` says what is answered of what became of them.
        ``made`` has what a model left beside them."""
        tenant = tenant_of(caller)
        keys = {StreamKey(tenant.incarnation, draft.memory.subject.key) for draft in drafts}
        if made.recent is not None:
            keys.add(made.recent.key)

        def unit(writing: Writing) -> v1.AddResponse:
            # Now: a model may have been asked since the request came, and stamps say when it was stored.
            now = self._clock()
            added = add(
                writing,
                tenant.incarnation,
                tenant.space,
                drafts,
                author_of(caller),
                now,
                deduplicate=dedup != v1.DEDUP_OFF,
            )
            again = [one.stored.memory for one in added if isinstance(one, Added) and one.is_repeat]
            writing.on_commit(lambda: shard.accesses.add(tenant.incarnation, again, now))
            if made.recent is not None:
                made.recent.keep(writing)
            return v1.AddResponse(
                results=results(added),
                revision=self._revision(writing, keys),
                issues=map(_issue, made.issues),
            )

        return shard.write(identity, keys, v1.AddResponse, unit)


def _dedup_violation(dedup: int) -> FieldViolation | None:
    if dedup in v1.Dedup.values():
        return None
    known = ", ".join(f"{name} ({number})" for name, number in v1.Dedup.items() if number)
    return FieldViolation("dedup", f"{dedup} is no choice; give one of {known}")


def _issue(issue: Issue) -> v1.AddIssue:
    kind = v1.AddIssue.Kind.ValueType(issue.kind)
    return v1.AddIssue(kind=kind, sentence=issue.sentence, message_index=issue.message)


def _without_wait(request: v1.AddRequest) -> v1.AddRequest:
    """What is asked for, however long its caller waits for it."""
    if not request.wait:
        return request
    asked = v1.AddRequest.FromString(request.SerializeToString())
    asked.ClearField("wait")
    return asked


def _standing(request: v1.AddRequest, conversation: Conversation) -> v1.AddRequest:
    """The request with what would be another thing later: the policy, and when something was said."""
    standing = v1.AddRequest.FromString(request.SerializeToString())
    standing.policy = v1.WritePolicy.ValueType(conversation.policy)
    for message, read in zip(standing.messages, conversation.messages, strict=True):
        message.time.CopyFrom(to_timestamp(Micros(read.said.at)))
    return standing


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
    if (outside := outside_violation("scope", memory.scope, caller.viewer)) is not None:
        wrong.append(outside)
    if (local := local_violation("privacy_level", memory.privacy_level)) is not None:
        wrong.append(local)
    return InvalidField(wrong) if wrong else memory


def _result(result: Added | ScrubjayError, position: int) -> v1.AddResult:
    if isinstance(result, Added):
        entities, relations = linked(result.links)
        return v1.AddResult(
            memory=v1.Memory.FromString(result.stored.message),
            status=v1.AddStatus.ValueType(result.status),
            superseded_ids=result.superseded,
            entities=entities,
            relations=relations,
        )
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
