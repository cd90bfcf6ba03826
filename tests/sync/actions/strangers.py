"""Tokens and cursors in wrong hands, and programs of other makers."""

from __future__ import annotations

from scrubjay import v1
from scrubjay.errors import CursorInvalid, PrincipalMismatch, ScrubjayError
from scrubjay.memory import Memory, Micros, PrivacyLevel, Source, id_bytes
from scrubjay.merge import Write
from scrubjay.operation import NO_ID, Operation, OperationKind, encode
from scrubjay.stamp import ReplicaId, Stamp
from tests.sync import occasions
from tests.sync.actions.action import DEVICES, action
from tests.sync.actions.app import new_text
from tests.sync.device import Device
from tests.sync.world import SECOND, SLOTS, World


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
    occasions.tenants_never_meet(error, PrincipalMismatch, world.server.tables() != before)


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
    error = None
    try:
        world.server.sync.sync(v1.SyncRequest(protocol=1, last_sync_at=cursor), two.caller)
    except ScrubjayError as refusal:
        error = refusal
    occasions.tenants_never_meet(error, CursorInvalid, changed=False)


STRANGE = (
    "create",
    "create private",
    "create what waits",
    "set",
    "set scope",
    "delete",
    "garbage",
    "future",
    "unknown register",
)


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
    if kind == "create what waits":
        waiting = (
            i
            for i in world.ids(incarnation, slot)
            if (incarnation, i, device.who.stream) in world.oracle.waiting
        )
        memory_id = next(waiting, memory_id)
    device.named.add(memory_id)
    ahead = 3600 * SECOND if kind == "future" else 0
    stamp = Stamp((at + ahead) // 1000 << 16, replica)
    private = kind == "create private"
    memory = Memory(
        id=memory_id,
        content=new_text(world, device, "tea", local=False),
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
