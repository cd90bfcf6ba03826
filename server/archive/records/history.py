"""The lines of what happened: operations and deletions."""

from __future__ import annotations

from scrubjay import v1
from scrubjay.memory import JsonValue
from scrubjay.merge import Outcome
from scrubjay.operation import OperationKind
from scrubjay.stamp import Stamp
from scrubjay.wire import from_timestamp
from server.archive import values
from server.archive.records.frame import Stream
from server.archive.records.memories import MOST_REGISTERS, memory_of
from server.archive.values import Fault, Line
from server.store.history import HistoryChange, HistoryRow
from server.store.memory_store import Grave

_FOR_READERS = ("changes", "sentence", "commit_time")
"""Of a HistoryEntry what follows from the rest; reading it would take most of the time."""
_ENTRY_TEXTS = (
    *("operation_id", "memory_id", "client_id", "replica_id"),
    *("actor", "role", "spell_id", "restores", "reason"),
)


def read_operation(line: Line, stream: Stream) -> HistoryRow:
    """One operation of the history."""
    told = {name: one for name, one in values.mapping(line, "entry").items() if name not in _FOR_READERS}
    entry = values.message_of({"entry": told}, "entry", v1.HistoryEntry)
    given = {name: getattr(entry, name) for name in _ENTRY_TEXTS}
    if not entry.HasField("claimed_time"):
        raise Fault("entry.claimed_time is not there")
    deleted = b""
    if "deleted" in line:
        message = values.message_of(line, "deleted", v1.Memory)
        memory_of(message, stream)
        deleted = message.SerializeToString(deterministic=True)
    return HistoryRow(
        operation_id=values.uuid(given, "operation_id"),
        memory_id=values.uuid(given, "memory_id"),
        commit_stamp=values.commit_stamp(entry.commit_stamp, "entry.commit_stamp", stream.head),
        kind=values.member(entry.kind, "entry.kind", OperationKind),
        changes=_changes(line, stream),
        client_id=values.client(given, "client_id"),
        replica_id=values.replica(given, "replica_id"),
        actor=values.text(given, "actor"),
        role=values.text(given, "role"),
        outcome=values.member(entry.outcome, "entry.outcome", Outcome),
        claimed_at=from_timestamp(entry.claimed_time),
        private_to=values.client(line, "private_to"),
        spell=values.text(given, "spell_id"),
        deleted=deleted,
        restores=values.uuid(given, "restores") if entry.restores else "",
        reason=values.text(given, "reason"),
    )


def _changes(line: Line, stream: Stream) -> tuple[HistoryChange, ...]:
    changes: list[HistoryChange] = []
    for group in values.listed(line, "registers", MOST_REGISTERS):
        if not isinstance(group, list) or len(group) != 4 or not isinstance(group[3], list):
            raise Fault("registers holds what is no group of writes")
        stamp = values.packed_stamp(group[0], "registers", stream.latest)
        base = values.packed_stamp(group[1], "registers", stream.latest) if group[1] else None
        outcome = values.member(group[2], "registers", Outcome)
        changes += [_change(one, stamp, base, outcome) for one in group[3]]
    return tuple(changes)


def _change(write: object, stamp: Stamp, base: Stamp | None, outcome: Outcome) -> HistoryChange:
    if not isinstance(write, list) or len(write) != 3:
        raise Fault("registers holds what is no write")
    name = values.register_name(write[0])
    old: JsonValue = values.register_value(name, write[1])
    return HistoryChange(name, old, values.register_value(name, write[2]), stamp, base, outcome)


def read_grave(line: Line, stream: Stream) -> Grave:
    """A deletion."""
    return Grave(
        values.uuid(line, "memory_id"),
        values.commit_stamp(line.get("commit_stamp"), "commit_stamp", stream.head),
        values.stamp(line.get("stamp"), "stamp", stream.latest),
        values.client(line, "private_to"),
        values.named(line, "scope"),
    )
