"""What several contract suites share: a server in this process and devices of its one user."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.devices import Device, Server


@pytest.fixture
def server(shard_url: str, tmp_path: Path) -> Iterator[Server]:
    with Server(shard_url, tmp_path) as server:
        yield server


@pytest.fixture
def phone(server: Server) -> Device:
    return server.device("phone")


@pytest.fixture
def laptop(server: Server) -> Device:
    return server.device("laptop")
