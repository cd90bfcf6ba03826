"""A model behind HTTP: one JSON request, its answer's bytes, attempts within a budget, and a circuit breaker.

The one file that knows httpx. What goes wrong outside becomes ModelUnavailable (try again later) or
ModelMismatch (the settings are wrong); no answer's text and no key is ever repeated in a message, for servers
are known to quote keys.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from scrubjay.errors import ModelMismatch, ModelUnavailable
from server.providers.breaker import Breaker, Open

_FIRST_PAUSE_SECONDS = 0.25
_LONGEST_PAUSE_SECONDS = 8.0
_BODY_BYTES = 64 * 2**20
"""Longest answer read: 128 rows of 8192 numbers are 27 MB as text."""


@dataclass(frozen=True)
class EndpointSettings:
    """Where a model is and how long to wait for it."""

    url: str
    model: str
    """Its name, for what is said of it; empty where the server has just one."""
    kind: str
    """What the server is called in errors, such as "embedding server"."""
    api_key: str = field(default="", repr=False)
    """Sent as a bearer token; empty for servers without keys."""
    timeout_seconds: float = 10.0
    """For one attempt, from connecting to the last byte."""
    budget_seconds: float = 30.0
    """For all attempts at one request and the pauses between them."""
    concurrency: int = 8
    """Requests at once; more wait for their turn, within their budget."""


class RequestRefused(ModelUnavailable):
    """The server is there and does not take a request of this shape."""


class Endpoint:
    """One URL that takes JSON. Construction makes no call. Safe for many threads."""

    def __init__(self, settings: EndpointSettings) -> None:
        self._settings = settings
        self._slots = threading.BoundedSemaphore(settings.concurrency)
        self._breaker = Breaker(time.monotonic)
        self._closed = threading.Event()
        self._random = random.SystemRandom()
        self._client = httpx.Client(
            headers={"Authorization": f"Bearer {settings.api_key}"} if settings.api_key else {},
            limits=httpx.Limits(max_connections=settings.concurrency),
        )

    def post(self, request: Mapping[str, Any]) -> bytes:
        """The body of the answer.

        A request that meets 429, 5xx or silence is made again after a growing pause, or the one that
        Retry-After asks for, until its budget is spent; then ModelUnavailable. While the breaker is open a
        new request is ModelUnavailable at once; one that is under way waits for it, within its budget.
        """
        try:
            self._breaker.check()
        except Open as error:
            raise self._left_alone(error.seconds) from error
        deadline = time.monotonic() + self._settings.budget_seconds
        pause_seconds = _FIRST_PAUSE_SECONDS
        while True:
            try:
                with self._slot(deadline), self._passing():
                    return self._attempt(request, deadline)
            except _TryAgain as refusal:
                wait_seconds = max(refusal.after_seconds, pause_seconds * self._random.uniform(0.5, 1))
                if time.monotonic() + wait_seconds >= deadline or self._closed.wait(wait_seconds):
                    raise self.unavailable(f"{refusal}, and the time to try again is over") from refusal
                pause_seconds = min(2 * pause_seconds, _LONGEST_PAUSE_SECONDS)

    def unavailable(self, what: str) -> ModelUnavailable:
        """The error that says this of the server."""
        return ModelUnavailable(f"{self._name()} {what}")

    def close(self) -> None:
        """Close the connections; calls that pause before another attempt give up."""
        self._closed.set()
        self._client.close()

    @contextmanager
    def _slot(self, deadline: float) -> Iterator[None]:
        if not self._slots.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise self.unavailable(
                f"{self._settings.concurrency} requests before this one are not answered yet"
            )
        try:
            yield
        finally:
            self._slots.release()

    @contextmanager
    def _passing(self) -> Iterator[None]:
        """One attempt, whose end the breaker is told."""
        try:
            self._breaker.enter()
        except Open as error:
            raise _TryAgain("failed again and again", error.seconds) from error
        failed = False
        try:
            yield
        except _TryAgain:
            failed = True
            raise
        finally:
            self._breaker.leave(failed=failed)

    def _left_alone(self, seconds: float) -> ModelUnavailable:
        until = datetime.now(UTC) + timedelta(seconds=seconds)
        error = self.unavailable(
            f"failed again and again and is not asked before {until.isoformat(timespec='seconds')}"
        )
        error.retry_after_seconds = seconds
        return error

    def _attempt(self, request: Mapping[str, Any], deadline: float) -> bytes:
        """The body of the answer, if its status is 200."""
        if self._closed.is_set():
            raise self.unavailable("is not asked any more: this client of it is closed")
        seconds = max(0.001, min(self._settings.timeout_seconds, deadline - time.monotonic()))
        try:
            with self._client.stream("POST", self._settings.url, json=request, timeout=seconds) as response:
                self._check_status(response)
                return _read_body(response, time.monotonic() + seconds)
        except httpx.TimeoutException as error:
            raise _TryAgain("does not answer in time") from error
        except httpx.TransportError as error:
            raise _TryAgain("cannot be reached, or hung up") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise self.unavailable("cannot be asked; check its URL") from error

    def _check_status(self, response: httpx.Response) -> None:
        status = response.status_code
        if status == 429 or status >= 500:
            raise _TryAgain(f"answers {status}", _retry_after_seconds(response))
        if status in (401, 403):
            raise self.unavailable(f"answers {status}: it does not take the API key")
        if status == 404:
            raise ModelMismatch(
                f"{self._name()} answers 404: check its URL, "
                f"and that it has the model {self._settings.model!r}"
            )
        if status != 200:
            raise RequestRefused(f"{self._name()} answers {status}: it does not take the request")

    def _name(self) -> str:
        return f"the {self._settings.kind} {httpx.URL(self._settings.url).host}"


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
