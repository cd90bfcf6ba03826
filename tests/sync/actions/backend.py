"""What a backend does through MemoryService, as the client web."""

from __future__ import annotations

from google.protobuf import field_mask_pb2

from scrubjay import v1
from scrubjay.errors import ScrubjayError
from scrubjay.memory import JsonValue, MemoryId, PrivacyLevel
from scrubjay.merge import get
from scrubjay.stamp import Stamp
from scrubjay.wire import from_stored, to_values
from tenants.tenant import Caller, Role
from tests.sync.actions.action import VALUES, action
from tests.sync.device import ACME, WEB, Device
from tests.sync.world import SLOTS, World


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
        added = world.server.memories.add(v1.AddRequest(memories=[message], dedup=v1.DEDUP_OFF), _web(world))
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
