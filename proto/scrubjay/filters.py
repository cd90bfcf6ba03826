"""Filters: a boolean algebra over memories, one implementation for every caller.

===========================================  ========  ==============================================
field                                        kind      operators
===========================================  ========  ==============================================
id, user_id, agent_id, run_id, scope,        text      all
category, content, owner_client_id,
source.conversation_id, source.role,
source.trust_class, superseded_by
tags                                         texts     CONTAINS, ICONTAINS, EXISTS
confidence                                   number    EQ NE GT GTE LT LTE IN NIN EXISTS
pinned                                       bool      EQ NE EXISTS
privacy_level ("PRIVATE", "SHARED")          level     EQ NE IN NIN EXISTS
created_at, updated_at, valid_from,          time      EQ NE GT GTE LT LTE IN NIN EXISTS
valid_to, expires_at
metadata.<key>; a key may hold dots          json      all
===========================================  ========  ==============================================

A text that is not set equals the empty text, and no other; a field of another kind that is not set equals
nothing. Neither is greater, less, or contains anything. NE is the negation of EQ, and NIN that of IN, on
every memory, so both hold where the field is missing; the laws of De Morgan hold.

Metadata compares by JSON type: values of two types are never equal, greater or less, and a bool is no number.
CONTAINS finds a text in a text, and an element in a list. ICONTAINS does so whatever the case and width (see
``scrubjay.text.fold``). Texts are ordered by code point.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from operator import attrgetter, ge, gt, le, lt
from typing import Any, TypeAlias

from google.protobuf import struct_pb2

from scrubjay import v1
from scrubjay.errors import InvalidField
from scrubjay.memory import JsonValue, Memory, Micros, PrivacyLevel, parse_time
from scrubjay.text import fold
from scrubjay.validity import json_violation
from scrubjay.wire import from_value

MAX_DEPTH = 8
"""Nodes on the longest way from the root to a condition, both counted: deeper is written by no person."""
MAX_CONDITIONS = 64
"""Every condition costs time on every row."""
MAX_LIST_VALUES = 1000
"""Values of an IN or NIN: as many as a page has memories."""


class Operator(IntEnum):
    """How a condition compares; the numbers are the contract's."""

    EQ = 1
    NE = 2
    GT = 3
    GTE = 4
    LT = 5
    LTE = 6
    IN = 7
    NIN = 8
    CONTAINS = 9
    ICONTAINS = 10
    EXISTS = 11


@dataclass(frozen=True, slots=True)
class Condition:
    """One comparison. ``value`` is JSON; for a time ``Micros``, for IN and NIN a list of values."""

    field: str
    operator: Operator
    value: JsonValue


@dataclass(frozen=True, slots=True)
class AllOf:
    """True where every one is true."""

    filters: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """True where at least one is true."""

    filters: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Negation:
    """True where this one is false."""

    filter: Filter


Filter: TypeAlias = Condition | AllOf | AnyOf | Negation
Matcher: TypeAlias = Callable[[Memory, Micros], bool]
"""Whether a memory, and when it last changed, pass."""


# --- reading a message ---------------------------------------------------------------------------


class _Kind(Enum):
    """What a field holds; the value says what a condition may compare it with."""

    TEXT = "a text"
    TEXTS = "one text"
    NUMBER = "a finite number"
    BOOL = "true or false"
    LEVEL = "'PRIVATE' or 'SHARED'"
    TIME = "RFC 3339 text such as '2026-11-30T08:00:00Z', of the years 1 to 9999"
    JSON = "a JSON value other than null; a number or a text to order by, a text for ICONTAINS"


_KINDS = {
    **dict.fromkeys(("id", "user_id", "agent_id", "run_id", "scope", "category", "content"), _Kind.TEXT),
    **dict.fromkeys(("owner_client_id", "source.conversation_id"), _Kind.TEXT),
    **dict.fromkeys(("source.role", "source.trust_class", "superseded_by"), _Kind.TEXT),
    **dict.fromkeys(("created_at", "updated_at", "valid_from", "valid_to", "expires_at"), _Kind.TIME),
    "tags": _Kind.TEXTS,
    "confidence": _Kind.NUMBER,
    "pinned": _Kind.BOOL,
    "privacy_level": _Kind.LEVEL,
}
_METADATA = "metadata."
_ORDERINGS: dict[Operator, Callable[[Any, Any], bool]] = {
    Operator.GT: gt,
    Operator.GTE: ge,
    Operator.LT: lt,
    Operator.LTE: le,
}
_LISTS = (Operator.IN, Operator.NIN)
_COMPARABLE = frozenset(Operator) - {Operator.CONTAINS, Operator.ICONTAINS}
_OPERATORS: dict[_Kind, frozenset[Operator]] = {
    _Kind.TEXT: frozenset(Operator),
    _Kind.TEXTS: frozenset((Operator.CONTAINS, Operator.ICONTAINS, Operator.EXISTS)),
    _Kind.NUMBER: _COMPARABLE,
    _Kind.BOOL: frozenset((Operator.EQ, Operator.NE, Operator.EXISTS)),
    _Kind.LEVEL: _COMPARABLE - _ORDERINGS.keys(),
    _Kind.TIME: _COMPARABLE,
    _Kind.JSON: frozenset(Operator),
}


def from_message(message: v1.Filter, path: str = "filter") -> Filter:
    """What a caller sent as a filter.

    InvalidField names the first wrong position below ``path``, such as
    ``filter.all_of.filters[1].condition.field``.
    """
    return _Reader().node(message, path, 1)


class _Reader:
    """Reads one filter, counting its conditions."""

    def __init__(self) -> None:
        self._conditions = 0

    def node(self, message: v1.Filter, path: str, depth: int) -> Filter:
        if depth > MAX_DEPTH:
            raise InvalidField.of(path, f"lies deeper than {MAX_DEPTH}; write a flatter filter")
        match message.WhichOneof("node"):
            case "condition":
                return self._condition(message.condition, f"{path}.condition")
            case "all_of":
                return AllOf(self._list(message.all_of, f"{path}.all_of.filters", depth))
            case "any_of":
                return AnyOf(self._list(message.any_of, f"{path}.any_of.filters", depth))
            case "negation":
                return Negation(self.node(message.negation, f"{path}.negation", depth + 1))
        raise InvalidField.of(path, "is empty; set condition, all_of, any_of or negation")

    def _list(self, message: v1.FilterList, path: str, depth: int) -> tuple[Filter, ...]:
        if not message.filters:
            raise InvalidField.of(path, "is empty; give at least one filter")
        return tuple(self.node(part, f"{path}[{n}]", depth + 1) for n, part in enumerate(message.filters))

    def _condition(self, message: v1.Condition, path: str) -> Condition:
        self._conditions += 1
        if self._conditions > MAX_CONDITIONS:
            raise InvalidField.of(path, f"is one too many; at most {MAX_CONDITIONS} conditions are allowed")
        kind = _kind(message.field, f"{path}.field")
        operator = _operator(message, kind, f"{path}.operator")
        if message.value.WhichOneof("kind") is None:
            raise InvalidField.of(f"{path}.value", "is missing; say what to compare with")
        return Condition(message.field, operator, _operand(kind, operator, message.value, f"{path}.value"))


def _kind(field: str, path: str) -> _Kind:
    if field.startswith(_METADATA) and field != _METADATA:
        return _Kind.JSON
    if field not in _KINDS:
        known = ", ".join([*_KINDS, "metadata.<key>"])
        raise InvalidField.of(path, f"{field!r} is no field to filter by; these are: {known}")
    return _KINDS[field]


def _operator(message: v1.Condition, kind: _Kind, path: str) -> Operator:
    try:
        operator = Operator(message.operator)
    except ValueError:
        raise InvalidField.of(path, f"{message.operator} is no operator; set one") from None
    if operator not in _OPERATORS[kind]:
        fitting = ", ".join(fit.name for fit in Operator if fit in _OPERATORS[kind])
        raise InvalidField.of(path, f"{operator.name} does not fit {message.field}; use one of {fitting}")
    return operator


def _operand(kind: _Kind, operator: Operator, message: struct_pb2.Value, path: str) -> JsonValue:
    value = from_value(message, path)
    if operator is Operator.EXISTS:
        return _one_operand(_Kind.BOOL, operator, value, path)
    if operator not in _LISTS:
        return _one_operand(kind, operator, value, path)
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_LIST_VALUES:
        raise InvalidField.of(path, f"{operator.name} takes a list of 1 to {MAX_LIST_VALUES} values")
    return [_one_operand(kind, operator, one, f"{path}[{n}]") for n, one in enumerate(value)]


def _one_operand(kind: _Kind, operator: Operator, value: JsonValue, path: str) -> JsonValue:
    """The value to compare a field of this kind with; a time as Micros."""
    found: JsonValue = value
    match kind:
        case _Kind.TEXT | _Kind.TEXTS:
            fits = isinstance(value, str)
        case _Kind.NUMBER:
            fits = _is_number(value) and json_violation(path, value) is None
        case _Kind.BOOL:
            fits = isinstance(value, bool)
        case _Kind.LEVEL:
            fits = value in (PrivacyLevel.PRIVATE.name, PrivacyLevel.SHARED.name)
        case _Kind.TIME:
            found = parse_time(value) if isinstance(value, str) else None
            fits = found is not None
        case _Kind.JSON:
            fits = _fits_json(operator, value) and json_violation(path, value) is None
    if not fits:
        raise InvalidField.of(path, f"must be {kind.value}")
    return found


def _fits_json(operator: Operator, value: JsonValue) -> bool:
    if operator is Operator.ICONTAINS:
        return isinstance(value, str)
    if operator in _ORDERINGS:
        return isinstance(value, str) or _is_number(value)
    return value is not None


# --- matching ------------------------------------------------------------------------------------

_Test: TypeAlias = Callable[[Any], bool]
"""A condition on what a field holds."""
_NUMBERS = (int, float)


def matcher(filter: Filter) -> Matcher:  # noqa: A002 - the word of the contract
    """The filter compiled once into closures, to be called for every row."""
    match filter:
        case Condition():
            return _condition_matcher(filter)
        case AllOf(parts):
            return _first([matcher(part) for part in parts], False)
        case AnyOf(parts):
            return _first([matcher(part) for part in parts], True)
        case Negation(part):
            inner = matcher(part)
            return lambda memory, updated_at: not inner(memory, updated_at)


def _first(parts: Sequence[Matcher], answer: bool) -> Matcher:
    """``answer`` where one of the parts gives it, else the other one."""

    def matches(memory: Memory, updated_at: Micros) -> bool:
        for part in parts:
            if part(memory, updated_at) is answer:
                return answer
        return not answer

    return matches


def _condition_matcher(condition: Condition) -> Matcher:
    field = condition.field
    kind = _Kind.JSON if field.startswith(_METADATA) else _KINDS[field]
    test = _test(kind, condition.operator, condition.value)
    if field == "updated_at":
        return lambda _, updated_at: test(updated_at)
    if kind is _Kind.JSON:
        key = field.removeprefix(_METADATA)
        return lambda memory, _: test(memory.metadata.get(key))
    if field == "superseded_by":
        return lambda memory, _: test(memory.superseded_by or "")
    get = attrgetter("privacy_level.name" if kind is _Kind.LEVEL else field)
    return lambda memory, _: test(get(memory))


def _test(kind: _Kind, operator: Operator, value: Any) -> _Test:
    match operator:
        case Operator.EQ:
            return _equal(value)
        case Operator.IN:
            return _among(value)
        case Operator.NE | Operator.NIN:
            equal = _equal(value) if operator is Operator.NE else _among(value)
            return lambda found: not equal(found)
        case Operator.CONTAINS:
            return _contains(kind, value)
        case Operator.ICONTAINS:
            return _icontains(kind, fold(value))
        case Operator.EXISTS:
            return _exists(kind, value)
    return _ordered(kind, _ORDERINGS[operator], value)


def _equal(value: JsonValue) -> _Test:
    if isinstance(value, str):
        return lambda found: found == value
    identity = _identity(value)
    return lambda found: _identity(found) == identity


def _among(values: Sequence[JsonValue]) -> _Test:
    identities = frozenset(map(_identity, values))
    return lambda found: _identity(found) in identities


def _identity(value: JsonValue) -> Hashable:
    """Equal for values that are the same JSON: numbers by value, bools apart from numbers."""
    if isinstance(value, bool):
        return bool, value
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        return frozenset((key, _identity(member)) for key, member in value.items())
    return tuple(map(_identity, value))


def _ordered(kind: _Kind, compare: Callable[[Any, Any], bool], value: JsonValue) -> _Test:
    if kind is _Kind.TEXT:
        return lambda found: found != "" and compare(found, value)
    if isinstance(value, str):
        return lambda found: isinstance(found, str) and compare(found, value)
    return lambda found: _is_number(found) and compare(found, value)


def _is_number(value: object) -> bool:
    return isinstance(value, _NUMBERS) and not isinstance(value, bool)


def _contains(kind: _Kind, value: JsonValue) -> _Test:
    if kind is _Kind.TEXT:
        return lambda found: found != "" and value in found
    if kind is _Kind.TEXTS:
        return lambda found: value in found
    equal = _equal(value)

    def contains(found: JsonValue) -> bool:
        if isinstance(found, str):
            return isinstance(value, str) and value in found
        return isinstance(found, Sequence) and any(map(equal, found))

    return contains


def _icontains(kind: _Kind, needle: str) -> _Test:
    if kind is _Kind.TEXT:
        return lambda found: found != "" and needle in fold(found)

    def icontains(found: JsonValue | frozenset[str]) -> bool:
        if isinstance(found, str):
            return needle in fold(found)
        if not isinstance(found, Sequence | frozenset):
            return False
        return any(isinstance(element, str) and fold(element) == needle for element in found)

    return icontains


def _exists(kind: _Kind, expected: bool) -> _Test:
    if kind in (_Kind.TEXT, _Kind.TEXTS):
        return lambda found: bool(found) is expected
    return lambda found: (found is not None) is expected
