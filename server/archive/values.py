"""What the lines of an archive hold, judged: an archive may come from anywhere.

A ``Fault`` says what is wrong with a line. What passes is what this program could have stored itself.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, NoReturn, TypeVar

from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import Message

from scrubjay.errors import FieldViolation
from scrubjay.memory import (
    MAX_MICROS,
    MIN_MICROS,
    ClientId,
    JsonValue,
    MemoryId,
    Micros,
    PrivacyLevel,
    parse_time,
)
from scrubjay.merge import KEYED_FIELDS, is_register
from scrubjay.operation import MAX_OPERATION_BYTES
from scrubjay.stamp import CommitStamp, ReplicaId, Stamp, parse_time_text
from scrubjay.validity import is_memory_id, json_violation, name_violation

MAX_REGISTER_BYTES = 160
"""``metadata.`` with the longest key, and some."""
MAX_NOTE_BYTES = 4096
"""Of texts that this program writes itself, such as why an operation was done."""
_WHOLE = range(-(2**63), 2**63)

T = TypeVar("T", bound=Message)
E = TypeVar("E", bound=IntEnum)
Line = Mapping[str, Any]


class Fault(Exception):
    """What is wrong with a line."""


def fault(name: str, what: str) -> NoReturn:
    """Raise the fault of a field."""
    raise Fault(f"{name} {what}")


def read_json(line: bytes) -> Line:
    """A line as a JSON object, of texts and numbers that every database takes."""
    try:
        found = json.loads(line, parse_constant=_no_number, parse_int=_whole_number, parse_float=_float)
    except (ValueError, RecursionError):
        raise Fault("is no JSON") from None
    if not isinstance(found, dict):
        raise Fault("is no JSON object")
    if b"\\u" in line:
        _check_texts(found)
    return found


def _no_number(name: str) -> NoReturn:
    raise ValueError(name)


def _whole_number(text: str) -> int:
    number = int(text)
    if number not in _WHOLE:
        raise ValueError(text)
    return number


def _float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _check_texts(value: object) -> None:
    if isinstance(value, str):
        if "\0" in value or not _is_unicode(value):
            raise Fault("holds a NUL character or a lone surrogate")
    elif isinstance(value, dict):
        for key, member in value.items():
            _check_texts(key)
            _check_texts(member)
    elif isinstance(value, list):
        for member in value:
            _check_texts(member)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def message_of(line: Line, name: str, kind: type[T]) -> T:
    """A field that is a message of the contract."""
    try:
        return ParseDict(dict(mapping(line, name)), kind())
    except (ParseError, ValueError, TypeError, AttributeError, OverflowError) as error:
        raise Fault(f"{name} is no {kind.DESCRIPTOR.name}: {str(error)[:200]}") from None


def mapping(line: Line, name: str) -> Line:
    """A field that is an object."""
    value = line.get(name)
    return value if isinstance(value, dict) else fault(name, "is no object")


def listed(line: Line, name: str, most: int) -> list[Any]:
    """A field that is a list of at most so many; none where it is not there."""
    value = line.get(name, [])
    if not isinstance(value, list):
        fault(name, "is no list")
    if len(value) > most:
        fault(name, f"has {len(value)} members; at most {most} are allowed")
    return value


def item(value: object, name: str) -> Line:
    """One of a list of objects."""
    return value if isinstance(value, dict) else fault(name, "holds what is no object")


def text(line: Line, name: str, most_bytes: int = MAX_NOTE_BYTES) -> str:
    """A field that is a text; empty where it is not there."""
    value = line.get(name, "")
    if not isinstance(value, str):
        fault(name, "is no text")
    if len(value.encode()) > most_bytes:
        fault(name, f"has more than {most_bytes} bytes")
    return value


def named(line: Line, name: str) -> str:
    """A field that is a name, or empty."""
    value = text(line, name)
    check_fields(name_violation(name, value))
    return value


def client(line: Line, name: str) -> ClientId:
    """A field that names a client, or is empty."""
    return ClientId(named(line, name))


def uuid(line: Line, name: str) -> MemoryId:
    """A field that is a UUID."""
    value = text(line, name)
    return MemoryId(value) if is_memory_id(value) else fault(name, f"{value[:64]!r} is no UUID")


def replica(line: Line, name: str) -> ReplicaId:
    """A field that names a replica, in hexadecimal."""
    try:
        found = bytes.fromhex(text(line, name))
    except ValueError:
        found = b""
    return ReplicaId(found) if len(found) == 16 else fault(name, "is no replica's id")


def whole(line: Line, name: str) -> int:
    """A field that is a whole number, from 0."""
    value = line.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        fault(name, "is no whole number")
    return value


def member(value: object, name: str, kind: type[E]) -> E:
    """One of an enumeration, by its number."""
    if isinstance(value, bool) or not isinstance(value, int) or value not in {*kind}:
        fault(name, f"{str(value)[:64]!r} is none of {', '.join(str(int(one)) for one in kind)}")
    return kind(value)


def flag(line: Line, name: str) -> bool:
    """A field that is true or false."""
    value = line.get(name, False)
    return value if isinstance(value, bool) else fault(name, "is neither true nor false")


def time(line: Line, name: str) -> Micros:
    """A field that is a time."""
    value = line.get(name)
    found = parse_time(value) if isinstance(value, str) else None
    return fault(name, "is no time") if found is None else found


def time_or_none(line: Line, name: str) -> Micros | None:
    """A field that is a time, or not there."""
    return None if line.get(name) is None else time(line, name)


def commit_stamp(value: object, name: str, most: CommitStamp) -> CommitStamp:
    """A commit stamp of a stream that stands at ``most``."""
    try:
        found = parse_time_text(value) if isinstance(value, str) else 0
    except ValueError:
        found = 0
    if not found:
        fault(name, "is no commit stamp")
    if found > most:
        fault(name, f"{value} lies behind the end of its subject's stream, or in the future")
    return CommitStamp(found)


def stamp(value: object, name: str, most_time: int) -> Stamp:
    """The stamp of an edit that was made by ``most_time``."""
    try:
        found = Stamp.parse(value) if isinstance(value, str) else fault(name, "is no stamp")
    except ValueError as error:
        raise Fault(f"{name}: {error}"[:300]) from None
    return _not_ahead(found, name, most_time)


def packed_stamp(value: object, name: str, most_time: int) -> Stamp:
    """The same in hexadecimal."""
    try:
        found = Stamp.unpack(bytes.fromhex(value)) if isinstance(value, str) else fault(name, "is no stamp")
    except ValueError:
        fault(name, "is no stamp")
    return _not_ahead(found, name, most_time)


def _not_ahead(found: Stamp, name: str, most_time: int) -> Stamp:
    return found if found.time <= most_time else fault(name, f"{found} lies in the future")


def check_fields(*violations: FieldViolation | None) -> None:
    """Raise the fault of the first that is one."""
    for violation in violations:
        if violation is not None:
            raise Fault(f"{violation.field}: {violation.description}")


def register_name(name: object) -> str:
    """The name of a register."""
    if not isinstance(name, str) or len(name.encode()) > MAX_REGISTER_BYTES or not is_register(name):
        raise Fault(f"{str(name)[:64]!r} is no register")
    return name


def register_value(name: str, value: Any) -> JsonValue:
    """A value that the register could have had."""
    if value is None:
        return None
    if name.partition(".")[0] in KEYED_FIELDS:
        kind = "tags" if name.startswith("tags.") else "metadata"
        fits = value is True if kind == "tags" else json_violation(name, value) is None
    else:
        fits = _FITS[name](value)
    if not fits or len(json.dumps(value)) > 6 * MAX_OPERATION_BYTES:
        raise Fault(f"registers: {name} can't have had the value {str(value)[:64]!r}")
    checked: JsonValue = value
    return checked


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_time(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and MIN_MICROS <= value <= MAX_MICROS


def _is_level(value: Any) -> bool:
    return not isinstance(value, bool) and value in {int(level) for level in PrivacyLevel}


def _is_source(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    texts = ("client_id", "conversation_id", "role", "trust_class")
    ids = value.get("message_ids", [])
    return (
        value.keys() <= {*texts, "message_ids"}
        and all(isinstance(value.get(name, ""), str) for name in texts)
        and isinstance(ids, list)
        and all(isinstance(one, str) for one in ids)
    )


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_id(value: Any) -> bool:
    return isinstance(value, str) and is_memory_id(value)


_FITS: Mapping[str, Callable[[Any], bool]] = {
    "content": _is_text,
    "category": _is_text,
    "scope": _is_text,
    "confidence": _is_number,
    "valid_from": _is_time,
    "valid_to": _is_time,
    "expires_at": _is_time,
    "pinned": _is_flag,
    "source": _is_source,
    "privacy_level": _is_level,
    "superseded_by": _is_id,
}
