"""Runs: a list of actions that follows from a seed, played in a new world, then quiet, then judged."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from server.store.memory_store import MemoryStore
from tests.sync.actions import ACTIONS, DEVICES, Step, perform
from tests.sync.server_side import Databases, SqliteDatabases
from tests.sync.world import World

STEPS = 60

Places = Callable[[Path], Databases]
"""Where a world in this folder keeps its server's databases."""


@contextmanager
def sqlite_places() -> Iterator[Places]:
    """SQLite files, each world's beginning as a copy of one with empty tables."""
    with tempfile.TemporaryDirectory() as folder:
        template = Path(folder) / "template.db"
        with MemoryStore(f"sqlite:///{template}") as store:
            store.migrate()
        yield lambda own: SqliteDatabases(own, template)


def script(seed: int, steps: int = STEPS) -> list[Step]:
    """The actions of a seed. Each seed has devices and faults of its own, so that each kind of run is had:
    with one fault in many forms, with many, with none."""
    rng = random.Random(seed)
    devices = rng.sample(DEVICES, rng.randint(1, len(DEVICES)))
    faults = [name for name, each in ACTIONS.items() if each.fault]
    chosen = set(rng.sample(faults, rng.choice((0, 2, 4, len(faults)))))
    names = [name for name, each in ACTIONS.items() if not each.fault or name in chosen]
    weights = [ACTIONS[name].weight for name in names]
    quiet = rng.random() < 0.25
    found: list[Step] = []
    for name in rng.choices(names, weights, k=steps):
        arguments = {
            key: rng.choice(devices if key == "device" else choices)
            for key, choices in ACTIONS[name].arguments.items()
        }
        if quiet:
            arguments |= {key: None for key in ("crash",) if arguments.get(key)}
            arguments |= {key: () for key in ("faults",) if key in arguments}
        found.append((name, arguments))
    return found


@contextmanager
def new_world(places: Places, seed: int = 0) -> Iterator[World]:
    """A world for the block."""
    folder = Path(tempfile.mkdtemp(prefix="scrubjay-world-"))
    try:
        world = World(places(folder), folder, seed)
        try:
            yield world
        finally:
            world.close()
    finally:
        shutil.rmtree(folder)


def play(steps: Sequence[Step], places: Places, seed: int = 0) -> None:
    """Play the steps in a new world, end all faults, and judge. AssertionError where a promise is broken."""
    with new_world(places, seed) as world:
        for step in steps:
            perform(world, step)
        world.calm()


def failure(steps: Sequence[Step], places: Places, seed: int = 0) -> BaseException | None:
    """What breaks where the steps are played; None where nothing does."""
    try:
        play(steps, places, seed)
    except Exception as error:
        return error
    return None


def shrink(
    steps: Sequence[Step], places: Places, seed: int = 0, attempts: int = 400
) -> tuple[list[Step], BaseException | None]:
    """Fewer steps that break too, and how: parts are left out as long as something of the kind breaks."""
    best, broken = list(steps), failure(steps, places, seed)
    size = max(1, len(best) // 2)
    while attempts > 0:
        shorter = False
        at = 0
        while at < len(best) and attempts > 0:
            attempts -= 1
            candidate = best[:at] + best[at + size :]
            error = failure(candidate, places, seed)
            if error is not None and _alike(error, broken):
                best, broken, shorter = candidate, error, True
            else:
                at += size
        if size == 1 and not shorter:
            break
        size = max(1, size // 2)
    return best, broken


def _alike(one: BaseException, other: BaseException | None) -> bool:
    return type(one) is type(other) and _place(one) == _place(other)


def _place(error: BaseException | None) -> str:
    """The function in which it was raised."""
    trace = error.__traceback__ if error is not None else None
    name = ""
    while trace is not None:
        name = trace.tb_frame.f_code.co_name
        trace = trace.tb_next
    return name
