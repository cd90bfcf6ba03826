"""What happens to the server, and what its operator does."""

from __future__ import annotations

from dataclasses import replace

from tenants.tenant import Role
from tests.sync import invariants, occasions
from tests.sync.actions.action import DEVICES, action
from tests.sync.device import Device
from tests.sync.held import Position
from tests.sync.world import World


@action(1, fault=True)
def server_dies(world: World) -> None:
    """The server's process is killed and started again."""
    world.server.crash()


@action(2, fault=True)
def backup(world: World) -> None:
    """The server's database is backed up."""
    world.backups.append((world.server.backup(), world.oracle.saved()))


@action(2, fault=True, index=range(3), early=(None, *DEVICES))
def restore(world: World, index: int, early: str | None) -> None:
    """The server's database is lost and restored from a backup, as the manual says; a device may call before
    the operator said so."""
    if not world.backups:
        return
    saved, oracle = world.backups[-1 - index % len(world.backups)]
    world.server.go_back(saved)
    world.oracle.restore(oracle)
    if early is not None and early in world.devices:
        _call_early(world, world.devices[early])
    world.server.announce_restored()
    world.restores += 1
    for device in world.devices.values():
        device.may_fork = device.uncounted = True


def _call_early(world: World, device: Device) -> None:
    """A device that came further than the server stands now is sent away, and nothing is taken of it."""
    if device.replica is None or device.revoked:
        return
    position, server = Position.of(world.held(device).cursor), invariants.served(world, device.who)
    if position.stamp > server.head and position.epoch == server.epoch:
        before = world.server.tables()
        error = world.sync(device)
        occasions.too_early_after_a_restore_takes_nothing(error, world.server.tables() != before)


@action(2, fault=True)
def collect(world: World) -> None:
    """What lies behind the horizon is forgotten, tombstones too; the horizon is now."""
    world.server.collect()
    world.oracle.collect(world.server.remembered())
    world.collected = True


@action(1, fault=True, device=DEVICES)
def revoke(world: World, device: str) -> None:
    """A device is not wanted any more, and told so when it calls next."""
    one = world.device(device)
    one.caller = replace(one.caller, role=Role.REVOKED_DEVICE, wiped=True)
    one.uncounted = True
    world.obligations = [each for each in world.obligations if each[0] is not one]
