"""Taking guards away, one at a time, and asking the check that must notice."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from tests.isolation.fields import text_of
from tests.isolation.guards import Guard
from tests.isolation.home import Home
from tests.isolation.reads import told
from tests.isolation.walk import Nothing, cases, check
from tests.isolation.world import AHEAD, Clock, World, build, leave, one_database, served, stored_of

READS, LEAVING, STORED = "reads", "leaving", "stored"
"""Checks beside those of fields: what a tenant is told of its own, what it is told as it goes, and that rows
of others stay as it goes."""


def notices(guard: Guard, world: World, folder: Path, which: str) -> bool:
    """Whether the check notices that the guard is not there; ``folder`` is for a server's data."""
    with guard.switch():
        return which in _noticed(guard, world, folder, which)


def first_to_notice(guard: Guard, world: World, folder: Path) -> str | None:
    """The first check that notices, of all; None where nobody does."""
    with guard.switch():
        return next(_noticed(guard, world, folder), None)


def _noticed(guard: Guard, world: World, folder: Path, which: str = "") -> Iterator[str]:
    """The checks that notice anything, of all or the one named."""
    try:
        yield from _checked(_fresh(guard, world, folder), which)
    except AssertionError:  # the others could not even be filled, or served
        yield READS


def _fresh(guard: Guard, world: World, folder: Path) -> World:
    """The world for one run: a copy, or made anew where the guard is in what is made."""
    settings = world.settings.model_copy(update={"data_dir": folder, "shards": ""})
    if guard.anew:
        return build(settings)
    shutil.copytree(world.settings.data_dir, folder)
    return replace(world, settings=one_database(settings))


def _checked(world: World, which: str) -> Iterator[str]:
    clock = Clock(AHEAD)
    with served(world, clock) as home:
        marks, stored = world.marks(), stored_of(world.settings, world.lives())
        if which in ("", READS) and _fails(lambda: _read(world, home)):
            yield READS
        known: Nothing = {}
        for case in cases(world.others):
            name = f"{case.name} {text_of(case.path)}"
            if which in ("", name) and _fails(lambda case=case: check(case, home, marks, known)):
                yield name
        if which in ("", LEAVING, STORED) and _fails(lambda: leave(home, clock, marks)):
            yield LEAVING
        if which in ("", STORED) and stored_of(world.settings, world.lives()) != stored:
            yield STORED


def _fails(step: Callable[[], object]) -> bool:
    try:
        step()
    except AssertionError:
        return True
    return False


def _read(world: World, home: Home) -> None:
    now = told(home, world.marks())
    assert now == world.before
