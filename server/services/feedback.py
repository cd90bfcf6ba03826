"""Feedback on memories."""

from __future__ import annotations

from scrubjay import v1
from scrubjay.errors import InvalidField, check
from scrubjay.memory import MemoryId
from scrubjay.validity import request_id_violation
from server.ingest.feedback import FeedbackKind, give_feedback
from server.router import tenant_of
from server.services.memory_door import MemoryDoor, author_of
from server.services.requests import check_memory_id
from server.shard import Request
from server.store.memory_store import Writing
from tenants.tenant import Caller


class Feedback(MemoryDoor):
    """The RPC by which a memory's confidence follows from its use."""

    def feedback(self, request: v1.FeedbackRequest, caller: Caller) -> v1.FeedbackResponse:
        """Say that a memory was helpful, wrong or outdated."""
        now, tenant = self._clock(), tenant_of(caller)
        check(request_id_violation(request.request_id))
        check_memory_id("memory_id", request.memory_id)
        kind, memory_id = _kind(request.kind), MemoryId(request.memory_id)
        shard = self._router.shard(tenant)
        key = shard.stream_of(tenant.incarnation, memory_id)

        def unit(writing: Writing) -> v1.FeedbackResponse:
            stored = give_feedback(
                writing, key, tenant.space, memory_id, kind, request.etag, author_of(caller), now
            )
            memory = v1.Memory.FromString(stored.message)
            return v1.FeedbackResponse(memory=memory, revision=self._revision(writing, [key]))

        identity = Request.of(tenant.incarnation, request, request.request_id, now)
        return shard.write(identity, [key], v1.FeedbackResponse, unit)


def _kind(number: v1.FeedbackKind.ValueType) -> FeedbackKind:
    try:
        return FeedbackKind(number)
    except ValueError:
        known = ", ".join(f"{kind.name} ({kind})" for kind in FeedbackKind)
        raise InvalidField.of("kind", f"{number} is no feedback; give one of {known}") from None
