"""What can happen in a world.

An action that makes no sense where it stands does nothing, so that any list of actions is a run and any
part of one is another.
"""

from tests.sync import invariants
from tests.sync.actions import app, backend, exchange, files, server, strangers
from tests.sync.actions.action import ACTIONS, FIELDS, Step
from tests.sync.world import SECOND, World

__all__ = ["ACTIONS", "FIELDS", "KINDS", "Step", "perform"]

KINDS = (app, backend, exchange, files, server, strangers)
"""Where the actions are."""


def perform(world: World, step: Step) -> None:
    """Let one thing happen, and check what always holds."""
    name, arguments = step
    world.wait(SECOND)
    ACTIONS[name].run(world, **arguments)
    world.judge(invariants.ALWAYS)
