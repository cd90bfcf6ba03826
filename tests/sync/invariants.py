"""The promises of sync by their names, each a check of a world. AssertionError says which one is broken.

``ALWAYS`` hold after every step, ``AT_REST`` once faults ended and everybody synchronized. The others are
called where what they are about happens.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from client_sync import synchronize
from client_sync.copies import apart_id
from scrubjay.errors import ScrubjayError
from scrubjay.feed import bucket_digests, digest
from scrubjay.memory import MemoryId, canonical_json, id_bytes
from scrubjay.merge import State, get
from scrubjay.stamp import CommitStamp
from server.store.memory_store import StreamKey
from tests.sync import occasions
from tests.sync.held import Position, every_byte
from tests.sync.line import Line
from tests.sync.oracle import Truth, Who
from tests.sync.simple_client import SimpleClient

if TYPE_CHECKING:
    from tests.sync.device import Device
    from tests.sync.world import World

MOST_REPLAYED = 12
MAX_ROUNDS = 4
"""So often must all devices synchronize at most until nothing moves: push and pull; pull what others pushed;
once more for those that took a new replica."""


@dataclass(frozen=True, slots=True)
class Served:
    """What the server's database holds of one stream."""

    epoch: int
    head: int
    rows: dict[MemoryId, tuple[int, State]]


def served(world: World, who: Who) -> Served:
    """What the server holds of a viewer's stream, whoever may see it."""
    key = StreamKey(who.incarnation, who.stream)
    return world.known(key, lambda: _served(world, key))


def _served(world: World, key: StreamKey) -> Served:
    with world.server.store.read() as reading:
        head = reading.head(key)
        rows = {
            stored.memory.id: (int(stored.commit_stamp), stored.state)
            for stored in reading.page(key, None, 10_000)
        }
    return Served(head.epoch if head else 0, head.head if head else 0, rows)


def seen(served: Served, who: Who) -> dict[MemoryId, tuple[int, State]]:
    """Those of the rows that the viewer may see."""
    return {memory_id: row for memory_id, row in served.rows.items() if who.sees(row[1].memory)}


def as_text(state: State) -> dict[str, str]:
    """A memory as comparable text: what never changes, and every register with its stamp."""
    memory = state.memory
    fixed = (memory.user_id, memory.agent_id, memory.run_id, memory.owner_client_id, memory.created_at)
    return {"": str(fixed)} | {
        name: f"{stamp} {canonical_json(get(memory, name))}" for name, stamp in state.stamps.items()
    }


def truth_as_text(truth: Truth) -> dict[str, str]:
    """The oracle's memory, in the same way."""
    return as_text(State(truth.memory, {name: stamp for name, (stamp, _) in truth.registers.items()}))


# --- always ---------------------------------------------------------------------------------------


def no_lost_field_update(world: World) -> None:
    """What the server holds is what was accepted, register by register."""
    for who in world.oracle.watchers:
        rows = served(world, who).rows
        truths = {
            memory_id: truth
            for (incarnation, memory_id), truth in world.oracle.living.items()
            if (incarnation, truth.stream) == (who.incarnation, who.stream)
        }
        assert rows.keys() == truths.keys(), f"{who}: {rows.keys() ^ truths.keys()}"
        for memory_id, (_, state) in rows.items():
            assert as_text(state) == truth_as_text(truths[memory_id]), memory_id


def no_resurrection(world: World) -> None:
    """A dead id lives nowhere: not on the server, and on no device that came past its death."""
    for who in world.oracle.watchers:
        for memory_id in served(world, who).rows:
            assert (who.incarnation, memory_id) not in world.oracle.dead, f"{memory_id} came back"
    for device in alive(world):
        held = world.held(device)
        assert not held.graves & held.copies.keys(), f"{device.name} keeps the dead"
        assert not held.graves & held.shown.keys(), f"{device.name} shows the dead"


def value_never_stands_while_an_accepted_operation_has_it_as_base(world: World) -> None:
    """Who replaced a value replaced it: it does not stand any more."""
    for who in world.oracle.watchers:
        for memory_id, (_, state) in served(world, who).rows.items():
            bases = world.oracle.living[who.incarnation, memory_id].bases
            for name, stamp in state.stamps.items():
                assert stamp not in bases.get(name, ()), f"{memory_id} {name}"


def cursor_misses_nothing(world: World) -> None:
    """At a device's cursor its copies are the server's: every row at or below it is there as it is."""
    for device in alive(world):
        held = world.held(device)
        position, server = Position.of(held.cursor), served(world, device.who)
        if position.epoch != server.epoch:
            continue
        visible = seen(server, device.who)
        for memory_id, (commit_stamp, state) in visible.items():
            if commit_stamp <= position.stamp:
                copy = held.copies.get(memory_id)
                assert copy is not None, f"{device.name} misses {memory_id}"
                assert as_text(copy[1]) == as_text(state), f"{device.name} {memory_id}"
                assert copy[0] == commit_stamp, f"{device.name} {memory_id}"
        if 0 < position.stamp == server.head and position.stamp == position.base:
            extra = held.copies.keys() - visible.keys()
            assert not extra, f"{device.name} keeps {extra}"


def cursor_rises(world: World) -> None:
    """A device's cursor never goes back within one epoch."""
    for device in alive(world):
        position = Position.of(world.held(device).cursor)
        epoch, stamp = device.last_place
        assert position.epoch != epoch or position.stamp >= stamp, f"{device.name} went back"
        if position.epoch:
            device.last_place = (position.epoch, position.stamp)


def shown_is_copy_and_own_edits(world: World) -> None:
    """What the app reads is never older than the copy, or than an own edit that waits."""
    for device in alive(world):
        held = world.held(device)
        queued = {each.memory_id for each in held.outbox}
        for memory_id, (_, copy) in held.copies.items():
            shown = held.shown.get(memory_id)
            if shown is None:
                assert memory_id in queued, f"{device.name} does not show {memory_id}"
                continue
            for name, stamp in copy.stamps.items():
                assert shown.stamps[name] >= stamp, f"{device.name} {memory_id} {name}"
            if memory_id not in queued:
                assert as_text(shown) == as_text(copy), f"{device.name} {memory_id}"


ALWAYS = (
    no_resurrection,
    no_lost_field_update,
    value_never_stands_while_an_accepted_operation_has_it_as_base,
    cursor_misses_nothing,
    cursor_rises,
    shown_is_copy_and_own_edits,
)


# --- at rest --------------------------------------------------------------------------------------


def alive(world: World) -> list[Device]:
    """The devices that hold a file."""
    return [device for device in world.devices.values() if device.replica is not None]


def convergence(world: World) -> None:
    """Every device holds exactly what its viewer may see, and shows it."""
    for device in alive(world):
        held = world.held(device)
        truths = {i: truth_as_text(truth) for i, truth in world.oracle.visible(device.who).items()}
        shown = {i: as_text(state) for i, state in held.shown.items() if i not in held.local}
        assert shown.keys() == truths.keys(), f"{device.name}: {shown.keys() ^ truths.keys()}"
        assert shown == truths, device.name


def faults_end_then_outboxes_empty_and_digests_equal(world: World) -> None:
    """Once faults ended nothing waits any more, and digests say that both sides hold the same."""
    for device in alive(world):
        held, server = world.held(device), served(world, device.who)
        assert not held.outbox, f"{device.name} still has {held.outbox}"
        assert Position.of(held.cursor) in (
            Position(server.head, server.head, server.epoch),
            Position(0, 0, 0),
        ), f"{device.name} stands at {held.cursor}"
        mine = [(id_bytes(i), CommitStamp(stamp)) for i, (stamp, _) in held.copies.items()]
        theirs = [(id_bytes(i), CommitStamp(stamp)) for i, (stamp, _) in seen(server, device.who).items()]
        assert digest(bucket_digests(mine)) == digest(bucket_digests(theirs)), device.name


def no_lost_acknowledged_operation(world: World) -> None:
    """What an app was told is saved was accepted, or is stood over by later edits, or says why not."""
    for device in alive(world):
        held = world.held(device)
        refused = held.dead_letters if world.collected else held.dead_letters - held.given_up
        for edit in device.edits:
            key = (device.place.incarnation, edit.memory_id)
            truth = world.oracle.living.get(key)
            if (
                key in world.oracle.ever_dead  # also before a restore: the device was told
                or edit.memory_id in refused
                or {edit.memory_id, apart_id(edit.memory_id)} & set(held.local)
            ):
                continue
            told_away = (device.who, key) in world.oracle.taken_back_ever
            if told_away or (device.who, edit.memory_id) in world.unheard:
                continue
            assert truth is not None, f"{device.name}: {edit} is nowhere"
            assert not edit.deletes, f"{device.name}: {edit} did not delete"
            for name, stamp in edit.registers.items():
                if name == "privacy_level" and truth.fixed.owner_client_id != device.place.client_id:
                    continue
                standing = truth.registers.get(name)
                assert standing is not None, f"{device.name}: {edit} {name} is lost"
                assert edit.fast or standing[0].time >= stamp.time, f"{device.name}: {edit} {name} is lost"


def retraction_complete(world: World) -> None:
    """Of what was taken back nothing is left: no row, no word, no vector, no waiting operation, and in no
    byte its id."""
    for device in alive(world):
        held, data = world.held(device), every_byte(device.disk.path)
        for who, (_, memory_id) in world.oracle.taken_back:
            if who == device.who and (who.incarnation, memory_id) in world.oracle.living:
                if memory_id in world.oracle.visible(who) or memory_id in held.local:
                    continue
                tables = {table for table, ids in held.named.items() if memory_id in ids}
                revived = (who, memory_id) in world.unheard and memory_id in held.graves
                if revived:
                    tables -= {"graves", "journal"}  # dead here, private since it lives again
                assert not tables, f"{device.name} keeps {memory_id} in {tables}"
                assert revived or id_bytes(memory_id) not in data, f"{device.name} keeps bytes of {memory_id}"


def private_never_leaks_into_files(world: World) -> None:
    """No text and no id that its viewer never could see is in any byte of a device's files."""
    for device in alive(world):
        occasions.private_never_leaks(world, device, every_byte(device.disk.path), "the file")


def embeddings_are_of_what_stands(world: World) -> None:
    """Every memory of the server's has its embedding on the device, made from the content that stands."""
    for device in alive(world):
        held = world.held(device)
        wanted = {i: state.stamps["content"] for i, state in held.shown.items() if i not in held.local}
        assert held.embedded == wanted, f"{device.name}: {held.embedded.keys() ^ wanted.keys()}"


def nobody_listens_any_more(world: World) -> None:
    """A Watch that ended costs nothing."""
    assert not world.server.shard.hub._subscriptions


def digests_ask_for_nothing(world: World) -> None:
    """A device that compares everything with the server has nothing to load anew."""
    for device in alive(world):
        assert device.replica is not None
        report = synchronize(device.replica, Line(world, device), verify=True)
        assert not report.loaded, f"{device.name} loaded everything anew"


def counters_exact(world: World) -> None:
    """Every look at a memory is counted once."""
    for who in world.oracle.watchers:
        devices = [device for device in world.devices.values() if device.who.stream == who.stream]
        devices = [device for device in devices if device.place.incarnation == who.incarnation]
        if world.restores or any(device.uncounted for device in devices):
            continue
        key = StreamKey(who.incarnation, who.stream)
        with world.server.store.read() as reading:
            counted = {
                each.memory_id: each.count for each in reading.access_counts(key, CommitStamp(0), 1000)
            }
        for memory_id in served(world, who).rows:
            if any(
                watcher.stream == who.stream
                and (watcher, (who.incarnation, memory_id)) in world.oracle.taken_back_ever
                for watcher in world.oracle.watchers
            ):
                continue
            made = sum(device.touches.get(memory_id, 0) for device in devices)
            assert counted.get(memory_id, 0) == made, f"{memory_id}: {counted.get(memory_id, 0)}, not {made}"


def restore_brings_all_back_and_nothing_deleted(world: World) -> None:
    """What any device held when it heard of a restore is there again, and what it knew dead is dead."""
    for device, held in world.obligations:
        for memory_id in held.graves:
            lives = (device.place.incarnation, memory_id) in world.oracle.living
            assert not lives or (device.who, memory_id) in world.unheard, memory_id
        for memory_id, (_, state) in held.copies.items():
            key = (device.place.incarnation, memory_id)
            truth = world.oracle.living.get(key)
            if (device.who, memory_id) in world.unheard:
                continue
            if truth is None:
                assert key in world.oracle.dead, f"{memory_id} of {device.name} is lost"
                continue
            for name, stamp in state.stamps.items():
                assert truth.registers[name][0] >= stamp, f"{memory_id} {name} of {device.name} is lost"


def stop_after_any_page_equals_one_run(world: World) -> None:
    """Whoever pulls page by page, at any pace and size, ends with what one run brings."""
    for name, client in world.simple.items():
        if client.device.revoked:
            continue
        client.pull(world, max_bytes=1, most_pages=None)
        who = client.who
        once = SimpleClient(client.device)
        once.pull(world, max_bytes=0, most_pages=None)
        truths = {i: truth_as_text(truth) for i, truth in world.oracle.visible(who).items()}
        assert {i: as_text(state) for i, state in once.rows.items()} == truths, f"{name} in one run"
        assert {i: as_text(state) for i, state in client.rows.items()} == truths, f"{name} in many"


def replay_of_any_part_changes_nothing(world: World) -> None:
    """Old requests that come again, the newest first, leave the server as it is."""
    before = world.server.tables()
    for device, caller, request in reversed(world.delivered[-MOST_REPLAYED:]):
        if world.answered_before(device, request):
            with suppress(ScrubjayError):
                world.server.sync.sync(request, caller)
    occasions.replay_changes_nothing(before, world.server.tables())


AT_REST = (
    faults_end_then_outboxes_empty_and_digests_equal,
    convergence,
    restore_brings_all_back_and_nothing_deleted,
    stop_after_any_page_equals_one_run,
    no_lost_acknowledged_operation,
    retraction_complete,
    private_never_leaks_into_files,
    embeddings_are_of_what_stands,
    nobody_listens_any_more,
    digests_ask_for_nothing,
    counters_exact,
    replay_of_any_part_changes_nothing,
)
