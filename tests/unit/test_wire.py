"""Values to messages and back, and messages that no value can hold."""

from __future__ import annotations

from dataclasses import replace

import pytest
from google.protobuf import struct_pb2, timestamp_pb2
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from scrubjay import v1
from scrubjay.errors import InvalidField
from scrubjay.memory import (
    MAX_MICROS,
    MIN_MICROS,
    ClientId,
    JsonValue,
    Memory,
    MemoryId,
    Micros,
    PrivacyLevel,
    Source,
    canonical_json,
    normal_json,
)
from scrubjay.merge import create
from scrubjay.stamp import CommitStamp, Stamp, parse_time_text
from scrubjay.validity import MAX_JSON_DEPTH, violations
from scrubjay.wire import (
    commit_micros,
    from_message,
    from_struct,
    from_timestamp,
    from_value,
    to_etag,
    to_message,
    to_struct,
    to_timestamp,
    to_value,
)
from tests.strategies import OWNER, REPLICAS, json_values, memories

NEW_ID = MemoryId("019ad1c0-0000-7000-8000-00000000000f")
NOW = Micros(1_764_489_600_000_000)
COMMIT = CommitStamp(1_764_489_600_123 << 16 | 7)


def read(message: v1.Memory) -> Memory:
    return from_message(message, memory_id=NEW_ID, owner=OWNER, now=NOW)


def nested(levels: int) -> struct_pb2.Value:
    """Lists and objects in turn, this many within each other."""
    outermost = innermost = struct_pb2.Value()
    for level in range(levels):
        innermost = innermost.list_value.values.add() if level % 2 else innermost.struct_value.fields["k"]
    innermost.number_value = 1
    return outermost


@given(memories)
def test_a_memory_reads_back_from_its_message(memory: Memory) -> None:
    stored = create(memory, Stamp(1, REPLICAS[0])).memory
    sent = v1.Memory.FromString(to_message(stored, COMMIT).SerializeToString())
    found = read(sent)
    assert found == replace(stored, source=replace(stored.source, client_id=OWNER))
    assert canonical_json(found.metadata) == canonical_json(stored.metadata)


@given(memories)
def test_a_client_that_sends_its_own_memory_stores_what_it_would_store_itself(memory: Memory) -> None:
    struct = to_struct(memory.metadata)
    at_home = create(memory, Stamp(1, REPLICAS[0])).memory.metadata
    assert canonical_json(from_struct(struct)) == canonical_json(at_home)


def test_what_the_server_says_is_not_read_from_a_writer() -> None:
    message = v1.Memory(
        content="x", owner_client_id="mallory", etag="e", source=v1.Source(client_id="mallory")
    )
    message.updated_at.FromSeconds(5)
    assert read(message) == Memory(NEW_ID, "x", NOW, owner_client_id=OWNER, source=Source(client_id=OWNER))


def test_the_contract_has_its_defaults() -> None:
    memory = read(v1.Memory(content="x"))
    assert (memory.scope, memory.category, memory.confidence) == ("general", "FACT", 1.0)
    assert (memory.privacy_level, memory.pinned, memory.expires_at) == (PrivacyLevel.SHARED, False, None)
    assert read(v1.Memory(confidence=0)).confidence == 0


@pytest.mark.parametrize("level", list(PrivacyLevel))
def test_a_known_privacy_level_is_read(level: PrivacyLevel) -> None:
    assert read(v1.Memory(privacy_level=v1.PrivacyLevel.ValueType(level))).privacy_level is level


@pytest.mark.parametrize("number", [9, -1, 2**31 - 1])
def test_an_unknown_privacy_level_is_a_wrong_field(number: int) -> None:
    with pytest.raises(InvalidField, match=str(number)) as refusal:
        read(v1.Memory(privacy_level=v1.PrivacyLevel.ValueType(number)))
    assert [violation.field for violation in refusal.value.field_violations] == ["privacy_level"]


# --- times -------------------------------------------------------------------------------------------


@given(st.integers(MIN_MICROS, MAX_MICROS).map(Micros))
@example(MIN_MICROS)
@example(MAX_MICROS)
@example(Micros(-1))
def test_a_time_reads_back_from_its_timestamp(time: Micros) -> None:
    message = to_timestamp(time)
    assert 0 <= message.nanos < 10**9
    assert from_timestamp(message) == time
    assert from_timestamp(timestamp_pb2.Timestamp.FromString(message.SerializeToString())) == time


def test_parts_finer_than_a_microsecond_are_cut_off() -> None:
    assert from_timestamp(timestamp_pb2.Timestamp(seconds=-1, nanos=999_999_999)) == -1


@pytest.mark.parametrize("seconds", [2**63 - 1, -(2**63), 253_402_300_800, -62_135_596_801])
@pytest.mark.parametrize("field", ["created_at", "valid_from", "valid_to", "expires_at"])
def test_a_time_outside_the_years_is_a_wrong_field(field: str, seconds: int) -> None:
    message = v1.Memory(content="x", user_id="alice")
    getattr(message, field).seconds = seconds
    assert [violation.field for violation in violations(read(message))] == [field]


@given(st.integers(0, 253_402_300_799_999 << 16).map(CommitStamp))
def test_an_etag_is_the_commit_stamp_in_text_and_updated_at_its_time(commit: CommitStamp) -> None:
    message = to_message(Memory(NEW_ID, "x", NOW), commit)
    assert parse_time_text(message.etag) == commit
    assert message.etag == to_etag(commit)
    assert from_timestamp(message.updated_at) == commit_micros(commit) == (commit >> 16) * 1000


# --- JSON ----------------------------------------------------------------------------------------------


@given(json_values | st.none())
@example({})
@example([])
@example({"a": {}, "b": [[]]})
@example([None, {"a": None}])
@example(1e300)
def test_json_reads_back_in_its_one_form(value: JsonValue) -> None:
    message = struct_pb2.Value.FromString(to_value(value).SerializeToString())
    assert canonical_json(from_value(message)) == canonical_json(normal_json(value))


def test_a_null_member_counts_as_absent_and_a_value_without_a_kind_is_null() -> None:
    struct = to_struct({"a": None, "b": [None], "c": 1})
    struct.fields["d"].SetInParent()
    assert from_struct(struct) == {"b": [None], "c": 1}
    assert from_value(struct_pb2.Value()) is None


def test_a_key_with_dots_is_one_key() -> None:
    assert from_struct(to_struct({"a.b": 1})) == {"a.b": 1}


def test_json_is_read_to_its_depth_and_no_deeper() -> None:
    assert from_value(nested(MAX_JSON_DEPTH)) is not None
    message = v1.Memory(content="x")
    message.metadata.fields["fine"].number_value = 1
    message.metadata.fields["k"].CopyFrom(nested(MAX_JSON_DEPTH + 1))
    with pytest.raises(InvalidField, match="nested deeper than 16") as refusal:
        read(message)
    assert [violation.field for violation in refusal.value.field_violations] == ["metadata.k"]


@pytest.mark.parametrize("levels", [MAX_JSON_DEPTH + 1, 35])
def test_json_that_is_sent_too_deep_is_refused_here_or_by_protobuf(levels: int) -> None:
    with pytest.raises((InvalidField, DecodeError)):
        from_value(struct_pb2.Value.FromString(nested(levels).SerializeToString()))


def test_a_deep_value_of_this_process_is_refused_too() -> None:
    with pytest.raises(InvalidField) as refusal:
        from_value(nested(5000), "filter.condition.value")
    assert refusal.value.field_violations[0].field == "filter.condition.value"


def test_a_private_memory_says_who_owns_it() -> None:
    memory = Memory(NEW_ID, "x", NOW, owner_client_id=ClientId("phone"), privacy_level=PrivacyLevel.PRIVATE)
    message = to_message(memory, COMMIT)
    assert (message.owner_client_id, message.privacy_level) == ("phone", v1.PRIVACY_LEVEL_PRIVATE)
