"""What a search finds, as text to put before a prompt."""

from __future__ import annotations

from typing import Any

from scrubjay import v1
from scrubjay.errors import InvalidField
from server.recall.context import Bounds, Context, compose
from server.services.finding import Finding
from server.services.requests import bounded
from tenants.tenant import Caller

DEFAULT_ITEMS = 8
MAX_ITEMS = 20
"""More than this buries the question."""
DEFAULT_TOKENS = 1000
MIN_TOKENS = 100
MAX_TOKENS = 32_000
"""Twenty memories of 16 KiB would be more than any prompt has room for."""
DEFAULT_CONFIDENCE = 0.4
_POOL = 5
"""Hits to choose from for each item: some are cut."""


class Contexts(Finding):
    """The RPC that makes a block of what was found."""

    def context(self, request: v1.ContextRequest, caller: Caller) -> v1.ContextResponse:
        """The best memories about the query that fit."""
        bounds = _bounds(request)
        search = v1.SearchRequest(**_of_search(request), top_k=bounds.items * _POOL)
        sought = self._sought(search, caller)
        query, context = sought.query, compose(self._hits(search, caller, sought).hits, bounds)
        if request.count_access:
            self._count(caller, [item.hit.row.memory for item in context.items])
        return v1.ContextResponse(
            text=context.text,
            items=_items(context),
            cuts=_cuts(context),
            tokens=context.tokens,
            scopes=query.view.scopes,
            inherited_scopes=query.view.inherited_scopes,
            recipe=str(query.recipe),
        )


def _of_search(request: v1.ContextRequest) -> dict[str, Any]:
    """What is set in the request that a search has too."""
    known = v1.SearchRequest.DESCRIPTOR.fields_by_name
    return {field.name: value for field, value in request.ListFields() if field.name in known}


def _bounds(request: v1.ContextRequest) -> Bounds:
    tokens = bounded("max_tokens", request.max_tokens, DEFAULT_TOKENS, MAX_TOKENS)
    if tokens < MIN_TOKENS:
        raise InvalidField.of("max_tokens", f"is {tokens}; give {MIN_TOKENS} to {MAX_TOKENS}")
    confidence = request.min_confidence if request.HasField("min_confidence") else DEFAULT_CONFIDENCE
    if not 0 <= confidence <= 1:
        raise InvalidField.of("min_confidence", f"is {confidence}; give a number from 0 to 1")
    return Bounds(bounded("max_items", request.max_items, DEFAULT_ITEMS, MAX_ITEMS), tokens, confidence)


def _items(context: Context) -> list[v1.ContextItem]:
    return [
        v1.ContextItem(
            memory=v1.Memory.FromString(item.hit.row.message),
            group=v1.ContextGroup.ValueType(item.group),
            score=item.hit.score,
            tokens=item.tokens,
        )
        for item in context.items
    ]


def _cuts(context: Context) -> list[v1.ContextCut]:
    return [
        v1.ContextCut(
            memory_id=cut.hit.row.memory.id,
            reason=v1.ContextCutReason.ValueType(cut.reason),
            sentence=cut.sentence,
        )
        for cut in context.cuts
    ]
