"""A guard is missed where it is taken away. Each run of the tests takes some of them away."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.config import Settings
from tests.isolation.broken import ROOMS
from tests.isolation.catches import CATCHES
from tests.isolation.guards import GUARDS
from tests.isolation.mutants import notices
from tests.isolation.world import World, build

QUICK = (
    *("owners", "readers", "roles", "resident streams", "download tokens"),
    *("catalogue devices.list_devices", "catalogue operations.get"),
    *("entities._RELATIONS_OF", "exporting._RECENT", "feed_reading._LIVING"),
)
"""One of each sort; ``python -m tests.isolation`` takes all away."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    folder: Path = tmp_path_factory.mktemp("guarded")
    return build(Settings(listen="127.0.0.1:0", data_dir=folder / "data", embedder="hash"))


def test_every_check_is_of_a_guard() -> None:
    assert ROOMS
    assert CATCHES.keys() <= GUARDS.keys()
    assert len(CATCHES) > 50


@pytest.mark.parametrize("name", QUICK)
def test_a_guard_that_is_taken_away_is_missed(name: str, world: World, tmp_path: Path) -> None:
    assert notices(GUARDS[name], world, tmp_path / "data", CATCHES[name])
