"""Lookups of a list of ids, which is one parameter: an array in PostgreSQL, JSON text in SQLite."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sqlalchemy import Column, ColumnElement, any_, bindparam, func, select
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
