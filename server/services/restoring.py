"""Restoring what was changed or deleted."""

from __future__ import annotations

import os

from scrubjay import v1
from scrubjay.errors import InvalidField, check
from scrubjay.memory import MemoryId, Micros, new_memory_id
from scrubjay.operation import MAX_FIELDS
from scrubjay.validity import request_id_violation
from server.ingest.edits import Edit
from server.ingest.restoring import Restore, restore
from server.router import tenant_of
from server.services.memory_door import MemoryDoor, author_of, field_results
from server.services.requests import check_memory_id, check_unscoped
from server.shard import Request
from server.store.memory_store import Writing
from tenants.tenant import Caller


class Restoring(MemoryDoor):
    """The RPC that undoes an operation."""

    def restore(self, request: v1.RestoreRequest, caller: Caller) -> v1.RestoreResponse:
        """Write back what an operation replaced, or bring back what was deleted."""
        now, tenant = self._clock(), tenant_of(caller)
        check_unscoped(caller, "Restore")
        check(request_id_violation(request.request_id))
        asked = _asked(request, now)
        shard = self._router.shard(tenant)
        identity = Request.of(tenant.incarnation, request, request.request_id, now)
        if (first := shard.answered(identity, v1.RestoreResponse)) is not None:
            return first
        key = shard.stream_of(tenant.incarnation, asked.memory_id)
        what = shard.undoing(key, asked, caller.client_id, now)
        vector = None
        if not isinstance(what, Edit):
            vector = self._embed(tenant, [what.memory.content])[0]
        elif "content" in what.fields:
            vector = self._embed(tenant, [what.values.content])[0]

        def unit(writing: Writing) -> v1.RestoreResponse:
            stored, results = restore(writing, key, tenant.space, what, vector, author_of(caller), now)
            return v1.RestoreResponse(
                memory=v1.Memory.FromString(stored.message),
                results=field_results(results),
                revision=self._revision(writing, [key]),
            )

        return shard.write(identity, [key], v1.RestoreResponse, unit)


def _asked(request: v1.RestoreRequest, now: Micros) -> Restore:
    check_memory_id("memory_id", request.memory_id)
    if request.operation_id:
        check_memory_id("operation_id", request.operation_id)
    if len(request.fields) > MAX_FIELDS:
        raise InvalidField.of("fields", f"has {len(request.fields)}; at most {MAX_FIELDS} are allowed")
    return Restore(
        memory_id=MemoryId(request.memory_id),
        operation_id=request.operation_id,
        fields=tuple(request.fields),
        etag=request.etag,
        new_id=new_memory_id(now // 1000, os.urandom(10)),
    )
