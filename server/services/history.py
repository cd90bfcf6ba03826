"""An operation as its message."""

from __future__ import annotations

from google.protobuf.struct_pb2 import Value

from scrubjay import v1
from scrubjay.memory import JsonValue, Micros, PrivacyLevel
from scrubjay.stamp import time_text
from scrubjay.wire import commit_micros, to_timestamp, to_value
from server.services.sentences import sentence
from server.store.history import HistoryChange, HistoryRow


def history_entry(row: HistoryRow) -> v1.HistoryEntry:
    """The message of one operation."""
    return v1.HistoryEntry(
        operation_id=row.operation_id,
        memory_id=row.memory_id,
        kind=v1.OperationKind.ValueType(row.kind),
        changes=[_field_change(change) for change in row.changes],
        client_id=row.client_id,
        replica_id=row.replica_id.hex(),
        actor=row.actor,
        role=row.role,
        outcome=v1.Outcome.ValueType(row.outcome),
        commit_stamp=time_text(row.commit_stamp),
        commit_time=to_timestamp(commit_micros(row.commit_stamp)),
        claimed_time=to_timestamp(row.claimed_at),
        spell_id=row.spell,
        sentence=sentence(row),
        reason=row.reason,
        restores=row.restores,
    )


def _field_change(change: HistoryChange) -> v1.FieldChange:
    return v1.FieldChange(
        field=change.field,
        old_value=_shown(change.field, change.old),
        new_value=_shown(change.field, change.new),
        stamp=str(change.stamp),
        base_stamp="" if change.base is None else str(change.base),
        outcome=v1.Outcome.ValueType(change.outcome),
    )


def _shown(field: str, value: JsonValue) -> Value | None:
    """A value as people write it: times as RFC 3339, the privacy level by name."""
    if value is None:
        return None
    if field in _TIMES and isinstance(value, int):
        return Value(string_value=to_timestamp(Micros(value)).ToJsonString())
    if field == "privacy_level" and isinstance(value, int):
        return Value(string_value=PrivacyLevel(value).name)
    return to_value(value)


_TIMES = frozenset({"valid_from", "valid_to", "expires_at"})
