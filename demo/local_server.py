"""A Scrubjay server of the demo's own: embedded databases in a temporary folder, gone afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

ROOT = Path(__file__).parent.parent
START_SECONDS = 60
STOP_SECONDS = 15


class ServerFailed(Exception):
    """The server did not start; the message holds its last words."""


@dataclass(frozen=True, slots=True)
class LocalServer:
    """A running server: where it serves, and the keys its first start printed."""

    address: str
    admin_key: str = field(repr=False)
    service_key: str = field(repr=False)


@contextmanager
def local_server(
    embedder: str = "lite", settings: Mapping[str, str] = MappingProxyType({})
) -> Iterator[LocalServer]:
    """A server on a free port for the block; its settings are the defaults, but for these, whatever the
    environment says."""
    with tempfile.TemporaryDirectory(prefix="scrubjay-demo-") as folder:
        own = {name: value for name, value in os.environ.items() if not name.startswith("SCRUBJAY_")}
        own |= {
            "SCRUBJAY_LISTEN": "127.0.0.1:0",
            "SCRUBJAY_DATA_DIR": str(Path(folder) / "data"),
            "SCRUBJAY_EMBEDDER": embedder,
            **settings,
        }
        log = Path(folder) / "log"
        with (
            log.open("w") as errors,
            subprocess.Popen(
                [sys.executable, "-m", "server", "serve"],
                cwd=ROOT,
                env=own,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            ) as process,
        ):
            try:
                yield _started(process, log)
            finally:
                _stop(process)


def _started(process: subprocess.Popen[str], log: Path) -> LocalServer:
    """What the server prints when it serves. A start that hangs is ended, and so has no last words."""
    too_long = threading.Timer(START_SECONDS, process.kill)
    too_long.start()
    try:
        keys: dict[str, str] = {}
        for line in process.stdout or ():
            if line.startswith("serving on "):
                address = line.removeprefix("serving on ").strip()
                return LocalServer(address, keys["platform admin key"], keys["service key"])
            name, _, key = line.strip().rpartition(": ")
            for known in ("platform admin key", "service key"):
                if name.strip().endswith(known):
                    keys[known] = key.strip()
        words = log.read_text().strip().splitlines()
        raise ServerFailed(f"the server did not start: {words[-1] if words else 'it said nothing'}")
    finally:
        too_long.cancel()


def _stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
