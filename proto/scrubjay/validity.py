"""What makes a memory valid: the same rules before a device queues it and before a server stores it."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias

from scrubjay.errors import FieldViolation
from scrubjay.memory import (
    DEFAULT_CATEGORY,
    MAX_MICROS,
    MIN_MICROS,
    SUBJECT_FIELDS,
    JsonValue,
    Memory,
    Micros,
    PrivacyLevel,
    canonical_json,
    normal_metadata,
    subject_of,
)

MAX_CONTENT_BYTES = 16 * 1024
"""A memory is a fact, not a document; larger texts are split by their writer."""
MAX_NAME_BYTES = 256
"""Ids, scopes and categories are index keys; PostgreSQL refuses keys past 2.7 KB."""
MAX_REQUEST_ID_BYTES = 128
"""A UUID has 36; each is kept for a day."""
MAX_TAGS = 32
MAX_TAG_BYTES = 64
MAX_METADATA_KEYS = 32
MAX_METADATA_KEY_BYTES = 128
MAX_METADATA_BYTES = 8 * 1024
MAX_JSON_DEPTH = 16
"""Objects and lists within each other; the contract's encoding fails near 30, Python's near 1 000."""
MAX_MESSAGE_IDS = 64
_FORBIDDEN_METADATA_KEYS = frozenset(SUBJECT_FIELDS)
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def local_violation(field_path: str, level: PrivacyLevel) -> FieldViolation | None:
    """What is wrong with a privacy level that reaches a server, if anything."""
    if level is not PrivacyLevel.LOCAL_ONLY:
        return None
    return FieldViolation(field_path, "LOCAL_ONLY never leaves its device; send PRIVATE or SHARED")


def is_memory_id(text: str) -> bool:
    """Whether ``text`` is a UUID in canonical (lower-case, hyphened) form."""
    return _UUID.fullmatch(text) is not None


def name_violation(field_path: str, name: str) -> FieldViolation | None:
    """What is wrong with an id, scope, category or other short name, if anything."""
    if not name or (name.isascii() and name.isprintable() and len(name) <= MAX_NAME_BYTES and name[0] != " "):
        return None  # nearly all, at a tenth of the price
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return FieldViolation(field_path, "holds a lone surrogate; send valid Unicode")
    if "\0" in name:
        return FieldViolation(field_path, "holds a NUL character; remove it")
    if size > MAX_NAME_BYTES:
        return FieldViolation(field_path, f"has {size} bytes; at most {MAX_NAME_BYTES} are allowed")
    if not name.strip():
        return FieldViolation(field_path, "is blank; leave it empty or give a name")
    return None


def request_id_violation(request_id: str) -> FieldViolation | None:
    """What is wrong with a request_id, if anything; an empty one asks for nothing."""
    size = len(request_id.encode(errors="replace"))
    if size > MAX_REQUEST_ID_BYTES:
        return FieldViolation("request_id", f"has {size} bytes; at most {MAX_REQUEST_ID_BYTES} are allowed")
    return name_violation("request_id", request_id)


def text_violation(field_path: str, text: str) -> FieldViolation | None:
    """What is wrong with a content or query text, if anything."""
    try:
        size = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError:
        return FieldViolation(field_path, "holds a lone surrogate; send valid Unicode")
    if not text.strip():
        return FieldViolation(field_path, "is blank; give a text")
    if "\0" in text:
        return FieldViolation(field_path, "holds a NUL character; remove it")
    if size > MAX_CONTENT_BYTES:
        return FieldViolation(field_path, f"has {size} bytes; at most {MAX_CONTENT_BYTES} are allowed")
    return None


_Rule: TypeAlias = "Callable[[Memory], Iterator[FieldViolation | None]]"


def violations(memory: Memory) -> list[FieldViolation]:
    """Every rule the memory breaks; empty for a valid one."""
    return [v for rule in _RULES for v in rule(memory) if v is not None]


def edit_violations(memory: Memory, fields: Iterable[str]) -> list[FieldViolation]:
    """The rules that a memory breaks since an edit of these registers; it broke none before."""
    kinds = {field.partition(".")[0] for field in fields}
    rules = dict.fromkeys(_RULE_OF[kind] for kind in sorted(kinds) if kind in _RULE_OF)
    return [v for rule in rules for v in rule(memory) if v is not None]


def _identity_violations(memory: Memory) -> Iterator[FieldViolation | None]:
    if not is_memory_id(memory.id):
        yield FieldViolation("id", f"{memory.id!r} is no UUID in canonical lower-case form; leave it empty")
    if subject_of(memory.user_id, memory.agent_id, memory.run_id) is None:
        yield FieldViolation("user_id", "one of user_id, agent_id and run_id is needed")
    for name in SUBJECT_FIELDS:
        yield name_violation(name, getattr(memory, name))


def _content_violations(memory: Memory) -> Iterator[FieldViolation | None]:
    yield text_violation("content", memory.content)


def _scope_violations(memory: Memory) -> Iterator[FieldViolation | None]:
    yield scope_violation("scope", memory.scope)


def _category_violations(memory: Memory) -> Iterator[FieldViolation | None]:
    yield name_violation("category", memory.category)
    if not memory.category:
        yield FieldViolation("category", f"is empty; give a name such as {DEFAULT_CATEGORY}")


def _confidence_violations(memory: Memory) -> Iterator[FieldViolation | None]:
    if not 0 <= memory.confidence <= 1:
        yield FieldViolation("confidence", f"is {memory.confidence}; give a number from 0 to 1")


def _successor_violations(memory: Memory) -> Iterator[FieldViolation | None]:
    if memory.superseded_by is None:
        return
    if not is_memory_id(memory.superseded_by):
        yield FieldViolation(
            "superseded_by", f"{memory.superseded_by!r} is no UUID in canonical lower-case form"
        )
    elif memory.superseded_by == memory.id:
        yield FieldViolation("superseded_by", "names the memory itself; name another one")


def scope_violation(field_path: str, scope: str) -> FieldViolation | None:
    """What is wrong with a scope, if anything."""
    if not scope or any(not segment.strip() for segment in scope.split("/")):
        return FieldViolation(field_path, f"{scope!r} has an empty segment; write it like 'work/alpha'")
    return name_violation(field_path, scope)


def _time_violations(memory: Memory) -> Iterator[FieldViolation | None]:
    for name in ("created_at", "valid_from", "valid_to", "expires_at"):
        time: Micros | None = getattr(memory, name)
        if time is not None and not MIN_MICROS <= time <= MAX_MICROS:
            yield FieldViolation(name, "lies outside the years 1 to 9999")
    if memory.valid_from is not None and memory.valid_to is not None and memory.valid_to <= memory.valid_from:
        yield FieldViolation("valid_to", "is not after valid_from")


def _tag_violations(memory: Memory) -> Iterator[FieldViolation | None]:
    tags = memory.tags
    if len(tags) > MAX_TAGS:
        yield FieldViolation("tags", f"has {len(tags)} tags; at most {MAX_TAGS} are allowed")
    for tag in sorted(tags):
        if not tag.strip():
            yield FieldViolation("tags", "holds a blank tag; remove it")
        elif (wrong := name_violation("tags", tag)) is not None:
            yield wrong
        elif len(tag.encode()) > MAX_TAG_BYTES:
            yield FieldViolation("tags", f"{tag!r} has more than {MAX_TAG_BYTES} bytes")


def _metadata_violations(memory: Memory) -> Iterator[FieldViolation | None]:
    metadata = memory.metadata
    if not metadata:
        return
    if len(metadata) > MAX_METADATA_KEYS:
        yield FieldViolation("metadata", f"has {len(metadata)} keys; at most {MAX_METADATA_KEYS} are allowed")
    wrong = [v for key, value in metadata.items() if (v := _member_violation(key, value)) is not None]
    yield from wrong
    if wrong:
        return
    size = len(canonical_json(normal_metadata(metadata)).encode())
    if size > MAX_METADATA_BYTES:
        yield FieldViolation(
            "metadata", f"has {size} bytes as JSON; at most {MAX_METADATA_BYTES} are allowed"
        )


def _member_violation(key: str, value: JsonValue) -> FieldViolation | None:
    path = f"metadata.{key}"
    if key in _FORBIDDEN_METADATA_KEYS:
        return FieldViolation(path, f"set the field {key} instead; metadata never names the subject")
    if not key.strip() or not _is_storable(key) or len(key.encode()) > MAX_METADATA_KEY_BYTES:
        return FieldViolation(
            path, f"its key is no text of 1 to {MAX_METADATA_KEY_BYTES} bytes without NUL and lone surrogates"
        )
    return json_violation(path, value)


def json_violation(field_path: str, value: JsonValue) -> FieldViolation | None:
    """What keeps the value from being JSON that both ends can hold, if anything."""
    fault = _json_fault(value, MAX_JSON_DEPTH)
    return None if fault is None else FieldViolation(field_path, fault)


def _json_fault(value: object, depth: int) -> str | None:
    """What is wrong with a value that may hold ``depth`` levels of objects and lists."""
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, str):
        return None if _is_storable(value) else "holds a NUL character or a lone surrogate; remove it"
    if isinstance(value, int | float):
        return None if abs(value) <= sys.float_info.max else "holds a number that no finite double can hold"
    if not isinstance(value, Mapping | list | tuple):
        return f"holds a {type(value).__name__}, which is no JSON"
    if depth == 0:
        return f"is nested deeper than {MAX_JSON_DEPTH}; flatten it"
    members = [*value, *value.values()] if isinstance(value, Mapping) else value
    if isinstance(value, Mapping) and not all(isinstance(key, str) for key in value):
        return "holds a key that is no text"
    faults = (_json_fault(member, depth - 1) for member in members)
    return next((fault for fault in faults if fault is not None), None)


def _is_storable(text: str) -> bool:
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False


def _source_violations(memory: Memory) -> Iterator[FieldViolation | None]:
    source = memory.source
    for name in ("conversation_id", "role", "trust_class"):
        yield name_violation(f"source.{name}", getattr(source, name))
    if len(source.message_ids) > MAX_MESSAGE_IDS:
        yield FieldViolation(
            "source.message_ids", f"has {len(source.message_ids)} ids; at most {MAX_MESSAGE_IDS} are allowed"
        )
    for message_id in source.message_ids:
        yield name_violation("source.message_ids", message_id)


_RULE_OF: Mapping[str, _Rule] = {
    "content": _content_violations,
    "scope": _scope_violations,
    "category": _category_violations,
    "confidence": _confidence_violations,
    "superseded_by": _successor_violations,
    "valid_from": _time_violations,
    "valid_to": _time_violations,
    "expires_at": _time_violations,
    "tags": _tag_violations,
    "metadata": _metadata_violations,
    "source": _source_violations,
}
"""By register; those of one key go by its field. The other registers can hold nothing wrong."""
_RULES = tuple(dict.fromkeys((_identity_violations, *_RULE_OF.values())))
