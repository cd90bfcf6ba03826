"""Filters against a naive evaluator, the laws of a boolean algebra, and the refusal of every wrong node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scrubjay import v1
from scrubjay.errors import InvalidField
from scrubjay.filters import (
    MAX_CONDITIONS,
    MAX_DEPTH,
    MAX_LIST_VALUES,
    AllOf,
    AnyOf,
    Condition,
    Filter,
    Negation,
    Operator,
    from_message,
    matcher,
)
from scrubjay.memory import ClientId, JsonValue, Memory, MemoryId, Micros, canonical_json, normal_json
from scrubjay.text import fold
from scrubjay.wire import to_value
from tests.strategies import json_values, memories, micros, names, tags, texts

TEXT_FIELDS = [
    *("id", "user_id", "agent_id", "run_id", "scope", "category", "content", "owner_client_id"),
    *("source.conversation_id", "source.role", "source.trust_class", "superseded_by"),
]
TIME_FIELDS = ["created_at", "updated_at", "valid_from", "valid_to", "expires_at"]
METADATA_FIELDS = ["metadata.a", "metadata.b", "metadata.a.b"]
ORDERED = [Operator.GT, Operator.GTE, Operator.LT, Operator.LTE]
LISTED = [Operator.IN, Operator.NIN]
EQUALITY = [Operator.EQ, Operator.NE]

texts_to_find = texts | names | st.sampled_from(["general", "FACT", "te", "EA", "绿", "phone"])
numbers = st.sampled_from([0, 0.5, 1, 1.0, 2**53 + 1])
levels = st.sampled_from(["PRIVATE", "SHARED"])


def _conditions(
    fields: list[str], operators: list[Operator], values: st.SearchStrategy[Any]
) -> st.SearchStrategy[Condition]:
    """Conditions with one value, with a list of them, and about presence."""
    field, one = st.sampled_from(fields), [o for o in operators if o not in LISTED]
    found = st.builds(Condition, field, st.just(Operator.EXISTS), st.booleans())
    found |= st.builds(Condition, field, st.sampled_from(one), values)
    if LISTED[0] in operators:
        several = st.lists(values, min_size=1, max_size=3)
        found |= st.builds(Condition, field, st.sampled_from(LISTED), several)
    return found


finding = [Operator.CONTAINS, Operator.ICONTAINS]
conditions = st.one_of(
    _conditions(TEXT_FIELDS, [*EQUALITY, *ORDERED, *LISTED, *finding], texts_to_find),
    _conditions(["tags"], finding, tags | st.just("A")),
    _conditions(["confidence"], [*EQUALITY, *ORDERED, *LISTED], numbers),
    _conditions(["pinned"], EQUALITY, st.booleans()),
    _conditions(["privacy_level"], [*EQUALITY, *LISTED], levels),
    _conditions(TIME_FIELDS, [*EQUALITY, *ORDERED, *LISTED], micros),
    _conditions(METADATA_FIELDS, [*EQUALITY, *LISTED, Operator.CONTAINS], json_values),
    _conditions(METADATA_FIELDS, ORDERED, texts_to_find | numbers),
    _conditions(METADATA_FIELDS, [Operator.ICONTAINS], texts_to_find),
)
filters: st.SearchStrategy[Filter] = st.recursive(
    conditions,
    lambda inner: st.one_of(
        st.builds(AllOf, st.lists(inner, min_size=1, max_size=3).map(tuple)),
        st.builds(AnyOf, st.lists(inner, min_size=1, max_size=3).map(tuple)),
        st.builds(Negation, inner),
    ),
    max_leaves=5,
)


# --- the naive evaluator: no closures, no sets, one plain question after another ------------------


def naive(node: Filter, memory: Memory, updated_at: Micros) -> bool:
    if isinstance(node, AllOf):
        return all(naive(part, memory, updated_at) for part in node.filters)
    if isinstance(node, AnyOf):
        return any(naive(part, memory, updated_at) for part in node.filters)
    if isinstance(node, Negation):
        return not naive(node.filter, memory, updated_at)
    return _holds(node, _found(node.field, memory, updated_at))


def _found(field: str, memory: Memory, updated_at: Micros) -> Any:
    if field.startswith("metadata."):
        return memory.metadata.get(field[len("metadata.") :])
    if field.startswith("source."):
        return getattr(memory.source, field[len("source.") :])
    found = {
        "updated_at": updated_at,
        "privacy_level": memory.privacy_level.name,
        "tags": sorted(memory.tags),
    }
    return found[field] if field in found else getattr(memory, field)


def _holds(condition: Condition, found: Any) -> bool:
    value: Any = condition.value
    missing = found is None or (found in ("", []) and not condition.field.startswith("metadata."))
    match condition.operator:
        case Operator.EXISTS:
            return missing is not value
        case Operator.EQ:
            return _same(found, value)
        case Operator.NE:
            return not _same(found, value)
        case Operator.IN:
            return any(_same(found, one) for one in value)
        case Operator.NIN:
            return not any(_same(found, one) for one in value)
    if missing:
        return False
    match condition.operator:
        case Operator.CONTAINS if isinstance(found, str):
            return isinstance(value, str) and value in found
        case Operator.CONTAINS:
            return isinstance(found, list) and any(_same(one, value) for one in found)
        case Operator.ICONTAINS if isinstance(found, str):
            return fold(value) in fold(found)
        case Operator.ICONTAINS:
            return isinstance(found, list) and fold(value) in [fold(o) for o in found if isinstance(o, str)]
    if _json_type(found) != _json_type(value):
        return False
    return {
        Operator.GT: found > value,
        Operator.GTE: found >= value,
        Operator.LT: found < value,
        Operator.LTE: found <= value,
    }[condition.operator]


def _same(one: Any, other: Any) -> bool:
    """Equality by JSON type, member by member."""
    if _json_type(one) != _json_type(other):
        return False
    if isinstance(one, Sequence) and not isinstance(one, str):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    return bool(one == other)


def _json_type(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return type(value).__name__
    return "number" if isinstance(value, int | float) else type(value).__name__


# --- as a message ---------------------------------------------------------------------------------


def message_of(node: Filter) -> v1.Filter:
    if isinstance(node, AllOf):
        return v1.Filter(all_of=v1.FilterList(filters=map(message_of, node.filters)))
    if isinstance(node, AnyOf):
        return v1.Filter(any_of=v1.FilterList(filters=map(message_of, node.filters)))
    if isinstance(node, Negation):
        return v1.Filter(negation=message_of(node.filter))
    value = node.value
    if node.field in TIME_FIELDS and node.operator is not Operator.EXISTS:
        value = [_rfc3339(one) for one in value] if isinstance(value, list) else _rfc3339(value)
    return condition(node.field, node.operator, value)


def _rfc3339(time: Any) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time)).isoformat()


def condition(field: str, operator: int, value: JsonValue) -> v1.Filter:
    return v1.Filter(
        condition=v1.Condition(field=field, operator=v1.Operator.ValueType(operator), value=to_value(value))
    )


# --- the laws -------------------------------------------------------------------------------------


@settings(max_examples=500)
@given(filters, memories, micros)
def test_a_filter_finds_what_the_naive_evaluator_finds(node: Filter, memory: Memory, at: Micros) -> None:
    assert matcher(node)(memory, at) is naive(node, memory, at)


@given(filters)
def test_a_filter_reads_back_from_its_message(node: Filter) -> None:
    assert _form(from_message(message_of(node))) == _form(node)


def _form(node: Filter) -> Any:
    """The filter in a form in which 1 and true differ, and 1 and 1.0 do not."""
    if isinstance(node, Condition):
        value = node.value if node.field in TIME_FIELDS else normal_json(node.value)
        return node.field, node.operator, canonical_json(value)
    if isinstance(node, Negation):
        return "not", _form(node.filter)
    return type(node).__name__, [_form(part) for part in node.filters]


@given(conditions, memories, micros)
def test_ne_and_nin_are_the_negations_of_eq_and_in(one: Condition, memory: Memory, at: Micros) -> None:
    opposite = {Operator.EQ: Operator.NE, Operator.IN: Operator.NIN}.get(one.operator)
    if opposite is not None:
        other = Condition(one.field, opposite, one.value)
        assert matcher(other)(memory, at) is matcher(Negation(one))(memory, at)


@given(st.lists(filters, min_size=1, max_size=3).map(tuple), memories, micros)
def test_de_morgan_holds(parts: tuple[Filter, ...], memory: Memory, at: Micros) -> None:
    negated = tuple(map(Negation, parts))
    assert matcher(Negation(AllOf(parts)))(memory, at) is matcher(AnyOf(negated))(memory, at)
    assert matcher(Negation(AnyOf(parts)))(memory, at) is matcher(AllOf(negated))(memory, at)


@given(conditions, memories, micros)
def test_of_two_ordered_values_exactly_one_comparison_holds(
    one: Condition, memory: Memory, at: Micros
) -> None:
    if one.operator in ORDERED:
        held = [
            operator
            for operator in (Operator.LT, Operator.EQ, Operator.GT)
            if matcher(Condition(one.field, operator, one.value))(memory, at)
        ]
        either = matcher(Condition(one.field, Operator.GTE, one.value))(memory, at)
        assert len(held) <= 1
        assert either is (held in ([Operator.EQ], [Operator.GT]) and _found(one.field, memory, at) != "")


# --- what a condition means, by example ------------------------------------------------------------

ROW = Memory(
    MemoryId("019ad1c0-0000-7000-8000-000000000001"),
    "Anna ＬＩＫＥＳ Straßen und 绿茶",
    Micros(1_000_000),
    user_id="alice",
    owner_client_id=ClientId("phone"),
    tags=frozenset({"Work", "a.b"}),
    metadata={"a.b": 1, "flag": True, "list": [1, "Tea", {"k": 1}], "empty": "", "text": "Green Tea"},
)
UPDATED_AT = Micros(5_000_000)


@pytest.mark.parametrize(
    ("field", "operator", "value", "holds"),
    [
        ("content", Operator.ICONTAINS, "anna likes STRASSEN", True),
        ("content", Operator.CONTAINS, "绿茶", True),
        ("content", Operator.CONTAINS, "anna", False),
        ("tags", Operator.CONTAINS, "Work", True),
        ("tags", Operator.CONTAINS, "Wor", False),
        ("tags", Operator.ICONTAINS, "ｗｏｒｋ", True),
        ("metadata.a.b", Operator.EQ, 1.0, True),
        ("metadata.a.b", Operator.EQ, True, False),
        ("metadata.a.b", Operator.EQ, "1", False),
        ("metadata.a.b", Operator.GT, "0", False),
        ("metadata.flag", Operator.EQ, 1, False),
        ("metadata.flag", Operator.GTE, 0, False),
        ("metadata.flag", Operator.IN, [1, True], True),
        ("metadata.list", Operator.CONTAINS, "Tea", True),
        ("metadata.list", Operator.CONTAINS, "Te", False),
        ("metadata.list", Operator.CONTAINS, True, False),
        ("metadata.list", Operator.CONTAINS, {"k": 1.0}, True),
        ("metadata.list", Operator.CONTAINS, {"j": 1}, False),
        ("metadata.list", Operator.ICONTAINS, "tea", True),
        ("metadata.list", Operator.ICONTAINS, "te", False),
        ("metadata.text", Operator.CONTAINS, 1, False),
        ("metadata.list", Operator.EQ, [1, "Tea", {"k": 1}], True),
        ("metadata.text", Operator.ICONTAINS, "green t", True),
        ("metadata.empty", Operator.EXISTS, True, True),
        ("metadata.none", Operator.EXISTS, False, True),
        ("metadata.none", Operator.NIN, [1], True),
        ("metadata.none", Operator.NE, 1, True),
        ("metadata.none", Operator.LT, 1, False),
        ("agent_id", Operator.EXISTS, False, True),
        ("agent_id", Operator.EQ, "", True),
        ("agent_id", Operator.NE, "x", True),
        ("agent_id", Operator.CONTAINS, "", False),
        ("agent_id", Operator.ICONTAINS, "", False),
        ("category", Operator.NIN, ["TASK", "FACT"], False),
        ("tags", Operator.EXISTS, True, True),
        ("agent_id", Operator.LT, "x", False),
        ("source.role", Operator.EXISTS, False, True),
        ("valid_to", Operator.NE, "2026-01-01T00:00:00Z", True),
        ("valid_to", Operator.LT, "2026-01-01T00:00:00Z", False),
        ("created_at", Operator.EQ, "1970-01-01T01:00:01.0000009+01:00", True),
        ("created_at", Operator.GT, "1970-01-01T00:00:00.999999Z", True),
        ("updated_at", Operator.IN, ["1970-01-01T00:00:05Z"], True),
        ("privacy_level", Operator.EQ, "SHARED", True),
        ("privacy_level", Operator.NIN, ["PRIVATE"], True),
        ("pinned", Operator.EQ, False, True),
        ("confidence", Operator.GTE, 1, True),
        ("user_id", Operator.EQ, "*", False),
    ],
)
def test_a_condition_means(field: str, operator: Operator, value: JsonValue, holds: bool) -> None:
    assert matcher(from_message(condition(field, operator, value)))(ROW, UPDATED_AT) is holds


# --- what is refused, and where ---------------------------------------------------------------------

FINE = condition("category", Operator.EQ, "FACT")


def all_of(*parts: v1.Filter) -> v1.Filter:
    return v1.Filter(all_of=v1.FilterList(filters=parts))


def negated(times: int) -> v1.Filter:
    return v1.Filter(negation=negated(times - 1)) if times else FINE


def nested_list(levels: int) -> JsonValue:
    return [nested_list(levels - 1)] if levels else 1


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (v1.Filter(), "filter"),
        (all_of(), "filter.all_of.filters"),
        (v1.Filter(any_of=v1.FilterList()), "filter.any_of.filters"),
        (v1.Filter(any_of=v1.FilterList(filters=[FINE, v1.Filter()])), "filter.any_of.filters[1]"),
        (v1.Filter(negation=v1.Filter()), "filter.negation"),
        (all_of(FINE, condition("colour", 1, "x")), "filter.all_of.filters[1].condition.field"),
        (condition("", 1, "x"), "filter.condition.field"),
        (condition("metadata.", 1, "x"), "filter.condition.field"),
        (condition("metadata", 1, "x"), "filter.condition.field"),
        (condition("source", 1, "x"), "filter.condition.field"),
        (condition("Category", 1, "x"), "filter.condition.field"),
        (condition("category", 0, "x"), "filter.condition.operator"),
        (condition("category", 99, "x"), "filter.condition.operator"),
        (condition("category", -1, "x"), "filter.condition.operator"),
        (condition("tags", Operator.EQ, "x"), "filter.condition.operator"),
        (condition("tags", Operator.IN, ["x"]), "filter.condition.operator"),
        (condition("pinned", Operator.GT, True), "filter.condition.operator"),
        (condition("privacy_level", Operator.LT, "SHARED"), "filter.condition.operator"),
        (condition("confidence", Operator.CONTAINS, 1), "filter.condition.operator"),
        (condition("created_at", Operator.ICONTAINS, "2026"), "filter.condition.operator"),
        (v1.Filter(condition=v1.Condition(field="id", operator=1)), "filter.condition.value"),
        (condition("category", Operator.EQ, None), "filter.condition.value"),
        (condition("category", Operator.EQ, 1), "filter.condition.value"),
        (condition("category", Operator.EQ, ["FACT"]), "filter.condition.value"),
        (condition("category", Operator.IN, "FACT"), "filter.condition.value"),
        (condition("category", Operator.IN, []), "filter.condition.value"),
        (condition("category", Operator.IN, ["x"] * (MAX_LIST_VALUES + 1)), "filter.condition.value"),
        (condition("category", Operator.IN, ["x", 1]), "filter.condition.value[1]"),
        (condition("category", Operator.EXISTS, "true"), "filter.condition.value"),
        (condition("tags", Operator.CONTAINS, 1), "filter.condition.value"),
        (condition("confidence", Operator.EQ, True), "filter.condition.value"),
        (condition("confidence", Operator.EQ, "1"), "filter.condition.value"),
        (condition("confidence", Operator.EQ, float("nan")), "filter.condition.value"),
        (condition("confidence", Operator.LT, float("inf")), "filter.condition.value"),
        (condition("pinned", Operator.EQ, 1), "filter.condition.value"),
        (condition("privacy_level", Operator.EQ, "private"), "filter.condition.value"),
        (condition("privacy_level", Operator.EQ, 2), "filter.condition.value"),
        (condition("metadata.a", Operator.EQ, None), "filter.condition.value"),
        (condition("metadata.a", Operator.GT, True), "filter.condition.value"),
        (condition("metadata.a", Operator.GT, [1]), "filter.condition.value"),
        (condition("metadata.a", Operator.ICONTAINS, 1), "filter.condition.value"),
        (condition("metadata.a", Operator.EQ, [float("nan")]), "filter.condition.value"),
        (condition("metadata.a", Operator.IN, [1, None]), "filter.condition.value[1]"),
        (condition("metadata.a", Operator.EQ, nested_list(17)), "filter.condition.value"),
        (negated(MAX_DEPTH), "filter" + ".negation" * MAX_DEPTH),
        (all_of(all_of(negated(MAX_DEPTH - 2))), "filter" + ".all_of.filters[0]" * 2 + ".negation" * 6),
        (all_of(*[FINE] * (MAX_CONDITIONS + 1)), f"filter.all_of.filters[{MAX_CONDITIONS}].condition"),
    ],
)
def test_a_wrong_filter_is_refused_with_its_position(message: v1.Filter, field: str) -> None:
    with pytest.raises(InvalidField) as refusal:
        from_message(message)
    assert [violation.field for violation in refusal.value.field_violations] == [field]


def test_a_position_begins_where_the_caller_says() -> None:
    with pytest.raises(InvalidField) as refusal:
        from_message(v1.Filter(), "search.filter")
    assert refusal.value.field_violations[0].field == "search.filter"


@pytest.mark.parametrize(
    "text",
    [
        *("", "yesterday", "2026-11-30", "2026-11-30T08:00:00", "2026-11-30 08:00:00Z"),
        *("2026-02-30T08:00:00Z", "2026-11-30T24:00:00Z", "2026-11-30T08:00:60Z", "2026-11-30T08:00Z"),
        *("2026-11-30T08:00:00+0100", "2026-11-30T08:00:00+24:00", "2026-11-30T08:00:00.Z"),
        *("0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59-00:01", "0000-01-01T00:00:00Z"),
        *("2026-11-30T08:00:00Z ", "２０２６-11-30T08:00:00Z", "2026-11-30T08:00:00Z\n"),
    ],
)
def test_a_text_that_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(InvalidField, match="RFC 3339"):
        from_message(condition("created_at", Operator.GT, text))


def test_a_memory_without_tags_has_none() -> None:
    untagged = replace(ROW, tags=frozenset())
    assert matcher(from_message(condition("tags", Operator.EXISTS, False)))(untagged, UPDATED_AT)


def test_filters_at_their_bounds_are_accepted() -> None:
    assert matcher(from_message(negated(MAX_DEPTH - 1)))(ROW, UPDATED_AT) is False
    assert matcher(from_message(all_of(*[FINE] * MAX_CONDITIONS)))(ROW, UPDATED_AT) is True
    many = condition("category", Operator.IN, ["FACT"] * MAX_LIST_VALUES)
    assert matcher(from_message(many))(ROW, UPDATED_AT) is True
