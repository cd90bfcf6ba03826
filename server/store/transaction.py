"""Transactions on a shard's database: Core says what the SQL is, the driver's own connection runs it.

A statement costs some 60 µs through ``Connection.execute`` and 5 to 10 on the driver, and an Add is ten of
them under the lock that all writers of a shard share. So each statement is compiled once for the
database's dialect and run with named parameters; the pool and the dialects stay SQLAlchemy's.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import itemgetter
from typing import Any

from sqlalchemy import Dialect, Engine, event
from sqlalchemy.dialects import sqlite
from sqlalchemy.pool import ConnectionPoolEntry, PoolProxiedConnection
from sqlalchemy.sql import ClauseElement

from scrubjay.errors import ScrubjayError, StorageUnavailable
from tenants import database

Row = tuple[Any, ...]
InOrder = Callable[[Mapping[str, object]], Sequence[object]]
_NAMED = re.compile(r":([A-Za-z_]\w*)")
"""A value in a statement: it holds no other colon."""


class LostRace(Exception):
    """Another process wrote first what this unit was about to write; run again, the unit sees it.

    ``error`` is what its caller gets where the unit does not look.
    """

    def __init__(self, error: ScrubjayError) -> None:
        super().__init__(str(error))
        self.error = error


class Transactions:
    """Where transactions on one engine begin; safe for many threads."""

    def __init__(self, engine: Engine, *, read_only: bool) -> None:
        self._engine = engine
        self._read_only = read_only
        self._statements = Statements(engine.dialect)
        self._errors: type[Exception] = engine.dialect.loaded_dbapi.Error
        self._distrusted = 0.0
        event.listen(engine, "connect", _note_opening)
        if engine.dialect.name == "postgresql":
            event.listen(engine, "connect", _read_uuids_as_text)
            self._begin = None
        else:
            self._begin = "BEGIN" if read_only else "BEGIN IMMEDIATE"

    @property
    def dialect_name(self) -> str:
        """``sqlite`` or ``postgresql``."""
        return self._engine.dialect.name

    @contextmanager
    def begin(self) -> Iterator[Transaction]:
        """A transaction for the block: committed at its end unless it is for reading, undone where the
        block raises. StorageUnavailable where the database does not answer, or does not commit."""
        pooled = self._connect()
        transaction = Transaction(pooled.driver_connection, self._statements, self._errors)
        try:
            if self._begin:
                transaction.command(self._begin)
            yield transaction
            if not self._read_only:
                transaction.commit()
        except StorageUnavailable:
            self._distrusted = time.monotonic()
            pooled.invalidate()
            raise
        finally:
            pooled.close()  # undoes what is open

    def joined(self, driver: object) -> Transaction:
        """The transaction that a connection from elsewhere, with the tables in sight, is in."""
        return Transaction(driver, self._statements, self._errors)

    def _connect(self) -> PoolProxiedConnection:
        """A connection that is not older than the last failure: a restart of the database breaks all."""
        try:
            while (pooled := self._engine.raw_connection()).info["opened"] < self._distrusted:
                pooled.invalidate()
                pooled.close()
            return pooled
        except self._errors as error:
            database.raise_mapped(error)

    def close(self) -> None:
        """Close the connections that nobody uses; the others close when they are given back."""
        self._engine.dispose()


class Transaction:
    """Runs statements; each raises StorageUnavailable where the database does not answer."""

    def __init__(self, driver: Any, statements: Statements, errors: type[Exception]) -> None:
        self._driver = driver
        self._statements = statements
        self._errors = errors

    @property
    def dialect_name(self) -> str:
        """``sqlite`` or ``postgresql``."""
        return self._statements.dialect_name

    def first(self, statement: ClauseElement, values: Mapping[str, object]) -> Row | None:
        """The first row."""
        row: Row | None = self._execute(self._statements[statement], values).fetchone()
        return row

    def all(self, statement: ClauseElement, values: Mapping[str, object]) -> list[Row]:
        """Every row."""
        rows: list[Row] = self._execute(self._statements[statement], values).fetchall()
        return rows

    def run(self, statement: ClauseElement, values: Mapping[str, object]) -> int:
        """The count of rows that were written."""
        return int(self._execute(self._statements[statement], values).rowcount)

    def run_many(self, statement: ClauseElement, rows: Sequence[Mapping[str, object]]) -> int:
        """The count of rows that were written, over all of ``rows``, of which there is at least one."""
        if len(rows) == 1:
            return self.run(statement, rows[0])
        sql, in_order = self._statements.of_many(statement)
        cursor = self._driver.cursor()
        try:
            cursor.executemany(sql, rows if in_order is None else map(in_order, rows))
        except self._errors as error:
            database.raise_mapped(error)
        return int(cursor.rowcount)

    def first_of_each(self, statement: ClauseElement, rows: Sequence[Mapping[str, object]]) -> list[Row]:
        """The row that each of ``rows`` gives back, in their order; every one must give one."""
        if self.dialect_name == "sqlite" or len(rows) == 1:
            return [self._execute(self._statements[statement], row).fetchone() for row in rows]
        cursor = self._driver.cursor()
        try:
            cursor.executemany(self._statements[statement], rows, returning=True)
            return [result.fetchone() for result in cursor.results()]
        except self._errors as error:
            database.raise_mapped(error)

    def command(self, sql: str) -> None:
        """A statement without values and rows, such as SAVEPOINT."""
        self._execute(sql)

    def commit(self) -> None:
        """Make it durable."""
        try:
            self._driver.commit()
        except self._errors as error:
            database.raise_mapped(error)

    def _execute(self, *statement: object) -> Any:
        try:
            return self._driver.execute(*statement)
        except self._errors as error:
            database.raise_mapped(error)


class Statements(dict[ClauseElement, str]):
    """Statements as SQL text with named parameters, compiled when first used."""

    def __init__(self, dialect: Dialect) -> None:
        super().__init__()
        self.dialect_name = dialect.name
        self._dialect = sqlite.dialect(paramstyle="named") if dialect.name == "sqlite" else dialect
        self._of_many: dict[ClauseElement, tuple[str, InOrder | None]] = {}

    def of_many(self, statement: ClauseElement) -> tuple[str, InOrder | None]:
        """The statement as it is run for many rows, and what puts a row's values in its order, where it takes
        them so: SQLite looks each one up by its name in every row."""
        known = self._of_many.get(statement)
        if known is None:
            sql = self[statement]
            names = _NAMED.findall(sql) if self.dialect_name == "sqlite" else ()
            known = (_NAMED.sub("?", sql), itemgetter(*names)) if len(names) > 1 else (sql, None)
            self._of_many[statement] = known
        return known

    def __missing__(self, statement: ClauseElement) -> str:
        compiled = statement.compile(dialect=self._dialect)
        sql = str(compiled)
        for name, value in compiled.params.items():
            if value == 0:  # Core's own OFFSET 0
                sql = sql.replace(f":{name}", "0")
            elif value is not None:
                raise ValueError(f"{statement} holds {value!r}; give it as a parameter")
        self[statement] = sql
        return sql


def _note_opening(_connection: object, record: ConnectionPoolEntry) -> None:
    record.info["opened"] = time.monotonic()


def _read_uuids_as_text(connection: Any, _record: object) -> None:
    from psycopg.types.string import TextLoader

    connection.adapters.register_loader("uuid", TextLoader)
