"""Memories: what makes one valid, who may see it, and the one form of its JSON."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    Viewer,
    canonical_json,
    new_memory_id,
    normal_json,
    normal_metadata,
    parse_time,
    permitted,
    subject_of,
    visible,
    within,
)
from scrubjay.validity import (
    MAX_CONTENT_BYTES,
    MAX_JSON_DEPTH,
    MAX_MESSAGE_IDS,
    MAX_METADATA_BYTES,
    MAX_METADATA_KEY_BYTES,
    MAX_METADATA_KEYS,
    MAX_NAME_BYTES,
    MAX_TAG_BYTES,
    MAX_TAGS,
    is_memory_id,
    json_violation,
    text_violation,
    violations,
)
from tests.strategies import ID, json_values

VALID = Memory(ID, "likes tea", Micros(0), user_id="alice")


def nested(levels: int) -> JsonValue:
    """Lists and objects in turn, this many within each other."""
    value: JsonValue = 1
    for level in range(levels):
        value = [value] if level % 2 else {"k": value}
    return value


# --- validity ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"content": "x" * MAX_CONTENT_BYTES},
        {"content": " مرحبا 👋🏽 \u202e "},
        {"user_id": "", "run_id": "*"},
        {"user_id": "u" * MAX_NAME_BYTES},
        {"scope": "work/alpha/2026"},
        {"tags": frozenset(f"tag{n}" for n in range(MAX_TAGS))},
        {"tags": frozenset({"a.b", "t" * MAX_TAG_BYTES})},
        {"metadata": {f"key{n}": n for n in range(MAX_METADATA_KEYS)}},
        {"metadata": {"a.b": None, "k" * MAX_METADATA_KEY_BYTES: nested(MAX_JSON_DEPTH)}},
        {"metadata": {"k": "x" * (MAX_METADATA_BYTES - len('{"k":""}'))}},
        {"confidence": 0},
        {"privacy_level": PrivacyLevel.LOCAL_ONLY},
        {
            "created_at": MIN_MICROS,
            "valid_from": MIN_MICROS,
            "valid_to": MAX_MICROS,
            "expires_at": MAX_MICROS,
        },
        {"source": Source(message_ids=("m",) * MAX_MESSAGE_IDS, role="user")},
    ],
)
def test_a_valid_memory_breaks_no_rule(fields: dict[str, Any]) -> None:
    assert violations(replace(VALID, **fields)) == []


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"id": "x"}, "id"),
        ({"id": ID.upper()}, "id"),
        ({"id": f"{ID}\n"}, "id"),
        ({"user_id": ""}, "user_id"),
        ({"user_id": " "}, "user_id"),
        ({"agent_id": "a\0"}, "agent_id"),
        ({"run_id": "r" * (MAX_NAME_BYTES + 1)}, "run_id"),
        ({"user_id": "\ud800"}, "user_id"),
        ({"content": ""}, "content"),
        ({"content": " \u3000\n"}, "content"),
        ({"content": "a\0b"}, "content"),
        ({"content": "\udfff"}, "content"),
        ({"content": "é" * (MAX_CONTENT_BYTES // 2) + "x"}, "content"),
        ({"scope": ""}, "scope"),
        ({"scope": "/work"}, "scope"),
        ({"scope": "work//a"}, "scope"),
        ({"scope": "s" * (MAX_NAME_BYTES + 1)}, "scope"),
        ({"category": ""}, "category"),
        ({"category": " "}, "category"),
        ({"confidence": -0.1}, "confidence"),
        ({"confidence": 1.1}, "confidence"),
        ({"confidence": float("nan")}, "confidence"),
        ({"created_at": MIN_MICROS - 1}, "created_at"),
        ({"expires_at": MAX_MICROS + 1}, "expires_at"),
        ({"valid_from": 5, "valid_to": 5}, "valid_to"),
        ({"tags": frozenset({" "})}, "tags"),
        ({"tags": frozenset({"t" * (MAX_TAG_BYTES + 1)})}, "tags"),
        ({"tags": frozenset({"\ud800"})}, "tags"),
        ({"tags": frozenset(f"tag{n}" for n in range(MAX_TAGS + 1))}, "tags"),
        ({"metadata": {f"key{n}": n for n in range(MAX_METADATA_KEYS + 1)}}, "metadata"),
        ({"metadata": {"k": "x" * MAX_METADATA_BYTES}}, "metadata"),
        ({"metadata": {"user_id": "bob"}}, "metadata.user_id"),
        ({"metadata": {"": 1}}, "metadata."),
        ({"metadata": {"\ud800": 1}}, "metadata.\ud800"),
        ({"metadata": {"a\0": 1}}, "metadata.a\0"),
        (
            {"metadata": {"k" * (MAX_METADATA_KEY_BYTES + 1): 1}},
            "metadata." + "k" * (MAX_METADATA_KEY_BYTES + 1),
        ),
        ({"metadata": {"fine": 1, "k": nested(MAX_JSON_DEPTH + 1)}}, "metadata.k"),
        ({"metadata": {"k": b"bytes"}}, "metadata.k"),
        ({"source": Source(role="r" * (MAX_NAME_BYTES + 1))}, "source.role"),
        ({"source": Source(message_ids=("m\0",))}, "source.message_ids"),
        ({"source": Source(message_ids=("m",) * (MAX_MESSAGE_IDS + 1))}, "source.message_ids"),
    ],
)
def test_a_broken_rule_is_named_by_its_field(fields: dict[str, Any], field: str) -> None:
    assert [violation.field for violation in violations(replace(VALID, **fields))] == [field]


def test_every_broken_rule_is_named_at_once() -> None:
    wrong = replace(VALID, content="", category="", metadata={"a": float("inf"), "b": "\0"})
    found = [violation.field for violation in violations(wrong)]
    assert found == ["content", "category", "metadata.a", "metadata.b"]


@pytest.mark.parametrize(
    "value",
    [
        *(float("nan"), float("inf"), -float("inf"), 10**400, "a\0", "\ud800", b"x", {1}, object()),
        *({1: "x"}, {"\0": 1}, [["\udfff"]], {"a": {"b": float("nan")}}, nested(MAX_JSON_DEPTH + 1)),
        nested(100_000),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_json_is_refused(value: Any) -> None:
    violation = json_violation("metadata.k", value)
    assert violation is not None
    assert violation.field == "metadata.k"


def test_a_query_at_the_limit_is_a_text_and_one_byte_more_is_none() -> None:
    assert text_violation("query", "x" * MAX_CONTENT_BYTES) is None
    assert text_violation("query", "x" * MAX_CONTENT_BYTES + "x") is not None


# --- one form of JSON -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((1.0, "1"), (-0.0, "0"), (1, "1"), (True, "true"), (None, "null"), (1.5, "1.5"), (0.1, "0.1")),
        *((2.0**53, "9007199254740992"), (2**53 + 1, "9007199254740992"), (2**53 + 2, "9007199254740994.0")),
        *((10**21, "1e+21"), (1e21, "1e+21"), (-(2**53), "-9007199254740992")),
        ({"b": (1.0, "é/\u2028"), "a": {"n": None}}, '{"a":{"n":null},"b":[1,"é/\u2028"]}'),
        (PrivacyLevel.PRIVATE, "2"),
    ],
)
def test_the_same_value_has_the_same_bytes(value: JsonValue, text: str) -> None:
    assert canonical_json(normal_json(value)) == text


@given(json_values)
def test_the_form_of_json_is_for_good(value: JsonValue) -> None:
    once = normal_json(value)
    assert canonical_json(normal_json(once)) == canonical_json(once)


def test_a_null_member_of_metadata_counts_as_absent_and_a_deeper_one_does_not() -> None:
    assert normal_metadata({"a": None, "b": {"c": None}, "d": [None]}) == {"b": {"c": None}, "d": [None]}


# --- times -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01t00:00:00.5z", 500_000),
        ("1970-01-01T00:00:00.0000019Z", 1),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1969-12-31T23:59:59.999999-00:00", -1),
        ("0001-01-01T00:00:00Z", MIN_MICROS),
        ("9999-12-31T23:59:59.999999999Z", MAX_MICROS),
        ("0001-01-01T00:00:00+00:01", None),
        ("9999-12-31T23:59:00-00:01", None),
        ("2026-02-29T00:00:00Z", None),
        ("2026-11-30T08:00:00", None),
        ("٢٠٢٦-11-30T08:00:00Z", None),
    ],
)
def test_a_time_is_read_from_rfc_3339_text(text: str, time: int | None) -> None:
    assert parse_time(text) == time


@given(st.datetimes(), st.integers(-1439, 1439))
def test_every_time_reads_back_from_its_text(local: datetime, offset: int) -> None:
    at = local.replace(tzinfo=timezone(timedelta(minutes=offset)))
    micros = (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    assert parse_time(at.isoformat()) == (micros if MIN_MICROS <= micros <= MAX_MICROS else None)


# --- who sees it, whom it is about, where it lies ------------------------------------------------------


@pytest.mark.parametrize(
    ("level", "client", "seen"),
    [
        (PrivacyLevel.SHARED, "laptop", True),
        (PrivacyLevel.PRIVATE, "phone", True),
        (PrivacyLevel.PRIVATE, "laptop", False),
        (PrivacyLevel.PRIVATE, "", False),
        (PrivacyLevel.LOCAL_ONLY, "phone", False),
    ],
)
def test_privacy_decides_by_the_asking_client(level: PrivacyLevel, client: str, seen: bool) -> None:
    memory = replace(VALID, privacy_level=level, owner_client_id=ClientId("phone"), expires_at=Micros(10))
    assert permitted(memory, ClientId(client)) is seen
    assert visible(memory, Viewer(ClientId(client)), Micros(9)) is seen
    assert visible(memory, Viewer(ClientId(client)), Micros(10)) is False


@pytest.mark.parametrize(
    ("ids", "key"),
    [
        (("alice", "bot", "7"), "user:alice"),
        (("", "bot", "7"), "agent:bot"),
        (("", "", "7"), "run:7"),
        (("*", "", ""), "user:*"),
        (("", "", ""), None),
    ],
)
def test_the_subject_is_the_user_else_the_agent_else_the_run(
    ids: tuple[str, str, str], key: str | None
) -> None:
    subject = subject_of(*ids)
    assert (subject and subject.key) == key


def test_a_memory_about_nobody_has_no_subject() -> None:
    assert VALID.subject.key == "user:alice"
    with pytest.raises(ValueError, match="no user_id"):
        _ = replace(VALID, user_id="").subject


@pytest.mark.parametrize(
    ("scope", "ancestor", "inside"),
    [
        ("acme", "acme", True),
        ("acme/x/y", "acme", True),
        ("acme/x", "acme/x", True),
        ("acme-corp", "acme", False),
        ("acme", "acme/x", False),
    ],
)
def test_scopes_compare_by_segment(scope: str, ancestor: str, inside: bool) -> None:
    assert within(scope, ancestor) is inside


@given(st.integers(0, 2**48 - 1), st.binary(min_size=10, max_size=10), st.integers(1, 10**6))
def test_a_new_id_is_a_uuid_of_its_time(millis: int, randomness: bytes, later: int) -> None:
    memory_id = new_memory_id(millis, randomness)
    parsed = uuid.UUID(memory_id)
    assert is_memory_id(memory_id)
    assert (parsed.version, parsed.variant) == (7, uuid.RFC_4122)
    assert parsed.int >> 80 == millis
    if millis + later < 2**48:
        assert memory_id < new_memory_id(millis + later, randomness)


def test_new_ids_of_one_millisecond_differ_by_their_randomness() -> None:
    assert len({new_memory_id(5, bytes(9) + bytes([n])) for n in range(256)}) == 256
    assert MemoryId(str(uuid.UUID(int=0))) != new_memory_id(0, bytes(10))
