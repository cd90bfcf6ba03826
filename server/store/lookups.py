"""Lookups of a list of ids, which is one parameter: an array in PostgreSQL, JSON text in SQLite; and of keys
of some columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sqlalchemy import Column, ColumnElement, any_, bindparam, func, select, tuple_
from sqlalchemy.dialects import postgresql

from scrubjay.memory import canonical_json

Among = Callable[[Column[str]], ColumnElement[bool]]
"""Makes the condition that a column of UUIDs is one of the parameter ``ids``."""


def _in_array(column: Column[str]) -> ColumnElement[bool]:
    return column == any_(bindparam("ids", type_=postgresql.ARRAY(postgresql.UUID(as_uuid=False))))


def _in_json(column: Column[str]) -> ColumnElement[bool]:
    return column.in_(select(func.json_each(bindparam("ids")).table_valued("value").c.value))


AMONG: dict[str, Among] = {"postgresql": _in_array, "sqlite": _in_json}
"""By dialect."""


def ids_value(dialect_name: str, ids: Iterable[str]) -> object:
    """The value of the parameter ``ids``."""
    return list(ids) if dialect_name == "postgresql" else canonical_json(list(ids))


def as_one(columns: Sequence[ColumnElement[Any]]) -> Any:
    """The columns of a key as what is compared with another key's."""
    return columns[0] if len(columns) == 1 else tuple_(*columns)
