"""The guards of the boundary between tenants: each place where code keeps one tenant's apart from another's.

A guard's switch takes it away in the real code while it is entered. Those of the shard's statements are
found, not listed: every statement that compares a row's incarnation is one.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from sqlalchemy import BinaryExpression, BindParameter, Select, UpdateBase, true
from sqlalchemy.sql import ClauseElement, visitors
from sqlalchemy.sql.operators import eq

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


def widened(statement: Any) -> Any:
    """The statement for every tenant's rows."""

    def widen(element: Any, **_: object) -> Any:
        return true() if _compares_lives(element) else None

    return visitors.replacement_traverse(statement, {}, widen)


def _compares_lives(element: Any) -> bool:
    return (
        isinstance(element, BinaryExpression)
        and element.operator is eq
        and getattr(element.left, "name", "") == "incarnation"
        and isinstance(element.right, BindParameter)
    )


@dataclass(frozen=True, slots=True)
class _Held:
    """A statement, and where the code finds it: in an owner's attribute or key, maybe one of several."""

    path: str
    owner: Any
    key: str
    statement: Any
    number: int | None = None

    @contextmanager
    def widened(self) -> Iterator[None]:
        """The switch."""
        wide = widened(self.statement)
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


def _statements() -> Iterator[_Held]:
    """Every statement of the store that compares lives and is run as it is."""
    for found in pkgutil.iter_modules(server.store.__path__):
        module = None if found.ispkg else importlib.import_module(f"server.store.{found.name}")
        for name, held in sorted(vars(module).items()) if module else ():
            for one in _held(f"{found.name}.{name}", module, name, held):
                if isinstance(one.statement, Select | UpdateBase) and _compares(one.statement):
                    yield one


def _compares(statement: ClauseElement) -> bool:
    return any(map(_compares_lives, visitors.iterate(statement)))


def _held(path: str, owner: Any, key: str, held: Any) -> Iterator[_Held]:
    """What a name holds: a statement, several, some by name, or an object with some."""
    if isinstance(held, ClauseElement):
        yield _Held(path, owner, key, held)
    elif isinstance(held, tuple | list):
        statements = [(n, one) for n, one in enumerate(held) if isinstance(one, ClauseElement)]
        yield from (_Held(f"{path}[{n}]", owner, key, one, n) for n, one in statements)
    elif isinstance(held, dict) and "sqlite" in held:
        yield from _held(path, held, "sqlite", held["sqlite"])
    elif isinstance(held, dict):
        statements = [(name, one) for name, one in held.items() if isinstance(one, ClauseElement)]
        yield from (_Held(f"{path}.{name}", held, name, one) for name, one in statements)
    elif type(held).__name__ in ("_Lookups", "_Statements"):
        for name, one in sorted(vars(held).items()):
            yield from _held(f"{path}.{name}", held, name, one)


for _one in _statements():
    GUARDS[_one.path] = Guard(_one.path, "A statement touches the rows of one life.", _one.widened)
