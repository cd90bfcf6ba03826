"""Whether devices and their server kept every promise, once faults ended and everybody synchronized.

Held against: what the server's database says, what each device's files say, what each app was told is
saved, and every byte that went to each device.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from client_sync.credentials import DeviceCredentials
from scrubjay.memory import MemoryId, PrivacyLevel, id_bytes
from scrubjay.operation import OperationKind
from tests.fault.acknowledged import CANARY, Acknowledged, read
from tests.fault.capture import inflated, readable
from tests.fault.served import Served
from tests.sync.held import Held, read_held
from tests.sync.invariants import as_text

_CANARY = re.compile(CANARY.pattern.encode())


@dataclass
class Judged:
    """One device: its folder and log, its number, and what passed on its line."""

    folder: Path
    log: Path
    number: int
    down: list[Path] = field(default_factory=list)
    up: list[Path] = field(default_factory=list)

    @cached_property
    def credentials(self) -> DeviceCredentials:
        return DeviceCredentials.load(self.folder / "credentials.json")

    @cached_property
    def held(self) -> Held:
        return read_held(self.folder / "replica.db")

    @cached_property
    def told(self) -> dict[MemoryId, list[Acknowledged]]:
        """What its app was told is saved, by memory, oldest first."""
        found: dict[MemoryId, list[Acknowledged]] = defaultdict(list)
        for write in read(self.folder / "acknowledged.jsonl"):
            found[MemoryId(write.memory_id)].append(write)
        return dict(found)

    def sees(self, served: Served, memory_id: MemoryId) -> bool:
        """Whether the memory lives and exists for this device."""
        row = served.rows.get(memory_id)
        return row is not None and self.credentials.identity.viewer.sees(row[1].memory)

    def files(self) -> Iterator[bytes]:
        """Every byte of its replica's files, log and free pages too, and what zlib streams in it hold."""
        for file in sorted(self.folder.glob("replica.db*")):
            data = file.read_bytes()
            yield data
            yield from inflated(data)


def convergence(served: Served, devices: Iterable[Judged]) -> None:
    """Every device shows exactly what the server holds for it, and nothing waits."""
    for device in devices:
        visible = {key: row for key, row in served.rows.items() if device.sees(served, key)}
        held = device.held
        shown = {key: state for key, state in held.shown.items() if key not in held.local}
        about = device.folder.name
        assert shown.keys() == visible.keys(), f"{about}: {shown.keys() ^ visible.keys()}"
        for key, (commit_stamp, state) in visible.items():
            assert as_text(shown[key]) == as_text(state), f"{about}: {key}"
            assert held.copies[key][0] == commit_stamp, f"{about}: {key}"
        assert held.unanswered == 0, about


def nothing_told_is_lost(served: Served, devices: list[Judged], *, history: bool = True) -> None:
    """What an app was told is saved stands on the server, or later edits stand over it and History has it,
    or its memory is dead or was taken back, or it is among the refused.

    Without ``history`` what was stood over need not be in History: that of a restored server has a gap.
    """
    hidden = _ever_hidden(served, devices)
    for device in devices:
        for memory_id, writes in device.told.items():
            lost = _lost(served, device, memory_id, writes) or (
                _not_in_history(served, device, memory_id, writes) if history else ""
            )
            if lost and memory_id not in hidden:
                raise AssertionError(f"{device.folder.name}: {memory_id}: {lost} of {writes}")


def _ever_hidden(served: Served, devices: list[Judged]) -> set[MemoryId]:
    """The memories that were at some time taken back from someone: what waited there went too."""
    told = [(key, write) for device in devices for key, writes in device.told.items() for write in writes]
    private = {key for key, write in told if write.level != PrivacyLevel.SHARED}
    moved = {
        key
        for key, operations in served.changes.items()
        if any(kind is OperationKind.SET and '"scope"' in changes for kind, changes in operations)
    }
    return {key for key, write in told if key in private | moved and write.kind != "add"}


def _lost(served: Served, device: Judged, memory_id: MemoryId, writes: list[Acknowledged]) -> str:
    held, row = device.held, served.rows.get(memory_id)
    kept_here = memory_id in held.local
    if writes[-1].kind == "delete":
        gone = memory_id in served.graves | held.graves or writes[-1].level == PrivacyLevel.LOCAL_ONLY
        return "" if gone and row is None and memory_id not in held.shown else "the delete"
    if memory_id in served.graves:
        return "" if row is None else "the grave"
    if memory_id in held.dead_letters:
        return ""
    if not kept_here and row is None:
        return "the memory"
    state = held.shown[memory_id] if row is None else row[1]
    latest = {name: stamp for write in writes for name, stamp in write.registers.items()}
    for name, (time, replica) in latest.items():
        standing = state.stamps.get(name)
        if time and (standing is None or (standing.time, standing.replica.hex()) < (time, replica)):
            return name
    return ""


def _not_in_history(served: Served, device: Judged, memory_id: MemoryId, writes: list[Acknowledged]) -> str:
    operations = served.changes[memory_id]
    changes = "".join(changes for _, changes in operations)
    if memory_id in served.graves:
        if OperationKind.DELETE not in [kind for kind, _ in operations]:
            return "the history of the delete"
        if writes[-1].kind == "delete":
            return ""  # what it had not sent before went with it
    elif memory_id not in served.rows or memory_id in device.held.dead_letters:
        return ""
    texts = [write.text for write in writes if write.text]
    stands = memory_id in served.rows and texts[-1:] == [served.rows[memory_id][1].memory.content]
    return "" if not texts or stands or texts[-1] in changes else "the history of its text"


def no_resurrection(served: Served, devices: list[Judged]) -> None:
    """A dead id lives nowhere, and no edit waits for it, or for anything else, to be created."""
    assert not served.waiting
    dead = set(served.graves)
    for device in devices:
        dead |= device.held.graves
    assert not dead & served.rows.keys()
    for device in devices:
        assert not dead & device.held.shown.keys(), device.folder.name


def counters_exact(served: Served, devices: list[Judged]) -> None:
    """Of every memory that a device shows, its looks are counted on the server once."""
    for device in devices:
        replica = bytes(device.held.meta["replica_id"])
        for memory_id, total in device.held.touched.items():
            if device.sees(served, memory_id):
                counted = served.counts.get((memory_id, replica), 0)
                assert counted == total, f"{device.folder.name}: {memory_id}: {counted}, not {total}"


# --- who may see what -----------------------------------------------------------------------------


def no_canary_where_it_must_not_be(devices: list[Judged], logs: Iterable[Path]) -> None:
    """No secret text and no never-shared id in what went to another device or lies there; nothing that is
    LOCAL_ONLY in what left its own; no text at all in a log."""
    for device in devices:
        secret_ids = {key for other in devices if other is not device for key in _never_shared(other)}
        for what, parts in (("down", readable(device.down)), ("files", device.files())):
            for data in parts:
                about = f"{what} of {device.folder.name}"
                leaked = {mark for mark in _marks(data) if not _may_see(device, mark)}
                assert not leaked, f"{about}: {leaked}"
                named = _named(data, secret_ids)
                assert not named, f"{about}: {named}"
        sent = {mark for data in readable(device.up) for mark in _marks(data) if mark[2:3] == "l"}
        assert not sent, f"{device.folder.name} sent {sent}"
    for log in logs:
        assert not _marks(log.read_bytes()), log


def retraction_complete(served: Served, devices: list[Judged]) -> None:
    """Of what was taken back no byte is left."""
    memory_of = {
        mark: key
        for device in devices
        for key, writes in device.told.items()
        for write in writes
        for mark in _marks(write.text.encode())
    }
    for device in devices:
        for data in device.files():
            left = {
                mark
                for mark in _marks(data)
                if (key := memory_of.get(mark)) in served.rows and not device.sees(served, MemoryId(str(key)))
            }
            assert not left, f"{device.folder.name} keeps {left}"


def marks_others_may_not_see(data: bytes, number: int) -> set[str]:
    """The marks in ``data`` that no unscoped client but the one of this number may see."""
    return {mark for mark in _marks(data) if mark[2] == "l" or (mark[2] == "p" and int(mark[3:5]) != number)}


def _marks(data: bytes) -> set[str]:
    return {match.group().decode() for match in _CANARY.finditer(data)}


def _may_see(device: Judged, mark: str) -> bool:
    if mark[2] in "pl":
        return int(mark[3:5]) == device.number
    return mark[2] == "s" or not device.credentials.scopes


def _never_shared(device: Judged) -> set[MemoryId]:
    return {
        key
        for key, writes in device.told.items()
        if writes[0].kind == "add" and all(write.level != PrivacyLevel.SHARED for write in writes)
    }


def _named(data: bytes, ids: set[MemoryId]) -> set[str]:
    """Those of the ids that are in ``data``, as bytes or as text."""
    return _among(data, {id_bytes(each) for each in ids}) | _among(data, {each.encode() for each in ids})


def _among(data: bytes, values: set[bytes]) -> set[str]:
    """Those of the values, all of one length, that are in ``data``; ids of one hour begin alike."""
    if not values:
        return set()
    low, high = min(values), max(values)
    size = len(low)
    prefix = low[: next((n for n in range(size) if low[n] != high[n]), size)]
    found, at = set(), data.find(prefix)
    while at >= 0:
        if data[at : at + size] in values:
            found.add(data[at : at + size].hex())
        at = data.find(prefix, at + 1)
    return found
