"""Space ``openai-<model>/<dimension>``: any server that speaks OpenAI's ``POST /v1/embeddings``.

The one file that knows this API and httpx. What goes wrong outside becomes ModelUnavailable (try again later)
or ModelMismatch (the settings are wrong); no answer's text and no key is ever repeated in a message, for
servers are known to quote keys.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray

from scrubjay.errors import ModelMismatch, ModelUnavailable
from server.providers import fingerprint, text_rules
from server.providers.embedder import Space, TextKind
from server.providers.pieces import embed_in_pieces

_BATCH_TEXTS = 128
"""Texts of one request: some servers take no more; 128 pieces of 300 characters stay below token limits."""
_FIRST_PAUSE_SECONDS = 0.25
_LONGEST_PAUSE_SECONDS = 8.0
_BODY_BYTES = 64 * 2**20
"""Longest answer read: 128 rows of 8192 numbers are 27 MB as text."""


@dataclass(frozen=True)
class OpenAISettings:
    """Where the model is and how long to wait for it."""

    base_url: str
    """With the version, such as https://api.openai.com/v1."""
    model: str
    dimension: int
    """Of the model's vectors; another one in an answer is a ModelMismatch."""
    api_key: str = field(default="", repr=False)
    """Sent as a bearer token; empty for servers without keys."""
    timeout_seconds: float = 10.0
    """For one attempt, from connecting to the last byte."""
    budget_seconds: float = 30.0
    """For all attempts at one request and the pauses between them."""
    concurrency: int = 8
    """Requests at once; more wait for their turn, within their budget."""


class OpenAIEmbedder:
    """An embedder over HTTP. Construction makes no call."""

    def __init__(self, settings: OpenAISettings) -> None:
        self._settings = settings
        self._url = settings.base_url.rstrip("/") + "/embeddings"
        self._slots = threading.BoundedSemaphore(settings.concurrency)
        self._closed = threading.Event()
        self._random = random.SystemRandom()
        self._client = httpx.Client(
            headers={"Authorization": f"Bearer {settings.api_key}"} if settings.api_key else {},
            limits=httpx.Limits(max_connections=settings.concurrency),
        )
        self._space = Space(
            id=f"openai-{settings.model}/{settings.dimension}",
            dimension=settings.dimension,
            semantic=True,
            record={"model": settings.model, "prefix": "", "text_rules": text_rules.TEXT_RULES},
        )

    @property
    def space(self) -> Space:
        return self._space

    def embed(self, texts: Sequence[str], kind: TextKind) -> NDArray[np.float32]:
        """See Embedder. Both kinds are embedded alike.

        A request that meets 429, 5xx or silence is made again after a growing pause, or the one that
        Retry-After asks for, until its budget is spent.
        """
        del kind
        return embed_in_pieces(texts, self._settings.dimension, self._embed_pieces)

    def self_test(self) -> None:
        """Ask for two sentences: the server answers, with rows of the right dimension that differ."""
        first, second = self.embed(fingerprint.SENTENCES, TextKind.DOCUMENT)
        if np.allclose(first, second, atol=fingerprint.TOLERANCE):
            raise ModelMismatch(
                f"the model {self._settings.model!r} gives unlike sentences one vector; "
                "it is no embedding model"
            )

    def close(self) -> None:
        """Close the connections; calls that pause before another attempt give up."""
        self._closed.set()
        self._client.close()

    def _embed_pieces(self, pieces: list[str]) -> NDArray[np.float32]:
        batches = [pieces[start : start + _BATCH_TEXTS] for start in range(0, len(pieces), _BATCH_TEXTS)]
        return np.concatenate([self._embed_batch(batch) for batch in batches])

    def _embed_batch(self, batch: list[str]) -> NDArray[np.float32]:
        deadline = time.monotonic() + self._settings.budget_seconds
        pause_seconds = _FIRST_PAUSE_SECONDS
        while True:
            try:
                return self._attempt(batch, deadline)
            except _TryAgain as refusal:
                wait_seconds = max(refusal.after_seconds, pause_seconds * self._random.uniform(0.5, 1))
                if time.monotonic() + wait_seconds >= deadline or self._closed.wait(wait_seconds):
                    raise self._unavailable(f"{refusal}, and the time to try again is over") from refusal
                pause_seconds = min(2 * pause_seconds, _LONGEST_PAUSE_SECONDS)

    def _attempt(self, batch: list[str], deadline: float) -> NDArray[np.float32]:
        with self._slot(deadline):
            body = self._post({"model": self._settings.model, "input": batch}, deadline)
        return self._rows(body, len(batch))

    @contextmanager
    def _slot(self, deadline: float) -> Iterator[None]:
        if not self._slots.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise self._unavailable(
                f"{self._settings.concurrency} requests before this one are not answered yet"
            )
        try:
            yield
        finally:
            self._slots.release()

    def _post(self, request: Mapping[str, Any], deadline: float) -> bytes:
        """The body of the answer, if its status is 200."""
        if self._closed.is_set():
            raise ModelUnavailable("the embedder is closed; open a new one")
        seconds = max(0.001, min(self._settings.timeout_seconds, deadline - time.monotonic()))
        try:
            with self._client.stream("POST", self._url, json=request, timeout=seconds) as response:
                self._check_status(response)
                return _read_body(response, time.monotonic() + seconds)
        except httpx.TimeoutException as error:
            raise _TryAgain("does not answer in time") from error
        except httpx.TransportError as error:
            raise _TryAgain("cannot be reached, or hung up") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise self._unavailable("cannot be asked; check its base URL") from error

    def _check_status(self, response: httpx.Response) -> None:
        status = response.status_code
        if status == 429 or status >= 500:
            raise _TryAgain(f"answers {status}", _retry_after_seconds(response))
        if status in (401, 403):
            raise self._unavailable(f"answers {status}: it does not take the API key")
        if status == 404:
            raise ModelMismatch(
                f"{self._name()} answers 404: check the base URL, "
                f"and that it has the model {self._settings.model!r}"
            )
        if status != 200:
            raise self._unavailable(f"answers {status}: it does not take the request")

    def _rows(self, body: bytes, count: int) -> NDArray[np.float32]:
        """The vectors in the order of their index, shape (count, dimension)."""
        try:
            data = sorted(json.loads(body)["data"], key=lambda item: item["index"])
            indices = [item["index"] for item in data]
            rows = [np.asarray(item["embedding"], dtype=np.float32) for item in data]
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise self._unavailable("answers something that is not a list of embeddings") from error
        if indices != list(range(count)):
            raise self._unavailable(
                f"answers {len(indices)} rows, or others than asked for, to {count} texts"
            )
        for row in rows:
            if row.shape != (self._settings.dimension,):
                raise ModelMismatch(
                    f"the model {self._settings.model!r} has dimension {row.size}, the settings say "
                    f"{self._settings.dimension}; set the dimension to {row.size}, or another model"
                )
        matrix = np.stack(rows)
        if not np.isfinite(matrix).all() or not matrix.any(axis=1).all():
            raise self._unavailable("answers vectors without a direction")
        return matrix

    def _name(self) -> str:
        return f"the embedding server {httpx.URL(self._url).host}"

    def _unavailable(self, what: str) -> ModelUnavailable:
        return ModelUnavailable(f"{self._name()} {what}")


class _TryAgain(Exception):
    """An attempt failed in a way that may pass; at least ``after_seconds`` from now."""

    def __init__(self, what: str, after_seconds: float = 0.0) -> None:
        super().__init__(what)
        self.after_seconds = after_seconds


def _read_body(response: httpx.Response, deadline: float) -> bytes:
    body = bytearray()
    for part in response.iter_bytes():
        body += part
        if time.monotonic() > deadline or len(body) > _BODY_BYTES:
            raise _TryAgain("answers too slowly or too much")
    return bytes(body)


def _retry_after_seconds(response: httpx.Response) -> float:
    """Retry-After in seconds, whether it is given as a number or as a date; 0 where it is neither."""
    value = response.headers.get("retry-after", "")
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        at = parsedate_to_datetime(value)
    except ValueError:
        return 0.0
    return max(0.0, ((at if at.tzinfo else at.replace(tzinfo=UTC)) - datetime.now(UTC)).total_seconds())
