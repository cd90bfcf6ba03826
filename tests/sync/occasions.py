"""The promises of sync that are kept or broken at one occasion, by their names. The others: invariants.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from client_sync import ReplicaError, Wiped
from scrubjay import v1
from scrubjay.errors import CursorAhead, ScrubjayError
from scrubjay.memory import canonical_json, id_bytes
from scrubjay.merge import State, get
from scrubjay.operation import Operation
from tests.sync.held import Held
from tests.sync.oracle import DUPLICATE, LATER, REJECTED, Verdict

if TYPE_CHECKING:
    from tests.sync.device import Device
    from tests.sync.world import World


def private_never_leaks(world: World, device: Device, data: bytes, what: str) -> None:
    """No text and no id that this viewer never could see is in any byte that it gets or keeps."""
    from tests.sync.world import CANARY

    who = device.who
    shown = {text.encode() for text in world.oracle.shown_texts.get(who, ())}
    allowed = {canary for text in shown for canary in CANARY.findall(text)} | device.made
    leaked = set(CANARY.findall(data)) - allowed
    assert not leaked, f"{what} shows {leaked} to {device.name}"
    told = {each for one in world.devices.values() if one.who == who for each in one.named}
    known = world.oracle.shown_ids.get(who, set()) | told
    hidden = {memory_id for _, memory_id in world.oracle.ever_known} - known
    named = {each for each in hidden if id_bytes(each) in data or each.encode() in data}
    assert not named, f"{what} names {named} to {device.name}"


def local_only_never_leaves(world: World, device: Device, data: bytes) -> None:
    """No byte that a device sends holds a text that is LOCAL_ONLY."""
    leaked = [canary for canary in world.local_only if canary in data]
    assert not leaked, f"{device.name} sends {leaked}"


def directive_has_a_reason(world: World, device: Device, response: v1.SyncResponse) -> None:
    """A directive comes where something happened that asks for it, and only there."""
    directive = v1.Directive.Name(response.directive)
    if response.directive == v1.DIRECTIVE_FORK:
        assert device.may_fork or world.restores, f"{device.name} is told {directive}"
    elif response.directive == v1.DIRECTIVE_EPOCH_CHANGED:
        assert world.restores, f"{device.name} is told {directive}"
    elif response.directive == v1.DIRECTIVE_WIPE:
        assert device.revoked, f"{device.name} is told {directive}"
    elif response.directive == v1.DIRECTIVE_RESYNC:
        assert world.collected, f"{device.name} is told {directive}"
    else:
        assert response.directive == v1.DIRECTIVE_OK, f"{device.name} is told {directive}"


def loads_anew_only_where_told(device: Device, cursor: str) -> None:
    """A device that has a cursor asks for a snapshot where a directive said so, not of its own doubts."""
    assert not cursor or device.told_to_load, f"{device.name} loads anew"


def a_part_is_of_what_is_there(known: bool) -> None:
    """Nobody gets a part of a memory that it does not have."""
    assert known


def answered_as_the_law_says(
    device: Device, operation: Operation | None, verdict: Verdict, result: v1.OperationResult
) -> None:
    """An operation ended as the oracle says it must: nothing accepted is lost, nothing lost is accepted."""
    name = "garbage" if operation is None else f"{operation.kind.name} {operation.memory_id}"
    about = f"{device.name} {name}: {result.reason}"
    status, first = _status(result.status), verdict.first
    if operation is None and status == DUPLICATE:
        assert _status(result.first_status) in (REJECTED, "UNSPECIFIED"), about
        return
    assert status == verdict.status, f"{about}: {status}, not {verdict.status}"
    if status == DUPLICATE:
        told = first.status if first is not None else "UNSPECIFIED"  # forgotten with the horizon
        assert _status(result.first_status) == told, f"{about}: not {told}"
    registers = {each.field: v1.Outcome.Name(each.outcome) for each in result.registers}
    wanted = verdict.registers if first is None else first.registers
    assert registers == {field: f"OUTCOME_{outcome}" for field, outcome in wanted.items()}, about


def _status(status: v1.OperationStatus.ValueType) -> str:
    return v1.OperationStatus.Name(status).removeprefix("OPERATION_STATUS_")


def poison_stops_nothing(
    operations: Sequence[Operation | None], results: Sequence[v1.OperationResult]
) -> None:
    """Beside an operation that can't be read the others are answered, each for itself."""
    for operation, result in zip(operations, results, strict=True):
        refused = _status(result.first_status or result.status) in (REJECTED, DUPLICATE, LATER)
        assert operation is not None or refused, result
    later = [_status(result.status) == LATER for result in results]
    assert later == sorted(later), "an operation was taken behind one that was not"


def replay_changes_nothing(before: Mapping[str, object], after: Mapping[str, object]) -> None:
    """A request that comes again leaves everything as it was."""
    changed = [name for name in before if before[name] != after[name]]
    assert not changed, f"a repeated request changed {changed}"


def local_writes_visible_at_once(
    before: State | None, after: State | None, values: Mapping[str, object]
) -> None:
    """What an app wrote is what it reads next, under stamps later than those it replaced."""
    assert after is not None, "a written memory is not shown"
    for name, value in values.items():
        assert canonical_json(get(after.memory, name)) == canonical_json(value), name  # type: ignore[arg-type]  # JSON
        old, new = before.stamps.get(name) if before is not None else None, after.stamps.get(name)
        assert old is None or (new is not None and new >= old), name


def an_app_is_told_yes_or_no(error: Exception | None) -> None:
    """An app's write is stored, or refused with a reason."""
    assert error is None or isinstance(error, ScrubjayError | ReplicaError), repr(error)


def a_refused_write_changes_nothing(before: Held, after: Held) -> None:
    """Where the app is told no, the replica is as it was."""
    assert after.shown.keys() == before.shown.keys()
    assert len(after.outbox) == len(before.outbox)


def a_deleted_memory_is_not_shown(after: State | None) -> None:
    """What an app deleted it does not read again."""
    assert after is None


def synchronizing_ends(device: Device, error: Exception | None) -> None:
    """Once faults ended, a device that synchronizes comes to the end."""
    assert error is None or isinstance(error, Wiped), f"{device.name}: {error!r}"


def crash_leaves_rows_and_cursor_of_one_page(device: Device, before: Held, after: Held) -> None:
    """After a crash the copies moved with the cursor or not at all."""
    if before.cursor and before.cursor == after.cursor and before.meta.get("reload") is None:
        stamps = [{i: stamp for i, (stamp, _) in held.copies.items()} for held in (before, after)]
        assert stamps[0] == stamps[1], f"{device.name} has rows of another page"


def wiped_devices_keep_nothing(device: Device) -> None:
    """A device that was told to wipe its memories has no file of them."""
    left = [path.name for path in device.disk.path.parent.iterdir()]
    assert not left, f"{device.name} kept {left}"


def tenants_never_meet(error: Exception | None, refusal: type[Exception], changed: bool) -> None:
    """Where a file or a cursor is used with another's token, that is refused, and nothing was taken."""
    assert isinstance(error, refusal), error
    assert not changed


def too_early_after_a_restore_takes_nothing(error: Exception | None, changed: bool) -> None:
    """A server that went back in time, and has not been told so, refuses those who came further."""
    assert isinstance(error, CursorAhead), error
    assert not changed


def never_flickers_back(world: World, device: Device, before: Held, after: Held) -> None:
    """A register that the app was shown is never shown with an older value, but for edits stamped anew."""
    if any(edit.fast for edit in device.edits) or device.clock_offset or device.may_fork:
        return  # edits may have been stamped anew
    for memory_id, old in before.shown.items():
        new = after.shown.get(memory_id)
        key = (device.place.incarnation, memory_id)
        if memory_id in after.dead_letters or (device.who, key) in world.oracle.taken_back_ever:
            continue
        if new is None:
            visible = world.oracle.visible(device.who)
            assert memory_id not in visible, f"{device.name} does not show {memory_id} any more"
            continue
        for name, stamp in old.stamps.items():
            assert name in new.stamps, f"{device.name} {memory_id} {name}"
            assert new.stamps[name].time >= stamp.time, f"{device.name} {memory_id} {name}"
