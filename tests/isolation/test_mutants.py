"""A guard is missed where it is taken away. Each run of the tests takes some of them away."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.config import Settings
from tests.isolation.broken import ROOMS
from tests.isolation.catches import CATCHES, IMPLIED
from tests.isolation.guards import GUARDS, STATEMENTS
from tests.isolation.mutants import READS, notices
from tests.isolation.world import World, build

QUICK = {
    **{name: CATCHES[name] for name in ("owners", "readers", "roles", "resident streams", "download tokens")},
    **{name: CATCHES[name] for name in ("catalogue devices.list_devices", "catalogue operations.get")},
    "entities._RELATIONS_OF": "MemoryService/ListRelations entity_id",
    "exporting._RECENT": READS,
    "feed_reading._LIVING": READS,
}
"""One of each sort, and the check that must notice; ``python -m tests.isolation`` takes all away."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    folder: Path = tmp_path_factory.mktemp("guarded")
    return build(Settings(listen="127.0.0.1:0", data_dir=folder / "data", embedder="hash"))


def test_every_guard_has_a_check_that_misses_it() -> None:
    assert ROOMS
    named = CATCHES.keys() | IMPLIED.keys() | STATEMENTS.keys()
    assert named == GUARDS.keys()


@pytest.mark.parametrize("name", QUICK)
def test_a_guard_that_is_taken_away_is_missed(name: str, world: World, tmp_path: Path) -> None:
    assert notices(GUARDS[name], world, tmp_path / "data", QUICK[name])
