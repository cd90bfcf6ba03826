"""How a device stands, as JSON and as lines for a person."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from client_sync.credentials import DeviceCredentials
from client_sync.dead_letters import DeadLetter
from client_sync.rendering import local_time, relative_time
from client_sync.salvage import Salvage
from client_sync.status import Status
from client_sync.sync import SyncReport
from scrubjay.memory import JsonValue, Micros, canonical_json
from scrubjay.wire import to_timestamp

_KINDS = {1: "add", 2: "change", 3: "delete"}


def who(credentials: DeviceCredentials) -> dict[str, JsonValue]:
    """Who a device is."""
    return {
        "server": credentials.target,
        f"{credentials.subject.kind}_id": credentials.subject.name,
        "client_id": credentials.client_id,
        "device_id": credentials.device_id,
        "scopes": list(credentials.scopes),
    }


def report_json(report: SyncReport) -> dict[str, JsonValue]:
    """What a synchronization did, in numbers."""
    found = asdict(report)
    return {name: value for name, value in found.items() if name not in ("changed", "rounds")}


def summary(report: SyncReport) -> str:
    """What a synchronization did, in one line."""
    counts = ("pushed", "pulled", "refused", "conflicts", "unsent")
    told = ", ".join(f"{name} {getattr(report, name)}" for name in counts)
    if report.loaded:
        told += "; everything was loaded anew"
    if report.reoffered:
        told += f"; the server was restored and got {report.reoffered} back"
    if report.forked:
        told += "; this file was a copy or a backup, and goes on under a number of its own"
    if report.to_forget:
        told += "; what was taken back is overwritten next time: the file was in use, or the disk is full"
    return told


def status_json(status: Status, letters: Sequence[DeadLetter]) -> dict[str, JsonValue]:
    """How a replica stands."""
    synced_at = status.synced_at
    return {
        "memories": status.memories,
        "unsent": status.unsent,
        "conflicts": status.conflicts,
        "synced_at": None if synced_at is None else to_timestamp(synced_at).ToJsonString(),
        "lag_seconds": status.lag_seconds,
        "last_sync_at": status.last_sync_at,
        "dead_letters": [letter_json(letter) for letter in letters],
    }


def letter_json(letter: DeadLetter) -> dict[str, JsonValue]:
    """A refused operation."""
    return {
        "number": letter.position,
        "memory_id": letter.memory_id,
        "kind": _KINDS[letter.kind],
        "reason": letter.reason,
        "refused_at": to_timestamp(letter.refused_at).ToJsonString(),
        "content": letter.memory.content if letter.memory else None,
        "values": dict(letter.values),
    }


def status_lines(
    credentials: DeviceCredentials, file: Path, status: Status, now: Micros
) -> list[tuple[str, str]]:
    """How a device stands, as names and what is told of them."""
    subject = credentials.subject
    return [
        ("server", credentials.target),
        (subject.kind, subject.name),
        ("client", credentials.client_id),
        ("device", credentials.device_id),
        ("scopes", ", ".join(credentials.scopes) or "all"),
        ("file", str(file)),
        ("last sync", _last_sync(status, now)),
        ("memories", str(status.memories)),
        ("unsent", str(status.unsent)),
        ("refused", str(status.dead_letters)),
        ("conflicts", str(status.conflicts)),
    ]


def _last_sync(status: Status, now: Micros) -> str:
    if status.synced_at is None:
        return "never"
    return f"{local_time(status.synced_at)} ({relative_time(status.synced_at, now)})"


def letter_lines(letters: Sequence[DeadLetter], now: Micros) -> list[tuple[str, str]]:
    """Refused operations, each with its number, why, and what it would have written."""
    return [
        (
            f"refused {letter.position}",
            f"{_KINDS[letter.kind]} {letter.memory_id}, {relative_time(letter.refused_at, now)}:"
            f" {letter.reason}{_wanted(letter)}",
        )
        for letter in letters
    ]


def _wanted(letter: DeadLetter) -> str:
    if letter.memory is not None:
        return f"\n{letter.memory.content}"
    return "".join(f"\n{field}: {canonical_json(value)}" for field, value in letter.values.items())


def salvage_json(saved: Salvage) -> dict[str, JsonValue]:
    """What was kept of a damaged file."""
    return {
        "damaged": True,
        "unsent": saved.unsent,
        "local": saved.local,
        "dead_letters": saved.dead_letters,
        "incomplete": list(saved.incomplete),
        "damaged_file": str(saved.damaged),
    }


def salvage_line(saved: Salvage) -> str:
    """The same in one line."""
    told = (
        f"the file was damaged; kept: {saved.unsent} unsent, {saved.local} on this device only,"
        f" {saved.dead_letters} refused"
    )
    if saved.incomplete:
        told += f"; some of these may be lost: {', '.join(saved.incomplete)}"
    return f"{told}; the damaged file is {saved.damaged}"
