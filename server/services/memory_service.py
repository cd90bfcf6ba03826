"""The door of MemoryService: a message becomes a value here, and a value becomes a message."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from scrubjay import v1
from scrubjay.errors import InvalidField, ScrubjayError, check
from scrubjay.filters import Matcher, matcher
from scrubjay.filters import from_message as filter_from_message
from scrubjay.memory import (
    Memory,
    MemoryId,
    Micros,
    Subject,
    local_violation,
    new_memory_id,
    request_id_violation,
    text_violation,
    violations,
)
from scrubjay.stamp import CommitStamp
from scrubjay.wire import from_message
from server.index.resident import View
from server.ingest.author import Author, server_replica
from server.ingest.edits import delete, delete_all, update
from server.ingest.raw import Draft, add
from server.providers.embedder import Embedder, TextKind
from server.recall.explain import explain
from server.recall.search import RECIPES, Query
from server.revision import Revisions
from server.router import Router, tenant_of
from server.services import encoding
from server.services.history import history_entry
from server.services.masks import edit_of
from server.services.requests import (
    DEFAULT_PAGE,
    DEFAULT_TOP_K,
    MAX_BATCH,
    MAX_PAGE,
    MAX_TOP_K,
    bounded,
    check_memory_id,
    check_scopes,
    fitting,
    narrowing,
    read_subject,
    sole_subject,
)
from server.shard import Listing, Request
from server.store.memory_store import StoredMemory, StreamKey, Writing
from tenants.page_token import seal, unseal
from tenants.tenant import MEMORY_READERS, MEMORY_WRITERS, Caller, Role

_PATH = "/scrubjay.v1.MemoryService/"
ALLOWED: Mapping[str, frozenset[Role]] = MappingProxyType(
    {f"{_PATH}{rpc}": MEMORY_WRITERS for rpc in ("Add", "Update", "Delete", "DeleteAll")}
    | {f"{_PATH}{rpc}": MEMORY_READERS for rpc in ("Get", "BatchGet", "List", "Search", "History")}
)
"""Who may call what."""


class MemoryService:
    """Answers MemoryService's RPCs. ``clock`` gives microseconds since 1970."""

    def __init__(
        self, router: Router, embedder: Embedder, secret: bytes, clock: Callable[[], Micros]
    ) -> None:
        self._router = router
        self._embedder = embedder
        self._secret = secret
        self._revisions = Revisions(secret)
        self._clock = clock

    # --- writes -----------------------------------------------------------------------------------

    def add(self, request: v1.AddRequest, caller: Caller) -> v1.AddResponse:
        """Store memories as they are, each with a result of its own."""
        now, tenant = self._clock(), tenant_of(caller)
        check(request_id_violation(request.request_id))
        if not 1 <= len(request.memories) <= MAX_BATCH:
            raise InvalidField.of("memories", f"has {len(request.memories)}; give 1 to {MAX_BATCH}")
        shard = self._router.shard(tenant)
        identity = Request.of(tenant.incarnation, request, request.request_id, now)
        if (first := shard.answered(identity, v1.AddResponse)) is not None:
            return first
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
                add(writing, tenant.incarnation, tenant.space, drafts, _author(caller), now // 1000)
            )
            results = [next(stored) if isinstance(one, Memory) else one for one in read]
            if not any(isinstance(result, StoredMemory) for result in results):
                raise next(result for result in results if isinstance(result, ScrubjayError))
            return v1.AddResponse(
                results=[_add_result(result, n) for n, result in enumerate(results)],
                revision=self._revision(writing, keys),
            )

        return shard.write(identity, keys, v1.AddResponse, unit)

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
            stored, results = update(writing, key, tenant.space, edit, _author(caller), now)
            return v1.UpdateResponse(
                memory=v1.Memory.FromString(stored.message),
                results=[
                    v1.FieldResult(
                        field=result.write.field,
                        outcome=v1.Outcome.ValueType(result.outcome),
                        stamp=str(result.standing),
                    )
                    for result in results
                ],
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
            delete(writing, key, memory_id, request.etag, _author(caller), now)
            return v1.DeleteResponse(revision=self._revision(writing, [key]))

        identity = Request.of(tenant.incarnation, request, request.request_id, now)
        return shard.write(identity, [key], v1.DeleteResponse, unit)

    def delete_all(self, request: v1.DeleteAllRequest, caller: Caller) -> v1.DeleteAllResponse:
        """Delete every memory of one subject for ever."""
        now, tenant = self._clock(), tenant_of(caller)
        check(request_id_violation(request.request_id))
        key = StreamKey(tenant.incarnation, sole_subject(request).key)

        def unit(writing: Writing) -> v1.DeleteAllResponse:
            count = delete_all(writing, key, _author(caller), now)
            return v1.DeleteAllResponse(deleted_count=count, revision=self._revision(writing, [key]))

        identity = Request.of(tenant.incarnation, request, request.request_id, now)
        return self._router.shard(tenant).write(identity, [key], v1.DeleteAllResponse, unit)

    def _revision(self, writing: Writing, keys: Sequence[StreamKey] | set[StreamKey]) -> str:
        heads = {key: writing.head(key) for key in sorted(keys)}
        return self._revisions.token(
            {key: head.head if head else CommitStamp(0) for key, head in heads.items()}
        )

    # --- reads ------------------------------------------------------------------------------------

    def get(self, request: v1.GetRequest, caller: Caller) -> bytes:
        """One memory."""
        tenant = tenant_of(caller)
        check_memory_id("id", request.id)
        stored = self._router.shard(tenant).get(
            tenant.incarnation,
            MemoryId(request.id),
            caller.client_id,
            self._clock(),
            self._revisions.heads(tenant.incarnation, request.min_revision),
        )
        stamps = sorted(stored.state.stamps.items()) if request.include_field_stamps else []
        rest = v1.GetResponse(
            field_stamps=[v1.FieldStamp(field=field, stamp=str(stamp)) for field, stamp in stamps]
        )
        return encoding.get_response(stored.message, rest)

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
            caller.client_id,
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
        purpose = _purpose(request, tenant.incarnation)
        before = None
        if request.page_token:
            created_at, memory_id = unseal(self._secret, purpose, request.page_token, (int, str))
            before = Micros(created_at), MemoryId(memory_id)
        memories, following = self._router.shard(tenant).list(
            Listing(key, self._view(request, subject, caller), _matches(request), before, size),
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

    def search(self, request: v1.SearchRequest, caller: Caller) -> bytes:
        """A subject's memories by meaning and by words."""
        tenant, subject = tenant_of(caller), read_subject(request)
        check(text_violation("query", request.query))
        top_k = bounded("top_k", request.top_k, DEFAULT_TOP_K, MAX_TOP_K)
        recipe = RECIPES.get(request.recipe or "default")
        if recipe is None:
            raise InvalidField.of("recipe", f"{request.recipe!r} is none of {', '.join(RECIPES)}")
        view, matches = self._view(request, subject, caller), _matches(request)
        revision = self._revisions.heads(tenant.incarnation, request.min_revision)
        vector = self._embedder.embed([request.query], TextKind.QUERY)[0]
        query = Query(request.query, vector, recipe, view, top_k, matches)
        key = StreamKey(tenant.incarnation, subject.key)
        hits = self._router.shard(tenant).search(key, query, revision)
        return encoding.search_response(
            [
                (
                    hit.row.message,
                    hit.score,
                    explain(query, hit).SerializeToString() if request.explain else b"",
                )
                for hit in hits
            ],
            v1.SearchResponse(scopes=view.scopes, recipe=str(recipe)),
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
            of = StreamKey(tenant.incarnation, sole_subject(request).key)
        size = bounded("page_size", request.page_size, DEFAULT_PAGE, MAX_PAGE)
        purpose = _purpose(request, tenant.incarnation)
        before = None
        if request.page_token:
            before = CommitStamp(unseal(self._secret, purpose, request.page_token, (int,))[0])
        rows, following = self._router.shard(tenant).history(
            tenant.incarnation,
            of,
            before,
            size,
            caller.client_id,
            self._revisions.heads(tenant.incarnation, request.min_revision),
        )
        entries = [history_entry(row) for row in rows]
        count = fitting(entry.ByteSize() for entry in entries)
        if count < len(entries):
            following = rows[count - 1].commit_stamp
        token = seal(self._secret, purpose, [following]) if following else ""
        return v1.HistoryResponse(entries=entries[:count], next_page_token=token)

    def _view(self, request: v1.ListRequest | v1.SearchRequest, subject: Subject, caller: Caller) -> View:
        agent_id, run_id = narrowing(request, subject)
        return View(caller.client_id, self._clock(), check_scopes(request.scopes), agent_id, run_id)


def _author(caller: Caller) -> Author:
    replica = server_replica(tenant_of(caller).incarnation)
    return Author(caller.client_id, replica, caller.key_id, caller.role.name)


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


def _matches(request: v1.ListRequest | v1.SearchRequest) -> Matcher | None:
    return matcher(filter_from_message(request.filter)) if request.HasField("filter") else None


def _purpose(request: v1.ListRequest | v1.HistoryRequest, incarnation: str) -> str:
    """What a page token of this request is bound to: the tenant, and all that chooses the rows."""
    chosen = type(request).FromString(request.SerializeToString())
    for field in ("page_token", "page_size", "min_revision"):
        chosen.ClearField(field)
    body = chosen.SerializeToString(deterministic=True)
    return f"{chosen.DESCRIPTOR.full_name}\0{incarnation}\0{body.hex()}"
