"""What the app on a device does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from scrubjay.memory import JsonValue, MemoryId, PrivacyLevel
from tests.sync import occasions
from tests.sync.actions.action import CRASHES, DEVICES, VALUES, action
from tests.sync.crash import CrashPoint
from tests.sync.device import Device, Edit
from tests.sync.world import SLOTS, World


@action(
    6,
    device=DEVICES,
    slot=range(SLOTS),
    level=(PrivacyLevel.SHARED, PrivacyLevel.SHARED, PrivacyLevel.PRIVATE, PrivacyLevel.LOCAL_ONLY),
    scope=("general", "work"),
    crash=CRASHES,
)
def add(
    world: World, device: str, slot: int, level: PrivacyLevel, scope: str, crash: int | None = None
) -> None:
    """The app adds a memory, where it shows none in the slot."""
    one = world.device(device)
    if shown_in(world, one, slot) is not None:
        return
    memory_id = world.new_id(one.place.incarnation, slot)
    text = new_text(world, one, "tea", local=level is PrivacyLevel.LOCAL_ONLY)
    one.named.add(memory_id)

    def write(replica: Any) -> None:
        replica.add(text, memory_id=memory_id, privacy_level=level, scope=scope)

    _write(world, one, memory_id, write, crash)


@action(12, device=DEVICES, slot=range(SLOTS), of=range(SLOTS), crash=CRASHES)
def say_again(world: World, device: str, slot: int, of: int, crash: int | None = None) -> None:
    """The app adds a memory that says what one says that it shows, and more."""
    one = world.device(device)
    said = shown_in(world, one, of)
    if said is None or shown_in(world, one, slot) is not None:
        return
    memory = world.held(one).shown[said].memory
    if memory.privacy_level is PrivacyLevel.LOCAL_ONLY:
        return
    memory_id = world.new_id(one.place.incarnation, slot)
    one.named.add(memory_id)

    def write(replica: Any) -> None:
        replica.add(
            memory.content,
            memory_id=memory_id,
            privacy_level=memory.privacy_level,
            scope=memory.scope,
            tags=("again",),
        )

    _write(world, one, memory_id, write, crash)


@action(30, device=DEVICES, slot=range(SLOTS), value=VALUES, other=(*(None,) * 20, *VALUES), crash=CRASHES)
def update(
    world: World,
    device: str,
    slot: int,
    value: tuple[str, JsonValue],
    other: tuple[str, JsonValue] | None = None,
    crash: int | None = None,
) -> None:
    """The app sets one or two registers."""
    one = world.device(device)
    memory_id = shown_in(world, one, slot)
    if memory_id is None:
        return
    local = memory_id in world.held(one).local
    values = dict((value,) if other is None else (value, other))
    if "content" in values:
        values["content"] = new_text(world, one, str(values["content"]), local=local)
    _write(world, one, memory_id, lambda replica: replica.update(memory_id, values), crash, fields=values)


@action(2, device=DEVICES, slot=range(SLOTS), crash=CRASHES)
def delete(world: World, device: str, slot: int, crash: int | None = None) -> None:
    """The app deletes a memory."""
    one = world.device(device)
    memory_id = shown_in(world, one, slot)
    if memory_id is not None:
        _write(world, one, memory_id, lambda replica: replica.delete(memory_id), crash, deletes=True)


@action(2, device=DEVICES, slot=range(SLOTS), times=(1, 3))
def touch(world: World, device: str, slot: int, times: int) -> None:
    """Somebody looks at a memory."""
    one = world.device(device)
    memory_id = shown_in(world, one, slot)
    if memory_id is not None and one.replica is not None and memory_id not in world.held(one).local:
        for _ in range(times):
            one.replica.touch(memory_id)
        one.touches[memory_id] = one.touches.get(memory_id, 0) + times


def shown_in(world: World, device: Device, slot: int) -> MemoryId | None:
    """The memory of a slot that the device's app sees, if any."""
    if device.replica is None:
        return None
    shown = world.held(device).shown
    return next((each for each in world.ids(device.place.incarnation, slot) if each in shown), None)


def new_text(world: World, device: Device, value: str, *, local: bool) -> str:
    text = world.text(value)
    canary = text.split()[-1].encode()
    device.made.add(canary)
    if local:
        world.local_only.add(canary)
    return text


def _write(
    world: World,
    device: Device,
    memory_id: MemoryId,
    write: Callable[[Any], object],
    crash: int | None,
    *,
    fields: Mapping[str, JsonValue] = MappingProxyType({}),
    deletes: bool = False,
) -> None:
    """Let the app write; what it is told is saved must be there from then on."""
    if device.replica is None:
        return
    before = world.held(device)
    wrote: list[bool] = []

    def work(replica: Any) -> None:
        error = None
        try:
            write(replica)
        except Exception as refusal:
            error = refusal
        occasions.an_app_is_told_yes_or_no(error)
        wrote.append(error is None)

    world.running(device, work, CrashPoint(crash, power=crash % 2 == 0) if crash else None)
    after = world.held(device)
    if wrote != [True]:
        if wrote == [False]:
            occasions.a_refused_write_changes_nothing(before, after)
        return
    old, new = before.shown.get(memory_id), after.shown.get(memory_id)
    fast = device.clock_offset > 0
    if deletes:
        occasions.a_deleted_memory_is_not_shown(new)
        unknown = (device.place.incarnation, memory_id) not in world.oracle.ever_known
        queued = any(each.memory_id == memory_id for each in after.outbox)
        # A local one goes from here alone, though the file may have shared it before it went back in time.
        if memory_id in before.local or (unknown and not queued):
            device.edits = [edit for edit in device.edits if edit.memory_id != memory_id]
            return
        device.edits.append(Edit(memory_id, {}, fast, deletes=True))
        return
    leaves = memory_id in before.local and memory_id not in after.local  # as new, with what it has
    occasions.local_writes_visible_at_once(None if leaves else old, new, fields)
    assert new is not None
    registers = {
        name: stamp for name, stamp in new.stamps.items() if old is None or old.stamps.get(name) != stamp
    }
    for edit in device.edits:
        if edit.memory_id == memory_id:  # written again by the same app: an earlier value may never be sent
            again = edit.registers if memory_id in before.local else fields
            edit.registers = {name: stamp for name, stamp in edit.registers.items() if name not in again}
    latest = max((stamp.millis for stamp in registers.values()), default=0)
    fast = fast or latest > world.micros // 1000 + 1_000
    device.edits.append(Edit(memory_id, registers, fast))
    if leaves:
        world.local_only.discard(new.memory.content.split()[-1].encode())


def the_app_writes(world: World, device: Device) -> None:
    """The app of a device that synchronizes writes something."""
    number = world.turn()
    slot = number % SLOTS
    if shown_in(world, device, slot) is None:
        add(world, device.name, slot, PrivacyLevel.SHARED, "work", crash=None)
    else:
        update(world, device.name, slot, VALUES[number % len(VALUES)], None, crash=None)
