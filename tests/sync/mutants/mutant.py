"""Mutants: switches that each break one rule of sync in the real code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

Switch = Callable[[], AbstractContextManager[object]]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A broken rule: its name, the rule in words, and the switch that breaks it while it is entered."""

    name: str
    rule: str
    switch: Switch


MUTANTS: dict[str, Mutant] = {}


def mutant(rule: str) -> Callable[[Callable[[], Iterator[None]]], Callable[[], Iterator[None]]]:
    """Register a switch under its function's name."""

    def registered(switch: Callable[[], Iterator[None]]) -> Callable[[], Iterator[None]]:
        name = switch.__name__.replace("_", " ")
        MUTANTS[name] = Mutant(name, rule, contextmanager(switch))
        return switch

    return registered


@contextmanager
def changed(owner: Any, name: str, change: Callable[[Any], Any]) -> Iterator[None]:
    """For the block ``owner.name`` is what ``change`` makes of it."""
    with patch.object(owner, name, change(getattr(owner, name))):
        yield


_CHECKS = ("invariants.py", "occasions.py")


def check_of(error: BaseException) -> str:
    """The invariant that an error comes from, else the error's own name."""
    trace, name = error.__traceback__, type(error).__name__
    while trace is not None:
        code = trace.tb_frame.f_code
        if Path(code.co_filename).name in _CHECKS and not code.co_name.startswith("<"):
            return code.co_name
        trace = trace.tb_next
    return name
