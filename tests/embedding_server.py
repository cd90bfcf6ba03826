"""A server of embeddings for tests: answers like OpenAI's, or as its script says."""

from __future__ import annotations

import json
import zlib
from typing import Any

import numpy as np

from tests.model_server import Answer, ModelServer


def embeddings(texts: list[str], dimension: int) -> list[dict[str, Any]]:
    """The rows of a right answer; equal texts have equal vectors."""
    return [
        {"object": "embedding", "index": index, "embedding": vector_of(text, dimension)}
        for index, text in enumerate(texts)
    ]


def vector_of(text: str, dimension: int) -> list[float]:
    """A vector of no certain length that only the text decides."""
    seed = zlib.crc32(text.encode())
    return list(np.random.default_rng(seed).standard_normal(dimension).round(6))


def answer(data: list[dict[str, Any]]) -> Answer:
    """An answer with these rows."""
    return Answer(body=json.dumps({"object": "list", "data": data}).encode())


class EmbeddingServer(ModelServer[list[str]]):
    """``POST /v1/embeddings``; its script's steps are functions of a request's texts."""

    def __init__(self, dimension: int = 8) -> None:
        self.dimension = dimension
        super().__init__(
            "/v1/embeddings",
            lambda request: request["input"],
            lambda texts: answer(embeddings(texts, self.dimension)),
        )
