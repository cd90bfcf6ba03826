"""Finding memories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from scrubjay import v1
from scrubjay.errors import InvalidField, RoleNotAllowed, check
from scrubjay.memory import MAX_MICROS, MIN_MICROS, Memory, MemoryId, Micros, Subject
from scrubjay.validity import text_violation
from scrubjay.wire import from_timestamp
from server.providers.embedder import TextKind
from server.recall.explain import explain
from server.recall.query import Hit, Query, query_vector
from server.recall.recipes import RECIPES
from server.recall.rerank import Reranked, rerank
from server.router import tenant_of
from server.services import encoding
from server.services.memory_door import MemoryDoor, read_filter
from server.services.requests import (
    MAX_NEIGHBOURS,
    MAX_TOP_K,
    at_most,
    bounded,
    check_memory_id,
    check_unscoped,
    inside,
    no_subject,
    read_subject,
)
from server.services.reranking import asked_rerank, outcome
from server.shard.finding import PastQuery
from server.store.memory_store import Extent, StreamKey
from tenants.tenant import Caller, Tenant


@dataclass(frozen=True, slots=True)
class Sought:
    """What a request looks for, and in what."""

    extent: Extent
    query: Query


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found, best first."""

    hits: Sequence[Hit]
    rerank: Reranked | None = None


class Finding(MemoryDoor):
    """The RPCs that look for memories."""

    def search(self, request: v1.SearchRequest, caller: Caller) -> bytes:
        """A subject's memories by meaning and by words; those of all subjects for a key that may."""
        sought = self._sought(request, caller)
        query, found = sought.query, self._hits(request, caller, sought)
        if request.count_access:
            self._count(caller, [hit.row.memory for hit in found.hits])
        return encoding.search_response(
            [
                (hit.row.message, hit.score, _rest_of_hit(request, query, found, n))
                for n, hit in enumerate(found.hits)
            ],
            v1.SearchResponse(
                scopes=query.view.scopes,
                inherited_scopes=query.view.inherited_scopes,
                recipe=str(query.recipe),
                rerank=None if found.rerank is None else outcome(found.rerank),
            ),
        )

    def explain_miss(self, request: v1.ExplainMissRequest, caller: Caller) -> v1.ExplainMissResponse:
        """Why a memory is not among a search's hits."""
        if not request.HasField("search"):
            raise InvalidField.of("search", "is missing; give the search that did not find it")
        check_memory_id("memory_id", request.memory_id)
        search, tenant = request.search, tenant_of(caller)
        with inside("search"):
            sought = self._sought(search, caller)
            revision = self._revisions.heads(tenant.incarnation, search.min_revision)
        extent, query = sought.extent, sought.query
        shard, memory_id = self._router.shard(tenant), MemoryId(request.memory_id)
        if isinstance(extent, StreamKey) and search.HasField("as_of"):
            asked = PastQuery(extent, tenant.space, query, partial(self._embed, tenant), revision)
            miss = shard.explain_past_miss(asked, memory_id)
        else:
            miss = shard.explain_miss(extent, tenant.space, query, memory_id, revision)
        return v1.ExplainMissResponse(
            gate=v1.MissGate.ValueType(miss.gate),
            sentence=miss.sentence,
            rank=miss.rank,
            score=miss.hit.score if miss.hit else 0.0,
            explanation=explain(query, miss.hit) if miss.hit else None,
        )

    def _sought(self, request: v1.SearchRequest, caller: Caller) -> Sought:
        """What a request looks for, checked and embedded."""
        incarnation, subject = tenant_of(caller).incarnation, _subject(request, caller)
        check(text_violation("query", request.query))
        recipe = RECIPES.get(request.recipe or "default")
        if recipe is None:
            raise InvalidField.of("recipe", f"{request.recipe!r} is none of {', '.join(RECIPES)}")
        top_k = bounded("top_k", request.top_k, recipe.top_k, MAX_TOP_K)
        neighbours = at_most("neighbours", request.neighbours, MAX_NEIGHBOURS)
        view, matches = self._view(request, subject, caller), read_filter(request)
        as_of = _time("as_of", request)
        if as_of is not None:
            check_unscoped(caller, "as_of")
        view = replace(
            view,
            now=view.now if as_of is None else min(view.now, as_of),
            inherit=request.inherit,
            valid_at=_time("valid_at", request),
        )
        vector = query_vector(request.query, recipe, partial(self._embed_query, tenant_of(caller)))
        extent = incarnation if subject is None else StreamKey(incarnation, subject.key)
        return Sought(extent, Query(request.query, vector, recipe, view, top_k, matches, neighbours))

    def _count(self, caller: Caller, looked_at: Sequence[Memory]) -> None:
        """Count that these memories were looked at."""
        tenant = tenant_of(caller)
        self._router.shard(tenant).accesses.add(tenant.incarnation, looked_at, self._clock())

    def _embed_query(self, tenant: Tenant, text: str) -> NDArray[np.float32]:
        vector: NDArray[np.float32] = self._embedders.of(tenant).embed([text], TextKind.QUERY)[0]
        return vector

    def _hits(self, request: v1.SearchRequest, caller: Caller, sought: Sought) -> Found:
        """What is found, now or as it was."""
        tenant, extent, query = tenant_of(caller), sought.extent, sought.query
        revision = self._revisions.heads(tenant.incarnation, request.min_revision)
        shard = self._router.shard(tenant)
        asked = asked_rerank(request, query.top_k, self._rerankers)
        pool = query if asked is None else replace(query, top_k=asked.pool)
        if isinstance(extent, StreamKey) and request.HasField("as_of"):
            embed = partial(self._embed, tenant)
            hits = shard.search_past(PastQuery(extent, tenant.space, pool, embed, revision))
        else:
            hits = shard.search(extent, tenant.space, pool, revision)
        if asked is None:
            return Found(hits)
        reranked = rerank(asked.reranker, query.text, hits, query.top_k)
        return Found(reranked.hits, reranked)


def _rest_of_hit(request: v1.SearchRequest, query: Query, found: Found, place: int) -> bytes:
    """What a hit has beside its memory and score, where it was asked for."""
    reranked = found.rerank is not None and bool(found.rerank.scores)
    if not (request.explain or query.neighbours or reranked):
        return b""
    hit, rest = found.hits[place], v1.SearchHit()
    if request.explain:
        rest.explanation.CopyFrom(explain(query, hit))
    if found.rerank and found.rerank.scores:
        rest.rerank_score = found.rerank.scores[place]
    before, after = ([row.message for row in rows] for rows in (hit.before, hit.after))
    return rest.SerializeToString() + encoding.neighbours(before, after)


def _time(field: Literal["as_of", "valid_at"], request: v1.SearchRequest) -> Micros | None:
    if not request.HasField(field):
        return None
    time = from_timestamp(getattr(request, field))
    if not MIN_MICROS <= time <= MAX_MICROS:
        raise InvalidField.of(field, "lies outside the years 1 to 9999")
    return time


def _subject(request: v1.SearchRequest, caller: Caller) -> Subject | None:
    """Whose memories are looked through; None: those of all subjects of the tenant."""
    if not request.across_subjects:
        return read_subject(request)
    if not caller.across_subjects:
        raise RoleNotAllowed(
            "this key may not search across subjects; use one that was made with across_subjects"
        )
    no_subject(request)
    if request.HasField("as_of"):
        raise InvalidField.of("as_of", "is for the memories of one subject; name it, or leave this out")
    return None
