"""Files that go back in time or become two, and clocks that are set."""

from __future__ import annotations

import copy

from scrubjay.memory import JsonValue
from tests.sync.actions.action import DEVICES, VALUES, action
from tests.sync.actions.app import update
from tests.sync.actions.exchange import sync
from tests.sync.world import DAY, MINUTE, SECOND, SLOTS, World


@action(2, fault=True, device=DEVICES)
def save_file(world: World, device: str) -> None:
    """A device is backed up."""
    one = world.device(device)
    if one.replica is not None:
        one.saved = (one.disk.files(), copy.deepcopy(one.edits), dict(one.touches))


@action(2, fault=True, device=DEVICES)
def roll_back(world: World, device: str) -> None:
    """A device's file goes back to its backup."""
    one = world.device(device)
    if one.replica is None or one.saved is None:
        return
    files, edits, touches = one.saved
    one.edits, one.touches = copy.deepcopy(edits), dict(touches)
    one.may_fork = one.uncounted = True
    one.told_to_load = True  # perhaps it had been, when it was saved
    one.last_place = (0, 0)
    world.obligations = [each for each in world.obligations if each[0] is not one]
    world.put(one, files)


@action(2, fault=True, device=DEVICES)
def clone(world: World, device: str) -> None:
    """A device's file is copied to another device, which goes on with it."""
    one, name = world.device(device), f"{device}-copy"
    if one.replica is not None and name not in world.devices:
        world.clone(one, name)


@action(4, device=DEVICES, then=("sync", "update"), slot=range(SLOTS), value=VALUES)
def use_copy(world: World, device: str, then: str, slot: int, value: tuple[str, JsonValue]) -> None:
    """The device with the copied file is used."""
    name = f"{device}-copy"
    if name not in world.devices:
        return
    if then == "sync":
        sync(world, name, (), None, power=False)
    else:
        update(world, name, slot, value, None, crash=None)


@action(2, fault=True, device=DEVICES, power=(False, True))
def kill(world: World, device: str, power: bool) -> None:
    """A device's process ends between two things, or its power does."""
    one = world.device(device)
    if one.replica is not None:
        if power:
            one.last_place, one.uncounted = (0, 0), True
        one.disk.crash(power=power)
        world.restart(one)


JUMPS = (-365 * DAY, -30 * MINUTE, -2 * SECOND, 2 * SECOND, 30 * SECOND, 30 * MINUTE, 5 * 365 * DAY)


@action(2, fault=True, device=DEVICES, jump=JUMPS)
def clock_jumps(world: World, device: str, jump: int) -> None:
    """A device's clock is set."""
    world.device(device).clock_offset += jump


@action(1, fault=True, device=DEVICES)
def clock_is_set_right(world: World, device: str) -> None:
    """A device's clock is set to the right time."""
    world.device(device).clock_offset = 0


@action(2, time=(MINUTE, 60 * MINUTE, DAY))
def time_passes(world: World, time: int) -> None:
    """Nothing happens for a while."""
    world.wait(time)
