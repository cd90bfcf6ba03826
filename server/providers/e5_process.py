"""The server's end of the e5 worker: starts it, talks to it in turn, and starts it again after it died."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scrubjay.errors import ModelUnavailable
from server.providers import e5_worker
from server.providers.embedder import TextKind
from server.providers.turnstile import Turnstile

DIMENSION = 384
_BATCH_TEXTS = 4
"""Texts the worker gets at once. More are not faster, and a query waits for one batch of each caller."""
_REPLY_SECONDS = 60.0
"""A batch takes 2 s at worst; a worker that is silent for so long hangs."""


class E5Process:
    """One worker process at a time, shared by all threads in the order they ask.

    It starts with the first call. ``program`` is the Python file that speaks the worker's protocol.
    """

    def __init__(
        self, program: Path = Path(e5_worker.__file__), *, reply_seconds: float = _REPLY_SECONDS
    ) -> None:
        self._program = program
        self._reply_seconds = reply_seconds
        self._turnstile = Turnstile()
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The process id of the worker, or None before the first call and after close."""
        process = self._process
        return process.pid if process else None

    def embed(self, texts: list[str], kind: TextKind) -> NDArray[np.float32]:
        """Raw rows of texts of one kind, shape (len(texts), 384).

        Raises ModelUnavailable where the worker dies, hangs, or answers something else; the next call starts
        a new one.
        """
        rows = np.empty((len(texts), DIMENSION), dtype=np.float32)
        for start in range(0, len(texts), _BATCH_TEXTS):
            batch = texts[start : start + _BATCH_TEXTS]
            with self._turnstile:
                rows[start : start + len(batch)] = self._ask(batch, kind)
        return rows

    def close(self) -> None:
        """Kill the worker; the call that waits for it raises ModelUnavailable. Later calls raise it too."""
        self._closed = True
        if process := self._process:
            process.kill()
        with self._turnstile:
            self._discard()

    def _ask(self, batch: list[str], kind: TextKind) -> NDArray[np.float32]:
        if self._closed:
            raise ModelUnavailable("the e5 embedder is closed; open a new one")
        try:
            process = self._running()
            request = {"kind": kind.value, "texts": batch}
            _send(process, json.dumps(request, ensure_ascii=False).encode())
            reply = _receive(process, time.monotonic() + self._reply_seconds)
            return np.frombuffer(reply, dtype="<f4").reshape(len(batch), DIMENSION)
        except (OSError, EOFError, ValueError) as error:
            self._discard()
            raise ModelUnavailable(
                "the e5 worker process died or hangs; the next call starts a new one"
            ) from error

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process and self._process.poll() is not None:
            self._discard()
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(self._program)],  # -P: its folder must not shadow packages
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,  # Ctrl-C is for the server, which closes its worker when it is done
            )
        return self._process

    def _discard(self) -> None:
        if process := self._process:
            self._process = None
            process.kill()
            with process:  # closes the pipes and waits
                pass


def _send(process: subprocess.Popen[bytes], payload: bytes) -> None:
    assert process.stdin is not None
    rest = memoryview(e5_worker.HEADER.pack(len(payload)) + payload)
    while rest:
        rest = rest[os.write(process.stdin.fileno(), rest) :]


def _receive(process: subprocess.Popen[bytes], deadline: float) -> bytes:
    (length,) = e5_worker.HEADER.unpack(_read(process, e5_worker.HEADER.size, deadline))
    return _read(process, length, deadline)


def _read(process: subprocess.Popen[bytes], length: int, deadline: float) -> bytes:
    assert process.stdout is not None
    poll = select.poll()
    poll.register(process.stdout.fileno(), select.POLLIN)
    received = b""
    while len(received) < length:
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise TimeoutError
        part = os.read(process.stdout.fileno(), length - len(received))
        if not part:
            raise EOFError
        received += part
    return received
