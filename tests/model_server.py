"""A model's HTTP server for tests: answers rightly, or as its script says."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

Asked = TypeVar("Asked")


@dataclass(frozen=True)
class Answer:
    """One HTTP answer."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    pause_seconds: float = 0.0
    """Between one byte of the body and the next."""
    hangs_up: bool = False
    """Before the second half of the body."""


def silence() -> Answer | None:
    """No answer until the server closes."""
    return None


class ModelServer(Generic[Asked]):
    """``POST <path>`` on a free port of this machine.

    Each request takes the next step of ``script``, a function of what ``asked`` reads of it; after the last
    one every request is answered by ``right``. ``requests`` and ``authorizations`` are what came in.
    """

    def __init__(
        self, path: str, asked: Callable[[dict[str, Any]], Asked], right: Callable[[Asked], Answer]
    ) -> None:
        self.path = path
        self._asked = asked
        self._right = right
        self.script: deque[Callable[[Asked], Answer | None]] = deque()
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
    def url(self) -> str:
        """Where it is asked."""
        return f"http://127.0.0.1:{self._http.server_port}{self.path}"

    @property
    def base_url(self) -> str:
        """The part of the URL that settings of OpenAI-compatible servers have."""
        return f"http://127.0.0.1:{self._http.server_port}/v1"

    def __enter__(self) -> Self:
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
            step = self.script.popleft() if self.script else self._right
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        result = step(self._asked(request)) if handler.path == self.path else Answer(404)
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
        body = result.body[: len(result.body) // 2] if result.hangs_up else result.body
        handler.close_connection = handler.close_connection or result.hangs_up
        size = 1 if result.pause_seconds else max(1, len(body))
        try:
            for start in range(0, len(body), size):
                handler.wfile.write(body[start : start + size])
                self._closing.wait(result.pause_seconds)
        except ConnectionError:
            handler.close_connection = True
