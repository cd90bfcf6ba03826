"""Reading memories as they are stored: by id, in pages, with their history."""

from __future__ import annotations

from scrubjay import v1
from scrubjay.errors import InvalidField
from scrubjay.memory import (
    MemoryId,
    Micros,
)
from scrubjay.stamp import CommitStamp
from scrubjay.wire import to_timestamp
from server.router import tenant_of
from server.services import encoding
from server.services.history import history_entry
from server.services.memory_door import MemoryDoor, read_filter, token_purpose
from server.services.requests import (
    DEFAULT_PAGE,
    MAX_BATCH,
    MAX_PAGE,
    bounded,
    check_memory_id,
    check_unscoped,
    fitting,
    read_subject,
)
from server.shard import Listing
from server.store.memory_store import StreamKey
from tenants.page_token import seal, unseal
from tenants.tenant import Caller
from tenants.validation import sole_subject


class MemoryReads(MemoryDoor):
    """The RPCs that read memories without looking for any."""

    def get(self, request: v1.GetRequest, caller: Caller) -> bytes:
        """One memory."""
        tenant = tenant_of(caller)
        check_memory_id("id", request.id)
        shard = self._router.shard(tenant)
        got = shard.get(
            tenant.incarnation,
            MemoryId(request.id),
            caller.viewer,
            self._clock(),
            self._revisions.heads(tenant.incarnation, request.min_revision),
        )
        stamps = sorted(got.stored.state.stamps.items()) if request.include_field_stamps else []
        rest = v1.GetResponse(
            field_stamps=[v1.FieldStamp(field=field, stamp=str(stamp)) for field, stamp in stamps]
        )
        if got.accesses is not None:
            rest.access_count = got.accesses.total
            rest.last_access_at.CopyFrom(to_timestamp(got.accesses.last_access_at))
        if request.count_access:
            shard.accesses.add(tenant.incarnation, [got.memory], self._clock())
        return encoding.get_response(got.stored.message, rest)

    def batch_get(self, request: v1.BatchGetRequest, caller: Caller) -> bytes:
        """Memories by id."""
        tenant = tenant_of(caller)
        if not 1 <= len(request.ids) <= MAX_BATCH:
            raise InvalidField.of("ids", f"has {len(request.ids)}; give 1 to {MAX_BATCH}")
        for n, memory_id in enumerate(request.ids):
            check_memory_id(f"ids[{n}]", memory_id)
        found = self._router.shard(tenant).batch_get(
            tenant.incarnation,
            [MemoryId(memory_id) for memory_id in request.ids],
            caller.viewer,
            self._clock(),
            self._revisions.heads(tenant.incarnation, request.min_revision),
        )
        ids = [MemoryId(memory_id) for memory_id in dict.fromkeys(request.ids)]
        return encoding.batch_get_response(
            [found[i].message for i in ids if i in found],
            v1.BatchGetResponse(missing_ids=[i for i in ids if i not in found]),
        )

    def list(self, request: v1.ListRequest, caller: Caller) -> bytes:
        """A page of a subject's memories."""
        tenant, subject = tenant_of(caller), read_subject(request)
        key = StreamKey(tenant.incarnation, subject.key)
        size = bounded("page_size", request.page_size, DEFAULT_PAGE, MAX_PAGE)
        purpose = token_purpose(request, tenant.incarnation)
        before = None
        if request.page_token:
            created_at, memory_id = unseal(self._secret, purpose, request.page_token, (int, str))
            before = Micros(created_at), MemoryId(memory_id)
        memories, following = self._router.shard(tenant).list(
            Listing(key, self._view(request, subject, caller), read_filter(request), before, size),
            self._revisions.heads(tenant.incarnation, request.min_revision),
        )
        count = fitting(len(stored.message) for stored in memories)
        if count < len(memories):
            last = memories[count - 1].memory
            following = last.created_at, last.id
        token = seal(self._secret, purpose, following) if following else ""
        return encoding.list_response(
            [stored.message for stored in memories[:count]], v1.ListResponse(next_page_token=token)
        )

    def history(self, request: v1.HistoryRequest, caller: Caller) -> v1.HistoryResponse:
        """What happened to one memory, or to all of one subject."""
        tenant = tenant_of(caller)
        of: MemoryId | StreamKey
        if request.memory_id:
            if request.user_id or request.agent_id or request.run_id:
                raise InvalidField.of("memory_id", "is set beside a subject; give one of them")
            check_memory_id("memory_id", request.memory_id)
            of = MemoryId(request.memory_id)
        else:
            check_unscoped(caller, "the history of all of a subject")
            of = StreamKey(tenant.incarnation, sole_subject(request).key)
        size = bounded("page_size", request.page_size, DEFAULT_PAGE, MAX_PAGE)
        purpose = token_purpose(request, tenant.incarnation)
        before = None
        if request.page_token:
            before = CommitStamp(unseal(self._secret, purpose, request.page_token, (int,))[0])
        rows, following = self._router.shard(tenant).history(
            tenant.incarnation,
            of,
            before,
            size,
            caller.viewer,
            self._revisions.heads(tenant.incarnation, request.min_revision),
        )
        entries = [history_entry(row) for row in rows]
        count = fitting(entry.ByteSize() for entry in entries)
        if count < len(entries):
            following = rows[count - 1].commit_stamp
        token = seal(self._secret, purpose, [following]) if following else ""
        return v1.HistoryResponse(entries=entries[:count], next_page_token=token)
