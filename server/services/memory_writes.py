"""Changing and deleting memories through a server."""

from __future__ import annotations

from scrubjay import v1
from scrubjay.errors import check
from scrubjay.memory import MemoryId
from scrubjay.validity import request_id_violation
from server.ingest.edits import delete, delete_all, update
from server.router import tenant_of
from server.services.masks import edit_of
from server.services.memory_door import MemoryDoor, author_of, field_results
from server.services.requests import (
    check_memory_id,
)
from server.shard import Request
from server.store.memory_store import StreamKey, Writing
from tenants.tenant import Caller
from tenants.validation import sole_subject


class MemoryWrites(MemoryDoor):
    """The RPCs that change and delete memories."""

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
            edit = edit.embedded(self._embed(tenant, [edit.values.content])[0])

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
        key, shard = StreamKey(tenant.incarnation, sole_subject(request).key), self._router.shard(tenant)

        def unit(writing: Writing) -> v1.DeleteAllResponse:
            count = delete_all(writing, key, author_of(caller), now)
            writing.on_commit(lambda: shard.wake(key))
            return v1.DeleteAllResponse(deleted_count=count, revision=self._revision(writing, [key]))

        identity = Request.of(tenant.incarnation, request, request.request_id, now)
        return shard.write(identity, [key], v1.DeleteAllResponse, unit)
