"""Servers in processes of their own; whatever a test leaves running ends with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from fault.process import ServerProcess

Start = Callable[..., ServerProcess]


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """Where a server keeps its data; made by its first start."""
    return tmp_path / "data"


@pytest.fixture
def start(data_dir: Path) -> Iterator[Start]:
    """Starts a server on the data directory, or on another one, with these settings."""
    with ExitStack() as stack:

        def started(where: Path = data_dir, **settings: str) -> ServerProcess:
            server = ServerProcess(where, **settings)
            stack.callback(server.close)
            return server

        yield started
