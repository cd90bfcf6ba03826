"""What a request says of reranking, and what an answer says of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from scrubjay import v1
from scrubjay.errors import InvalidField
from server.providers.reranker import Reranker
from server.recall.rerank import Reranked
from server.services.requests import MAX_TOP_K, bounded

_POOL = 3
"""Hits to choose from for each one asked for."""
_SETTINGS = {
    v1.RERANKER_ENDPOINT: ("reranking endpoint", "SCRUBJAY_RERANK_URL"),
    v1.RERANKER_CHAT_MODEL: ("chat model", "SCRUBJAY_CHAT_MODEL"),
}


@dataclass(frozen=True, slots=True)
class AskedRerank:
    """Who reranks, and how many hits it chooses from."""

    reranker: Reranker
    pool: int


def asked_rerank(
    request: v1.SearchRequest, top_k: int, rerankers: Mapping[v1.Reranker.ValueType, Reranker]
) -> AskedRerank | None:
    """The rerank that a request asks for, if any. InvalidField where the server has no such model."""
    if not request.HasField("rerank"):
        return None
    asked = request.rerank
    if asked.reranker not in _SETTINGS:
        raise InvalidField.of("rerank.reranker", "is not set; give RERANKER_ENDPOINT or RERANKER_CHAT_MODEL")
    reranker = rerankers.get(asked.reranker)
    if reranker is None:
        what, setting = _SETTINGS[asked.reranker]
        raise InvalidField.of("rerank.reranker", f"this server has no {what}; its operator may set {setting}")
    pool = bounded("rerank.pool", asked.pool, min(_POOL * top_k, MAX_TOP_K), MAX_TOP_K)
    if pool < top_k:
        raise InvalidField.of("rerank.pool", f"is {pool}, less than the {top_k} hits asked for")
    return AskedRerank(reranker, pool)


def outcome(reranked: Reranked) -> v1.RerankOutcome:
    """What came of it, as the answer says it."""
    return v1.RerankOutcome(applied=not reranked.error, model=reranked.by, error=reranked.error)
