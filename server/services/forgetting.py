"""Deleting by rule and by filter.

Both go in transactions of some hundred memories, so that nobody waits long for the stream, and both may be
cut off: what is done stays done, and the same call again does the rest.
"""

from __future__ import annotations

from dataclasses import replace

from scrubjay import v1
from scrubjay.errors import InvalidField, check
from scrubjay.memory import SUBJECT_FIELDS, permitted
from scrubjay.stamp import CommitStamp
from scrubjay.validity import request_id_violation
from server.forgetting import sweep_of, swept
from server.index.columns import View
from server.ingest.author import Author
from server.ingest.forgetting import CHUNK, Sweep
from server.router import tenant_of
from server.services.memory_door import MemoryDoor, author_of, read_filter, token_purpose
from server.services.requests import (
    DEFAULT_PAGE,
    MAX_PAGE,
    bounded,
    check_scopes,
    check_unscoped,
    fitting,
)
from server.services.sentences import why
from server.shard import Listing, Request, Shard
from server.store.memory_store import StreamKey, Writing
from server.store.use_reading import FIRST, Place
from tenants.page_token import seal, unseal
from tenants.tenant import Caller
from tenants.validation import sole_subject


class Forgetting(MemoryDoor):
    """The RPCs that delete memories which nobody named one by one."""

    def forget(self, request: v1.ForgetRequest, caller: Caller) -> v1.ForgetResponse:
        """What the tenant's policy lets go, or what it would."""
        now, tenant = self._clock(), tenant_of(caller)
        check_unscoped(caller, "Forget")
        check(request_id_violation(request.request_id))
        named = any(getattr(request, name) for name in SUBJECT_FIELDS)
        stream = sole_subject(request).key if named else None
        sweep = sweep_of(self._current(tenant), stream, now)
        if request.validate_only:
            return self._forgettable(request, sweep, caller)
        if request.page_size or request.page_token:
            field = "page_size" if request.page_size else "page_token"
            raise InvalidField.of(field, "is set; only validate_only has pages")
        shard, author = self._router.shard(tenant), author_of(caller)
        identity = Request.of(tenant.incarnation, request, request.request_id, now)
        if (first := shard.answered(identity, v1.ForgetResponse)) is not None:
            return first
        count = sum(
            permitted(one.memory, caller.client_id)
            for gone in swept(shard, sweep, author, lambda: False)
            for one in gone
        )
        keys = [] if stream is None else [StreamKey(tenant.incarnation, stream)]

        def unit(writing: Writing) -> v1.ForgetResponse:
            revision = self._revision(writing, keys) if keys else ""
            return v1.ForgetResponse(deleted_count=count, revision=revision)

        return shard.write(identity, keys, v1.ForgetResponse, unit)

    def _forgettable(self, request: v1.ForgetRequest, sweep: Sweep, caller: Caller) -> v1.ForgetResponse:
        size = bounded("page_size", request.page_size, DEFAULT_PAGE, MAX_PAGE)
        purpose = token_purpose(request, sweep.incarnation)
        after = FIRST
        if request.page_token:
            stream, stamp = unseal(self._secret, purpose, request.page_token, (str, int))
            after = Place(stream, CommitStamp(stamp))
        shard = self._router.shard(tenant_of(caller))
        found = shard.to_forget(sweep, after, size + 1, caller.client_id)
        shown = [
            v1.Forgotten(
                memory=v1.Memory.FromString(one.stored.message), rule=one.why, sentence=why(one, sweep.now)
            )
            for one in found[:size]
        ]
        count = fitting(one.ByteSize() for one in shown)
        more = count < len(found)
        token = seal(self._secret, purpose, found[count - 1].place) if more else ""
        return v1.ForgetResponse(forgotten=shown[:count], next_page_token=token)

    def delete_by_filter(
        self, request: v1.DeleteByFilterRequest, caller: Caller
    ) -> v1.DeleteByFilterResponse:
        """What List shows of one subject with the same scopes and filter."""
        now, tenant = self._clock(), tenant_of(caller)
        check(request_id_violation(request.request_id))
        key = StreamKey(tenant.incarnation, sole_subject(request).key)
        view = View(caller.client_id, now, check_scopes(request.scopes), granted=caller.scopes)
        matches = read_filter(request)
        if matches is None:
            raise InvalidField.of("filter", "is not set; to delete all of a subject, call DeleteAll")
        listing = Listing(key, view, matches, None, CHUNK)
        shard = self._router.shard(tenant)
        identity = Request.of(tenant.incarnation, request, request.request_id, now)
        if request.validate_only:
            return v1.DeleteByFilterResponse(deleted_count=_count(shard, listing))
        if (first := shard.answered(identity, v1.DeleteByFilterResponse)) is not None:
            return first
        count = _delete(shard, listing, author_of(caller))

        def unit(writing: Writing) -> v1.DeleteByFilterResponse:
            return v1.DeleteByFilterResponse(deleted_count=count, revision=self._revision(writing, [key]))

        return shard.write(identity, [key], v1.DeleteByFilterResponse, unit)


def _count(shard: Shard, listing: Listing) -> int:
    page, following = shard.list(listing, {})
    count = len(page)
    while following is not None:
        page, following = shard.list(replace(listing, before=following), {})
        count += len(page)
    return count


def _delete(shard: Shard, listing: Listing, author: Author) -> int:
    count, following = shard.delete_page(listing, author)
    while following is not None:
        gone, following = shard.delete_page(replace(listing, before=following), author)
        count += gone
    return count
