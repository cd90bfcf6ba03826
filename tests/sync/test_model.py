"""The model of sync: whatever happens in whatever order, the promises hold."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from tests.postgres import PostgresServer
from tests.sync.actions import ACTIONS, perform
from tests.sync.invariants import alive
from tests.sync.postgres_databases import PostgresDatabases
from tests.sync.runs import Places, play, script
from tests.sync.world import World

SEEDS = 24
"""Runs from seeds, beside those that Hypothesis chooses; the soak runs thousands."""
SEEDS_ON_POSTGRES = range(1000, 1004)
EXAMPLES = 15
STEPS_OF_EXAMPLE = 40


def machine(places: Places) -> type[RuleBasedStateMachine]:
    """A state machine whose rules are the actions, on worlds in these places."""

    class Model(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self._stack = ExitStack()
            folder = Path(tempfile.mkdtemp(prefix="scrubjay-world-"))
            self._stack.callback(shutil.rmtree, folder)
            self.world = World(places(folder), folder)
            self._stack.callback(self.world.close)
            self.failed = False

        def act(self, name: str, arguments: dict[str, Any]) -> None:
            try:
                perform(self.world, (name, arguments))
            except BaseException:
                self.failed = True
                raise

        def teardown(self) -> None:
            with self._stack:
                if not self.failed:
                    self.world.calm()

    ruled: Any = rule
    for name, action in ACTIONS.items():
        drawn: dict[str, Any] = {key: st.sampled_from(values) for key, values in action.arguments.items()}

        def act(self: Model, _name: str = name, **arguments: Any) -> None:
            self.act(_name, arguments)

        setattr(Model, name, ruled(**drawn)(act))
    return Model


def test_the_promises_hold_in_every_order_that_hypothesis_finds(places: Places) -> None:
    run: Any = run_state_machine_as_test
    run(
        machine(places),
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS_OF_EXAMPLE,
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.explicit, Phase.generate, Phase.shrink),
        ),
    )


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_promises_hold_in_a_run_from_a_seed(seed: int, places: Places) -> None:
    play(script(seed), places, seed)


@pytest.mark.parametrize("seed", SEEDS_ON_POSTGRES)
def test_the_promises_hold_on_postgresql(seed: int, postgres: PostgresServer, shard_template: str) -> None:
    databases = PostgresDatabases(postgres, shard_template)
    try:
        play(script(seed), lambda _: databases, seed)
    finally:
        databases.drop()


@pytest.mark.parametrize("seed", [3, 12])
def test_a_run_repeats_exactly_from_its_seed(seed: int, places: Places) -> None:
    ends: list[object] = []

    def look(world: World) -> None:
        held = {device.name: repr(world.held(device)) for device in alive(world)}
        ends.append((world.server.tables(), held, world.events))

    for _ in range(2):
        play(script(seed), places, seed, look)
    assert ends[0] == ends[1]
