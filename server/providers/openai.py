"""Space ``openai-<model>/<dimension>``: any server that speaks OpenAI's ``POST /v1/embeddings``.

What goes wrong outside becomes ModelUnavailable (try again later) or ModelMismatch (the settings are wrong).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scrubjay.errors import ModelMismatch
from server.providers import fingerprint, text_rules
from server.providers.embedder import Space, TextKind
from server.providers.endpoint import Endpoint, EndpointSettings
from server.providers.pieces import embed_in_pieces

_BATCH_TEXTS = 128
"""Texts of one request: some servers take no more; 128 pieces of 300 characters stay below token limits."""


@dataclass(frozen=True)
class OpenAISettings:
    """Where the model is, and what its vectors are like."""

    endpoint: EndpointSettings
    dimension: int
    """Of the model's vectors; another one in an answer is a ModelMismatch."""


class OpenAIEmbedder:
    """An embedder over HTTP. Construction makes no call."""

    def __init__(self, settings: OpenAISettings) -> None:
        self._model, self._dimension = settings.endpoint.model, settings.dimension
        self._endpoint = Endpoint(settings.endpoint)
        self._space = Space(
            id=f"openai-{self._model}/{self._dimension}",
            dimension=self._dimension,
            semantic=True,
            record={"model": self._model, "prefix": "", "text_rules": text_rules.TEXT_RULES},
        )

    @property
    def space(self) -> Space:
        return self._space

    def embed(self, texts: Sequence[str], kind: TextKind) -> NDArray[np.float32]:
        """See Embedder. Both kinds are embedded alike, and requests made as ``Endpoint.post`` says."""
        del kind
        return embed_in_pieces(texts, self._dimension, self._embed_pieces)

    def self_test(self) -> None:
        """Ask for two sentences: the server answers, with rows of the right dimension that differ."""
        first, second = self.embed(fingerprint.SENTENCES, TextKind.DOCUMENT)
        if np.allclose(first, second, atol=fingerprint.TOLERANCE):
            raise ModelMismatch(
                f"the model {self._model!r} gives unlike sentences one vector; it is no embedding model"
            )

    def close(self) -> None:
        """Close the connections; calls that pause before another attempt give up."""
        self._endpoint.close()

    def _embed_pieces(self, pieces: list[str]) -> NDArray[np.float32]:
        batches = [pieces[start : start + _BATCH_TEXTS] for start in range(0, len(pieces), _BATCH_TEXTS)]
        return np.concatenate([self._embed_batch(batch) for batch in batches])

    def _embed_batch(self, batch: list[str]) -> NDArray[np.float32]:
        return self._rows(self._endpoint.post({"model": self._model, "input": batch}), len(batch))

    def _rows(self, body: bytes, count: int) -> NDArray[np.float32]:
        """The vectors in the order of their index, shape (count, dimension)."""
        try:
            data = sorted(json.loads(body)["data"], key=lambda item: item["index"])
            indices = [item["index"] for item in data]
            rows = [np.asarray(item["embedding"], dtype=np.float32) for item in data]
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise self._endpoint.unavailable("answers something that is not a list of embeddings") from error
        if indices != list(range(count)):
            raise self._endpoint.unavailable(
                f"answers {len(indices)} rows, or others than asked for, to {count} texts"
            )
        for row in rows:
            if row.shape != (self._dimension,):
                raise ModelMismatch(
                    f"the model {self._model!r} has dimension {row.size}, the settings say "
                    f"{self._dimension}; set the dimension to {row.size}, or another model"
                )
        matrix = np.stack(rows)
        if not np.isfinite(matrix).all() or not matrix.any(axis=1).all():
            raise self._endpoint.unavailable("answers vectors without a direction")
        return matrix
