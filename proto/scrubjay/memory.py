"""Values: what a memory is, on a server and on a device alike.

Times are whole microseconds since 1970 in UTC (``Micros``), years 1 to 9999. A missing value is
None or the empty string, as the field says. Nothing here reads a clock or draws a random number.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from enum import IntEnum
from typing import NewType, Protocol, TypeAlias

Micros = NewType("Micros", int)
MemoryId = NewType("MemoryId", str)
"""A UUID in canonical text form."""
ClientId = NewType("ClientId", str)
"""A registered place of use. Owns its private memories; survives a reinstall."""

JsonValue: TypeAlias = "bool | int | float | str | Sequence[JsonValue] | Mapping[str, JsonValue] | None"

MIN_MICROS = Micros(-62_135_596_800_000_000)
MAX_MICROS = Micros(253_402_300_799_999_999)
DAY_MICROS = 24 * 3600 * 1_000_000

DEFAULT_SCOPE = "general"
DEFAULT_CATEGORY = "FACT"
SUBJECT_FIELDS = ("user_id", "agent_id", "run_id")
_MAX_EXACT_INT = 2**53
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,9}))?"
    r"(?:[Zz]|([+-])([01][0-9]|2[0-3]):([0-5][0-9]))"
)


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
