"""Synchronizing, in every way, over a line that breaks."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from client_sync.sync import apply_watch
from scrubjay import v1
from scrubjay.errors import ScrubjayError
from tenants.tenant import Caller
from tests.sync import line, occasions, serving
from tests.sync.actions.action import CRASHES, DEVICES, action
from tests.sync.actions.backend import somebody_writes
from tests.sync.crash import CrashPoint
from tests.sync.device import Device
from tests.sync.simple_client import SimpleClient
from tests.sync.world import World


@action(
    18,
    device=DEVICES,
    faults=((), (), (), *(tuple([line.OK] * n + [fault]) for fault in line.FAULTS[1:] for n in range(3))),
    crash=(*(None,) * 16, 2, 5, 9, 13, 17, 22, 30, 50),
    power=(False, True),
    vectors=(False, False, True),
)
def sync(
    world: World,
    device: str,
    faults: tuple[str, ...] = (),
    crash: int | None = None,
    power: bool = False,
    vectors: bool = False,
) -> None:
    """A device synchronizes."""
    one = world.device(device)
    if one.replica is None:
        return
    before = world.held(one)
    fast = one.clock_offset
    world.sync(one, faults, CrashPoint(crash, power) if crash else None, vectors=vectors)
    if one.replica is not None and fast <= 0 and not (crash and power):
        occasions.never_flickers_back(world, one, before, world.held(one))


@action(3, device=DEVICES, writes=range(3), crash=CRASHES)
def watch(world: World, device: str, writes: int, crash: int | None = None) -> None:
    """A device hears of changes as they come."""
    one = world.device(device)
    if one.replica is None:
        return
    responses = line.Line(world, one).watch(v1.WatchRequest(last_sync_at=world.held(one).cursor))

    def hear(replica: Any) -> None:
        with closing(responses):
            for number in range(writes + 1):
                if number:
                    somebody_writes(world, one)
                response = next(responses, None)
                if response is not None:
                    apply_watch(replica, response)

    world.running(one, hear, CrashPoint(crash, power=crash % 2 == 0) if crash else None)


@action(1, page_bytes=(1, 400, 512 * 1024), operations=(1, 2, 500), chunk_bytes=(4096, 256 * 1024))
def limits(world: World, page_bytes: int, operations: int, chunk_bytes: int) -> None:
    """The server's and the devices' limits are others from now on."""
    world.limit(page_bytes, operations, chunk_bytes)


@action(2, fault=True, index=range(8))
def late_request(world: World, index: int) -> None:
    """A request that a device gave up arrives."""
    if world.delayed:
        device, caller, request = world.delayed.pop(index % len(world.delayed))
        _deliver(world, device, caller, request)


@action(2, fault=True, index=range(40))
def repeated_request(world: World, index: int) -> None:
    """A request arrives that was answered before, maybe long ago."""
    if world.delivered:
        device, caller, request = world.delivered[-1 - index % len(world.delivered)]
        known = world.answered_before(device, request)
        before = world.server.tables()
        _deliver(world, device, caller, request)
        if known:
            occasions.replay_changes_nothing(before, world.server.tables())


def _deliver(world: World, device: Device, caller: Caller, request: v1.SyncRequest) -> None:
    forked, device.may_fork = device.may_fork, True
    try:
        serving.sync(world, device, caller, request)
    except ScrubjayError:
        pass
    finally:
        device.may_fork = forked


@action(3, device=DEVICES, max_bytes=(0, 1, 400), pages=(1, 2, None), by_time=(False, True))
def simple_pull(world: World, device: str, max_bytes: int, pages: int | None, by_time: bool) -> None:
    """A client without a replica pulls, and may stop in the middle."""
    client = world.simple.setdefault(device, SimpleClient(world.device(device)))
    if not client.device.revoked:
        client.pull(world, max_bytes=max_bytes, most_pages=pages, by_time=by_time)
