"""Reranking: hits of a search in the order that a model gives them. Its failure keeps the order."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from scrubjay.errors import ScrubjayError
from server.providers.reranker import Reranker
from server.recall.search import Hit

log = logging.getLogger("scrubjay.rerank")


@dataclass(frozen=True, slots=True)
class Reranked:
    """The hits in their new order with the model's scores, or in the old one and why. ``by`` is the model."""

    hits: Sequence[Hit]
    scores: Sequence[float]
    by: str
    error: str = ""


def rerank(reranker: Reranker, query: str, hits: Sequence[Hit], top_k: int) -> Reranked:
    """The best ``top_k`` hits. Equal scores keep the order that they came in."""
    if not hits:
        return Reranked([], [], reranker.name)
    try:
        scores = reranker.scores(query, [hit.row.memory.content for hit in hits])
    except ScrubjayError as error:
        log.warning("not reranked", extra={"reason": error.reason, "reranker": reranker.name})
        return Reranked(hits[:top_k], [], reranker.name, error.message)
    best = sorted(range(len(hits)), key=lambda n: -scores[n])[:top_k]
    return Reranked([hits[n] for n in best], [scores[n] for n in best], reranker.name)
