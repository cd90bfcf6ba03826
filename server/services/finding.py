"""Finding memories."""

from __future__ import annotations

from scrubjay import v1
from scrubjay.errors import InvalidField, check
from scrubjay.memory import (
    text_violation,
)
from server.providers.embedder import TextKind
from server.recall.explain import explain
from server.recall.search import RECIPES, Query
from server.router import tenant_of
from server.services import encoding
from server.services.memory_door import MemoryDoor, read_filter
from server.services.requests import (
    DEFAULT_TOP_K,
    MAX_TOP_K,
    bounded,
    read_subject,
)
from server.store.memory_store import StreamKey
from tenants.tenant import Caller


class Finding(MemoryDoor):
    """The RPCs that look for memories."""

    def search(self, request: v1.SearchRequest, caller: Caller) -> bytes:
        """A subject's memories by meaning and by words."""
        tenant, subject = tenant_of(caller), read_subject(request)
        check(text_violation("query", request.query))
        top_k = bounded("top_k", request.top_k, DEFAULT_TOP_K, MAX_TOP_K)
        recipe = RECIPES.get(request.recipe or "default")
        if recipe is None:
            raise InvalidField.of("recipe", f"{request.recipe!r} is none of {', '.join(RECIPES)}")
        view, matches = self._view(request, subject, caller), read_filter(request)
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
