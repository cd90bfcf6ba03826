"""Values: what a memory is, on a server and on a device alike, and what makes one valid.

Times are whole microseconds since 1970 in UTC (``Micros``), years 1 to 9999. A missing value is
None or the empty string, as the field says. Nothing here reads a clock or draws a random number.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from enum import IntEnum
from typing import NewType, Protocol, TypeAlias

from scrubjay.errors import FieldViolation

Micros = NewType("Micros", int)
MemoryId = NewType("MemoryId", str)
"""A UUID in canonical text form."""
ClientId = NewType("ClientId", str)
"""A registered place of use. Owns its private memories; survives a reinstall."""

JsonValue: TypeAlias = "bool | int | float | str | Sequence[JsonValue] | Mapping[str, JsonValue] | None"

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
MIN_MICROS = Micros(-62_135_596_800_000_000)
MAX_MICROS = Micros(253_402_300_799_999_999)
DAY_MICROS = 24 * 3600 * 1_000_000

DEFAULT_SCOPE = "general"
DEFAULT_CATEGORY = "FACT"
SUBJECT_FIELDS = ("user_id", "agent_id", "run_id")
_FORBIDDEN_METADATA_KEYS = frozenset(SUBJECT_FIELDS)
_MAX_EXACT_INT = 2**53
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,9}))?"
    r"(?:[Zz]|([+-])([01][0-9]|2[0-3]):([0-5][0-9]))"
)
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class PrivacyLevel(IntEnum):
    """Who may see a memory; the numbers are the contract's."""

    LOCAL_ONLY = 1
    PRIVATE = 2
    SHARED = 3


@dataclass(frozen=True, slots=True)
class Source:
    """Where a memory came from, in its writer's words; ``client_id`` comes from the credential."""

    client_id: str = ""
    conversation_id: str = ""
    message_ids: tuple[str, ...] = ()
    role: str = ""
    trust_class: str = ""


@dataclass(frozen=True, slots=True)
class Subject:
    """Whom a stream is about: the user; for memories without a user the agent, else the run."""

    kind: str
    name: str

    @property
    def key(self) -> str:
        """``user:<user_id>``, ``agent:<agent_id>`` or ``run:<run_id>``: the stream's key."""
        return f"{self.kind}:{self.name}"


def subject_of(user_id: str, agent_id: str, run_id: str) -> Subject | None:
    """The subject of memories with these ids; None where all are empty. ``*`` is a name like any."""
    for kind, name in (("user", user_id), ("agent", agent_id), ("run", run_id)):
        if name:
            return Subject(kind, name)
    return None


@dataclass(frozen=True, slots=True)
class Memory:
    """One remembered thing. ``id``, the three subject ids, owner and ``created_at`` never change."""

    id: MemoryId
    content: str
    created_at: Micros
    user_id: str = ""
    agent_id: str = ""
    run_id: str = ""
    owner_client_id: ClientId = ClientId("")
    scope: str = DEFAULT_SCOPE
    category: str = DEFAULT_CATEGORY
    tags: frozenset[str] = frozenset()
    metadata: Mapping[str, JsonValue] = field(default_factory=dict)
    source: Source = Source()
    confidence: float = 1.0
    privacy_level: PrivacyLevel = PrivacyLevel.SHARED
    pinned: bool = False
    valid_from: Micros | None = None
    valid_to: Micros | None = None
    expires_at: Micros | None = None
    superseded_by: MemoryId | None = None

    @property
    def subject(self) -> Subject:
        """Whom it is about."""
        subject = subject_of(self.user_id, self.agent_id, self.run_id)
        if subject is None:
            raise ValueError(f"memory {self.id} has no user_id, agent_id or run_id")
        return subject


class Guarded(Protocol):
    """What decides who may see a memory, of the memory or of a row that holds it."""

    @property
    def privacy_level(self) -> PrivacyLevel: ...
    @property
    def owner_client_id(self) -> ClientId: ...
    @property
    def scope(self) -> str: ...


def permitted(memory: Guarded, client_id: ClientId) -> bool:
    """Whether privacy lets ``client_id`` see the memory: private ones are their owner's alone, and
    local ones never left their device."""
    if memory.privacy_level is PrivacyLevel.SHARED:
        return True
    return memory.privacy_level is PrivacyLevel.PRIVATE and memory.owner_client_id == client_id


@dataclass(frozen=True, slots=True)
class Viewer:
    """Who looks: a client, within ``scopes`` and what lies below them; empty: within all."""

    client_id: ClientId
    scopes: tuple[str, ...] = ()

    def sees(self, memory: Guarded) -> bool:
        """Whether the memory exists for this viewer, expired or not."""
        return permitted(memory, self.client_id) and self.may_enter(memory.scope)

    def may_enter(self, scope: str) -> bool:
        """Whether memories of this scope may exist for this viewer."""
        return not self.scopes or any(within(scope, mine) for mine in self.scopes)


def expired(memory: Memory, now: Micros) -> bool:
    """Whether the memory has stopped being returned at ``now``."""
    return memory.expires_at is not None and memory.expires_at <= now


def visible(memory: Memory, viewer: Viewer, now: Micros) -> bool:
    """Whether the viewer may be shown the memory at ``now``: it exists for it, and has not expired."""
    return not expired(memory, now) and viewer.sees(memory)


def within(scope: str, ancestor: str) -> bool:
    """Whether ``scope`` is ``ancestor`` or lies below it, segment by segment."""
    return scope == ancestor or scope.startswith(f"{ancestor}/")


def id_bytes(memory_id: str) -> bytes:
    """A UUID's 16 bytes."""
    return bytes.fromhex(memory_id.replace("-", ""))


def id_text(packed: bytes) -> str:
    """The inverse of ``id_bytes``; ValueError for other than 16 bytes."""
    if len(packed) != 16:
        raise ValueError(f"a UUID has 16 bytes, not {len(packed)}")
    text = packed.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def hashed_id(material: bytes) -> str:
    """The UUID, of version 8, that follows from some bytes."""
    digest = bytearray(hashlib.sha256(material).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x80
    digest[8] = digest[8] & 0x3F | 0x80
    return id_text(bytes(digest))


def local_violation(field_path: str, level: PrivacyLevel) -> FieldViolation | None:
    """What is wrong with a privacy level that reaches a server, if anything."""
    if level is not PrivacyLevel.LOCAL_ONLY:
        return None
    return FieldViolation(field_path, "LOCAL_ONLY never leaves its device; send PRIVATE or SHARED")


def new_memory_id(now_millis: int, randomness: bytes) -> MemoryId:
    """A UUIDv7 of ``now_millis`` and 10 random bytes."""
    bits = (now_millis & (1 << 48) - 1) << 80 | int.from_bytes(randomness[:10], "big")
    bits = bits & ~(0xF << 76) | 0x7 << 76
    bits = bits & ~(0x3 << 62) | 0x2 << 62
    return MemoryId(str(uuid.UUID(int=bits)))


def parse_time(text: str) -> Micros | None:
    """RFC 3339 text as Micros, finer parts cut off; None for other text and outside the years 1 to 9999."""
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    day, time, fraction, sign, hours, minutes = match.groups()
    try:
        local = datetime.fromisoformat(f"{day}T{time}+00:00")
    except ValueError:
        return None
    micros = (local - _EPOCH) // timedelta(microseconds=1) + int((fraction or "0").ljust(6, "0")[:6])
    if sign:
        offset = (int(hours) * 60 + int(minutes)) * 60_000_000
        micros += offset if sign == "-" else -offset
    return Micros(micros) if MIN_MICROS <= micros <= MAX_MICROS else None


def utc_day(at: Micros) -> date:
    """The UTC day of an instant of the years 1 to 9999."""
    return (_EPOCH + timedelta(microseconds=at)).date()


def midnight(day: date) -> Micros:
    """A UTC day's first instant."""
    return Micros((day - _EPOCH.date()).days * DAY_MICROS)


def normal_json(value: JsonValue) -> JsonValue:
    """The value as every side holds it, so that ``canonical_json`` gives the same bytes everywhere.

    A number is what a double holds of it, as an int where it is whole and at most 2**53. Lists and
    mappings become list and dict. The value has no ``json_violation``.
    """
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int | float):
        number = float(value)
        return int(number) if abs(number) <= _MAX_EXACT_INT and number.is_integer() else number
    if isinstance(value, Mapping):
        return {key: normal_json(member) for key, member in value.items()}
    return [normal_json(element) for element in value]


def normal_metadata(metadata: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """``normal_json`` of metadata; a null member counts as absent, as in a JSON merge patch."""
    return {key: normal_json(value) for key, value in metadata.items() if value is not None}


_ENCODER = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False)


def canonical_json(value: JsonValue) -> str:
    """JSON that is the same text for the same value: sorted keys, no spaces, no escapes."""
    return _ENCODER.encode(value)


# --- what makes a memory valid: the same rules before a device queues it and before a server stores it


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
