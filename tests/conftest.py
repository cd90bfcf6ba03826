"""Databases for tests: a SQLite file or a PostgreSQL database of its own for each test."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from server.store.memory_store import MemoryStore
from tests.postgres import PostgresServer, database_name, running_postgres

settings.register_profile("thousands", max_examples=5_000, deadline=None)
"""For a long look at what is fuzzed: ``pytest --hypothesis-profile=thousands --timeout=0 FILE``."""


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """The PostgreSQL server of this session; fails where none can be had."""
    with running_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def shard_template(postgres: PostgresServer) -> Iterator[str]:
    """The name of a PostgreSQL database that holds a shard's empty tables."""
    url = postgres.create()
    _migrate(url)
    yield database_name(url)
    postgres.drop(url)


@pytest.fixture(scope="session")
def shard_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file that holds a shard's empty tables."""
    path = tmp_path_factory.mktemp("shard") / "template.db"
    _migrate(f"sqlite:///{path}")
    return path


def _migrate(url: str) -> None:
    with MemoryStore(url) as store:
        store.migrate()


@pytest.fixture(params=["sqlite", "postgresql"])
def backend(request: pytest.FixtureRequest) -> str:
    """Each database in turn."""
    return str(request.param)


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> Iterator[str]:
    """The URL of an empty PostgreSQL database."""
    url = postgres.create()
    yield url
    postgres.drop(url)


@pytest.fixture
def postgres_shard_url(postgres: PostgresServer, shard_template: str) -> Iterator[str]:
    """The URL of a PostgreSQL database with a shard's empty tables."""
    url = postgres.create(shard_template)
    yield url
    postgres.drop(url)


@pytest.fixture
def database_url(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database, on each of the two."""
    if backend == "postgresql":
        return str(request.getfixturevalue("postgres_url"))
    return f"sqlite:///{tmp_path / 'database.db'}"


@pytest.fixture
def shard_url(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database with a shard's empty tables, on each of the two."""
    if backend == "postgresql":
        return str(request.getfixturevalue("postgres_shard_url"))
    path = shutil.copyfile(request.getfixturevalue("shard_file"), tmp_path / "shard.db")
    return f"sqlite:///{path}"
