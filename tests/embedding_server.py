"""A server of embeddings for tests: answers like OpenAI's, or as its script says."""

from __future__ import annotations

import json
import threading
import zlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Answer:
    """One HTTP answer."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    pause_seconds: float = 0.0
    """Between one byte of the body and the next."""


def silence() -> Answer | None:
    """No answer until the server closes."""
    return None


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


class EmbeddingServer:
    """``POST /v1/embeddings`` on a free port of this machine.

    Each request takes the next step of ``script``, a function of the request's texts; after the last one
    every request is answered rightly. ``requests`` and ``authorizations`` are what came in.
    """

    def __init__(self, dimension: int = 8) -> None:
        self.dimension = dimension
        self.script: deque[Callable[[list[str]], Answer | None]] = deque()
        self.requests: list[dict[str, Any]] = []
        self.authorizations: list[str | None] = []
        self.most_at_once = 0
        self._at_once = 0
        self._lock = threading.Lock()
        self._closing = threading.Event()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(handler) -> None:  # noqa: N805 - self is the server
                self._answer(handler)

            def log_message(self, *arguments: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = False
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,))

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}/v1"

    def __enter__(self) -> EmbeddingServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        request = json.loads(handler.rfile.read(int(handler.headers["content-length"])))
        with self._lock:
            self.requests.append(request)
            self.authorizations.append(handler.headers["authorization"])
            step = self.script.popleft() if self.script else self._right_answer
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        result = step(request["input"]) if handler.path == "/v1/embeddings" else Answer(404)
        with self._lock:
            self._at_once -= 1
        if result is None:
            self._closing.wait(30)
            handler.close_connection = True
            return
        handler.send_response(result.status)
        for name, value in {**result.headers, "content-length": str(len(result.body))}.items():
            handler.send_header(name, value)
        handler.end_headers()
        size = 1 if result.pause_seconds else max(1, len(result.body))
        try:
            for start in range(0, len(result.body), size):
                handler.wfile.write(result.body[start : start + size])
                self._closing.wait(result.pause_seconds)
        except ConnectionError:
            handler.close_connection = True

    def _right_answer(self, texts: list[str]) -> Answer:
        return answer(embeddings(texts, self.dimension))
