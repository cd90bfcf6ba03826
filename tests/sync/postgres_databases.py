"""A world's server on PostgreSQL."""

from __future__ import annotations

from tests.postgres import PostgresServer, database_name


class PostgresDatabases:
    """Databases on one server, which ``drop`` gives back."""

    def __init__(self, server: PostgresServer, template: str) -> None:
        self._server = server
        self._template = template
        self._made: list[str] = []

    def first(self) -> str:
        """See Databases."""
        return self._create(self._template)

    def crashed(self, url: str) -> str:
        """See Databases: the database outlives the server that uses it."""
        return url

    def copied(self, url: str) -> str:
        """See Databases."""
        return self._create(database_name(url))

    def _create(self, template: str) -> str:
        self._made.append(self._server.create(template))
        return self._made[-1]

    def drop(self) -> None:
        """Drop all of them."""
        while self._made:
            self._server.drop(self._made.pop())
