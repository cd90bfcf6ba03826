"""Where the worlds of these tests keep their databases."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.sync.runs import Places, sqlite_places


@pytest.fixture(scope="session")
def places() -> Iterator[Places]:
    """SQLite files."""
    with sqlite_places() as found:
        yield found
