"""Rerankers: a model that reads query and text together and says how well the one answers the other.

Two ways: an endpoint made for it, and a chat model that is asked for an order. Both see the texts as data.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Any, Literal, Protocol

from server.providers.chat import ChatModel
from server.providers.endpoint import Endpoint, EndpointSettings

RerankApi = Literal["cohere", "jina", "tei"]
"""Whose request and answer an endpoint speaks; Jina's is Cohere's."""

MAX_CHARACTERS = 2000
"""Of each text: what rerankers read before they cut it themselves."""
TIMEOUT_SECONDS = 5.0
"""A search waits no longer: it has an order already."""
_ORDER = re.compile(r"\[[\s\d,]*\]")


class Reranker(Protocol):
    """Scores texts for a query."""

    @property
    def name(self) -> str:
        """What ranks, for people."""

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        """One score a text, higher for better answers. ModelUnavailable, ModelMismatch."""

    def close(self) -> None:
        """Close the connections."""


class EndpointReranker:
    """A reranking endpoint: Cohere's and Jina's shape, or that of Text Embeddings Inference."""

    def __init__(self, api: RerankApi, url: str, model: str, api_key: str) -> None:
        self._api = api
        self._model = model
        self._endpoint = Endpoint(
            EndpointSettings(
                url=url,
                model=model,
                kind="reranking server",
                api_key=api_key,
                timeout_seconds=TIMEOUT_SECONDS,
                budget_seconds=TIMEOUT_SECONDS,
            )
        )

    @property
    def name(self) -> str:
        return f"{self._api}:{self._model}" if self._model else self._api

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        """See Reranker."""
        body = self._endpoint.post(self._request(query, [text[:MAX_CHARACTERS] for text in texts]))
        try:
            answer = json.loads(body)
            results = answer if self._api == "tei" else answer["results"]
            field = "score" if self._api == "tei" else "relevance_score"
            found = {int(result["index"]): float(result[field]) for result in results}
            scores = [found[n] for n in range(len(texts))]
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            raise self._endpoint.unavailable("answers something that is not a score for each text") from error
        if len(found) != len(texts) or not all(map(math.isfinite, scores)):
            raise self._endpoint.unavailable("answers something that is not a score for each text")
        return scores

    def _request(self, query: str, texts: list[str]) -> dict[str, Any]:
        if self._api == "tei":
            return {"query": query, "texts": texts, "truncate": True}
        request = {"query": query, "documents": texts, "top_n": len(texts)}
        return {**request, "model": self._model} if self._model else request

    def close(self) -> None:
        """See Reranker."""
        self._endpoint.close()


class ChatReranker:
    """A chat model that is asked to put numbered texts in order; the model is closed by whoever made it."""

    PROMPT = "rerank-1"
    """The file of the prompt, whose version it names."""

    def __init__(self, chat: ChatModel) -> None:
        self._chat = chat
        self._prompt = files(__package__).joinpath("prompts", f"{self.PROMPT}.txt").read_text("utf-8")

    @property
    def name(self) -> str:
        return f"{self._chat.name} ({self.PROMPT})"

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        """See Reranker. Scores are places: 1 for the first, falling evenly."""
        numbered = {str(n): text[:MAX_CHARACTERS] for n, text in enumerate(texts)}
        asked = json.dumps({"query": query, "texts": numbered}, ensure_ascii=False)
        order = self._order(self._chat.complete(self._prompt, asked), len(texts))
        return [1 - order.index(n) / len(texts) for n in range(len(texts))]

    def _order(self, answer: str, count: int) -> list[int]:
        """The texts' numbers in the order of the answer; those that it leaves out come last as they were."""
        match = _ORDER.search(answer)
        named = [] if match is None else [int(number) for number in re.findall(r"\d+", match[0])]
        named = [number for number in dict.fromkeys(named) if number < count]
        if not named:
            raise self._chat.unavailable("answers something that is not an order of the texts")
        return named + [n for n in range(count) if n not in named]

    def close(self) -> None:
        """See Reranker; the chat model stays open."""
