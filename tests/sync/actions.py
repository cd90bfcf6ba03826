"""What can happen in a world: each action with the few values that its arguments may have.

An action that makes no sense where it stands does nothing, so that any list of actions is a run and any
part of one is another.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from google.protobuf import field_mask_pb2

from client_sync.sync import apply_watch
from scrubjay import v1
from scrubjay.errors import CursorAhead, CursorInvalid, PrincipalMismatch, ScrubjayError
from scrubjay.memory import JsonValue, Memory, MemoryId, Micros, PrivacyLevel, Source, id_bytes
from scrubjay.merge import Write, get
from scrubjay.operation import NO_ID, Operation, OperationKind, encode
from scrubjay.stamp import ReplicaId, Stamp
from scrubjay.wire import from_stored, to_values
from tenants.tenant import Caller, Role
from tests.sync import invariants, line, serving
from tests.sync.crash import CrashPoint
from tests.sync.held import Position
from tests.sync.simple_client import SimpleClient
from tests.sync.world import ACME, DAY, MINUTE, PLACES, SECOND, SLOTS, WEB, Device, Edit, World

Run = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Action:
    """Something that can happen, and the values of its arguments."""

    name: str
    run: Run
    arguments: Mapping[str, tuple[Any, ...]]
    weight: int
    fault: bool


ACTIONS: dict[str, Action] = {}


def action(weight: int = 1, *, fault: bool = False, **arguments: Iterable[Any]) -> Callable[[Run], Run]:
    """Register an action."""

    def registered(run: Run) -> Run:
        values = {name: tuple(choices) for name, choices in arguments.items()}
        ACTIONS[run.__name__] = Action(run.__name__, run, values, weight, fault)
        return run

    return registered


Step = tuple[str, Mapping[str, Any]]
"""An action by name, with its arguments."""


def perform(world: World, step: Step) -> None:
    """Let one thing happen, and check what always holds."""
    name, arguments = step
    world.wait(SECOND)
    ACTIONS[name].run(world, **arguments)
    world.judge(invariants.ALWAYS)


DEVICES = tuple(PLACES)
FIELDS: Mapping[str, tuple[JsonValue, ...]] = {
    "content": ("tea", "coffee", "cocoa"),
    "category": ("FACT", "TASK"),
    "tags.a": (True, None),
    "tags.b": (True, None),
    "metadata.k": (1, "1", None),
    "pinned": (True, False),
    "scope": ("general", "work", "work/desk"),
    "valid_from": (100, 900),
    "valid_to": (500, None),
    "privacy_level": (int(PrivacyLevel.PRIVATE), int(PrivacyLevel.SHARED)),
}
VALUES = tuple((field, value) for field, values in FIELDS.items() for value in values)
CRASHES = (*(None,) * 16, 1, 3, 4, 6, 9, 14, 20)


# --- what an app does -----------------------------------------------------------------------------


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
    if _shown_in(world, one, slot) is not None:
        return
    memory_id = world.new_id(one.place.incarnation, slot)
    text = _text(world, one, "tea", local=level is PrivacyLevel.LOCAL_ONLY)
    one.named.add(memory_id)

    def write(replica: Any) -> None:
        replica.add(text, memory_id=memory_id, privacy_level=level, scope=scope)

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
    memory_id = _shown_in(world, one, slot)
    if memory_id is None:
        return
    local = memory_id in world.held(one).local
    values = dict((value,) if other is None else (value, other))
    if "content" in values:
        values["content"] = _text(world, one, str(values["content"]), local=local)
    _write(world, one, memory_id, lambda replica: replica.update(memory_id, values), crash, fields=values)


@action(2, device=DEVICES, slot=range(SLOTS), crash=CRASHES)
def delete(world: World, device: str, slot: int, crash: int | None = None) -> None:
    """The app deletes a memory."""
    one = world.device(device)
    memory_id = _shown_in(world, one, slot)
    if memory_id is not None:
        _write(world, one, memory_id, lambda replica: replica.delete(memory_id), crash, deletes=True)


@action(2, device=DEVICES, slot=range(SLOTS), times=(1, 3))
def touch(world: World, device: str, slot: int, times: int) -> None:
    """Somebody looks at a memory."""
    one = world.device(device)
    memory_id = _shown_in(world, one, slot)
    if memory_id is not None and one.replica is not None and memory_id not in world.held(one).local:
        for _ in range(times):
            one.replica.touch(memory_id)
        one.touches[memory_id] = one.touches.get(memory_id, 0) + times


def _shown_in(world: World, device: Device, slot: int) -> MemoryId | None:
    """The memory of a slot that the device's app sees, if any."""
    if device.replica is None:
        return None
    shown = world.held(device).shown
    return next((each for each in world.ids(device.place.incarnation, slot) if each in shown), None)


def _text(world: World, device: Device, value: str, *, local: bool) -> str:
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
    fields: Iterable[str] = (),
    deletes: bool = False,
) -> None:
    """Let the app write; what it is told is saved must be there from then on."""
    if device.replica is None:
        return
    before = world.held(device)
    wrote: list[bool] = []

    def work(replica: Any) -> None:
        try:
            write(replica)
            wrote.append(True)
        except ScrubjayError:
            wrote.append(False)

    world.running(device, work, CrashPoint(crash, power=crash % 2 == 0) if crash else None)
    after = world.held(device)
    if wrote != [True]:
        if wrote == [False]:
            assert after.shown.keys() == before.shown.keys(), "a refused write changed something"
        return
    old, new = before.shown.get(memory_id), after.shown.get(memory_id)
    fast = device.clock_offset > 50 * SECOND
    if deletes:
        assert new is None, "a deleted memory is shown"
        if (device.place.incarnation, memory_id) not in world.oracle.ever_known and not any(
            each.memory_id == memory_id for each in after.outbox
        ):
            device.edits = [edit for edit in device.edits if edit.memory_id != memory_id]
            return
        device.edits.append(Edit(memory_id, {}, fast, deletes=True))
        return
    assert new is not None, "a written memory is not shown"
    registers = {
        name: stamp for name, stamp in new.stamps.items() if old is None or old.stamps.get(name) != stamp
    }
    for edit in device.edits:
        if edit.memory_id == memory_id:  # written again by the same app: an earlier value may never be sent
            again = edit.registers if memory_id in before.local else fields
            edit.registers = {name: stamp for name, stamp in edit.registers.items() if name not in again}
    device.edits.append(Edit(memory_id, registers, fast))
    if memory_id in before.local and memory_id not in after.local:
        world.local_only.discard(new.memory.content.split()[-1].encode())


def the_app_writes(world: World, device: Device) -> None:
    """The app of a device that synchronizes writes something."""
    number = world.turn()
    slot = number % SLOTS
    if _shown_in(world, device, slot) is None:
        add(world, device.name, slot, PrivacyLevel.SHARED, "work", crash=None)
    else:
        update(world, device.name, slot, VALUES[number % len(VALUES)], None, crash=None)


# --- what a backend does --------------------------------------------------------------------------


@action(3, slot=range(SLOTS), level=(PrivacyLevel.SHARED, PrivacyLevel.PRIVATE), scope=("general", "work"))
def web_add(world: World, slot: int, level: PrivacyLevel, scope: str) -> None:
    """A backend adds a memory of alice."""
    memory_id = _web_shown(world, slot)
    if memory_id is not None and (ACME, memory_id) not in world.oracle.dead:
        return
    memory_id = world.new_id(ACME, slot)
    message = v1.Memory(
        id=memory_id,
        user_id="alice",
        content=world.text("tea"),
        scope=scope,
        privacy_level=v1.PrivacyLevel.ValueType(level),
    )
    try:
        added = world.server.memories.add(v1.AddRequest(memories=[message]), _web(world))
    except ScrubjayError:
        return
    result = added.results[0]
    if not result.HasField("error"):
        stamps = _stamps(world, memory_id)
        memory = from_stored(result.memory)
        world.oracle.create((ACME, memory_id), "user:alice", memory, next(iter(stamps.values())))


@action(7, slot=range(SLOTS), value=VALUES)
def web_update(world: World, slot: int, value: tuple[str, JsonValue]) -> None:
    """A backend sets a register."""
    memory_id = _web_shown(world, slot)
    if memory_id is None:
        return
    field, chosen = value
    if field == "content":
        chosen = world.text(str(chosen))
    request = v1.UpdateRequest(
        memory=_values(memory_id, field, chosen), update_mask=field_mask_pb2.FieldMask(paths=[field])
    )
    try:
        updated = world.server.memories.update(request, _web(world))
    except ScrubjayError:
        return
    for result in updated.results:
        value_now = get(from_stored(request.memory), result.field)
        world.oracle.write((ACME, memory_id), result.field, Stamp.parse(result.stamp), value_now)


def _values(memory_id: MemoryId, field: str, value: JsonValue) -> v1.Memory:
    message = to_values({field: value})
    message.id = memory_id
    return message


@action(1, slot=range(SLOTS))
def web_delete(world: World, slot: int) -> None:
    """A backend deletes a memory."""
    memory_id = _web_shown(world, slot)
    if memory_id is None:
        return
    try:
        world.server.memories.delete(v1.DeleteRequest(id=memory_id), _web(world))
    except ScrubjayError:
        return
    world.oracle.bury((ACME, memory_id))


def _web_shown(world: World, slot: int) -> MemoryId | None:
    """The newest memory of a slot that the server has heard of, dead or alive, hidden or not."""
    return next((each for each in world.ids(ACME, slot) if (ACME, each) in world.oracle.ever_known), None)


def _web(world: World) -> Caller:
    return Caller(role=Role.SERVICE, key_id="web", client_id=WEB, tenant=world.tenants[ACME])


def _stamps(world: World, memory_id: MemoryId) -> dict[str, Stamp]:
    request = v1.GetRequest(id=memory_id, include_field_stamps=True)
    response = v1.GetResponse.FromString(world.server.memories.get(request, _web(world)))
    return {each.field: Stamp.parse(each.stamp) for each in response.field_stamps}


def somebody_writes(world: World, device: Device) -> None:
    """A backend, or another device, writes to alice's memories."""
    number = world.turn()
    slot = number % SLOTS
    if number % 3 == 0:
        web_add(world, slot, PrivacyLevel.SHARED, "work")
    elif number % 7 == 0:
        web_delete(world, slot)
    else:
        web_update(world, slot, VALUES[number % len(VALUES)])


# --- synchronizing, over a line that breaks -------------------------------------------------------


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
        invariants.never_flickers_back(one, before, world.held(one))


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
        known = all(
            operation is None or (device.place.incarnation, operation.operation_id) in world.oracle.answered
            for operation in world.operations(device, request)
        )
        before = world.server.tables()
        _deliver(world, device, caller, request)
        if known:
            invariants.replay_changes_nothing(before, world.server.tables())


def _deliver(world: World, device: Device, caller: Caller, request: v1.SyncRequest) -> None:
    forked, device.may_fork = device.may_fork, True
    try:
        serving.sync(world, device, caller, request)
    except ScrubjayError:
        pass
    finally:
        device.may_fork = forked


# --- files that go back in time, or become two ----------------------------------------------------


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


@action(1, fault=True, device=DEVICES, crash=(2, 5, 9))
def kill(world: World, device: str, crash: int) -> None:
    """A device's process ends between two things."""
    one = world.device(device)
    if one.replica is not None:
        one.disk.crash(power=False)
        world.restart(one)


# --- clocks ---------------------------------------------------------------------------------------

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


# --- the server -----------------------------------------------------------------------------------


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
    if device.replica is None:
        return
    position, server = Position.of(world.held(device).cursor), invariants.served(world, device.who)
    if position.stamp > server.head and position.epoch == server.epoch:
        before = world.server.tables()
        error = world.sync(device)
        assert isinstance(error, CursorAhead), error
        assert world.server.tables() == before


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
    world.obligations = [each for each in world.obligations if each[0] is not one]


# --- strangers ------------------------------------------------------------------------------------


@action(1, fault=True, device=DEVICES, other=DEVICES)
def wrong_user(world: World, device: str, other: str) -> None:
    """A file is used with another device's token."""
    one, two = world.device(device), world.device(other)
    if one.replica is None or one.place == two.place or one.who == two.who:
        return
    before, mine, one.caller = world.server.tables(), one.caller, two.caller
    try:
        error = world.sync(one)
    finally:
        one.caller = mine
    assert isinstance(error, PrincipalMismatch), error
    assert world.server.tables() == before


@action(1, fault=True, device=DEVICES, other=DEVICES)
def wrong_cursor(world: World, device: str, other: str) -> None:
    """A cursor is sent by another client, of another subject or tenant, than it was given to."""
    one, two = world.device(device), world.device(other)
    same = one.who == two.who or one.place.client_id == two.place.client_id
    if one.replica is None or same or two.revoked:
        return
    cursor = world.held(one).cursor
    if not cursor:
        return
    try:
        world.server.sync.sync(v1.SyncRequest(protocol=1, last_sync_at=cursor), two.caller)
    except CursorInvalid:
        return
    raise AssertionError(f"{other} read {device}'s cursor")


@action(3, device=DEVICES, max_bytes=(0, 1, 400), pages=(1, 2, None), by_time=(False, True))
def simple_pull(world: World, device: str, max_bytes: int, pages: int | None, by_time: bool) -> None:
    """A client without a replica pulls, and may stop in the middle."""
    client = world.simple.setdefault(device, SimpleClient(world.device(device)))
    if not client.device.revoked:
        client.pull(world, max_bytes=max_bytes, most_pages=pages, by_time=by_time)


STRANGE = ("create", "create private", "set", "set scope", "delete", "garbage", "future", "unknown register")


@action(
    3,
    fault=True,
    device=DEVICES,
    slot=range(SLOTS),
    kinds=tuple((one, two, "create") for one in STRANGE for two in STRANGE),
    lag=(0, -3600 * SECOND),
    anew=(False, False, True),
)
def strange_batch(world: World, device: str, slot: int, kinds: tuple[str, ...], lag: int, anew: bool) -> None:
    """A program of another maker sends operations, some of which are none."""
    one = world.device(device)
    if one.revoked:
        return
    number = world.turn()
    replica = ReplicaId(number.to_bytes(16, "big"))
    bodies = [
        _strange(world, one, replica, kind, (slot + n) % SLOTS, world.micros + lag + n, anew=anew)
        for n, kind in enumerate(kinds)
    ]
    request = v1.SyncRequest(
        protocol=1,
        principal=world.identity(one.place).principal,
        replica_id=replica,
        first_number=1,
        batch=v1.Batch(operations=bodies),
    )
    response = world.serve_sync(one, one.caller, request)
    assert response.directive == v1.DIRECTIVE_OK


def _strange(
    world: World, device: Device, replica: ReplicaId, kind: str, slot: int, at: int, *, anew: bool
) -> bytes:
    incarnation = device.place.incarnation
    memory_id = world.new_id(incarnation, slot) if anew else world.known_id(incarnation, slot)
    device.named.add(memory_id)
    ahead = 3600 * SECOND if kind == "future" else 0
    stamp = Stamp((at + ahead) // 1000 << 16, replica)
    private = kind == "create private"
    memory = Memory(
        id=memory_id,
        content=_text(world, device, "tea", local=False),
        created_at=Micros(at),
        user_id=device.place.subject.name,
        owner_client_id=device.place.client_id,
        privacy_level=PrivacyLevel.PRIVATE if private else PrivacyLevel.SHARED,
        scope="work",
        source=Source(client_id=device.place.client_id),
    )
    if kind == "garbage":
        return b"\xff" + stamp.pack()
    if kind == "unknown register":
        message = v1.Operation(memory_id=id_bytes(memory_id), kind=v1.OPERATION_KIND_SET, time=stamp.time)
        message.fields.append("colour")
        return message.SerializeToString()
    if kind in ("set", "set scope", "future"):
        value = ("scope", "home") if kind == "set scope" else ("content", memory.content)
        operation = Operation(
            NO_ID, memory_id, OperationKind.SET, stamp, writes=(Write(*value, stamp, None),)
        )
    elif kind == "delete":
        operation = Operation(NO_ID, memory_id, OperationKind.DELETE, stamp)
    else:
        operation = Operation(NO_ID, memory_id, OperationKind.CREATE, stamp, memory=memory)
    return encode(operation, replica)
