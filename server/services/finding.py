"""Finding memories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from scrubjay import v1
from scrubjay.errors import InvalidField, RoleNotAllowed, check
from scrubjay.memory import Subject, text_violation
from server.providers.embedder import TextKind
from server.recall.explain import explain
from server.recall.recipes import RECIPES
from server.recall.rerank import Reranked, rerank
from server.recall.search import Hit, Query
from server.router import tenant_of
from server.services import encoding
from server.services.memory_door import MemoryDoor, read_filter
from server.services.requests import MAX_TOP_K, bounded, no_subject, read_subject
from server.services.reranking import asked_rerank, outcome
from server.store.memory_store import StreamKey
from tenants.tenant import Caller


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found, best first."""

    hits: Sequence[Hit]
    rerank: Reranked | None = None


class Finding(MemoryDoor):
    """The RPCs that look for memories."""

    def search(self, request: v1.SearchRequest, caller: Caller) -> bytes:
        """A subject's memories by meaning and by words; those of all subjects for a key that may."""
        query = self._query(request, caller)
        found = self._hits(request, caller, query)
        return encoding.search_response(
            [
                (hit.row.message, hit.score, _rest_of_hit(request, query, found, n))
                for n, hit in enumerate(found.hits)
            ],
            v1.SearchResponse(
                scopes=query.view.scopes,
                recipe=str(query.recipe),
                rerank=None if found.rerank is None else outcome(found.rerank),
            ),
        )

    def _query(self, request: v1.SearchRequest, caller: Caller) -> Query:
        """What a request looks for, checked and embedded."""
        subject = _subject(request, caller)
        check(text_violation("query", request.query))
        recipe = RECIPES.get(request.recipe or "default")
        if recipe is None:
            raise InvalidField.of("recipe", f"{request.recipe!r} is none of {', '.join(RECIPES)}")
        top_k = bounded("top_k", request.top_k, recipe.top_k, MAX_TOP_K)
        view, matches = self._view(request, subject, caller), read_filter(request)
        vector = self._embedder.embed([request.query], TextKind.QUERY)[0]
        return Query(request.query, vector, recipe, view, top_k, matches)

    def _hits(self, request: v1.SearchRequest, caller: Caller, query: Query) -> Found:
        """What the query finds where the request says to look."""
        tenant, subject = tenant_of(caller), _subject(request, caller)
        revision = self._revisions.heads(tenant.incarnation, request.min_revision)
        shard = self._router.shard(tenant)
        asked = asked_rerank(request, query.top_k, self._rerankers)
        pool = query if asked is None else replace(query, top_k=asked.pool)
        if subject is None:
            hits = shard.search_tenant(tenant.incarnation, pool, revision)
        else:
            hits = shard.search(StreamKey(tenant.incarnation, subject.key), pool, revision)
        if asked is None:
            return Found(hits)
        reranked = rerank(asked.reranker, query.text, hits, query.top_k)
        return Found(reranked.hits, reranked)


def _rest_of_hit(request: v1.SearchRequest, query: Query, found: Found, place: int) -> bytes:
    """What a hit has beside its memory and score, where it was asked for."""
    if not request.explain and not (found.rerank and found.rerank.scores):
        return b""
    rest = v1.SearchHit()
    if request.explain:
        rest.explanation.CopyFrom(explain(query, found.hits[place]))
    if found.rerank and found.rerank.scores:
        rest.rerank_score = found.rerank.scores[place]
    return rest.SerializeToString()


def _subject(request: v1.SearchRequest, caller: Caller) -> Subject | None:
    """Whose memories are looked through; None: those of all subjects of the tenant."""
    if not request.across_subjects:
        return read_subject(request)
    if not caller.across_subjects:
        raise RoleNotAllowed(
            "this key may not search across subjects; use one that was made with across_subjects"
        )
    no_subject(request)
    return None
