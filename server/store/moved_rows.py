"""Whole rows of any table of a shard, by primary key: how they are read, written, deleted and followed."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from sqlalchemy import (
    Boolean,
    Column,
    Delete,
    Insert,
    Integer,
    LargeBinary,
    Select,
    Table,
    Text,
    bindparam,
    delete,
    func,
    select,
    text,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.elements import TextClause

from server.store.lookups import as_one
from server.store.tables import metadata, moves, purges, touched
from server.store.transaction import Row
from tenants.tenant import Incarnation

STAYING = frozenset({moves.name, touched.name, purges.name})
"""What says how a tenant stands in one shard, and is not the tenant's."""
MOVED_TABLES = tuple(sorted(set(metadata.tables) - STAYING))
"""Every table that holds anything of a tenant. All are followed in one way: row by row, by primary key."""

Key: TypeAlias = tuple[Any, ...]
"""A row's primary key but the incarnation."""
EVENTS = (("i", "INSERT", "NEW"), ("u", "UPDATE", "NEW"), ("d", "DELETE", "OLD"))
"""What triggers follow: a letter of their names, what happens, and the row that it happens to."""


def key_of(table: str, row: Row) -> Key:
    """The key of a whole row."""
    return tuple(row[place] for place in _KEY_PLACES[table])


def key_to_json(key: Key) -> list[Any]:
    """A key as JSON, with bytes as hexadecimal digits."""
    return [part.hex() if isinstance(part, bytes) else part for part in key]


def key_from_json(table: str, parts: Sequence[Any]) -> Key:
    """The key again, also of what a trigger made of it, in which PostgreSQL has texts alone."""
    return tuple(_part_from_json(column, part) for column, part in zip(_KEYS[table], parts, strict=True))


def _part_from_json(column: Column[Any], part: Any) -> Any:
    if isinstance(column.type, LargeBinary):
        return bytes.fromhex(part.removeprefix("\\x"))
    return int(part) if isinstance(column.type, Integer) else part


def key_values(table: str, key: Key) -> dict[str, Any]:
    """The parameters of a key in PAGES and DELETES."""
    return {f"key_{column.name}": part for column, part in zip(_KEYS[table], key, strict=True)}


def row_values(table: str, row: Row) -> dict[str, Any]:
    """A whole row as the parameters of an insert. SQLite has numbers for truths, which PostgreSQL does not
    take for them."""
    values = dict(zip(_NAMES[table], row, strict=True))
    for name in _TRUTHS[table]:
        values[name] = bool(values[name])
    return values


def trigger_names(incarnation: Incarnation, table: str) -> list[str]:
    """The triggers that follow the tenant's rows in a table."""
    return [f"moving_{uuid.UUID(incarnation).hex}_{table}_{letter}" for letter, _, _ in EVENTS]


class _Sqlite:
    """What SQLite says in its own way."""

    insert: Callable[[Table], Any] = staticmethod(sqlite.insert)

    @classmethod
    def trigger(cls, incarnation: Incarnation, table: str, name: str, event: str, row: str) -> str:
        life = str(uuid.UUID(incarnation))
        parts = ", ".join(cls._part(row, column) for column in _KEYS[table])
        touch = f"touched VALUES ('{life}', lower(hex(randomblob(16))), '{table}', json_array({parts}))"
        when = f"{name} AFTER {event} ON {table} WHEN {row}.incarnation = '{life}'"
        return f"CREATE TRIGGER {when} BEGIN INSERT INTO {touch}; END"

    @classmethod
    def rows(cls, table: Table) -> TextClause:
        columns = ", ".join(f"t.{name}" for name in _NAMES[table.name])
        same = "".join(
            f" AND {cls._part('t', column)} = json_extract(k.value, '$[{n}]')"
            for n, column in enumerate(_KEYS[table.name])
        )
        found = f"json_each(:keys) AS k CROSS JOIN {table.name} AS t WHERE t.incarnation = :incarnation{same}"
        return text(f"SELECT {columns} FROM {found}")  # noqa: S608 - our own names

    @staticmethod
    def keys_value(_table: str, keys: Sequence[Key]) -> dict[str, Any]:
        return {"keys": json.dumps([key_to_json(key) for key in keys], ensure_ascii=False)}

    @staticmethod
    def _part(row: str, column: Column[Any]) -> str:
        value = f"{row}.{column.name}"
        return f"lower(hex({value}))" if isinstance(column.type, LargeBinary) else value


class _Postgresql:
    """What PostgreSQL says in its own way."""

    insert: Callable[[Table], Any] = staticmethod(postgresql.insert)

    @staticmethod
    def trigger(incarnation: Incarnation, table: str, name: str, event: str, row: str) -> str:
        life = str(uuid.UUID(incarnation))
        names = ", ".join(f"'{column.name}'" for column in _KEYS[table])
        return (
            f"CREATE TRIGGER {name} AFTER {event} ON {table} FOR EACH ROW "
            f"WHEN ({row}.incarnation = '{life}'::uuid) EXECUTE FUNCTION scrubjay_touch({names})"
        )

    @staticmethod
    def rows(table: Table) -> TextClause:
        columns, keys = ", ".join(f"t.{name}" for name in _NAMES[table.name]), _KEYS[table.name]
        of_tenant = "t.incarnation = CAST(:incarnation AS uuid)"
        if not keys:
            return text(f"SELECT {columns} FROM {table.name} AS t WHERE {of_tenant}")  # noqa: S608 - our own names
        arrays = ", ".join(f"CAST(:key_{column.name} AS {_array_of(column)})" for column in keys)
        names = ", ".join(column.name for column in keys)
        same = "".join(f" AND t.{column.name} = k.{column.name}" for column in keys)
        found = f"unnest({arrays}) AS k ({names}) JOIN {table.name} AS t ON {of_tenant}{same}"
        return text(f"SELECT {columns} FROM {found}")  # noqa: S608 - our own names

    @staticmethod
    def keys_value(table: str, keys: Sequence[Key]) -> dict[str, Any]:
        return {f"key_{column.name}": [key[n] for key in keys] for n, column in enumerate(_KEYS[table])}


def _array_of(column: Column[Any]) -> str:
    if isinstance(column.type, LargeBinary):
        return "bytea[]"
    if isinstance(column.type, Integer):
        return "bigint[]"
    return "text[]" if isinstance(column.type, Text) else "uuid[]"


def _page(table: Table) -> Select[Any]:
    page = select(*table.c).where(table.c.incarnation == bindparam("incarnation"))
    return page.order_by(*table.primary_key).limit(bindparam("limit"))


def _next_page(table: Table) -> Select[Any] | None:
    keys = _KEYS[table.name]
    if not keys:
        return None
    begin = [bindparam(f"key_{column.name}", type_=column.type) for column in keys]
    return _page(table).where(as_one(keys) > as_one(begin))


def _deletion(table: Table) -> Delete:
    same = [column == bindparam(f"key_{column.name}", type_=column.type) for column in _KEYS[table.name]]
    return delete(table).where(table.c.incarnation == bindparam("incarnation"), *same)


def _put(table: Table, insert: Callable[[Table], Any]) -> Insert:
    put = insert(table)
    rest = {column.name: put.excluded[column.name] for column in table.c if not column.primary_key}
    if not rest:
        only: Insert = put.on_conflict_do_nothing()
        return only
    over: Insert = put.on_conflict_do_update(index_elements=list(table.primary_key), set_=rest)
    return over


_TABLES: Mapping[str, Table] = {name: metadata.tables[name] for name in MOVED_TABLES}
_NAMES = {name: table.c.keys() for name, table in _TABLES.items()}
_KEYS = {
    name: [column for column in table.primary_key if column.name != "incarnation"]
    for name, table in _TABLES.items()
}
_KEY_PLACES = {name: [_NAMES[name].index(column.name) for column in keys] for name, keys in _KEYS.items()}
_TRUTHS = {
    name: [column.name for column in table.c if isinstance(column.type, Boolean)]
    for name, table in _TABLES.items()
}
FIRST_PAGES = {name: _page(table) for name, table in _TABLES.items()}
NEXT_PAGES = {name: _next_page(table) for name, table in _TABLES.items()}
"""None where a tenant has one row in the table."""
DELETES = {name: _deletion(table) for name, table in _TABLES.items()}
COUNTS = {
    name: select(func.count()).select_from(table).where(table.c.incarnation == bindparam("incarnation"))
    for name, table in _TABLES.items()
}


class RowStatements:
    """The statements that each dialect says in its own way."""

    def __init__(self, dialect: type[_Sqlite] | type[_Postgresql]) -> None:
        self.puts = {name: _put(table, dialect.insert) for name, table in _TABLES.items()}
        self.rows = {name: dialect.rows(table) for name, table in _TABLES.items()}
        self.keys_value = dialect.keys_value
        self._trigger = dialect.trigger

    def triggers(self, incarnation: Incarnation, table: str) -> dict[str, str]:
        """What makes the triggers that follow the tenant's rows in a table, by their names."""
        names = trigger_names(incarnation, table)
        return {
            name: self._trigger(incarnation, table, name, event, row)
            for name, (_, event, row) in zip(names, EVENTS, strict=True)
        }


ROW_STATEMENTS = {"sqlite": RowStatements(_Sqlite), "postgresql": RowStatements(_Postgresql)}
