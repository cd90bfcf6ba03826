"""What a person types, as values of the contract. ValueError says what would be right."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from google.protobuf import timestamp_pb2

from scrubjay import v1
from scrubjay.memory import JsonValue, Micros
from scrubjay.wire import to_timestamp, to_value

TIME_FIELDS = ("created_at", "updated_at", "valid_from", "valid_to", "expires_at")
_JSON_FIELDS = ("confidence", "pinned")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_SYMBOLS = {
    "=": v1.OPERATOR_EQ,
    "==": v1.OPERATOR_EQ,
    "!=": v1.OPERATOR_NE,
    ">": v1.OPERATOR_GT,
    ">=": v1.OPERATOR_GTE,
    "<": v1.OPERATOR_LT,
    "<=": v1.OPERATOR_LTE,
}
_WORDS = {
    "in": v1.OPERATOR_IN,
    "nin": v1.OPERATOR_NIN,
    "contains": v1.OPERATOR_CONTAINS,
    "icontains": v1.OPERATOR_ICONTAINS,
    "exists": v1.OPERATOR_EXISTS,
}
_LISTS = (v1.OPERATOR_IN, v1.OPERATOR_NIN)
_CONDITION = re.compile(
    r"\s*(?P<field>[^\s=!<>]+)\s*"
    r"(?:(?P<symbol>[=!<>]=|[=<>])|(?<=\s)(?P<word>in|nin|contains|icontains|exists)(?!\S))"
    r"\s*(?P<value>.*?)\s*",
    re.DOTALL,
)


def parse_time(text: str) -> timestamp_pb2.Timestamp:
    """An ISO 8601 date or time; local time where no zone is given."""
    return to_timestamp(_micros(text))


def _micros(text: str) -> Micros:
    try:
        at = datetime.fromisoformat(text.strip()).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{text!r} is no time; write 2026-11-30 or 2026-11-30T08:00+08:00") from error
    return Micros((at - _EPOCH) // timedelta(microseconds=1))


def parse_metadata(pairs: Iterable[str]) -> dict[str, JsonValue]:
    """``key=value`` pairs as an object; a value that is JSON is taken as such, else as text."""
    found: dict[str, JsonValue] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise ValueError(f"{pair!r} is no pair; write key=value")
        found[key] = _json_or_text(value)
    return found


def parse_filter(conditions: Iterable[str]) -> v1.Filter | None:
    """Conditions such as ``category = TASK``, all of which must hold; None for none."""
    filters = [v1.Filter(condition=parse_condition(text)) for text in conditions]
    if len(filters) > 1:
        return v1.Filter(all_of=v1.FilterList(filters=filters))
    return filters[0] if filters else None


def parse_condition(text: str) -> v1.Condition:
    """``field op value``, where op is = != > >= < <= in nin contains icontains or exists.

    ``in`` and ``nin`` take a list with commas, or as JSON. ``exists`` is true where no value is given.
    """
    match = _CONDITION.fullmatch(text)
    if match is None:
        operators = " ".join([*_SYMBOLS, *_WORDS])
        raise ValueError(f"{text!r} is no condition; write 'field op value' with one of {operators}")
    symbol, word, value = match["symbol"], match["word"], match["value"]
    operator = _SYMBOLS[symbol] if symbol else _WORDS[word]
    if operator == v1.OPERATOR_EXISTS:
        value = value or "true"
    if not value:
        raise ValueError(f"{text!r} has no value; write 'field op value', with \"\" for an empty text")
    return v1.Condition(
        field=match["field"], operator=operator, value=to_value(_operand(match["field"], operator, value))
    )


def _operand(field: str, operator: v1.Operator.ValueType, text: str) -> JsonValue:
    if operator == v1.OPERATOR_EXISTS:
        if text not in ("true", "false"):
            raise ValueError(f"exists takes true or false, not {text!r}")
        return text == "true"
    if operator not in _LISTS:
        return _scalar(field, text)
    elements = _json_or_text(text)
    if isinstance(elements, list):
        return elements
    return [_scalar(field, element.strip()) for element in text.split(",")]


def _scalar(field: str, text: str) -> JsonValue:
    if field in TIME_FIELDS:
        return to_timestamp(_micros(text)).ToJsonString()
    if field in _JSON_FIELDS or field.startswith("metadata."):
        return _json_or_text(text)
    return _json_or_text(text) if re.fullmatch(r'".*"', text, re.DOTALL) else text


def _json_or_text(text: str) -> JsonValue:
    try:
        value: JsonValue = json.loads(text, parse_constant=_refuse_constant)
    except ValueError:
        return text
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")
