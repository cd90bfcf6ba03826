"""Looking into the databases of a server, past it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import psycopg

from server.config import Settings


def rows_of(settings: Settings, query: str) -> list[tuple[Any, ...]]:
    """What the query finds in all shards."""
    found: list[tuple[Any, ...]] = []
    for url in settings.shard_urls().values():
        if url.startswith("sqlite"):
            with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
                found += connection.execute(query).fetchall()
        else:
            with psycopg.connect(url) as server:
                found += server.execute(query).fetchall()  # type: ignore[call-overload]  # a test's own text
    return found
