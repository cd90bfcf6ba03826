"""The guards of the boundary between tenants: each place where code keeps one tenant's apart from another's.

A guard's switch takes it away in the real code while it is entered. Those of the shard's statements are
found, not listed: every statement that compares a row's incarnation is one.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any
from unittest.mock import patch

from sqlalchemy import BinaryExpression, ColumnClause, Select, TextClause, UpdateBase, text, true
from sqlalchemy.sql import ClauseElement, visitors
from sqlalchemy.sql.operators import eq, in_op

import server.store

Switch = Callable[[], AbstractContextManager[object]]


@dataclass(frozen=True, slots=True)
class Guard:
    """What it is called, the rule that it holds in words, and the switch that takes it away.

    ``anew``: it is taken away before anything is made, for it is in what callers are given.
    """

    name: str
    rule: str
    switch: Switch
    anew: bool = False


GUARDS: dict[str, Guard] = {}


def guard(
    rule: str, *, anew: bool = False
) -> Callable[[Callable[[], Iterator[None]]], Callable[[], Iterator[None]]]:
    """Register a switch under its function's name."""

    def registered(switch: Callable[[], Iterator[None]]) -> Callable[[], Iterator[None]]:
        name = switch.__name__.replace("_", " ")
        GUARDS[name] = Guard(name, rule, contextmanager(switch), anew)
        return switch

    return registered


# --- the shard's statements -----------------------------------------------------------------------


def widened(statement: Any, forgets: Callable[[Any], bool]) -> Any:
    """The statement without the comparisons that it ``forgets``."""

    if isinstance(statement, TextClause):
        return text(_OF_LIFE.sub("1 = 1", statement.text))

    def widen(element: Any, **_: object) -> Any:
        return true() if forgets(element) else None

    return visitors.replacement_traverse(statement, {}, widen)


def of_one_life(element: Any) -> bool:
    """Whether it says that a row is of the life that is given, or of one of those."""
    if isinstance(element, TextClause):
        return bool(_OF_LIFE.search(element.text))
    return _is_of_lives(element) and not _is_column(element.right)


_OF_LIFE = re.compile(r"t\.incarnation = (:incarnation|CAST\(:incarnation AS uuid\))")
"""How texts say it."""


def of_the_same_life(element: Any) -> bool:
    """Whether it says that two rows are of the same life."""
    return _is_of_lives(element) and _is_column(element.right)


def _is_of_lives(element: Any) -> bool:
    return (
        isinstance(element, BinaryExpression) and element.operator in (eq, in_op) and _is_column(element.left)
    )


def _is_column(element: Any) -> bool:
    return isinstance(element, ColumnClause) and element.name == "incarnation"


@dataclass(frozen=True, slots=True)
class Held:
    """A statement, and where the code finds it: in an owner's attribute or key, maybe one of several."""

    path: str
    owner: Any
    key: str
    statement: Any
    number: int | None = None
    forgets: Callable[[Any], bool] = of_one_life

    @contextmanager
    def widened(self) -> Iterator[None]:
        """The switch."""
        wide = widened(self.statement, self.forgets)
        if self.number is not None:
            many = list(
                self.owner[self.key] if isinstance(self.owner, dict) else getattr(self.owner, self.key)
            )
            many[self.number] = wide
            wide = tuple(many)
        if isinstance(self.owner, dict):
            with patch.dict(self.owner, {self.key: wide}):
                yield
        else:
            with patch.object(self.owner, self.key, wide):
                yield


def _statements() -> Iterator[Held]:
    """Every statement of the store that compares lives and is run as it is."""
    for found in pkgutil.iter_modules(server.store.__path__):
        if found.ispkg:
            continue
        module = importlib.import_module(f"server.store.{found.name}")
        own = vars(module).keys() - _imported(module)
        for name in sorted(own):
            for one in _held(f"{found.name}.{name}", module, name, vars(module)[name]):
                if isinstance(one.statement, Select | UpdateBase | TextClause) and one.path not in PARTS:
                    yield from _forgetful(one)


def _imported(module: ModuleType) -> set[str]:
    """What a module has from others, which patch it there."""
    nodes = ast.walk(ast.parse(inspect.getsource(module)))
    names = (node.names for node in nodes if isinstance(node, ast.ImportFrom))
    return {alias.asname or alias.name for some in names for alias in some}


def _forgetful(one: Held) -> Iterator[Held]:
    elements = list(visitors.iterate(one.statement))
    if any(map(of_one_life, elements)):
        yield one
    if any(map(of_the_same_life, elements)):
        yield replace(one, path=f"{one.path} joined", forgets=of_the_same_life)


PARTS = frozenset({"replicas._TOUCHED", "vector_reading._BARE", "writing._EXPIRED"})
"""What is never run by itself: statements are made of it, which forget it with their own."""


def _held(path: str, owner: Any, key: str, held: Any) -> Iterator[Held]:
    """What a name holds: a statement, several, some by name, or an object with some; of each dialect."""
    if isinstance(held, ClauseElement):
        yield Held(path, owner, key, held)
    elif isinstance(held, tuple | list):
        statements = [(n, one) for n, one in enumerate(held) if isinstance(one, ClauseElement)]
        yield from (Held(f"{path}[{n}]", owner, key, one, n) for n, one in statements)
    elif isinstance(held, dict) and "sqlite" in held:
        yield from _held(path, held, "sqlite", held["sqlite"])
        yield from _held(f"{path} on PostgreSQL", held, "postgresql", held["postgresql"])
    elif isinstance(held, dict):
        statements = [(name, one) for name, one in held.items() if isinstance(one, ClauseElement)]
        yield from (Held(f"{path}.{name}", held, name, one) for name, one in statements)
    elif type(held).__name__ in ("_Lookups", "_Statements", "RowStatements"):
        for name, one in sorted(vars(held).items()):
            yield from _held(f"{path}.{name}", held, name, one)


STATEMENTS: dict[str, Held] = {one.path: one for one in _statements()}
"""The shard's statements that a guard is in; the twins tell where it is missing."""
for _one in STATEMENTS.values():
    GUARDS[_one.path] = Guard(_one.path, "A statement touches the rows of one life.", _one.widened)
