"""Runs: a list of actions that follows from a seed, played in a new world, then quiet, then judged."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scrubjay.memory import JsonValue
from server.store.memory_store import MemoryStore
from tests.sync.actions import ACTIONS, FIELDS, Step, perform
from tests.sync.device import ACME, ALICE, PLACES
from tests.sync.server_side import Databases, SqliteDatabases
from tests.sync.world import SLOTS, World

STEPS = 70
ALICES = tuple(name for name, place in PLACES.items() if (place.incarnation, place.subject) == (ACME, ALICE))
STRANGERS = tuple(name for name in PLACES if name not in ALICES)

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
    """The actions of a seed. Each seed has devices, slots, fields and faults of its own, few enough to meet:
    one fault in many forms, or many, or none."""
    rng = random.Random(seed)
    devices = rng.sample(ALICES, rng.randint(1, len(ALICES))) + rng.sample(
        STRANGERS, rng.choice((0, 0, 1, 2))
    )
    chosen: dict[str, Sequence[Any]] = {
        "device": devices,
        "slot": rng.sample(range(SLOTS), rng.choice((1, 1, 2, SLOTS))),
        "value": _some_values(rng),
    }
    faults = [name for name in sorted(ACTIONS) if ACTIONS[name].fault]
    faults = rng.sample(faults, rng.choice((0, 2, 4, len(faults))))
    names = [name for name in sorted(ACTIONS) if not ACTIONS[name].fault or name in faults]
    if rng.random() < 0.25:  # lines and devices that hold
        chosen |= {"crash": (None,), "faults": ((),)}
    weights = [ACTIONS[name].weight for name in names]
    return [
        (name, {key: rng.choice(chosen.get(key, all_)) for key, all_ in ACTIONS[name].arguments.items()})
        for name in rng.choices(names, weights, k=steps)
    ]


def _some_values(rng: random.Random) -> list[tuple[str, JsonValue]]:
    fields = set(rng.sample(sorted(FIELDS), rng.choice((1, 2, 4, len(FIELDS)))))
    if rng.random() < 0.4:
        fields |= {"privacy_level", "scope"}
    return [(field, value) for field in sorted(fields) for value in FIELDS[field]]


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


def play(
    steps: Sequence[Step], places: Places, seed: int = 0, look: Callable[[World], object] = lambda _: None
) -> Counter[str]:
    """Play the steps in a new world, end all faults, and judge; what happened, how often.

    ``look`` sees the world as it is then.

    AssertionError where a promise is broken.
    """
    with new_world(places, seed) as world:
        for step in steps:
            perform(world, step)
        world.calm()
        look(world)
        return world.events


def failure(
    steps: Sequence[Step], places: Places, seed: int = 0, events: Counter[str] | None = None
) -> BaseException | None:
    """What breaks where the steps are played; None where nothing does, and ``events`` count it."""
    try:
        happened = play(steps, places, seed)
        if events is not None:
            events.update(happened)
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
